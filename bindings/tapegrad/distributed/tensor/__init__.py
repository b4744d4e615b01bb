"""Tensors that are distributed over processes: DTensor, its placements on a mesh, and modules with such parameters."""

from .._placements import Partial, Placement, Replicate, Shard
from ..device_mesh import DeviceMesh, init_device_mesh
from ._api import distribute_module, distribute_tensor, empty, full, ones, rand, randn, zeros
from ._dtensor import DTensor

__all__ = ["DTensor", "DeviceMesh", "Partial", "Placement", "Replicate", "Shard", "distribute_module", "distribute_tensor", "empty", "full",
           "init_device_mesh", "ones", "rand", "randn", "zeros"]
