"""DTensor: a tensor distributed over the ranks of a mesh. The object holds this rank's part and describes the whole.

The tape runs over the parts: operators do their work on them (`_rules_*.py`), and a part's gradient lies as the part does (`_moves.py`).
"""

from __future__ import annotations

import contextlib
import copy
import threading

from ... import _C, Size, Tensor, no_grad
from ...nn import Parameter
from .. import device_mesh as _meshes
from .._placements import CUTS, Partial, Replicate, Shard, _StridedShard
from ._moves import gradient_placements, move, move_gradient, move_plainly
from ._spec import Spec, contiguous_stride, normalized

raw = _C.DisableTorchFunctionSubclass  # a scope in which operators take DTensors for the parts that they are
__all__ = ["DTensor", "DTensorParameter", "local_of", "raw", "wrap"]


def local_of(tensor: DTensor) -> Tensor:
    """This rank's part as a plain tensor, on the tape."""
    with raw():
        return tensor.as_subclass(Tensor)


def wrap(local: Tensor, spec: Spec) -> DTensor:
    """A part with what it is a part of."""
    result = local.as_subclass(DTensor)
    result._spec = spec
    return result


def _mesh_of(mesh):
    return mesh if mesh is not None else _meshes._mesh_resources.get_current_mesh()


class Switch(threading.local):
    """Off in each thread, and on inside of scope()."""

    on = False

    @contextlib.contextmanager
    def scope(self):
        before, self.on = self.on, True
        try:
            yield
        finally:
            self.on = before


