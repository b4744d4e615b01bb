"""Units of a fully sharded model (ZeRO, stage 3; Rajbhandari et al. 2020, arXiv:1910.02054): modules whose parameters are gathered
together before they are used and freed after.

Each parameter is cut along one dimension like torch.chunk, a piece per rank (`_pieces.py`); the piece is a DTensor in the module, which
the optimizer updates. Around a forward pass the whole parameters of the unit stand in its place:

    before forward   the pieces are gathered (the gathering of the next unit begins, too)
    after forward    the pieces come back and the whole values are freed; what the tape saved of them is a note of which parameter it was
    in backward      the first such note that is read gathers the unit again (and begins with the unit that comes next in backward)
    its last gradient  the sum of the gradients is scattered to the pieces' .grad, and the whole values are freed

Whole values are those of the pieces when they were gathered: where a piece has changed since, they are gathered anew.
One backward at a time. All ranks must run the units in the same order.
"""

from __future__ import annotations

import contextlib

from ... import Tensor, empty, no_grad, zeros
from ... import autograd as _autograd
from ...nn import Module, Parameter
from .. import distributed_c10d as dist
from ..tensor._dtensor import DTensor, local_of, raw, wrap
from ._pieces import Slot, gradient_of, part_of, set_gradient, without_wrappers

__all__ = ["Unit", "units_of"]


class _Note:
    """In the place of a saved tensor that lies in a whole parameter's memory."""

    def __init__(self, unit, index: int, tensor: Tensor):
        self.unit, self.index = unit, index
        self.size, self.stride, self.offset = tensor.shape, tensor.stride(), tensor.storage_offset()


def _places(modules: list, inner: list, mesh, ignored) -> list:
    """(parameter, all (module, name) where it stands) of what no inner unit has, is not left out, and is not cut by the module itself
    (ShardedEmbedding). Raises ValueError for a parameter that an inner unit has cut, too, or that lies over the same ranks already."""
    left_out = {id(p) for p in ignored}
    pieces = {id(s.piece) for u in inner for s in u.slots}
    originals = {id(p) for u in inner for s in u.slots if (p := s.original()) is not None}
    group = set(dist.get_process_group_ranks(mesh.get_group(mesh.ndim - 1)))
    places: dict = {}
    for m in dict.fromkeys(m for module in modules for m in module.modules()):
        for name, p in m._parameters.items():
            if p is None or id(p) in left_out or id(p) in pieces or getattr(m, "_cuts_itself", False):
                continue
            if id(p) in originals:
                raise ValueError(f"fully_shard: {name!r} of {type(m).__name__} is shared with a parameter that another unit has\n"
                                 "use fully_shard([module_a, module_b]) to place both in one unit, or shard only a module around them")
            if isinstance(p, DTensor) and len(group & set(p.device_mesh.mesh.flatten().tolist())) > 1:
                raise ValueError(f"fully_shard: {name!r} of {type(m).__name__} is a DTensor over the same ranks already: it lies as {p.placements} over "
                                 f"{p.device_mesh}\npass the mesh of the other ranks: mesh=mesh['dp']")
            places.setdefault(id(p), (p, []))[1].append((m, name))
    return list(places.values())


