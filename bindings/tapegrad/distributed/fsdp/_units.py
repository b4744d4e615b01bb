"""Units of a fully sharded model (ZeRO, stage 3; Rajbhandari et al. 2020, arXiv:1910.02054): modules whose parameters are gathered
together before they are used and freed after.

Each parameter is cut along its first dimension like torch.chunk, a piece per rank; the piece is a ShardedParameter in the module,
which the optimizer updates. Around a forward pass the whole parameters of the unit stand in its place:

    before forward   the pieces are gathered (the gathering of the next unit begins, too)
    after forward    the pieces come back and the whole values are freed; what the tape saved of them is a note of which parameter it was
    in backward      the first such note that is read gathers the unit again (and begins with the unit that comes next in backward)
    its last gradient  the sum of the gradients is scattered to the pieces' .grad, and the whole values are freed

One backward at a time. All ranks must run the units in the same order.
"""

from __future__ import annotations

import contextlib
import math

from ... import Tensor, empty, float32, float64, no_grad, promote_types, tensor, zeros
from ... import autograd as _autograd
from ...linalg import vector_norm
from ...nn import Module, Parameter
from .. import distributed_c10d as dist
from .._placements import Shard

__all__ = ["ShardedParameter", "Unit", "sharded_norm", "units_of"]


class ShardedParameter(Parameter):
    """This rank's piece of a parameter, cut along its first dimension."""

    full_shape: tuple
    process_group: object

    @classmethod
    def of(cls, piece: Tensor, requires_grad: bool, full_shape: tuple, group) -> ShardedParameter:
        """A piece with what it is a piece of."""
        made = cls(piece, requires_grad)
        made.full_shape, made.process_group = full_shape, group
        return made

    @property
    def _is_part(self) -> bool:
        """Whether it is less than the whole, which matters to optimizers that do not treat each element alone."""
        return self.process_group.size() > 1

    @property
    def placements(self) -> tuple:
        """How it lies: cut along the first dimension."""
        return (Shard(0),)

    def to_local(self) -> Tensor:
        """The piece, as a tensor of its own on the same memory."""
        return self.data

    def full_tensor(self) -> Tensor:
        """The whole parameter, gathered from all ranks; every rank must call it."""
        return gather_whole(self.data, self.full_shape, self.process_group)


