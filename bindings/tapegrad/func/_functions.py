"""Custom Functions under vmap: by a rule of their own (the static method `vmap`), or by mapping forward and backward over the samples.

Each level of vmap has a tape, and so have those below it. A Function is recorded once on each that knows an argument: `_recorded` is its
call on the tape of the level, whose forward goes on below; `_OverSamples` the call below, for all samples at once.
"""

from __future__ import annotations

import types
from typing import NamedTuple

from .. import _C
from ..autograd import enable_grad, function, is_grad_enabled
from ..utils._pytree import broadcast_prefix, tree_flatten, tree_leaves, tree_map_only, tree_unflatten

Tensor = _C.Tensor


class VmapInfo(NamedTuple):
    """The `info` argument of Function.vmap: the number of samples and the randomness."""

    batch_size: int
    randomness: str


def _highest_level(args) -> int:
    return max((_C._vmap_level(a) for a in tree_leaves(args) if isinstance(a, Tensor)), default=0)


def _is_known_below(t, level: int) -> bool:
    """Whether a tape below the level has the tensor, or what it stands for."""
    if _C._vmap_level(t) < level and t.requires_grad:
        return True
    return bool(_C._vmap_level(t)) and _is_known_below(_C._vmap_physical(t), level)


def apply_mapped(cls, args):
    """cls.apply(*args) while a vmap runs."""
    level = _highest_level(args)
    own_rule = cls.vmap is not function.Function.vmap
    if not level:
        return function._run(cls, args)
    if own_rule and cls.generate_vmap_rule:
        raise RuntimeError(f"You tried to vmap over {cls.__name__}, but it has both generate_vmap_rule=True and an overridden vmap staticmethod. "
                           "Please set generate_vmap_rule=False or delete the overridden vmap staticmethod to avoid ambiguity.")
    tensors = [a for a in tree_leaves(args) if isinstance(a, Tensor)] if is_grad_enabled() else []
    if not own_rule and not any(_is_known_below(t, level) for t in tensors):
        return function._run(cls, args)  # no tape below has to know
    if not any(t.requires_grad for t in tensors if _C._vmap_level(t) == level):
        return _below(cls, args)
    if not _sets_context(cls, args):
        raise RuntimeError(f"{cls.__name__}: In order to use an autograd.Function with functorch transforms (vmap, grad, jvp, jacrev, ...), it must override "
                           "the setup_context staticmethod")
    return function._run(_recorded(cls), args)


def _sets_context(cls, args) -> bool:
    return args[0].sets_context if cls is _OverSamples else cls._sets_context


def _recorded(cls):
    """The Function with a forward that goes on below the level of its arguments; made once."""
    def forward(*args):
        with enable_grad():  # for the tapes below
            return _below(cls, args)

    if "_recorded" not in vars(cls):
        cls._recorded = types.new_class(cls.__name__, (cls,), {}, lambda namespace: namespace.update(forward=staticmethod(forward)))
    return cls._recorded


def _below(cls, args):
    """The call below the level of its arguments; what it gives belongs to the level."""
    level = _highest_level(args)
    info = VmapInfo(*_C._vmap_level_info(level))
    leaves, spec = tree_flatten(args)
    pairs = [_C._vmap_unwrap(leaf, level) if isinstance(leaf, Tensor) else (leaf, False) for leaf in leaves]
    plain, mapped = [leaf for leaf, _ in pairs], [has_dim for _, has_dim in pairs]
    if not any(mapped):
        return _C._vmap_below(level, lambda: function._call(cls, *tree_unflatten(plain, spec)))
    if cls.vmap is function.Function.vmap:
        samples = _Samples(cls, spec, mapped, info, _sets_context(cls, args))
        outputs, out_dims = _C._vmap_below(level, lambda: function._call(_OverSamples, samples, *plain)), 0
        outputs = outputs[0] if samples.single else outputs
    else:
        in_dims = tree_unflatten([0 if has_dim else None for has_dim in mapped], spec)
        result = _C._vmap_below(level, lambda: cls.vmap(info, in_dims, *tree_unflatten(plain, spec)))
        if not (isinstance(result, tuple) and len(result) == 2):
            raise RuntimeError(f"{cls.__name__}: Expected the vmap staticmethod to have two returns, an output and out_dims with pytree structure compatible "
                               f"with the output. Got a {type(result).__name__}.")
        outputs, out_dims = result
    return _to_level(cls, outputs, out_dims, level, dict(zip(map(id, plain), leaves)))


