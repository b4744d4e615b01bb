"""How parameters of fully sharded modules are cut: each rank has a piece, a DTensor, of which the whole is gathered and the gradient scattered."""

import os
import weakref
from collections import OrderedDict

from ... import Tensor, no_grad
from ...nn import Parameter
from ...utils.hooks import RemovableHandle
from .. import distributed_c10d as dist
from .._placements import Replicate, Shard, _StridedShard
from ..device_mesh import DeviceMesh, init_device_mesh
from ..tensor._dtensor import DTensor, _parameter, local_of, raw
from ..tensor._spec import Spec, bounds, settled

__all__ = ["Slot", "gradient_of", "hybrid_mesh", "mesh_of", "part_of", "set_gradient", "without_wrappers"]

_meshes: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # of groups, so that equal arguments give one mesh


def mesh_of(given, device_type: str = "cpu") -> DeviceMesh:
    """The mesh that a DeviceMesh, a group, (group of the shards, group of the copies) or None, the world, says.

    Its last dimension is the one along which parameters are cut; one before it has copies. Raises ValueError for more dimensions and for
    groups that are not the rows and columns of a grid.
    """
    if isinstance(given, DeviceMesh):
        if given.ndim > 2:
            raise ValueError(f"fully_shard: expected a mesh of one dimension, or of two for copies of shards: got {given.ndim}")
        return given
    shards, copies = given if isinstance(given, tuple) else (given if given is not None else dist._get_default_group(), None)
    known = _meshes.setdefault(shards, {})
    key = (device_type, None if copies is None else id(copies))
    if key not in known:
        if copies is None:
            known[key] = DeviceMesh.from_group(shards, device_type)
        else:
            rows: list = [None] * copies.size()
            dist.all_gather_object(rows, dist.get_process_group_ranks(shards), group=copies)
            if [row[shards.rank()] for row in rows] != dist.get_process_group_ranks(copies):
                raise ValueError(f"fully_shard: groups of shards {rows} and of copies {dist.get_process_group_ranks(copies)} are not the rows and "
                                 "columns of a grid")
            known[key] = DeviceMesh.from_group([copies, shards], device_type, rows, mesh_dim_names=("replicate", "shard"))
    return known[key]


