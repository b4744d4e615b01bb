"""Meshes of processes: of this one, with as many dimensions of size 1 as wanted."""

from __future__ import annotations

import math

from . import distributed_c10d as _c10d

__all__ = ["DeviceMesh", "init_device_mesh"]


class DeviceMesh:
    """An array of ranks with names for its dimensions."""

    def __init__(self, device_type: str, mesh, *, mesh_dim_names=None, _init_backend=True):
        from .. import tensor

        self.device_type = device_type
        self.mesh = mesh if hasattr(mesh, "dim") else tensor(mesh)
        self.mesh_dim_names = tuple(mesh_dim_names) if mesh_dim_names is not None else None
        if self.mesh.numel() != 1:
            raise RuntimeError(_c10d.one_process_only("DeviceMesh", self.mesh.numel()))
        if self.mesh_dim_names is not None and len(self.mesh_dim_names) != self.mesh.dim():
            raise RuntimeError(f"DeviceMesh: expected a name for each of {self.mesh.dim()} dimensions: got {self.mesh_dim_names}")

    @property
    def ndim(self) -> int:
        return self.mesh.dim()

    @property
    def shape(self) -> tuple:
        return tuple(self.mesh.shape)

    def size(self, mesh_dim=None) -> int:
        """The number of processes, in all or along a dimension: 1."""
        return 1

    def _dim(self, mesh_dim) -> int:
        if isinstance(mesh_dim, str):
            if self.mesh_dim_names is None or mesh_dim not in self.mesh_dim_names:
                raise KeyError(f"Invalid mesh_dim_name {mesh_dim!r}: the mesh has {self.mesh_dim_names}")
            return self.mesh_dim_names.index(mesh_dim)
        return mesh_dim

    def get_group(self, mesh_dim=None):
        """The group along a dimension."""
        if mesh_dim is None and self.ndim > 1:
            raise RuntimeError(f"DeviceMesh.get_group: a mesh of {self.ndim} dimensions needs mesh_dim")
        self._dim(mesh_dim)
        return _c10d._get_default_group()

    def get_all_groups(self) -> list:
        """The group along each dimension."""
        return [self.get_group(d) for d in range(self.ndim)]

    def get_rank(self) -> int:
        """This process's rank in the world."""
        return _c10d.get_rank()

    def get_local_rank(self, mesh_dim=None) -> int:
        """This process's rank along a dimension."""
        self._dim(mesh_dim)
        return 0

    def get_coordinate(self) -> list:
        """This process's place."""
        return [0] * self.ndim

    def __getitem__(self, names) -> DeviceMesh:
        """The mesh of some dimensions, by name."""
        names = (names,) if isinstance(names, str) else tuple(names)
        for name in names:
            self._dim(name)
        return DeviceMesh(self.device_type, self.mesh.reshape([1] * len(names)), mesh_dim_names=names)

    def __eq__(self, other) -> bool:
        return isinstance(other, DeviceMesh) and (self.shape, self.mesh_dim_names) == (other.shape, other.mesh_dim_names)

    def __hash__(self) -> int:
        return hash((self.shape, self.mesh_dim_names))

    def __repr__(self) -> str:
        names = "" if self.mesh_dim_names is None else f", mesh_dim_names={self.mesh_dim_names}"
        return f"DeviceMesh('{self.device_type}', {self.mesh.tolist()}{names})"


def init_device_mesh(device_type: str, mesh_shape, *, mesh_dim_names=None, backend_override=None) -> DeviceMesh:
    """A mesh of a shape over all processes, of which there is one; starts the world if need be."""
    from .. import zeros

    if math.prod(mesh_shape) != 1:
        raise RuntimeError(_c10d.one_process_only("init_device_mesh", math.prod(mesh_shape)))
    if mesh_dim_names is not None and len(set(mesh_dim_names)) != len(mesh_dim_names):
        raise RuntimeError(f"Each mesh_dim_name must be unique: got {mesh_dim_names}")
    if not _c10d.is_initialized():
        _c10d.init_process_group(rank=0, world_size=1, store=_c10d.HashStore())
    return DeviceMesh(device_type, zeros(tuple(mesh_shape), dtype=_int64()), mesh_dim_names=mesh_dim_names)


def _int64():
    from .. import int64

    return int64
