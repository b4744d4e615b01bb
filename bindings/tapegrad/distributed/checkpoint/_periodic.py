"""Checkpoints of a job with several ranks in a folder: periodic, the last ones, resumed after whatever happened.

    step-000000100/     a checkpoint of distributed.checkpoint.save (_sharded.py), and beside its files
        own-0003.tape   what rank 3 has for itself: its generators, its loader, the values of its step
"""

import contextlib
import os
import re
import shutil
import time

from ... import serialization
from ..._warn import warn
from ...checkpoint import state as of_one
from ...checkpoint.folder import check_options, numbered
from .. import distributed_c10d as dist
from . import _sharded
from .state_dict import get_state_dict, set_state_dict

_NAME = re.compile(r"step-(\d{9,})")
_LEFT = re.compile(r"\.step-\d{9,}\.gone")


class Checkpoints:
    """Saves a job every `every_steps` steps or `every_seconds` seconds, whichever comes first. Every rank makes one and calls it alike.

        run = checkpoint.Checkpoints("runs/a", model=model, optimizers=optimizer, every_steps=100, keep=3, loader=loader)
        values = run.resume() or {"epoch": 0}
        for epoch in range(values["epoch"], 10):
            for x, y in loader:
                ...
                run.step(epoch=epoch)

    model and optimizers: plain, replicated or sharded; they are loaded by any number of ranks. The other parts, whatever has a state
    (loaders, schedulers, generators), are each rank's own, as are its default generators: they go on where they were when the number of
    ranks is the same, else they begin anew. keep: how many of the last checkpoints stay.

    Ends with the job: after a failure of any rank, the launcher starts all again and resume() goes on from the newest checkpoint that is
    whole on all of them.
    """

    def __init__(self, folder, *, model, optimizers=(), every_steps: int | None = None, every_seconds: float | None = None, keep: int = 3,
                 generators: bool = True, process_group=None, **parts) -> None:
        check_options(every_steps, every_seconds, keep, parts)
        self.folder = os.fspath(folder)
        self.model, self.optimizers = model, optimizers
        self.every_steps, self.every_seconds, self.keep = every_steps, every_seconds, keep
        self.generators, self.group, self.parts = generators, process_group, parts
        self.steps = 0
        self.saved_step: int | None = None  # of the last checkpoint that was written or loaded
        self.saved_at = time.monotonic()
        os.makedirs(self.folder, exist_ok=True)

    def folders(self) -> list[str]:
        """The checkpoints, oldest first; the newest may be incomplete."""
        return numbered(self.folder, _NAME)

    def step(self, **values) -> str | None:
        """Counts a step and saves when it is time to; then the path is returned. values: what this rank's `resume` shall give back."""
        self.steps += 1
        due = self.every_steps is not None and self.steps % self.every_steps == 0
        if not due and self.every_seconds is not None:  # rank 0's clock decides for all
            due = self._of_rank_0(lambda: time.monotonic() - self.saved_at >= self.every_seconds)
        return self.save(**values) if due else None

    def save(self, **values) -> str:
        """Saves now; returns the path. Every rank must call it. Raises FileError on all ranks where one cannot write."""
        taken = sorted(set(values) & set(self.parts))
        if taken:
            raise ValueError(f"Checkpoints: these names belong to parts: {', '.join(taken)}")
        rank, size = _sharded._ranks(self.group)
        path = os.path.join(self.folder, f"step-{self.steps:09}")
        own = of_one.collect({**self.parts, **values}, self.generators, False)

        def write_own():
            os.makedirs(path, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):  # of an attempt at this step that was interrupted, or of another number of ranks
                os.unlink(os.path.join(path, _sharded.MANIFEST))
            serialization.save(own, self._own_file(path, rank), format="tapegrad")

        try:
            _sharded._together(write_own, self.group, size, "write its state")
            model, optimizers = get_state_dict(self.model, self.optimizers)
            _sharded.write({"model": model, "optimizers": optimizers, "steps": self.steps}, path, self.group)  # its manifest makes it complete
        except (OSError, serialization.FileError):  # a full disk. Where another rank has died it may have written the manifest before
            with contextlib.suppress(OSError):  # the last rank removes the folder, too
                if not os.path.exists(os.path.join(path, _sharded.MANIFEST)):
                    os.unlink(self._own_file(path, rank))
                    os.rmdir(path)
            raise
        if rank == 0:
            folders = self.folders()
            complete = [i for i, f in enumerate(folders) if os.path.exists(os.path.join(f, _sharded.MANIFEST))]
            for old in folders[:complete[-self.keep]] if len(complete) >= self.keep else []:
                self._remove(old)
        self.saved_step, self.saved_at = self.steps, time.monotonic()
        return path

    def resume(self, strict: bool = True) -> dict | None:
        """Restores model, optimizers, parts, generators and the count of steps from the newest checkpoint that all ranks can read, and
        returns this rank's values; None, and nothing is changed, where there is none. Every rank must call it. A damaged or incomplete
        checkpoint is skipped with a warning. Raises RuntimeError where there are some and none can be read."""
        rank, size = _sharded._ranks(self.group)
        if rank == 0:
            for name in os.listdir(self.folder):
                if _LEFT.fullmatch(name):
                    shutil.rmtree(os.path.join(self.folder, name), ignore_errors=True)
        paths = self._of_rank_0(self.folders)
        complete = self._of_rank_0(lambda: sum(os.path.exists(os.path.join(path, _sharded.MANIFEST)) for path in paths))
        for path in reversed(paths):
            try:
                data = _sharded._together(lambda path=path: self._read_own(path, rank, size), self.group, size, "read its state")
                model, optimizers = get_state_dict(self.model, self.optimizers)
                state = {"model": model, "optimizers": optimizers, "steps": 0}
                _sharded.read(state, path, self.group)
            except (OSError, serialization.FileError) as error:
                if rank == 0:
                    warn(f"checkpoint: {path} cannot be read, and the one before it is taken: {error}")
                continue
            set_state_dict(self.model, self.optimizers, model_state_dict=state["model"], optim_state_dict=state["optimizers"])
            self.steps = self.saved_step = state["steps"]
            self.saved_at = time.monotonic()
            if data is None:
                if rank == 0:
                    warn(f"checkpoint: {path} was written by another number of ranks: their own states begin anew")
                return {}
            return of_one.restore(data, self.parts, strict, path)
        if complete:  # a job that was killed while it first saved has none
            raise RuntimeError(f"checkpoint: none of the {complete} checkpoints in {self.folder} can be read")
        return None

    def _of_rank_0(self, ask):
        rank, size = _sharded._ranks(self.group)
        if size == 1:
            return ask()
        box = [ask() if rank == 0 else None]
        dist.broadcast_object_list(box, group=self.group, group_src=0)
        return box[0]

    @staticmethod
    def _own_file(path: str, rank: int) -> str:
        return os.path.join(path, f"own-{rank:04}.tape")

    def _read_own(self, path: str, rank: int, size: int):
        """What this rank wrote, or None where there were more or fewer of them."""
        if _sharded.read_manifest(path)["ranks"] != size:
            return None
        return serialization.load(self._own_file(path, rank))

    @staticmethod
    def _remove(path: str) -> None:
        """First under another name, so that no half of it is taken for a checkpoint."""
        gone = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.gone")
        with contextlib.suppress(OSError):
            os.rename(path, gone)
            shutil.rmtree(gone)
