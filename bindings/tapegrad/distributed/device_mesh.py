"""Meshes of processes: an array of the world's ranks with names for its dimensions, and a group along each dimension.

A mesh keeps the ranks of the mesh that it was cut from (its root) and, for each of its dimensions, the (size, stride) pairs of places in
that list: cutting, flattening and unflattening choose and join pairs. All processes of the world make the same meshes in the same order.
"""

from __future__ import annotations

import itertools
import math
import os
import threading

from . import distributed_c10d as _c10d

__all__ = ["DeviceMesh", "init_device_mesh"]


def _places(axes) -> list:
    """The places of all pairs of sizes and strides, the last one fastest."""
    pairs = [pair for axis in axes for pair in axis]
    return [sum(i * stride for i, (_, stride) in zip(index, pairs, strict=True)) for index in itertools.product(*(range(n) for n, _ in pairs))]


def _size(axis) -> int:
    return math.prod(n for n, _ in axis)


def _joined(axes) -> tuple:
    """Several dimensions as one, in as few pairs as can be."""
    pairs: list = []
    for n, stride in (pair for axis in axes for pair in axis if pair[0] > 1):
        if pairs and pairs[-1][1] == n * stride:
            pairs[-1] = (pairs[-1][0] * n, stride)
        else:
            pairs.append((n, stride))
    return tuple(pairs) or ((1, 1),)


def _row_major(shape) -> tuple:
    axes, step = [], 1
    for n in reversed(shape):
        axes.append(((n, step),))
        step *= n
    return tuple(reversed(axes))


class _Active(threading.local):
    """The meshes whose `with` blocks this thread is in."""

    def __init__(self):
        self.mesh_stack: list = []

    def get_current_mesh(self) -> DeviceMesh:
        """The innermost one."""
        if not self.mesh_stack:
            raise RuntimeError("No device mesh is currently active!")
        return self.mesh_stack[-1]


_mesh_resources = _Active()