class DTensor(Tensor):
    """A tensor whose parts the ranks of a mesh hold. Made by from_local, distribute_tensor, zeros and the like, and by operators."""

    _spec: Spec

    def __new__(cls, local_tensor, spec, *, requires_grad: bool = False):
        result = wrap(local_tensor.detach(), spec)
        return result.requires_grad_(True) if requires_grad else result

    def __init__(self, *args, **kwargs):
        pass

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        from ._dispatch import dispatch

        return dispatch(func, args, kwargs or {})

    def _as_parameter(self, requires_grad: bool) -> DTensorParameter:
        return _parameter(local_of(self).detach(), self._spec, requires_grad)

    def _as_gradient_of(self, root) -> Tensor:
        """The part that the tape takes as the gradient of another DTensor's part."""
        if not isinstance(root, DTensor):
            raise RuntimeError("backward: the gradient of a plain tensor must be a plain tensor: got a DTensor\nuse .to_local() or .full_tensor()")
        return move_plainly(local_of(self), self._spec, gradient_placements(root.placements))

    # An optimizer's state of a parameter is kept in parts; states that are saved have DTensors.
    def _shared_state(self, state):
        local = self._spec.local_shape()
        spec = self._spec.with_placements(gradient_placements(self.placements))

        def shown(value):
            fits = isinstance(value, Tensor) and not isinstance(value, DTensor) and local and tuple(value.shape) == local
            return wrap(value.detach(), spec) if fits else value

        return {key: shown(value) for key, value in state.items()} if isinstance(state, dict) else state

    def _own_state(self, value: Tensor, of_parts: bool = True) -> Tensor:
        if not isinstance(value, DTensor) and tuple(value.shape) == tuple(self.shape) != self._spec.local_shape():
            value = wrap(value.detach(), self._spec.with_placements([Replicate()] * self.device_mesh.ndim))
        if not isinstance(value, DTensor) or not of_parts:
            return value
        if value.shape != self.shape:
            return local_of(value)
        return value._as_gradient_of(self)

    # What it is.
    @property
    def device_mesh(self):
        """The mesh that it lies over."""
        return self._spec.mesh

    @property
    def placements(self) -> tuple:
        """How it lies, for each dimension of the mesh."""
        return self._spec.placements

    @property
    def _local_tensor(self) -> Tensor:
        return local_of(self)

    @property
    def shape(self) -> Size:
        """The shape of the whole."""
        return self._spec.shape

    @property
    def ndim(self) -> int:
        return self._spec.ndim

    def dim(self) -> int:
        """The number of dimensions."""
        return self._spec.ndim

    ndimension = dim

    def size(self, dim: int | None = None):
        """The shape of the whole, or its size along a dimension."""
        return self._spec.shape if dim is None else self._spec.shape[dim]

    def numel(self) -> int:
        """The number of elements of the whole."""
        return self._spec.shape.numel()

    nelement = numel

    def stride(self, dim: int | None = None):
        """The strides that the whole would have: without gaps, its dimensions in the order of the part's."""
        local = Tensor.stride(local_of(self))
        order = sorted(range(len(local)), key=lambda d: -local[d])
        dense = contiguous_stride([self._spec.shape[d] for d in order])
        strides = tuple(dense[order.index(d)] for d in range(len(local)))
        return strides if dim is None else strides[dim]

    def __len__(self) -> int:
        if not self._spec.ndim:
            raise TypeError("len() of a 0-d tensor")
        return self._spec.shape[0]

    @property
    def grad(self):
        """The gradient, which lies as the tensor does (a Partial's is whole on each rank)."""
        with raw():
            local = Tensor.grad.__get__(self)
        if local is None:
            return None
        placements = gradient_placements(self._spec.placements)
        return wrap(local, self._spec if placements is self._spec.placements else self._spec.with_placements(placements))

    @grad.setter
    def grad(self, value) -> None:
        if isinstance(value, DTensor):
            value = move_plainly(local_of(value), value._spec, gradient_placements(self.placements))
        elif value is not None:
            raise TypeError(f"DTensor.grad: expected a DTensor or None: got {type(value).__name__}")
        with raw():
            Tensor.grad.__set__(self, value)

    @grad.deleter
    def grad(self) -> None:
        self.grad = None

    @property
    def data(self) -> DTensor:
        """The same values without the tape."""
        return wrap(local_of(self).detach(), self._spec)

    @data.setter
    def data(self, value) -> None:
        if not isinstance(value, DTensor):
            raise TypeError(f"DTensor.data: expected a DTensor: got {type(value).__name__}")
        with raw():
            Tensor.data.__set__(self, local_of(value).detach())
        self._spec = value._spec

    def __repr__(self, *, tensor_contents=None) -> str:
        return f"DTensor(local_tensor={local_of(self)}, device_mesh={self.device_mesh}, placements={self.placements})"

    def __format__(self, spec) -> str:
        return format(self.item(), spec) if spec else repr(self)

    def __hash__(self) -> int:
        return id(self)

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            if not self.is_leaf:
                raise RuntimeError("deepcopy: only DTensors that the user made (leaves) can be copied\nuse tensor.detach().clone()")
            local, kind = local_of(self).detach().clone(), type(self)
            made = _parameter(local, self._spec, self.requires_grad) if issubclass(kind, Parameter) else DTensor(
                local, self._spec, requires_grad=self.requires_grad)
            memo[id(self)] = made
            if self.grad is not None:
                made.grad = copy.deepcopy(self.grad, memo)
        return memo[id(self)]

    def _plain_data(self) -> tuple:
        """What rebuild() makes it of again: this rank's part and plain values."""
        placements = [(type(p).__name__, *p._fields()) for p in self.placements]
        return (isinstance(self, Parameter), local_of(self).detach(), self.device_mesh.device_type, self.device_mesh.mesh.tolist(),
                self.device_mesh.mesh_dim_names, placements, tuple(self.shape), self.requires_grad)

    def __reduce_ex__(self, protocol):
        return rebuild, self._plain_data()

    # Between parts and wholes.
    @staticmethod
    def from_local(local_tensor, device_mesh=None, placements=None, *, run_check: bool = False, shape=None, stride=None,
                   grad_placements=None) -> DTensor:
        """A DTensor of the parts that the ranks have; gradients go back to them.

        Args:
            local_tensor: this rank's part.
            device_mesh: the mesh; the one whose `with` block this is in.
            placements: how the parts lie; whole on each rank.
            run_check: whether to compare shapes along the mesh (an exchange), and to take replicated parts from the first rank.
            shape: of the whole, where parts of a cut dimension are not all of one size; `stride` comes with it.
            grad_placements: how gradients are given back; default: as the parts lie, whole ones for Partial.

        Raises RuntimeError for a DTensor or a shape without a stride, ValueError for placements that do not fit the mesh or a shape
        that does not fit the part.
        """
        if isinstance(local_tensor, DTensor) or not isinstance(local_tensor, Tensor):
            raise RuntimeError(f"the local_tensor argument only accepts torch.Tensor but got {type(local_tensor)} value.")
        if (shape is None) != (stride is None):
            raise RuntimeError(f"Found shape:{shape}, stride:{stride}. Please pass both shape and stride at the same time.")
        mesh = _mesh_of(device_mesh)
        placements = normalized(placements, mesh, local_tensor.dim(), "DTensor.from_local")
        if shape is None:
            whole = list(local_tensor.shape)
            for i, p in enumerate(placements):
                if isinstance(p, CUTS):
                    whole[p.dim] *= mesh.size(i)
            shape = whole
        spec = Spec(mesh, placements, shape)
        if run_check and mesh.get_coordinate() is not None:
            local_tensor = _checked(local_tensor, spec)
        if mesh.get_coordinate() is not None and tuple(local_tensor.shape) != spec.local_shape():
            raise ValueError(f"DTensor.from_local: the part does not fit: a whole of shape {list(shape)} that lies as {placements} has here a "
                             f"part of shape {list(spec.local_shape())}: got {list(local_tensor.shape)}")
        if grad_placements is not None:
            wanted = normalized(grad_placements, mesh, len(spec.shape), "DTensor.from_local")
            local_tensor = move_gradient(local_tensor, spec, gradient_placements(placements), wanted)
        return wrap(local_tensor.view_as(local_tensor), spec)

    def to_local(self, *, grad_placements=None) -> Tensor:
        """This rank's part. Gradients that come back for it lie as it does, or as grad_placements says."""
        local = local_of(self)
        if grad_placements is None:
            return local
        given = normalized(grad_placements, self.device_mesh, self.ndim, "DTensor.to_local")
        return move_gradient(local, self._spec, given, gradient_placements(self.placements))

    def full_tensor(self, *, grad_placements=None) -> Tensor:
        """The whole tensor, on each rank; every rank of the mesh must call it."""
        whole = self.redistribute(placements=[Replicate()] * self.device_mesh.ndim)
        return whole.to_local(grad_placements=grad_placements)

    def redistribute(self, device_mesh=None, placements=None, *, async_op: bool = False, forward_dtype=None,
                     backward_dtype=None) -> DTensor:
        """The same tensor, lying as `placements`; gradients lie as before. Every rank of the mesh must call it.

        Raises RuntimeError without placements and where something becomes Partial, NotImplementedError for another mesh.
        """
        if device_mesh is not None and device_mesh != self.device_mesh:
            raise NotImplementedError(f"DTensor.redistribute: to another mesh is not supported: from {self.device_mesh} to {device_mesh}")
        if placements is None:
            raise RuntimeError("placements is needed for redistribute!")
        placements = normalized(placements, self.device_mesh, self.ndim, "DTensor.redistribute")
        for now, to in zip(self.placements, placements, strict=True):
            if isinstance(to, Partial) and now != to:
                raise RuntimeError(f"Can not redistribute from {now} to {to}, redistributing to Partial is for internal use only!")
        if backward_dtype is not None:
            raise NotImplementedError("DTensor.redistribute: backward_dtype is not supported\nuse forward_dtype")
        local = local_of(self) if forward_dtype is None else local_of(self).to(forward_dtype)
        return wrap(move(local, self._spec, placements), self._spec.with_placements(placements))


