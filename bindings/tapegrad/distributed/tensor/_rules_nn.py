"""Layers, losses, lists of tensors as optimizers use them, and the tape."""

from ... import _C, Tensor, ones
from ...nn import functional as F
from .._placements import Partial, Replicate, Shard
from ._dtensor import DTensor, local_of, raw, wrap
from ._moves import gradient_placements, move_plainly
from ._spec import Spec, local_shape_and_offset
from ._table import argument, prepare, replicated, rule


@rule("layer_norm", "rms_norm")
def norms(func, name, args, kwargs):
    """Over the last dimensions, which must be whole."""
    names = ("input", "normalized_shape", "weight", "bias", "eps") if name == "layer_norm" else ("input", "normalized_shape", "weight", "eps")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    x, shape = given.pop("input"), given.pop("normalized_shape")
    first = x.ndim - (1 if isinstance(shape, int) else len(shape))
    placements = [p if isinstance(p, Shard) and p.dim < first else Replicate() for p in x.placements]
    shared = [i for i, p in enumerate(placements) if isinstance(p, Shard)]
    for key in ("weight", "bias"):
        t = given.get(key)
        if isinstance(t, DTensor):
            given[key] = prepare(t, [Replicate()] * len(placements), shared)
    out = func(prepare(x, placements), shape, **given)
    return wrap(out, Spec(x.device_mesh, placements, x.shape))


@rule("dropout")
def dropout(func, name, args, kwargs):
    """Each rank draws for the whole and keeps its part: as one process drops."""
    from ._dispatch import same_random_numbers

    x, p = args[0], argument(args, kwargs, 1, "p", default=0.5)
    training = argument(args, kwargs, 2, "training", "train", default=True)
    if argument(args, kwargs, 3, "inplace", default=False):
        raise NotImplementedError("dropout: inplace=True is not supported for DTensors")
    if not training or p == 0:
        return x.clone()
    if not 0 <= p <= 1:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    same_random_numbers(x.device_mesh)
    kept = F.dropout(ones(tuple(x.shape), dtype=x.dtype, device=x.device), p, True)
    placements = [Replicate() if isinstance(q, Partial) else q for q in x.placements]
    shape, offset = local_shape_and_offset(x.shape, x.device_mesh, placements)
    for d, (n, at) in enumerate(zip(shape, offset, strict=True)):
        kept = kept.narrow(d, min(at, kept.shape[d] - n), n)
    return wrap(prepare(x, placements) * kept, Spec(x.device_mesh, placements, x.shape))


@rule("cross_entropy", "nll_loss")
def class_losses(func, name, args, kwargs):
    """Of rows that lie with different ranks; the classes must be whole, but in loss_parallel()."""
    names = ("input", "target", "weight", "size_average", "ignore_index", "reduce", "reduction", "label_smoothing")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    x, target, weight = given["input"], given["target"], given.get("weight")
    reduction, ignored = given.get("reduction", "mean"), given.get("ignore_index", -100)
    if given.get("size_average") is not None or given.get("reduce") is not None or not isinstance(target, DTensor):
        return NotImplemented
    if name == "cross_entropy":
        from .parallel._loss import parallel_cross_entropy

        result = parallel_cross_entropy(x, target, weight, ignored, reduction, given.get("label_smoothing", 0.0))
        if result is not NotImplemented:
            return result
    if target.dtype.is_floating_point or x.ndim < 2 or reduction not in ("mean", "sum", "none"):
        return NotImplemented
    # Classes are dimension 1: of the targets' dimensions 0 is 0, the others are one less.
    placements = [p if isinstance(p, Shard) and p.dim != 1 else Replicate() for p in x.placements]
    for_target = [Shard(p.dim - (p.dim > 1)) if isinstance(p, Shard) else p for p in placements]
    local = prepare(x, placements)
    index = prepare(target, for_target)
    table = None if weight is None else replicated(weight)
    extra = {"label_smoothing": given["label_smoothing"]} if given.get("label_smoothing") else {}
    mesh, cut = x.device_mesh, any(isinstance(p, Shard) for p in placements)
    if reduction == "none" or not cut:
        out = func(local, index, weight=table, ignore_index=ignored, reduction=reduction, **extra)
        return wrap(out, Spec(mesh, for_target, target.shape if reduction == "none" else ()))
    parts = [Partial() if isinstance(p, Shard) else p for p in placements]
    out = func(local, index, weight=table, ignore_index=ignored, reduction="sum", **extra)
    spec = Spec(mesh, parts, ())
    if reduction == "mean":
        counts = index != ignored
        count = counts.sum() if table is None else (table.detach()[index.masked_fill(~counts, 0)] * counts).sum()
        out = out / move_plainly(count.to(out.dtype), spec, [Replicate()] * mesh.ndim)
    return wrap(out, spec)


@rule("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits", "soft_margin_loss")
def pointwise_losses(func, name, args, kwargs):
    """Element by element, then reduced."""
    from ._rules_elementwise import pointwise

    at = {"binary_cross_entropy": 5, "binary_cross_entropy_with_logits": 5, "smooth_l1_loss": 4, "huber_loss": 2}.get(name, 4)
    reduction = argument(args, kwargs, at, "reduction", default="mean")
    if len(args) > 2 or kwargs.get("size_average") is not None or kwargs.get("reduce") is not None or reduction not in ("none", "mean", "sum"):
        return NotImplemented
    out = pointwise(func, name, args, {**kwargs, "reduction": "none"})
    return out if reduction == "none" else out.mean() if reduction == "mean" else out.sum()