class DeviceMesh:
    """An array of ranks with names for its dimensions."""

    def __init__(self, device_type: str, mesh, *, mesh_dim_names=None, backend_override=None, _init_backend=True):
        from .. import as_tensor, int32

        mesh = as_tensor(mesh).detach().to("cpu", int32).contiguous()
        if mesh_dim_names is not None and len(mesh_dim_names) != mesh.dim():
            raise RuntimeError(f"DeviceMesh: expected a name for each of {mesh.dim()} dimensions: got {tuple(mesh_dim_names)}")
        if not _c10d.is_initialized():
            _start_world(mesh.numel())
        world = _c10d.get_world_size()
        if mesh.numel() > world:
            raise RuntimeError(f"Mesh should not be bigger than default world size {world}, but found {mesh.numel()} ranks!")
        ranks = mesh.flatten().tolist()
        if len(set(ranks)) != len(ranks) or not set(ranks) <= set(range(world)):
            raise ValueError(f"DeviceMesh: expected different ranks below {world}: got {mesh.tolist()}")
        _choose_device(device_type)
        self._fill(device_type, tuple(ranks), _row_major(mesh.shape), mesh_dim_names, None)
        if _init_backend:
            overrides = backend_override or [(None, None)] * len(self._axes)
            self._groups = [self._make_group(axis, name, *override) for axis, name, override in
                            zip(self._axes, self._mesh_dim_names or [f"dim_{i}" for i in range(self.ndim)], overrides, strict=True)]

    def _fill(self, device_type, ranks: tuple, axes: tuple, names, root, groups=()) -> DeviceMesh:
        self.device_type = self._device_type = device_type
        self._ranks, self._axes, self._groups = ranks, axes, list(groups)
        self._mesh_dim_names = tuple(names) if names else None
        self._root = root if root is not None else self
        self._flatten_mapping: dict = {}
        return self

    def _derive(self, axes, names, groups) -> DeviceMesh:
        return object.__new__(DeviceMesh)._fill(self._device_type, self._ranks, tuple(axes), names, self._root, groups)

    # Places.
    def _my_place(self) -> int | None:
        rank = _c10d.get_rank()
        return self._ranks.index(rank) if rank in self._ranks else None

    def _coordinate(self, place: int) -> tuple:
        """Where a place is, along each dimension."""
        result = []
        for axis in self._axes:
            at = 0
            for n, stride in axis:
                at = at * n + place // stride % n
            result.append(at)
        return tuple(result)

    @staticmethod
    def _base(axes, place: int) -> int:
        """The first place of the part of the axes that a place is in."""
        return place - sum(place // stride % n * stride for axis in axes for n, stride in axis)

    def _ranks_of_mine(self) -> list:
        places = _places(self._axes)
        if len(places) == len(self._ranks):
            return [self._ranks[p] for p in places]
        mine = self._my_place()
        if mine is None:
            raise RuntimeError("In order to get the mesh Tensor of a DeviceMesh it needs to either have all its original dimensions "
                               "(e.g., no slicing) or it needs to contain the local rank")
        base = self._base(self._axes, mine)
        return [self._ranks[base + p] for p in places]

    def _make_group(self, axis, name: str, backend=None, pg_options=None):
        """The group along an axis that this process is in; all processes make those of the others along with it."""
        if _size(axis) == _c10d.get_world_size() and backend is None:
            return _c10d._get_default_group()
        bases = sorted({self._base((axis,), place) for place in range(len(self._ranks))})
        mine = None
        for base in bases:
            group = _c10d.new_group([self._ranks[base + p] for p in _places((axis,))], backend=backend, pg_options=pg_options,
                                    group_desc=f"mesh_{name}")
            if not _c10d._rank_not_in_group(group):
                mine = group
        return mine

    # What it is.
    @property
    def mesh(self):
        """The ranks, a tensor of int32: of a part of a mesh, those that this process is with."""
        from .. import int32, tensor

        return tensor(self._ranks_of_mine(), dtype=int32).reshape(self.shape)

    @property
    def mesh_dim_names(self) -> tuple | None:
        return self._mesh_dim_names

    @property
    def ndim(self) -> int:
        return len(self._axes)

    @property
    def shape(self) -> tuple:
        return tuple(map(_size, self._axes))

    def size(self, mesh_dim=None) -> int:
        """The number of processes, in all or along a dimension."""
        return math.prod(self.shape) if mesh_dim is None else self.shape[self._dim(mesh_dim)]

    def _dim(self, mesh_dim) -> int:
        if not isinstance(mesh_dim, str):
            return mesh_dim
        if mesh_dim not in (self._mesh_dim_names or ()):
            raise KeyError(f"Mesh dimension '{mesh_dim}' does not exist. Available mesh dimensions are: mesh_dim_names={self._mesh_dim_names}")
        return self._mesh_dim_names.index(mesh_dim)

    def get_group(self, mesh_dim=None):
        """The group along a dimension that this process is in."""
        if mesh_dim is None:
            if self.ndim > 1:
                raise RuntimeError(f"Found the DeviceMesh have {self.ndim} dimensions. Optional kwarg `mesh_dim` needs to be specified when "
                                   "device_mesh.ndim > 1. If you want to get the list of all the ProcessGroups in the DeviceMesh, please use "
                                   "`get_all_groups()` instead.")
            mesh_dim = 0
        if mesh_dim in self._root._flatten_mapping:
            return self._root._flatten_mapping[mesh_dim].get_group()
        if not self._groups:
            raise RuntimeError("DeviceMesh process groups not initialized!")
        return self._groups[self._dim(mesh_dim)]

    def get_all_groups(self) -> list:
        """The group along each dimension."""
        return [self.get_group(d) for d in range(self.ndim)]

    def get_rank(self) -> int:
        """This process's rank in the world."""
        return _c10d.get_rank()

    def get_local_rank(self, mesh_dim=None) -> int:
        """This process's rank along a dimension."""
        return _c10d.get_rank(self.get_group(mesh_dim))

    def get_coordinate(self) -> tuple | None:
        """This process's place along each dimension; None where it is not in the mesh."""
        place = self._my_place()
        return None if place is None else self._coordinate(place)

    def _is_current_rank_part_of_mesh(self) -> bool:
        return self._my_place() is not None

    def _get_root_mesh(self) -> DeviceMesh:
        return self._root

    # Others made of it.
    def __getitem__(self, names) -> DeviceMesh:
        """The mesh of some dimensions, by name: of the processes that differ from this one in these only."""
        if not self._mesh_dim_names:
            raise RuntimeError("Cannot slice a DeviceMesh without mesh_dim_names!")
        names = (names,) if isinstance(names, str) else tuple(names)
        if names == self._mesh_dim_names:
            return self
        flat = self._flatten_mapping if self._root is self else {}
        known = [*self._mesh_dim_names, *flat]
        if not all(name in known for name in names):
            raise KeyError(f"Invalid mesh_dim_names {names} specified. Valid mesh_dim_names are {known}.")
        axes = [self._axes[self._dim(n)] if n in self._mesh_dim_names else flat[n]._axes[0] for n in names]
        strides = [stride for axis in axes for n, stride in axis if n > 1]
        if len(set(strides)) != len(strides):
            raise RuntimeError(f"Slicing overlapping dim_names {names} is not allowed.")
        if strides != sorted(strides, reverse=True):
            raise KeyError(f"Invalid mesh_dim_names {names} specified. Mesh dim indices should be in ascending order.")
        return self._derive(axes, names, [self.get_group(name) for name in names] if self._groups else ())

    def _flatten(self, mesh_dim_name: str | None = None, backend_override=None) -> DeviceMesh:
        """All dimensions as one, with a group of its own, which the root mesh knows by its name from then on."""
        if not self._mesh_dim_names:
            raise RuntimeError("Cannot flatten a DeviceMesh without mesh_dim_names!")
        name = mesh_dim_name or "_".join(self._mesh_dim_names)
        if self.ndim == 1 and name in self._mesh_dim_names:
            return self
        if name in (self._root._mesh_dim_names or ()):
            raise ValueError(f"{name} already exists for submesh of the {self._root}. The mesh_dim_names of submesh and flattened mesh are "
                             f"{self._root._mesh_dim_names}. Please specify another valid mesh_dim_name.")
        axis = _joined(self._axes)
        known = self._root._flatten_mapping.get(name)
        if known is None:
            backend = (backend_override, None) if isinstance(backend_override, str) else backend_override or (None, None)
            known = self._root._flatten_mapping[name] = self._derive([axis], (name,), [self._make_group(axis, name, *backend)])
        elif known._axes != (axis,):
            raise ValueError(f"Flatten mesh with mesh_dim_name {name} has been created before, Please specify another valid mesh_dim_name.")
        return known

    def _unflatten(self, dim, mesh_sizes, mesh_dim_names, backend_override=None) -> DeviceMesh:
        """One dimension cut into several."""
        dim = self._dim(dim)
        if not 0 <= dim < self.ndim:
            raise ValueError(f"dim {dim} specified in `_unflatten` is out of range {self.ndim}")
        if len(mesh_sizes) != len(mesh_dim_names):
            raise RuntimeError("mesh_dim_names must have same length as mesh_sizes in _unflatten!")
        axis = self._axes[dim]
        if len(axis) != 1:
            raise ValueError(f"DeviceMesh._unflatten: the ranks of dimension {dim} do not lie evenly in {self._root}")
        if math.prod(mesh_sizes) != _size(axis):
            raise ValueError(f"The product of mesh_sizes={tuple(mesh_sizes)} is {math.prod(mesh_sizes)}, but the original dimension at dim={dim} "
                             f"has size {_size(axis)}. These must be equal for unflatten to work correctly.")
        (_, step), = axis
        axes = [tuple((n, stride * step) for n, stride in part) for part in _row_major(mesh_sizes)]
        groups = [self._make_group(part, name) for part, name in zip(axes, mesh_dim_names, strict=True)] if self._groups else []
        names = [*self._mesh_dim_names[:dim], *mesh_dim_names, *self._mesh_dim_names[dim + 1:]]
        return self._derive([*self._axes[:dim], *axes, *self._axes[dim + 1:]], names, [*self._groups[:dim], *groups, *self._groups[dim + 1:]])

    @staticmethod
    def _concatenate(device_mesh_list: list) -> DeviceMesh:
        """The dimensions of several parts of one mesh in one."""
        first = device_mesh_list[0]
        if any(m._root is not first._root for m in device_mesh_list):
            raise RuntimeError("Cannot concatenate DeviceMeshes derived from different device meshs")
        axes = [axis for m in device_mesh_list for axis in m._axes]
        strides = [stride for axis in axes for n, stride in axis if n > 1]
        if len(set(strides)) != len(strides):
            raise RuntimeError(f"Cannot concatenate overlapping meshes: {device_mesh_list}")
        return first._derive(axes, [n for m in device_mesh_list for n in m._mesh_dim_names], [g for m in device_mesh_list for g in m._groups])

    @staticmethod
    def from_group(group, device_type: str, mesh=None, *, mesh_dim_names=None) -> DeviceMesh:
        """A mesh over groups that are there: one, or one for each dimension of `mesh`."""
        if isinstance(group, _c10d.ProcessGroup):
            ranks = _c10d.get_process_group_ranks(group)
            given = mesh.tolist() if hasattr(mesh, "tolist") else mesh
            if given is not None and list(given) != ranks:
                raise ValueError(f"Invalid mesh {mesh} for ProcessGroup with ranks {ranks}")
            groups, mesh = [group], ranks
        else:
            groups = list(group)
            if not groups:
                raise ValueError("Expects at least one ProcessGroup to be passed")
            for name, value in (("mesh", mesh), ("mesh_dim_names", mesh_dim_names)):
                if value is None:
                    raise ValueError(f"Must pass {name} if passing multiple ProcessGroups")
        result = DeviceMesh(device_type, mesh, mesh_dim_names=mesh_dim_names, _init_backend=False)
        if result.ndim != len(groups):
            raise ValueError(f"Expects mesh with ndim equal to number of ProcessGroups but got mesh {result.mesh.tolist()} and {len(groups)} "
                             "ProcessGroups")
        result._groups = groups
        return result

    def __enter__(self) -> DeviceMesh:
        _mesh_resources.mesh_stack.append(self)
        return self

    def __exit__(self, *_) -> None:
        _mesh_resources.mesh_stack.pop()

    def _key(self) -> tuple:
        return self._ranks, self._axes, self._device_type, self._mesh_dim_names

    def __eq__(self, other) -> bool:
        return isinstance(other, DeviceMesh) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        shape = f"({', '.join(f'{n}={s}' for n, s in zip(self._mesh_dim_names, self.shape))})" if self._mesh_dim_names else f"{self.shape}"
        strides = tuple(axis[0][1] if len(axis) == 1 else tuple(s for _, s in axis) for axis in self._axes)
        return f"DeviceMesh({shape}, '{self.device_type}', stride={strides})"


def _start_world(size: int) -> None:
    """init_process_group(); a mesh of one needs no launcher."""
    if size == 1 and "RANK" not in os.environ:
        _c10d.init_process_group(rank=0, world_size=1, store=_c10d.HashStore())
    else:
        _c10d.init_process_group()


def _choose_device(device_type: str) -> None:
    """This process's GPU, where its launcher has numbered the processes of the machine and none was chosen."""
    if device_type == "cuda" and "LOCAL_RANK" in os.environ:
        from .. import cuda

        if cuda.is_available() and not cuda.is_initialized():
            cuda.set_device(int(os.environ["LOCAL_RANK"]) % cuda.device_count())


def init_device_mesh(device_type: str, mesh_shape, *, mesh_dim_names=None, backend_override=None) -> DeviceMesh:
    """A mesh of a shape over the ranks 0, 1 ..., row by row; starts the world if need be.

    backend_override: dimension's name or number -> a backend's name or (name, options).
    """
    from .. import arange

    mesh_shape = tuple(mesh_shape)
    if mesh_dim_names is not None:
        if len(set(mesh_dim_names)) != len(mesh_dim_names):
            raise RuntimeError(f"Each mesh_dim_name must be unique. Found repeated mesh_dim_name in mesh_dim_names {mesh_dim_names}")
        if len(mesh_shape) != len(mesh_dim_names):
            raise RuntimeError(f"mesh_shape and mesh_dim_names should have same length! Found len(mesh_dim_names): {len(mesh_dim_names)} and "
                               f"len(mesh_shape):{len(mesh_shape)}.")
    if device_type and not device_type.isalpha():
        raise RuntimeError(f"Device type with index is not supported but got {device_type}. "
                           "If you maintained a 'torch.device' object, it's recommended to pass in 'device.type'.")
    left, overrides = dict(backend_override or {}), []
    for i, name in enumerate(mesh_dim_names or [None] * len(mesh_shape)):
        if i in left and name is not None and name in left:
            raise RuntimeError(f"Found redundant dim index {i} and name {name} in backend_override")
        value = left.pop(i, None) or (left.pop(name, None) if name is not None else None) or (None, None)
        overrides.append((value, None) if isinstance(value, str) else value)
    if left:
        raise RuntimeError(f"Found invalid keys in backend_override: got {list(left)}, expected integers in range [0, {len(mesh_shape)}) or one "
                           f"of {mesh_dim_names or ()}")
    return DeviceMesh(device_type, arange(math.prod(mesh_shape)).reshape(mesh_shape), mesh_dim_names=mesh_dim_names, backend_override=overrides)