class DTensorParameter(DTensor, Parameter):
    """A DTensor that a module registers as one of its parameters."""

    def __new__(cls, data, requires_grad: bool = True):
        return data._as_parameter(requires_grad)

    def __repr__(self, *, tensor_contents=None) -> str:
        return "Parameter containing:\n" + DTensor.__repr__(self)


def _parameter(local, spec: Spec, requires_grad: bool) -> DTensorParameter:
    made = Tensor._make_subclass(DTensorParameter, local.detach(), requires_grad)
    made._spec = spec
    return made


def rebuild(is_parameter: bool, local, device_type: str, ranks: list, names, placements: list, shape, requires_grad: bool) -> DTensor:
    """A DTensor of its plain data. All ranks of the mesh must read theirs: the mesh is made anew.

    Raises ValueError where the part is not one of such a DTensor on this rank.
    """
    kinds = {kind.__name__: kind for kind in (Replicate, Shard, Partial, _StridedShard)}
    placements = normalized([kinds[name](*fields) for name, *fields in placements], mesh := _meshes.DeviceMesh(
        device_type, ranks, mesh_dim_names=names), len(shape), "DTensor")
    spec = Spec(mesh, placements, shape)
    if mesh.get_coordinate() is not None and tuple(local.shape) != spec.local_shape():
        raise ValueError(f"DTensor: this rank has a part of shape {list(spec.local_shape())} of {list(shape)} that lies as {placements} over "
                         f"{mesh}: got one of shape {list(local.shape)}\neach rank reads the file that it wrote; "
                         "distributed.checkpoint loads into other layouts")
    return _parameter(local, spec, requires_grad) if is_parameter else DTensor(local, spec, requires_grad=requires_grad)


def _checked(local, spec: Spec):
    """What from_local's run_check does."""
    from .. import distributed_c10d as c10d

    with no_grad():
        for i, p in enumerate(spec.placements):
            group = spec.mesh.get_group(i)
            shapes: list = [None] * group.size()
            c10d.all_gather_object(shapes, (tuple(local.shape), str(local.dtype)), group=group)
            if not isinstance(p, CUTS) and len(set(shapes)) > 1:
                raise ValueError(f"DTensor.from_local: parts that lie as {p!r} must have one shape and dtype: got {shapes} along dimension {i} "
                                 "of the mesh")
            if isinstance(p, Replicate) and group.size() > 1:
                if not local.is_contiguous():
                    local = local.contiguous()
                c10d.broadcast(local.detach(), group=group, group_src=0)
    return local
