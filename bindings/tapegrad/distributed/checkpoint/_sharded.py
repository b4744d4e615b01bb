"""Checkpoints of a job with several ranks: a folder with a file per rank and a manifest.

    .manifest.tape              which tensors there are, their shapes, and which rows of them lie in which file; plain values
    rank-0003.<save>.tape       what rank 3 wrote

Every rank writes its pieces of tensors that are cut by rows among the ranks (DTensors: parameters of fully_shard, their states) and its share of those that all ranks
have whole; rank 0 writes the manifest last. Each file appears complete or not at all, and the manifest names the files of one save, so that
an interrupted save leaves the one before. Loading needs neither as many ranks nor the same cut: each rank reads the rows that it wants.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import zlib
from typing import NamedTuple

from ... import Tensor, empty, no_grad, serialization
from ..._files.errors import FileError
from ..._files.lazy import LazyFile
from .. import distributed_c10d as dist
from .._placements import CUTS, Partial
from ..tensor import DTensor
from ..tensor._utils import compute_local_shape_and_global_offset

MANIFEST = ".manifest.tape"
_FORMAT = "tapegrad.distributed.checkpoint"


class Cut(NamedTuple):
    """A tensor of which this rank has some rows: its piece, the whole shape, and the first and the last row (exclusive) of the piece."""

    piece: Tensor
    full_shape: tuple
    rows: tuple[int, int]


def as_cut(value) -> Cut | None:
    """The Cut that a value is, or None."""
    if not isinstance(value, DTensor) or any(isinstance(p, Partial) for p in value.placements):
        return None
    if {p.dim for p in value.placements if isinstance(p, CUTS)} != {0}:
        return None
    shape, offset = compute_local_shape_and_global_offset(value.shape, value.device_mesh, value.placements)
    return Cut(value.to_local().detach(), tuple(value.shape), (offset[0], offset[0] + shape[0]))


def _whole(value):
    """A DTensor that lies otherwise than by rows: all of it (every rank asks for it). Other values as they are."""
    return value.detach().full_tensor() if isinstance(value, DTensor) else value


def _copy_whole(target, entry: dict, files: _Files, name: str) -> None:
    """The saved values into a tensor that this rank has all of, or its part of a DTensor."""
    whole = empty(tuple(target.shape), dtype=target.dtype) if isinstance(target, DTensor) else target.detach()
    rows = whole if whole.dim() else whole.reshape(1)
    _copy_rows(rows, 0, rows.shape[0], entry, files, name)
    if isinstance(target, DTensor):
        shape, offset = compute_local_shape_and_global_offset(target.shape, target.device_mesh, target.placements)
        for d, (n, first) in enumerate(zip(shape, offset, strict=True)):
            whole = whole.narrow(d, min(first, whole.shape[d] - n), n)
        target.to_local().detach().copy_(whole)


def flatten(state, prefix: str = "") -> dict:
    """name -> tensor, cut tensor or plain value; objects with state_dict() give theirs."""
    result = {}
    items = enumerate(state) if isinstance(state, (list, tuple)) else state.items()
    for key, value in items:
        name = f"{prefix}{key}"
        if hasattr(value, "state_dict") and not isinstance(value, dict):
            value = value.state_dict()
        if isinstance(value, (dict, list, tuple)) and value:
            result.update(flatten(value, name + "."))
        elif name in result:
            raise ValueError(f"checkpoint: two values are named {name!r}")
        else:
            result[name] = value
    return result


def _ranks(group) -> tuple[int, int]:
    if group is None and not dist.is_initialized():
        return 0, 1
    return dist.get_rank(group), dist.get_world_size(group)


def _everyone(value, group, size: int) -> list:
    if size == 1:
        return [value]
    values = [None] * size
    dist.all_gather_object(values, value, group=group)
    return values


def _together(action, group, size: int, what: str):
    """Runs an action on every rank; where it fails on one, all raise."""
    error = None
    try:
        result = action()
    except Exception as e:
        error, result = e, None
    outcomes = _everyone(None if error is None else f"{type(error).__name__}: {error}", group, size)
    if error is not None:
        raise error
    for rank, outcome in enumerate(outcomes):
        if outcome is not None:
            raise FileError(f"checkpoint: rank {rank} could not {what}: {outcome}")
    return result


def _path(checkpoint_id, storage) -> str:
    path = checkpoint_id if checkpoint_id is not None else getattr(storage, "path", None)
    if path is None:
        raise ValueError("checkpoint: expected checkpoint_id, or a storage reader or writer with a path")
    return os.fspath(path)


def snapshot(state) -> dict:
    """A flat state whose tensors are copies, for a save that goes on while the program trains."""
    copies = {}
    with no_grad():
        for name, value in flatten(state).items():
            value = value if as_cut(value) is not None else _whole(value)
            copies[name] = value.detach().clone() if isinstance(value, Tensor) else value
    return copies


def write(state, path: str, group=None) -> None:
    """Saves a state. Every rank of the group calls it; when it returns, the checkpoint is complete on the disk."""
    rank, size = _ranks(group)
    flat = flatten(state)
    token = _everyone(secrets.token_hex(4) if rank == 0 else None, group, size)[0]
    tensors: dict = {}
    pieces: dict = {}
    values: dict = {}
    for name, value in flat.items():
        part = as_cut(value)
        if part is not None:
            first, last = part.rows
            if last > first:
                tensors[name] = part.piece.detach()
                pieces[name] = (list(part.full_shape), str(part.piece.dtype).rpartition(".")[2], [[first, last]])
        elif isinstance(value, Tensor):
            value = _whole(value)
            # Every rank has it; one of them writes it, not always the same.
            if zlib.crc32(name.encode()) % size == rank:
                tensors[name] = value.detach()
                pieces[name] = (list(value.shape), str(value.dtype).rpartition(".")[2], None)
        else:
            values[name] = value
    file = f"rank-{rank:04d}.{token}.tape"

    def save_own():
        os.makedirs(path, exist_ok=True)
        with no_grad():
            serialization.save(tensors, os.path.join(path, file))

    try:
        _together(save_own, group, size, "write its file")
    except BaseException:  # what belongs to no checkpoint would lie on a disk that may be full
        with contextlib.suppress(OSError):
            os.remove(os.path.join(path, file))
        raise
    parts = _everyone((file, pieces), group, size)

    def save_manifest():
        if rank != 0:
            return
        entries: dict = {}
        known = set()
        for name_of_file, of_rank in parts:
            for name, (shape, dtype, rows) in of_rank.items():
                entry = entries.setdefault(name, {"shape": shape, "dtype": dtype, "pieces": []})
                piece = (name, *rows[0]) if rows else (name,)
                if piece not in known:  # ranks with copies of a cut model have the same rows
                    known.add(piece)
                    entry["pieces"].append({"file": name_of_file, "rows": rows[0] if rows else None})
        serialization.save({"format": _FORMAT, "version": 1, "ranks": size, "tensors": entries, "values": values}, os.path.join(path, MANIFEST))
        kept = {f for f, _ in parts}
        for old in os.listdir(path):
            if old.startswith("rank-") and old.endswith(".tape") and old not in kept:
                with contextlib.suppress(OSError):
                    os.remove(os.path.join(path, old))

    _together(save_manifest, group, size, "write the manifest")


def read_manifest(path: str) -> dict:
    """What a checkpoint holds. FileError where there is none."""
    place = os.path.join(path, MANIFEST)
    if not os.path.exists(place):
        raise FileError(f"checkpoint: {path!r} holds no complete checkpoint: there is no {MANIFEST}")
    manifest = serialization.load(place)
    if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT or manifest.get("version") != 1:
        raise FileError(f"checkpoint: {place!r} is not a manifest of this version")
    return manifest


class _Files:
    """Opens each file once."""

    def __init__(self, path: str):
        self._path, self._open = path, {}

    def __getitem__(self, name: str) -> LazyFile:
        if os.path.basename(name) != name:
            raise FileError(f"checkpoint: the manifest names a file outside of its folder: {name!r}")
        if name not in self._open:
            self._open[name] = LazyFile(os.path.join(self._path, name))
        return self._open[name]


def _copy_rows(target: Tensor, first: int, last: int, entry: dict, files: _Files, name: str) -> None:
    """Rows first to last of a saved tensor into target."""
    got = 0
    for piece in entry["pieces"]:
        saved = files[piece["file"]][name]
        if piece["rows"] is None:
            begin, end = 0, (entry["shape"] or [1])[0]
            saved = saved if saved.dim() else saved.reshape(1)
        else:
            begin, end = piece["rows"]
        a, b = max(first, begin), min(last, end)
        if a < b:
            target[a - first:b - first].copy_(saved[a - begin:b - begin])
            got += b - a
    if got != last - first:
        raise FileError(f"checkpoint: of {name!r} {got} of {last - first} rows are there: a file is missing or damaged")


def read(state, path: str, group=None, strict: bool = True) -> None:
    """Loads into a state, in place: its tensors are written to, its other values replaced. Every rank of the group calls it."""
    _, size = _ranks(group)
    _together(lambda: _read(state, path, strict), group, size, "read the checkpoint")


def _read(state, path: str, strict: bool) -> None:
    manifest = read_manifest(path)
    flat = flatten(state)
    saved, values = manifest["tensors"], manifest["values"]
    missing = [name for name in flat if name not in saved and name not in values]
    if missing and strict:
        raise RuntimeError(f"checkpoint: {path!r} lacks {len(missing)} of the state's entries: {', '.join(missing[:8])}")
    targets = {name: value for name, value in flat.items() if name in saved}
    for name, value in targets.items():
        part = as_cut(value)
        shape = part.full_shape if part is not None else tuple(value.shape) if isinstance(value, Tensor) else None
        if shape is None or tuple(saved[name]["shape"]) != shape:
            raise ValueError(f"checkpoint: {name!r} has shape {saved[name]['shape']} in {path!r} and "
                             f"{list(shape) if shape is not None else type(value).__name__} in the state")
    files = _Files(path)
    with no_grad():
        for name, value in targets.items():
            part = as_cut(value)
            if part is not None:
                first, last = part.rows
                _copy_rows(part.piece, first, last, saved[name], files, name)
            else:
                _copy_whole(value, saved[name], files, name)
    _put_values(state, values)


def _put_values(state, values: dict, prefix: str = "") -> None:
    for key in list(state) if isinstance(state, dict) else range(len(state)):
        name, value = f"{prefix}{key}", state[key]
        if hasattr(value, "load_state_dict") and not isinstance(value, dict):
            own = value.state_dict()
            _put_values(own, values, name + ".")
            value.load_state_dict(own)
        elif isinstance(value, (dict, list)) and value:
            _put_values(value, values, name + ".")
        elif name in values and not isinstance(state, tuple):
            state[key] = values[name]