def _to_level(cls, outputs, out_dims, level: int, given: dict):
    found, spec = tree_flatten(outputs)
    dims = broadcast_prefix(out_dims, spec)
    if dims is None:
        raise ValueError(f"{cls.__name__}: the vmap staticmethod returned out_dims {out_dims} that do not fit its output, of structure {spec}")

    def one(value, dim):
        if not isinstance(value, Tensor) or dim is None:
            return value
        if id(value) in given and dim == 0:
            return given[id(value)]  # an argument that was written to is itself the output
        return _C._vmap_wrap(value.movedim(dim, 0), level, True)

    return tree_unflatten([one(value, dim) for value, dim in zip(found, dims, strict=True)], spec)


class _Kept:
    """A tensor of a level that is over, and whether it has samples; None: it is not of the level. Of two levels: a _Kept in a _Kept."""

    __slots__ = ("has_dim", "tensor")

    def __init__(self, tensor, has_dim: bool | None) -> None:
        self.tensor, self.has_dim = tensor, has_dim


def _off(value, level: int):
    """A tensor without the level, which ends."""
    if isinstance(value, _Kept):
        inner = _off(value.tensor, level)
        return _Kept(inner if isinstance(inner, _Kept) else _Kept(inner, None), value.has_dim)
    return _Kept(*_C._vmap_unwrap(value, level)) if _C._vmap_level(value) == level else value


def _on(kept: _Kept, level: int):
    """The tensor at another level."""
    if isinstance(kept.tensor, _Kept):
        return _Kept(_on(kept.tensor, level), kept.has_dim)
    return kept.tensor if kept.has_dim is None else _C._vmap_wrap(kept.tensor, level, kept.has_dim)


def _plain(value):
    return value.tensor if isinstance(value, _Kept) else value


class _Samples:
    """One call of a Function for all samples: how its arguments are arranged, and what forward left for backward."""

    def __init__(self, cls, spec, mapped, info: VmapInfo, sets_context: bool) -> None:
        self.cls, self.spec, self.mapped, self.info, self.sets_context = cls, spec, mapped, info, sets_context
        self.single = False
        self.attributes: dict | None = None  # of ctx, where forward has filled it

    def at_level(self, body):
        """body(level) at a new level of vmap."""
        level = _C._vmap_enter(self.info.batch_size, self.info.randomness)
        try:
            return body(level)
        finally:
            _C._vmap_leave(level)

    def arguments(self, leaves, level: int) -> tuple:
        return tree_unflatten([_C._vmap_wrap(leaf, level, True) if has_dim else leaf for leaf, has_dim in zip(leaves, self.mapped, strict=True)], self.spec)

    def places(self, leaves) -> list:
        """For each argument the place of its leaf, None for one that is no tensor."""
        places, at = [], 0
        for arg in tree_unflatten(leaves, self.spec):
            places.append(at if isinstance(arg, Tensor) else None)
            at += len(tree_leaves(arg))
        return places