# --- the tape ---

@rule("backward")
def backward(func, name, args, kwargs):
    """The gradient of a sum that is not reduced is that of each part."""
    t, gradient = args[0], argument(args, kwargs, 1, "gradient")
    if gradient is None:
        if t.numel() != 1:
            raise RuntimeError("grad can be implicitly created only for scalar outputs")
        gradient = local_of(t).detach().new_ones(local_of(t).shape)
    elif isinstance(gradient, DTensor):
        gradient = gradient._as_gradient_of(t)
    else:
        raise RuntimeError("backward: the gradient of a DTensor must be a DTensor: got a plain tensor\nuse distribute_tensor")
    rest = {k: v for k, v in kwargs.items() if k not in ("gradient", "inputs")}
    inputs = kwargs.get("inputs")
    if inputs is not None:
        rest["inputs"] = inputs
    with raw():
        return func(local_of(t), gradient, *args[2:], **rest)


@rule("grad")
def grad(func, name, args, kwargs):
    """Gradients lie as those in .grad do."""
    outputs, inputs = args
    roots = (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)
    wanted = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    if kwargs.get("is_grads_batched"):
        raise NotImplementedError("grad: is_grads_batched=True is not supported for DTensors")
    weights = kwargs.get("grad_outputs")
    weights = (None,) * len(roots) if weights is None else (weights,) if isinstance(weights, Tensor) else tuple(weights)
    for root, w in zip(roots, weights, strict=True):
        if w is None and root.numel() != 1:
            raise RuntimeError("grad can be implicitly created only for scalar outputs")
    weights = [local_of(r).detach().new_ones(local_of(r).shape) if w is None and isinstance(r, DTensor) else w for r, w in zip(roots, weights, strict=True)]
    weights = [w._as_gradient_of(r) if isinstance(w, DTensor) else w for r, w in zip(roots, weights, strict=True)]
    with raw():
        found = func(roots, wanted, **{**kwargs, "grad_outputs": weights})
    return tuple(g if g is None or not isinstance(t, DTensor) else wrap(g, t._spec.with_placements(gradient_placements(t.placements)))
                 for g, t in zip(found, wanted, strict=True))


@rule("register_hook")
def register_hook(func, name, args, kwargs):
    """The hook gets and gives DTensors that lie as gradients of this one do."""
    t, hook = args
    spec = t._spec.with_placements(gradient_placements(t.placements))

    def on_part(grad):
        result = hook(wrap(grad, spec))
        return move_plainly(local_of(result), result._spec, spec.placements) if isinstance(result, DTensor) else result

    with raw():
        return func(t, on_part)


# --- lists, as optimizers use them ---

def _norm(t, kind: float):
    """The norm of one tensor, a number on each rank."""
    from ._norms import total_norm

    return total_norm([t], kind)


def foreach(func, name, args, kwargs):
    """An operator on each of the tensors of lists, which must lie alike from list to list."""
    first = args[0]
    if name == "_foreach_norm":
        kind = float(argument(args, kwargs, 1, "ord", default=2))
        return [wrap(_norm(t, kind), Spec(t.device_mesh, [Replicate()] * t.device_mesh.ndim, ())) for t in first]
    plain = [i for i, t in enumerate(first) if not isinstance(t, DTensor)]
    if plain:
        raise RuntimeError(f"{name}: got mixed torch.Tensor and DTensor: entries {plain} of the first list are plain tensors")
    nonlinear = name.strip("_") not in ("foreach_zero", "foreach_mul", "foreach_neg", "foreach_add", "foreach_sub", "foreach_div")
    same = True
    for i, t in enumerate(first):
        here = [a[i] for a in args[1:] if isinstance(a, (list, tuple)) and len(a) == len(first) and isinstance(a[i], DTensor)]
        same = same and all(o.placements == t.placements and o.shape == t.shape for o in here)
        if any(isinstance(p, Partial) for p in t.placements) and (nonlinear or (name.startswith(("_foreach_add", "_foreach_sub")) and not here)):
            same = False
    if not same:
        if name.endswith("_"):
            raise RuntimeError(f"{name}: in place on DTensors that do not lie alike: got {[t.placements for t in first]}\nredistribute the others to "
                               "the placements of the first list")
        single = getattr(Tensor, name[len("_foreach_"):], None)
        if single is None:
            return NotImplemented
        return [single(t, *[a[i] if isinstance(a, (list, tuple)) else a for a in args[1:]], **kwargs) for i, t in enumerate(first)]

    def part(value):
        if isinstance(value, (list, tuple)):
            return type(value)(map(part, value))
        return replicated(value).detach() if isinstance(value, DTensor) and value.ndim == 0 else local_of(value) if isinstance(value, DTensor) else value

    if name.endswith("_"):
        with raw():
            func(first, *map(part, args[1:]), **kwargs)
        return None
    out = func(*map(part, args), **kwargs)
    return type(out)(wrap(o, t._spec) for o, t in zip(out, first, strict=True))


for _name in _C._functions[""]:
    if _name.startswith("_foreach_"):
        rule(_name)(foreach)