class Unit:
    """Modules and those of their parameters that no inner unit has.

    reshard: whether whole values are freed between forward and backward; None: where the unit is not the outermost; a number: of each
    group of so many ranks, each keeps its share of them.
    """

    def __init__(self, modules: list, mesh, policy, reshard, inner: list, placement_fn=None, ignored=()):
        self.modules, self.mesh, self.policy = modules, mesh, policy
        self.group = mesh.get_group(mesh.ndim - 1)
        self.size = self.group.size()
        self.replicas = mesh.get_group(0) if mesh.ndim == 2 else None  # the ranks that have the same pieces of other copies of the model
        self.set_reshard(reshard)
        found = _places(modules, inner, mesh, ignored)
        placements = [placement_fn(p) if placement_fn is not None else None for p, _ in found]
        self.slots = [Slot(p, where, mesh, placement) for (p, where), placement in zip(found, placements, strict=True)]
        self.whole: list | None = None     # leaves that stand in the modules during forward
        self.values: list | None = None    # whole values in memory, for forward or for backward
        self._memory: dict = {}            # index by storage
        self._of: list = []                # states of the pieces of which they are
        self._kept: list | None = None     # this rank's share of them between forward and backward
        self._coming = None                # (work, memory) of a gathering that has begun
        self._reducing: list = []          # (work, memory, leaves' indices)
        self._partial: dict = {}           # gradients that are not yet added up over the copies
        self._grads: dict[int, Tensor] = {}
        self._expected: set[int] = set()
        self.syncs = self.all_reduces = self.reshards_after_backward = self.gathers_in_backward = True
        self.divisor: float | None = None
        self.prefetches: dict = {}         # 1 for forward, -1 for backward: units to gather ahead
        self.depth = 0  # calls of the modules that are under way
        self.root = Root([self, *inner])
        for unit in inner:
            unit.root = self.root
        for module in modules:
            names: dict = {}  # of a module that stands at several places, all of them
            for name, m in module.named_modules(remove_duplicate=False):
                names.setdefault(id(m), []).append(without_wrappers(name + ".") if name else "")
            module._register_state_dict_hook(lambda _, state, prefix, *rest, names=names: self._keep_pieces(state, prefix, names))
            module.register_load_state_dict_pre_hook(lambda _, state, prefix, *rest, names=names: self._cut_whole_values(state, prefix, names))
            module.register_load_state_dict_post_hook(lambda *_: self.refresh())

    def set_reshard(self, reshard) -> None:
        """Whether, and to what, whole values are freed after forward. Raises ValueError for a number that does not divide the ranks."""
        if isinstance(reshard, int) and not isinstance(reshard, bool):
            if not 1 <= reshard <= self.size or self.size % reshard:
                raise ValueError(f"If passing reshard_after_forward as an int, it should be a factor of {self.size}, not {reshard}")
            reshard = False if reshard == 1 else True if reshard == self.size else reshard
        elif reshard is not None and not isinstance(reshard, bool):
            raise ValueError(f"reshard_after_forward should be a bool or an int representing the group size to reshard to, not {reshard}")
        self.reshard = reshard
        self.part = part_of(self.mesh, reshard) if type(reshard) is int else None

    @property
    def frees(self) -> bool:
        """Whether whole values go after forward."""
        return self.size > 1 and (self.root.units[0] is not self if self.reshard is None else bool(self.reshard))

    # --- states ---

    def refresh(self) -> None:
        """Takes parameters that were put in the place of pieces."""
        if self.whole is None:
            for slot in self.slots:
                slot.refresh()

    def to_pieces(self) -> None:
        """Puts the pieces back where whole parameters were put by unshard(), and frees these."""
        if self.depth == 0:
            self.leave_forward(False)
            self.free()

    def _own(self, prefix: str, names: dict):
        """(name in a state of a module, slot), once for each place where a parameter stands."""
        return [(prefix + place + name, slot) for slot in self.slots for m, name in slot.places for place in names.get(id(m), ())]

    def _keep_pieces(self, state, prefix, names) -> None:
        """A state has pieces, also while whole parameters stand in the modules."""
        for name, slot in self._own(prefix, names) if self.whole is not None else ():
            if name in state:
                state[name] = slot.piece if isinstance(state[name], Parameter) else slot.piece.detach()

    def _cut_whole_values(self, state, prefix, names) -> None:
        """A state with whole values is taken, too: this rank's piece of each."""
        self.to_pieces()
        for name, slot in self._own(prefix, names):
            value = state.get(name)
            if isinstance(value, Tensor) and not isinstance(value, DTensor) and slot.inner is None and tuple(value.shape) == slot.shape:
                with no_grad():
                    state[name] = wrap(slot.cut(value.detach()), slot.spec)

    # --- gathering ---

    def _states(self) -> list:
        with raw():  # once, since asking a DTensor costs microseconds
            return [slot.state() for slot in self.slots]

    def _drop_old(self) -> None:
        """Forgets whole values, also those on their way, of pieces that have changed since."""
        if (self.values is not None or self._coming is not None or self._kept is not None) and self._of != self._states():
            self._wait_for_coming()
            self._kept = None
            self.free()

    def _wait_for_coming(self) -> None:
        for work, *_ in self._coming or ():
            if work is not None:
                work.wait()
        self._coming = None

    def begin_gathering(self) -> None:
        """Starts to collect the pieces, without waiting."""
        self.refresh()
        self._drop_old()
        if self.values is not None or self._coming is not None or not self.slots:
            return
        with raw(), no_grad():
            self._begin_gathering()

    def _begin_gathering(self) -> None:
        on_meta = [name for s in self.slots if s.piece.is_meta for _, name in s.places[:1]]
        if on_meta:
            raise RuntimeError("FSDP parameters should be materialized from meta device before training, but the following were still on meta device: "
                               f"{on_meta}\nFor example, call module.to_empty(device) to materialize to device and call module.reset_parameters() on "
                               "each module to initialize values.")
        self._coming = []
        if self._kept is not None:
            for mine, indices in self._kept:
                self._coming.append(self._begin(mine, mine.new_empty((self.size, mine.shape[1])), self.part, indices))
            return
        self._of = self._states()
        by_dtype: dict = {}
        for i, slot in enumerate(self.slots):
            by_dtype.setdefault(self.policy.param_dtype or slot.piece.dtype, []).append(i)
        for dtype, indices in by_dtype.items():
            slots = [self.slots[i] for i in indices]
            mine = zeros(sum(s.numel for s in slots), dtype=dtype, device=slots[0].piece.device)
            at = 0
            for s in slots:
                s.pack(mine, at)
                at += s.numel
            self._coming.append(self._begin(mine, empty((self.size, mine.numel()), dtype=dtype, device=mine.device), self.group, indices))

    @staticmethod
    def _begin(mine: Tensor, memory: Tensor, group, indices: list) -> tuple:
        if group.size() > 1:
            return dist.all_gather_into_tensor(memory.view(-1), mine.view(-1), group=group, async_op=True), memory, indices
        return None, memory.copy_(mine.view(1, -1)), indices

    def gather(self) -> list:
        """The whole values."""
        self._drop_old()
        if self.values is None:
            self.begin_gathering()
            values: list = [None] * len(self.slots)
            kept: list = []
            with no_grad():
                for work, memory, indices in self._coming or ():
                    if work is not None:
                        work.wait()
                    at = 0
                    for i in indices:
                        values[i] = self.slots[i].unpack(memory, at, len(indices) == 1)
                        at += self.slots[i].numel
                    if self.part is not None and self._kept is None:
                        n = self.size // self.part.size()
                        kept.append((memory[self.part.rank() * n:(self.part.rank() + 1) * n].clone(), indices))
            if self.part is not None and self._kept is None:
                self._kept = kept
            self._coming = None
            self.values, self._memory = values, {value._storage_id(): i for i, value in enumerate(values) if value.numel()}
        return self.values

    def free(self) -> None:
        """Drops the whole values."""
        self.values = None

    # --- forward ---

    def _leaves(self, values: list) -> list:
        """Whole leaves, which stand in the modules from now on and take part in the tape."""
        leaves = []
        with raw():
            for i, (slot, value) in enumerate(zip(self.slots, values, strict=True)):
                leaf = slot.leaf(value)
                if leaf.requires_grad:
                    leaf.register_post_accumulate_grad_hook(_Arrived(self, i))
                leaves.append(leaf)
        for slot, leaf in zip(self.slots, leaves, strict=True):  # all of them or, where memory was scarce, none
            slot.put(leaf)
        return leaves

    def enter_forward(self) -> None:
        """Whole parameters into the modules."""
        if self.whole is not None:
            return
        values = self.gather()
        self.root.begin_next(self, 1)
        self.whole = self._leaves(values)

    def leave_forward(self, recorded: bool) -> None:
        """Pieces into the modules again."""
        if self.whole is None:
            return
        with raw():
            if recorded:
                self._expected = {i for i, slot in enumerate(self.slots) if slot.piece.requires_grad}
            for slot, leaf in zip(self.slots, self.whole, strict=True):
                slot.put(slot.piece)
                if self.frees:
                    # The tape keeps the leaf: its memory shrinks to one element that stands for all.
                    part = local_of(leaf).detach() if slot.inner else leaf.data
                    if part.numel():
                        Tensor.data.__set__(leaf, part.new_empty(()).expand(part.shape))
        self.whole = None
        if self.frees or self.size == 1:
            self.free()

    @contextlib.contextmanager
    def standing(self):
        """Inside, whole parameters are in the modules again: for a part of the forward pass that backward repeats."""
        if self.whole is not None:
            yield
            return
        values = self.gather()
        self.root.begin_next(self, -1)
        self.whole = self._leaves(values)
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1
            self.whole = None
            for slot in self.slots:
                slot.put(slot.piece)

    def pack(self, tensor: Tensor):
        """For the tape: a note in place of memory that will be gathered again."""
        if self.values is None or not self.frees:
            return tensor
        tensor = local_of(tensor) if isinstance(tensor, DTensor) else tensor
        i = self._memory.get(tensor._storage_id())
        return tensor if i is None or self.values[i].dtype != tensor.dtype else _Note(self, i, tensor)

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
        grad = gradient_of(leaf)
        set_gradient(leaf, None)
        with no_grad():
            self._grads[index] = grad if index not in self._grads else self._grads[index] + grad
        if self._expected and self.syncs and len(self._grads) == len(self._expected):
            if self.reshards_after_backward:
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
        op = dist.ReduceOp.AVG if self.divisor is None else dist.ReduceOp.SUM
        with no_grad():
            by_dtype: dict = {}
            for i in sorted(self._expected or self._grads):
                slot = self.slots[i]
                dtype = self.policy.reduce_dtype or (self._grads[i].dtype if i in self._grads else self.policy.param_dtype or slot.piece.dtype)
                by_dtype.setdefault(dtype, []).append(i)
            for dtype, indices in by_dtype.items():
                total = sum(self.slots[i].numel for i in indices)
                memory = zeros((self.size, total), dtype=dtype, device=self.slots[indices[0]].piece.device)
                at = 0
                for i in indices:
                    grad = self._grads.pop(i, None)
                    if grad is not None:
                        self.slots[i].scatter(grad, memory, at)
                    at += self.slots[i].numel
                mine = empty(total, dtype=dtype, device=memory.device)
                if self.size > 1:
                    work = dist.reduce_scatter_tensor(mine, memory.view(-1), op=op, group=self.group, async_op=True)
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
                    before = self._partial.pop(tuple(indices), None)
                    mine = mine if before is None else mine.add_(before)
                    if not self.all_reduces:
                        self._partial[tuple(indices)] = mine
                        continue
                    dist.all_reduce(mine, dist.ReduceOp.AVG if self.divisor is None else dist.ReduceOp.SUM, group=self.replicas)
                if self.divisor is not None:
                    mine.div_(self.divisor)
                at = 0
                for i in indices:
                    self.slots[i].take(mine, at)
                    at += self.slots[i].numel
        self._reducing = []

    def forget(self) -> None:
        """Abandons work in progress; whatever runs it keeps its memory alive."""
        self._grads, self._reducing, self._partial, self._coming, self._kept, self.values = {}, [], {}, None, None, None

    def finish_backward(self) -> None:
        """After the last gradient of all units: what is still to be reduced, and the whole values go."""
        if self.syncs:
            self.reduce()
        self.take_gradients()
        # What was gathered ahead and not needed, since a first layer's input has no gradient, is old after the next step.
        self._wait_for_coming()
        self._kept = None
        if self.reshards_after_backward:
            self.free()


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

    def __init__(self, units: list):
        self.units: list[Unit] = units  # the outermost first
        self.order: list[Unit] = []
        self._waiting = False
        self.reducing: Unit | None = None  # whose gradients are on their way to the pieces

    def begin_next(self, unit: Unit, step: int) -> None:
        """Begins to gather the units that are to be gathered ahead in forward (1) or backward (-1): those that were said, or the one that
        came next the last time."""
        if unit not in self.order:
            self.order.append(unit)
            following = []
        else:
            i = self.order.index(unit) + step
            following = self.order[i:i + 1] if i >= 0 else []
        for other in unit.prefetches.get(step, following):
            if other.size > 1 and (step > 0 or other.gathers_in_backward):
                other.begin_gathering()

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
    return list(dict.fromkeys(m._fsdp_unit for m in module.modules() if getattr(m, "_fsdp_unit", None) is not None))