def piece_rows(rows: int, rank: int, size: int) -> tuple[int, int]:
    """First and last row (exclusive) of a rank's piece, as torch.chunk cuts them."""
    step = -(-rows // size)
    return min(rank * step, rows), min((rank + 1) * step, rows)


def _shape(full_shape: tuple) -> tuple:
    return full_shape if full_shape else (1,)  # numbers are cut as vectors of one row


def cut(whole: Tensor, group) -> Tensor:
    """This rank's piece, a copy."""
    rows = whole if whole.dim() else whole.reshape(1)
    first, last = piece_rows(rows.shape[0], group.rank(), group.size())
    return rows[first:last].detach().clone()


def gather_whole(piece: Tensor, full_shape: tuple, group) -> Tensor:
    """The whole tensor of which each rank has a piece."""
    if group.size() == 1:
        return piece.detach().clone().reshape(full_shape)
    shape = _shape(full_shape)
    step = -(-shape[0] // group.size())
    with no_grad():
        mine = _padded(piece, step)
        whole = piece.new_empty((step * group.size(), *shape[1:]))
        dist.all_gather_into_tensor(whole, mine, group=group)
        return whole[:shape[0]].clone().reshape(full_shape)


def _padded(piece: Tensor, step: int) -> Tensor:
    piece = piece.detach()
    if piece.shape[0] == step:
        return piece.contiguous()
    result = piece.new_zeros((step, *piece.shape[1:]))
    result[:piece.shape[0]] = piece
    return result


class _Note:
    """In the place of a saved tensor that lies in a whole parameter's memory."""

    def __init__(self, unit, index: int, tensor: Tensor):
        self.unit, self.index = unit, index
        self.size, self.stride, self.offset = tensor.shape, tensor.stride(), tensor.storage_offset()


class _Slot:
    """One parameter of a unit and all places in the unit's modules where it stands."""

    def __init__(self, parameter: Parameter, places: list, group):
        self.full_shape = tuple(parameter.shape)
        self.places = places
        self.rows = _shape(self.full_shape)
        self.step = -(-self.rows[0] // group.size())
        self.row_numel = 1
        for n in self.rows[1:]:
            self.row_numel *= n
        self.numel = self.step * self.row_numel  # of a padded piece
        with no_grad():
            self.piece = ShardedParameter.of(cut(parameter, group), parameter.requires_grad, self.full_shape, group)
        for name, value in vars(parameter).items():
            setattr(self.piece, name, value)
        self.put(self.piece)

    def refresh(self) -> None:
        """Something like to_empty() has put another parameter in the piece's place."""
        module, name = self.places[0]
        now = module._parameters[name]
        if now is self.piece:
            return
        self.piece = now if type(now) is ShardedParameter else ShardedParameter.of(now.data, now.requires_grad, self.full_shape,
                                                                                  self.piece.process_group)
        self.put(self.piece)

    def put(self, parameter) -> None:
        for module, name in self.places:
            module._parameters[name] = parameter


class Unit:
    """A module and those of its parameters that no inner unit has."""

    def __init__(self, module: Module, group, policy, reshard: bool, root: Root, replicas=None, ignored=()):
        self.module, self.group, self.policy, self.reshard, self.root = module, group, policy, reshard, root
        self.size = group.size()
        self.replicas = replicas  # the group of the ranks that have the same pieces of other copies of the model
        left_out = {id(p) for p in ignored}
        places: dict[int, tuple[Parameter, list]] = {}
        for m in module.modules():
            for name, p in m._parameters.items():
                if p is not None and not isinstance(p, ShardedParameter) and id(p) not in left_out:
                    places.setdefault(id(p), (p, []))[1].append((m, name))
        self.slots = [_Slot(p, where, group) for p, where in places.values()]
        for _, where in places.values():
            for m, _ in where:
                m.__dict__["_fsdp_holder"] = self  # for who finds a piece in the module
        self.whole: list | None = None     # leaves that stand in the modules during forward
        self.values: list | None = None    # whole values in memory, for forward or for backward
        self._coming = None                # (work, memory) of a gathering that has begun
        self._reducing: list = []          # (work, memory, leaves' indices)
        self._grads: dict[int, Tensor] = {}
        self._expected: set[int] = set()
        self.syncs = True
        self.depth = 0  # calls of the module that are under way
        root.units.append(self)
        self.names = {id(m): name + "." if name else "" for name, m in module.named_modules()}
        module._register_state_dict_hook(self._keep_pieces)
        module.register_load_state_dict_pre_hook(self._cut_whole_values)

    # --- states ---

    def _own(self, prefix: str):
        """(name in a state of the module, slot), once for each place where a parameter stands."""
        return [(prefix + self.names[id(m)] + name, slot) for slot in self.slots for m, name in slot.places]

    def _keep_pieces(self, module, state, prefix, metadata) -> None:
        """A state has pieces, which know what they are pieces of."""
        for name, slot in self._own(prefix):
            if name in state and not isinstance(state[name], ShardedParameter):
                state[name] = ShardedParameter.of(slot.piece.detach(), False, slot.full_shape, self.group)

    def _cut_whole_values(self, module, state, prefix, *rest) -> None:
        """A state with whole values is taken, too: this rank's piece of each."""
        for name, slot in self._own(prefix):
            value = state.get(name)
            if value is not None and not isinstance(value, ShardedParameter) and tuple(value.shape) == slot.full_shape:
                with no_grad():
                    state[name] = cut(value, self.group)

    # --- gathering ---

    def _dtype(self):
        return self.policy.param_dtype

    def begin_gathering(self) -> None:
        """Starts to collect the pieces, without waiting."""
        if self.values is not None or self._coming is not None or not self.slots:
            return
        with no_grad():
            by_dtype: dict = {}
            for i, slot in enumerate(self.slots):
                by_dtype.setdefault(self._dtype() or slot.piece.dtype, []).append(i)
            self._coming = []
            for dtype, indices in by_dtype.items():
                pieces = [self.slots[i] for i in indices]
                mine = zeros(sum(s.numel for s in pieces), dtype=dtype, device=pieces[0].piece.device)
                at = 0
                for s in pieces:
                    mine[at:at + s.piece.numel()] = s.piece.detach().reshape(-1)
                    at += s.numel
                memory = empty((self.size, mine.numel()), dtype=dtype, device=mine.device)
                work = dist.all_gather_into_tensor(memory.view(-1), mine, group=self.group, async_op=True) if self.size > 1 else None
                if work is None:
                    memory.copy_(mine.view(1, -1))
                self._coming.append((work, memory, indices))

    def gather(self) -> list:
        """The whole values."""
        if self.values is None:
            self.begin_gathering()
            values: list = [None] * len(self.slots)
            with no_grad():
                for work, memory, indices in self._coming or ():
                    if work is not None:
                        work.wait()
                    at = 0
                    for i in indices:
                        s = self.slots[i]
                        part = memory[:, at:at + s.numel].reshape(self.size * s.step, *s.rows[1:])
                        # A copy of its own, so that one parameter's memory is not another's and all can be freed one by one.
                        whole = part[:s.rows[0]]
                        shared = self.size == 1 or (len(indices) > 1 and whole.data_ptr() == memory.data_ptr())
                        values[i] = (whole.clone() if shared else whole).reshape(s.full_shape)
                        at += s.numel
            self._coming = None
            self.values = values
        return self.values

    def free(self) -> None:
        """Drops the whole values, which are old after the next step."""
        self.values = None

    # --- forward ---

    def enter_forward(self) -> None:
        """Whole parameters into the modules; whole leaves take part in the tape."""
        if self.whole is not None:
            return
        values = self.gather()
        self.root.begin_next(self, 1)
        self.whole = []
        for i, (slot, value) in enumerate(zip(self.slots, values, strict=True)):
            leaf = Parameter(value, slot.piece.requires_grad)
            if slot.piece.requires_grad:
                leaf.register_post_accumulate_grad_hook(_Arrived(self, i))
            self.whole.append(leaf)
            slot.put(leaf)

    def leave_forward(self, recorded: bool) -> None:
        """Pieces into the modules again."""
        if self.whole is None:
            return
        if recorded:
            self._expected = {i for i, slot in enumerate(self.slots) if slot.piece.requires_grad}
        for slot, leaf in zip(self.slots, self.whole, strict=True):
            slot.put(slot.piece)
            if self.reshard and self.size > 1:
                # The tape keeps the leaf: its memory shrinks to one element that stands for all.
                leaf.data = leaf.data.new_empty(1).expand(leaf.shape) if leaf.numel() else leaf.data
        self.whole = None
        if self.reshard:
            self.free()

    @contextlib.contextmanager
    def standing(self):
        """Inside, whole parameters are in the modules again: for a part of the forward pass that backward repeats."""
        values = self.gather()
        self.root.begin_next(self, -1)
        for i, (slot, value) in enumerate(zip(self.slots, values, strict=True)):
            leaf = Parameter(value, slot.piece.requires_grad)
            if slot.piece.requires_grad:
                leaf.register_post_accumulate_grad_hook(_Arrived(self, i))
            slot.put(leaf)
        try:
            yield
        finally:
            for slot in self.slots:
                slot.put(slot.piece)

    def pack(self, tensor: Tensor):
        """For the tape: a note in place of memory that will be gathered again."""
        if self.values is None or not self.reshard or self.size == 1:
            return tensor
        address = tensor.untyped_storage().data_ptr()
        for i, value in enumerate(self.values):
            if value.untyped_storage().data_ptr() == address and value.dtype == tensor.dtype:
                return _Note(self, i, tensor)
        return tensor

    def unpack(self, saved) -> Tensor:
        """What the tape saved."""
        if not isinstance(saved, _Note):
            return saved
        if saved.unit.values is None:
            saved.unit.root.in_backward()
            saved.unit.gather()
            saved.unit.root.begin_next(saved.unit, -1)
        return saved.unit.values[saved.index].as_strided(saved.size, saved.stride, saved.offset)

    # --- backward ---

    def arrived(self, index: int, leaf: Tensor) -> None:
        """A whole gradient is complete."""
        self.root.in_backward()
        grad, leaf.grad = leaf.grad, None
        with no_grad():
            self._grads[index] = grad if index not in self._grads else self._grads[index] + grad
        if self._expected and self.syncs and len(self._grads) == len(self._expected):
            self.free()
            self.reduce()

    def reduce(self) -> None:
        """Starts to scatter the mean of the whole gradients to the pieces. The scattering that began before ends first: it had all of
        this unit's backward for it, and so the whole gradients of two units at most are in memory."""
        if not self._grads:
            return
        if self.root.reducing is not None:
            self.root.reducing.take_gradients()
        self.root.reducing = self
        with no_grad():
            by_dtype: dict = {}
            for i in sorted(self._expected or self._grads):
                slot = self.slots[i]
                dtype = self.policy.reduce_dtype or (self._grads[i].dtype if i in self._grads else self._dtype() or slot.piece.dtype)
                by_dtype.setdefault(dtype, []).append(i)
            for dtype, indices in by_dtype.items():
                total = sum(self.slots[i].numel for i in indices)
                memory = zeros((self.size, total), dtype=dtype, device=self.slots[indices[0]].piece.device)
                at = 0
                for i in indices:
                    s = self.slots[i]
                    grad = self._grads.pop(i, None)
                    if grad is not None:
                        rows = grad.reshape(s.rows)
                        for r in range(self.size):
                            first, last = piece_rows(s.rows[0], r, self.size)
                            if last > first:
                                memory[r, at:at + (last - first) * s.row_numel] = rows[first:last].reshape(-1)
                    at += s.numel
                mine = empty(total, dtype=dtype, device=memory.device)
                if self.size > 1:
                    work = dist.reduce_scatter_tensor(mine, memory.view(-1), op=dist.ReduceOp.AVG, group=self.group, async_op=True)
                else:
                    work = None
                    mine.copy_(memory.view(-1))
                self._reducing.append((work, mine, indices, memory))
        self._grads = {}

    def take_gradients(self) -> None:
        """Waits for the scattering: the pieces get their gradients."""
        if self.root.reducing is self:
            self.root.reducing = None
        with no_grad():
            for work, mine, indices, _ in self._reducing:
                if work is not None:
                    work.wait()
                if self.replicas is not None:
                    dist.all_reduce(mine, dist.ReduceOp.AVG, group=self.replicas)
                at = 0
                for i in indices:
                    s = self.slots[i]
                    grad = mine[at:at + s.piece.numel()].reshape(s.piece.shape).to(s.piece.dtype)
                    s.piece.grad = grad.clone() if s.piece.grad is None else s.piece.grad + grad
                    at += s.numel
        self._reducing = []

    def forget(self) -> None:
        """What is under way here is left to itself; whoever carries it keeps its memory."""
        self._grads, self._reducing, self._coming, self.values = {}, [], None, None

    def finish_backward(self) -> None:
        """After the last gradient of all units: what is still to be reduced, and the whole values go."""
        if self.syncs:
            self.reduce()
        self.take_gradients()
        self.free()
        # What was gathered ahead and not needed, since a first layer's input has no gradient, is old after the next step.
        for work, *_ in self._coming or ():
            if work is not None:
                work.wait()
        self._coming = None


class _Arrived:
    """The hook of a whole leaf."""

    def __init__(self, unit: Unit, index: int):
        self.unit, self.index = unit, index

    def __call__(self, leaf: Tensor) -> None:
        self.unit.arrived(self.index, leaf)


class _End:
    """What the tape calls when a backward pass is over; where it failed, the tape lets go of it uncalled."""

    def __init__(self, root: Root):
        self._root, self._called = root, False

    def __call__(self) -> None:
        self._called = True
        self._root._end()

    def __del__(self) -> None:
        if not self._called:
            self._root.forget()


class Root:
    """What the units of one model share: their order, and the end of a backward pass."""

    def __init__(self):
        self.units: list[Unit] = []
        self.order: list[Unit] = []
        self._waiting = False
        self.reducing: Unit | None = None  # whose gradients are on their way to the pieces

    def begin_next(self, unit: Unit, step: int) -> None:
        """Begins to gather the unit that was used after (or before) this one last time."""
        if unit not in self.order:
            self.order.append(unit)
            return
        i = self.order.index(unit) + step
        if 0 <= i < len(self.order) and self.order[i].size > 1:
            self.order[i].begin_gathering()

    def in_backward(self) -> None:
        """Asks the tape to say when the backward pass is over. Nothing where none is under way."""
        if not self._waiting:
            with contextlib.suppress(RuntimeError):
                _autograd.graph._autograd.queue_callback(_End(self))
                self._waiting = True

    def forget(self) -> None:
        """A backward pass has failed: what it had gathered and begun is of no use to the next one."""
        self._waiting, self.reducing = False, None
        for unit in self.units:
            unit.forget()

    def _end(self) -> None:
        self._waiting = False
        for unit in reversed(self.order or self.units):
            unit.finish_backward()


def units_of(module: Module) -> list:
    """The units in a module, outer ones first."""
    return [m._fsdp_unit for m in module.modules() if getattr(m, "_fsdp_unit", None) is not None]


def sharded_norm(parameters: list, norm_type: float) -> Tensor:
    """The norm of the gradients of ShardedParameters, over all ranks' pieces. Every rank must call it."""
    group = parameters[0].process_group
    grads = [p.grad for p in parameters if p.grad is not None and p.grad.numel()]
    dtype = parameters[0].dtype
    if norm_type == math.inf:
        total = tensor(max((g.abs().max().item() for g in grads), default=0.0), dtype=float64)
        dist.all_reduce(total, dist.ReduceOp.MAX, group=group)
        return total.to(dtype)
    total = tensor(sum(vector_norm(g, norm_type, dtype=promote_types(g.dtype, float32)).item() ** norm_type for g in grads), dtype=float64)
    dist.all_reduce(total, group=group)
    return (total ** (1.0 / norm_type)).to(dtype)