class _SampleContext:
    """What forward and backward of a Function have as `ctx` while they are mapped over samples."""

    def __init__(self, needs_input_grad) -> None:
        self.needs_input_grad = needs_input_grad
        self._saved: tuple = ()
        self._dirty: tuple = ()
        self._constant: tuple = ()
        self._materialize = True

    @property
    def saved_tensors(self) -> tuple:
        return self._saved

    def save_for_backward(self, *tensors) -> None:
        self._saved = tensors

    def save_for_forward(self, *tensors) -> None:
        """Nothing: the derivative in forward mode is that of backward."""

    def mark_dirty(self, *tensors) -> None:
        self._dirty = tensors

    def mark_non_differentiable(self, *tensors) -> None:
        self._constant = tensors

    def set_materialize_grads(self, value: bool) -> None:
        self._materialize = value

    def off(self, level: int) -> dict:
        """Its attributes without the level."""
        return tree_map_only((Tensor, _Kept), lambda value: _off(value, level), vars(self))

    @classmethod
    def on(cls, attributes: dict, level: int) -> _SampleContext:
        """One with such attributes, at another level."""
        context = cls(None)
        for name, value in tree_map_only(_Kept, lambda kept: _on(kept, level), attributes).items():
            setattr(context, name, value)
        return context


class _OverSamples(function.Function):
    """A Function for all samples: `_OverSamples.apply(samples, *leaves)`."""

    @staticmethod
    def forward(samples, *leaves):
        cls = samples.cls

        def body(level):
            args = samples.arguments(leaves, level)
            if samples.sets_context:
                result = cls.forward(*args)
            else:
                context = _SampleContext(tuple(at is not None and leaves[at].requires_grad for at in samples.places(leaves)))
                result = cls.forward(*args) if cls is _OverSamples else cls.forward(context, *args)
                if cls is _OverSamples:
                    cls.setup_context(context, args, result)
                samples.attributes = context.off(level)
            samples.single = not isinstance(result, tuple)
            return tuple(_leading(t, level, samples.info.batch_size) for t in ((result,) if samples.single else result))

        return samples.at_level(body)

    @staticmethod
    def setup_context(ctx, inputs, output):
        samples, *leaves = inputs
        cls, ctx.samples, ctx.places = samples.cls, samples, samples.places(leaves)

        def body(level):
            args = samples.arguments(leaves, level)
            results = tuple(_C._vmap_wrap(t, level, True) if isinstance(t, Tensor) else t for t in output)
            context = _SampleContext(tuple(at is not None and ctx.needs_input_grad[at + 1] for at in ctx.places))
            cls.setup_context(context, args, results[0] if samples.single else results)
            return context.off(level)

        attributes = samples.at_level(body) if samples.sets_context else samples.attributes
        ctx.set_materialize_grads(attributes["_materialize"])
        ctx.mark_dirty(*map(_plain, attributes["_dirty"]))
        ctx.mark_non_differentiable(*map(_plain, attributes["_constant"]))
        ctx.has_dim = [isinstance(k, _Kept) and k.has_dim for k in attributes["_saved"]]
        ctx.save_for_backward(*map(_plain, attributes["_saved"]))
        ctx.attributes = {**attributes, "_saved": (), "_dirty": (), "_constant": ()}

    @staticmethod
    def backward(ctx, *grads):
        samples = ctx.samples

        def body(level):
            context = _SampleContext.on(ctx.attributes, level)
            context._saved = tuple(_C._vmap_wrap(t, level, True) if has_dim else t for t, has_dim in zip(ctx.saved_tensors, ctx.has_dim, strict=True))
            given = [g if g is None else _C._vmap_wrap(g, level, True) for g in grads]
            found = samples.cls.backward(context, *given)
            return [g if g is None else _C._vmap_unwrap(g, level) for g in (found if isinstance(found, tuple) else (found,))]

        result: list = [None] * len(samples.mapped)
        for at, pair in zip(ctx.places, samples.at_level(body), strict=False):
            if at is None or pair is None:
                continue
            gradient, has_dim = pair
            if samples.mapped[at]:
                result[at] = gradient if has_dim else gradient.expand(samples.info.batch_size, *gradient.shape)
            else:
                result[at] = gradient.sum(0) if has_dim else gradient * samples.info.batch_size
        return None, *result


def _leading(value, level: int, samples: int):
    """A result for all samples, which lie along dimension 0."""
    if not isinstance(value, Tensor):
        return value
    below, has_dim = _C._vmap_unwrap(value, level)
    return below if has_dim else below.expand(samples, *below.shape)