def hybrid_mesh(device_type: str = "cpu") -> DeviceMesh:
    """Shards among the ranks of each machine, copies on all machines: LOCAL_WORLD_SIZE ranks each, or as host names tell.

    Raises ValueError where machines have different numbers of ranks, or ranks that do not follow one another.
    """
    import socket

    world = dist.get_world_size()
    names: list = [None] * world
    dist.all_gather_object(names, (socket.gethostname(), int(os.environ.get("LOCAL_WORLD_SIZE", "0"))))
    local = names[0][1] or sum(name == names[0] for name in names)
    if world % local or any(len(set(names[i:i + local])) > 1 for i in range(0, world, local)):
        raise ValueError(f"FullyShardedDataParallel: hybrid strategies need as many ranks on each machine, one after the other: got {names}\n"
                         "pass device_mesh or process_group=(shards, copies)")
    return init_device_mesh(device_type, (world // local, local), mesh_dim_names=("replicate", "shard"))


def part_of(mesh: DeviceMesh, size: int):
    """The group of the `size` ranks, one after the other along the mesh's last dimension, that this one is among.

    Every rank of the world must call it the first time.
    """
    known = mesh.__dict__.setdefault("_parts", {})
    if size not in known:
        (_, step), = mesh._axes[-1] if len(mesh._axes[-1]) == 1 else ((0, 0),)
        if not step:
            raise NotImplementedError(f"fully_shard: reshard_after_forward={size} over {mesh}, whose ranks do not lie evenly, is not supported")
        known[size] = mesh._make_group(((size, step),), f"reshard_{size}")
    return known[size]


def without_wrappers(name: str) -> str:
    """A parameter's name as it is in states: without the wrappers of FullyShardedDataParallel and of activation checkpointing."""
    return name.replace("_fsdp_wrapped_module.", "").replace("_checkpoint_wrapped_module.", "")


def gradient_of(t: Tensor) -> Tensor | None:
    """The gradient of a parameter, or of this rank's part of a DTensor: a plain tensor."""
    with raw():
        return Tensor.grad.__get__(t)


def set_gradient(t: Tensor, grad: Tensor | None) -> None:
    """Sets it."""
    with raw():
        Tensor.grad.__set__(t, grad)


class Slot:
    """One parameter of a unit: its piece, and all places in the unit's modules where it stands.

    A parameter that is a DTensor over other dimensions of the mesh's root (tensor parallel) is cut further: then the group gathers this
    rank's part of it, of the shape `shape`. Numbers are not cut, and lie whole on each rank.
    """

    def __init__(self, parameter: Parameter, places: list, mesh: DeviceMesh, placement: Shard | None = None):
        self.places = places
        self.group = mesh.get_group(mesh.ndim - 1)
        self.size, rank = self.group.size(), self.group.rank()
        inner = parameter._spec if isinstance(parameter, DTensor) else None
        self.inner: Spec | None = inner
        local = local_of(parameter).detach() if inner else parameter.detach()
        self.shape = tuple(local.shape)
        self.dim = None if not local.dim() else 0 if placement is None else _checked_dim(placement, self.shape)
        d = self.dim or 0
        self.rows = (self.shape[d], *self.shape[:d], *self.shape[d + 1:]) if self.shape else (1,)
        self.step = -(-self.rows[0] // self.size)
        self.row_numel = 1
        for n in self.rows[1:]:
            self.row_numel *= n
        self.numel = self.step * self.row_numel  # of a padded piece
        mine = Replicate() if self.dim is None else Shard(d) if inner is None else _StridedShard(d, 2)
        whole = mesh if inner is None else _together(mesh, inner.mesh)
        placements = settled([*[Replicate()] * (mesh.ndim - 1), mine, *(inner.placements if inner else ())], whole)
        self.spec = Spec(whole, placements, parameter.shape)
        self.bounds = [bounds(self.rows[0], self.size, r) if self.dim is not None else (0, 1) for r in range(self.size)]
        self.here = self.bounds[rank]
        self.original = weakref.ref(parameter)  # another unit must not have it
        with no_grad():
            self.piece = _parameter(self.cut(local), self.spec, parameter.requires_grad)
        for name, value in vars(parameter).items():
            if name != "_spec":
                setattr(self.piece, name, value)
        self._take_hooks()
        self.put(self.piece)

    def put(self, parameter) -> None:
        """A parameter into all places."""
        for module, name in self.places:
            module._parameters[name] = parameter

    def refresh(self) -> None:
        """Something like to_empty() or load_state_dict(assign=True) may have put another parameter in the piece's place.

        Raises RuntimeError for one that is not such a piece.
        """
        module, name = self.places[0]
        now = module._parameters[name]
        if now is not self.piece:
            if not isinstance(now, DTensor) or tuple(now.placements) != self.spec.placements or now.shape != self.spec.shape:
                raise RuntimeError(f"fully_shard: {name!r} of {type(module).__name__} was replaced: expected a DTensor parameter of shape "
                                   f"{list(self.spec.shape)} that lies as {self.spec.placements}: got {type(now).__name__} of shape "
                                   f"{list(now.shape) if now is not None else None}\nuse distribute_tensor, or load_state_dict without assign")
            self.piece = now if isinstance(now, Parameter) else now._as_parameter(now.requires_grad)
            self._take_hooks()
            self.put(self.piece)

    def _take_hooks(self) -> None:
        """The tape never comes to a piece: hooks that wait for its gradient are called here."""
        self.hooks: OrderedDict = OrderedDict()

        def register(hook):
            handle = RemovableHandle(self.hooks)
            self.hooks[handle.id] = hook
            return handle

        self.piece.register_post_accumulate_grad_hook = register

    def state(self) -> tuple:
        """Changes when the piece's values do."""
        return id(self.piece), self.piece.data_ptr(), self.piece._version

    @property
    def local(self) -> Tensor:
        """The piece, a plain tensor without the tape."""
        return local_of(self.piece).detach()

    # Between parts of the shape `shape`, pieces of them, and rows of memory that is sent.
    def to_rows(self, x: Tensor) -> Tensor:
        """With the dimension first that is cut."""
        return x.reshape(1) if self.dim is None else x.movedim(self.dim, 0)

    def cut(self, whole: Tensor) -> Tensor:
        """This rank's piece, a copy."""
        if self.dim is None:
            return whole.clone()
        first, last = self.here
        return whole.narrow(self.dim, first, last - first).clone().contiguous()

    def pack(self, memory: Tensor, at: int) -> None:
        """The piece into a vector."""
        rows = self.to_rows(self.local)
        memory[at:at + rows.numel()] = rows.reshape(-1)

    def unpack(self, memory: Tensor, at: int, alone: bool) -> Tensor:
        """The whole from what all ranks have packed, a row each. alone: no other parameter lies in that memory."""
        whole = memory[:, at:at + self.numel].reshape(self.size * self.step, *self.rows[1:])[:self.rows[0]]
        if self.dim:
            return whole.movedim(0, self.dim).contiguous()
        # A copy of its own, so that one parameter's memory is not another's and all can be freed one by one.
        shared = self.size == 1 or (not alone and whole.data_ptr() == memory.data_ptr())
        return (whole.clone() if shared else whole).reshape(self.shape)

    def scatter(self, grad: Tensor, memory: Tensor, at: int) -> None:
        """A whole gradient into what is sent to all ranks, a row each."""
        rows = self.to_rows(grad)
        for r, (first, last) in enumerate(self.bounds):
            if last > first:
                memory[r, at:at + (last - first) * self.row_numel] = rows[first:last].reshape(-1)

    def take(self, memory: Tensor, at: int) -> None:
        """The piece's gradient, added to what it has."""
        n = self.here[1] - self.here[0]
        piece = local_of(self.piece)
        grad = memory[at:at + n * self.row_numel].reshape(n, *self.rows[1:]).to(piece.dtype)
        grad = grad.movedim(0, self.dim).contiguous() if self.dim else grad.reshape(piece.shape)
        old = gradient_of(self.piece)
        set_gradient(self.piece, grad.clone() if old is None else old + grad)
        for hook in list(self.hooks.values()):
            hook(self.piece)

    def gather_alone(self) -> Tensor:
        """The whole of this parameter; every rank of the group must call it."""
        from ..tensor._moves import _gather

        return self.local.clone() if self.dim is None or self.size == 1 else _gather(self.local, self.group, self.dim, self.shape[self.dim])

    def leaf(self, value: Tensor) -> Parameter:
        """A whole value as the parameter that stands in the modules."""
        wanted = self.piece.requires_grad
        return Parameter(value, wanted) if self.inner is None else _parameter(value, self.inner, wanted)


def _checked_dim(placement, shape: tuple) -> int:
    if type(placement) is not Shard:
        raise NotImplementedError(f"fully_shard: shard_placement_fn must give a Shard or None: got {placement!r}")
    if not -len(shape) <= placement.dim < len(shape):
        raise IndexError(f"fully_shard: {placement!r} of a parameter of shape {list(shape)}")
    return placement.dim % len(shape)


def _together(mesh: DeviceMesh, other: DeviceMesh) -> DeviceMesh:
    if mesh._get_root_mesh() is not other._get_root_mesh():
        raise ValueError(f"fully_shard: a DTensor parameter over {other} needs a mesh that was cut from the same mesh: got {mesh}")
    known = mesh.__dict__.setdefault("_beside", {})
    if other not in known:
        known[other] = DeviceMesh._concatenate([mesh, other])
    return known[other]
