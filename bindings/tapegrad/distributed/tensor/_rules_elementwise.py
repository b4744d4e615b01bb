"""Operators element by element, and reductions."""

from ... import Tensor, broadcast_shapes
from .._placements import CUTS, Partial, Replicate
from ._dtensor import DTensor, raw, wrap
from ._spec import Spec, settled
from ._table import argument, dims_of, in_place, leaves_of, prepare, replicated, rule, structured

_BINARY = "add sub subtract mul multiply div divide true_divide floor_divide remainder fmod pow float_power atan2 arctan2 hypot maximum minimum fmax " \
          "fmin eq ne lt le gt ge equal_ not_equal greater greater_equal less less_equal logical_and logical_or logical_xor bitwise_and bitwise_or " \
          "bitwise_xor bitwise_left_shift bitwise_right_shift logaddexp logaddexp2 copysign nextafter heaviside xlogy where lerp addcmul addcdiv " \
          "clamp clip clamp_min clamp_max isclose ldexp"
_UNARY = "abs absolute neg negative positive exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh " \
         "atanh sigmoid logit erf erfc erfinv reciprocal square sign sgn signbit floor ceil round trunc frac isnan isinf isfinite isposinf isneginf " \
         "logical_not bitwise_not nan_to_num lgamma digamma i0 sinc deg2rad rad2deg relu relu6 leaky_relu elu selu celu gelu silu mish softplus " \
         "softsign hardtanh hardsigmoid hardswish hardshrink softshrink tanhshrink threshold logsigmoid masked_fill clone contiguous detach to float " \
         "double half bfloat16 int long short bool char byte cpu cuda type_as fill zero copy zeros_like ones_like full_like empty_like data " \
         "conj resolve_conj resolve_neg real imag angle"
_REFLECTED = "__radd__ __rsub__ __rmul__ __rtruediv__ __rdiv__ __rfloordiv__ __rpow__ __rmod__ __rand__ __ror__ __rxor__ __add__ __sub__ __mul__ " \
             "__truediv__ __floordiv__ __mod__ __pow__ __and__ __or__ __xor__ __invert__ __neg__ __pos__ __abs__ __eq__ __ne__ __lt__ __le__ __gt__ " \
             "__ge__ rsub"
_CHANGED = "__iadd__ __isub__ __imul__ __itruediv__ __idiv__ __ifloordiv__ __ipow__ __imod__ __iand__ __ior__ __ixor__ detach_"
# Of sums that are still to be reduced: what the parts' results add up to.
_ADDITIVE = frozenset("add add_ sub sub_ subtract __add__ __radd__ __sub__ __iadd__ __isub__".split())
_UNCHANGED = frozenset("neg neg_ negative positive clone contiguous detach detach_ data cpu cuda __neg__ __pos__".split())
_SCALED = frozenset("mul mul_ multiply __mul__ __rmul__ __imul__ div div_ divide true_divide __truediv__ __itruediv__".split())
_CASTS = frozenset("to float double half bfloat16 type_as".split())
_FILLS = frozenset("zeros_like ones_like full_like empty_like fill fill_ zero zero_".split())


def _sums(p) -> bool:
    return isinstance(p, Partial) and p.reduce_op in ("sum", "avg")


def _stays_partial(name: str, args, kwargs, tensors: list, i: int) -> bool:
    """Whether parts of sums may be worked on before they are added up, along dimension i of the mesh."""
    first = tensors[0].placements[i]
    if not _sums(first) or any(t.placements[i] != first for t in tensors):
        return False
    if name in _UNCHANGED:
        return True
    if name in _ADDITIVE:
        return len(tensors) == 2
    if name in _SCALED:
        return len(tensors) == 1 and isinstance(args[0], DTensor) and argument(args, kwargs, 2, "rounding_mode") is None
    return name in _CASTS and name != "to" and all(t.is_floating_point() for t in tensors) and len(tensors) == 1


def _target(name: str, args, kwargs, tensors: list, shape) -> list:
    """How the result lies."""
    mesh, result = tensors[0].device_mesh, []
    by_size = sorted(tensors, key=lambda t: -t.numel())
    for i in range(mesh.ndim):
        chosen = Replicate()
        if name in _FILLS:
            p = tensors[0].placements[i]
            chosen = p if isinstance(p, CUTS) else chosen
        elif _stays_partial(name, args, kwargs, tensors, i):
            chosen = tensors[0].placements[i]
        else:
            for t in by_size:
                p = t.placements[i]
                if isinstance(p, CUTS):
                    d = p.dim + len(shape) - t.ndim
                    if t.shape[p.dim] == shape[d]:
                        chosen = type(p)(d, *p._fields()[1:])
                        break
        result.append(chosen)
    return list(settled(result, mesh))


def _wanted(t: DTensor, target, shape) -> tuple[list, list]:
    """How an argument must lie for a result that lies as target, and the mesh's dimensions that share it for several parts."""
    placements, shared = [], []
    for i, p in enumerate(target):
        if isinstance(p, CUTS):
            d = p.dim - (len(shape) - t.ndim)
            if d >= 0 and t.shape[d] == shape[p.dim]:
                placements.append(type(p)(d, *p._fields()[1:]))
            else:
                placements.append(Replicate())
                shared.append(i)
        else:
            placements.append(p)
    return placements, shared


@rule(*_BINARY.split(), *(f"{n}_" for n in _BINARY.split()), *_UNARY.split(), *(f"{n}_" for n in _UNARY.split()), *_REFLECTED.split(),
      *_CHANGED.split())
def pointwise(func, name, args, kwargs):
    """Element by element, with broadcasting."""
    if name == "to" and any(isinstance(a, DTensor) for a in args[1:]):
        args = (args[0], args[1].dtype, *args[2:])
    if name == "type_as":
        return args[0].to(args[1].dtype)
    if name == "where" and len(args) + len(kwargs) < 3:
        return NotImplemented  # places of what is true
    tensors = leaves_of(args, kwargs)
    changed = args[0] if in_place(name) else None
    if changed is not None and not isinstance(changed, DTensor):
        raise RuntimeError(f"{name}: a plain tensor cannot take the values of a DTensor\nuse .to_local() or .full_tensor() of that")
    shape = broadcast_shapes(*[t.shape for t in tensors])
    if changed is not None:
        if tuple(shape) != tuple(changed.shape):
            raise RuntimeError(f"{name}: output with shape {list(changed.shape)} doesn't match the broadcast shape {list(shape)}")
        target = list(changed.placements)
        for i, p in enumerate(target):
            if isinstance(p, Partial) and not (_stays_partial(name, args, kwargs, tensors, i) or name in ("zero_", "detach_")
                                               or name == "copy_" and args[1].placements[i] == p):
                raise RuntimeError(f"{name}: in-place operations that require placement changes are not supported: the tensor lies as "
                                   f"{changed.placements}\nuse the operator that gives a new tensor")
    else:
        target = _target(name, args, kwargs, tensors, shape)

    def part(value):
        if isinstance(value, DTensor):
            placements, shared = _wanted(value, target, shape)
            return prepare(value, placements, shared)
        if isinstance(value, (list, tuple)):
            return type(value)(map(part, value))
        return value

    if changed is not None:
        rest, named = [part(a) for a in args[1:]], {k: part(v) for k, v in kwargs.items()}
        with raw():
            func(changed, *rest, **named)
        return changed
    if name in _FILLS:  # of the values none is asked for: a sum that is not reduced gives its shape
        out = func(prepare(args[0], args[0].placements), *args[1:], **kwargs)
    else:
        out = func(*[part(a) for a in args], **{k: part(v) for k, v in kwargs.items()})
    if not isinstance(out, Tensor):
        return out
    result = wrap(out, Spec(tensors[0].device_mesh, target, shape))
    if name in ("detach", "data") and getattr(args[0], "_copy_of_view", None):
        result._copy_of_view = args[0]._copy_of_view
    return result


# --- reductions ---

def _kept(dims: set, keepdim: bool):
    """Dimension of the argument -> of a result without `dims`."""
    return (lambda d: d) if keepdim else (lambda d: d - sum(r < d for r in dims))


@rule("sum", "mean")
def total(func, name, args, kwargs):
    """Sums over cut dimensions are sums of the parts' sums; a mean is a sum over a count."""
    t = args[0]
    dims = dims_of(argument(args, kwargs, 1, "dim", "axis"), t.ndim)
    keepdim = bool(argument(args, kwargs, 2, "keepdim", "keepdims", default=False))
    dtype = argument(args, kwargs, 3, "dtype")
    if len(args) == 2 and not isinstance(args[1], (int, tuple, list, type(None))):
        dtype, dims = args[1], set(range(t.ndim))
    if name == "mean" and not (dtype or t.dtype).is_floating_point and not (dtype or t.dtype).is_complex:
        raise RuntimeError(f"mean(): could not infer output dtype. Input dtype must be either a floating point or complex dtype. Got: {t.dtype}")
    placements, target = [], []
    place = _kept(dims, keepdim)
    for p in t.placements:
        if isinstance(p, CUTS):
            placements.append(p)
            target.append(Partial() if p.dim in dims else type(p)(place(p.dim), *p._fields()[1:]))
        else:
            p = p if _sums(p) and (dtype is None or dtype == t.dtype) else Replicate()
            placements.append(p)
            target.append(p)
    summed = [p for p in target if isinstance(p, Partial)]
    if len({p.reduce_op for p in summed}) > 1:  # a sum of averages
        placements = [Replicate() if _sums(p) else p for p in placements]
        target = [Replicate() if _sums(p) and not isinstance(q, CUTS) else p for p, q in zip(target, placements, strict=True)]
    local = prepare(t, placements)
    sorted_dims = sorted(dims)
    shape = [1 if d in dims else n for d, n in enumerate(t.shape) if keepdim or d not in dims]
    spec = Spec(t.device_mesh, target, shape)
    named = {} if dtype is None else {"dtype": dtype}
    if name == "mean" and not summed:
        return wrap(local.mean(sorted_dims, keepdim, **named) if t.ndim else local.mean(**named), spec)
    out = local.sum(sorted_dims, keepdim, **named) if t.ndim else local.sum(**named)
    if name == "mean":
        count = 1
        for d in dims if t.ndim else ():
            count *= t.shape[d]
        out = out / count if count else out * float("nan")
    return wrap(out, spec)


_SAME_SHAPE = {"softmax": 1, "log_softmax": 1, "softmin": 1, "cumsum": 1, "cumprod": 1, "cummax": 1, "cummin": 1, "logcumsumexp": 1, "sort": 1,
               "argsort": 1, "flip": 1, "normalize": 2, "topk": 2, "glu": 1, "renorm": 2, "diff": 2}
_DEFAULT = {"sort": -1, "argsort": -1, "normalize": 1, "topk": -1, "glu": -1, "diff": -1}


@rule(*_SAME_SHAPE)
def along(func, name, args, kwargs):
    """Work along some dimensions; along the others parts are as good as wholes."""
    t = args[0]
    dim = argument(args, kwargs, _SAME_SHAPE[name], "dim", "dims", "axis", default=_DEFAULT.get(name))
    if not isinstance(t, DTensor) or dim is None or len(leaves_of(args, kwargs)) > 1:
        return NotImplemented
    return structured(func, name, t, dims_of(dim, t.ndim), lambda d: d, args[1:], kwargs)


_REDUCTIONS = {"amax": (1, 2), "amin": (1, 2), "argmax": (1, 2), "argmin": (1, 2), "max": (1, 2), "min": (1, 2), "median": (1, 2), "all": (1, 2),
               "any": (1, 2), "prod": (1, 2), "logsumexp": (1, 2), "nansum": (1, 2), "nanmean": (1, 2), "norm": (2, 3), "vector_norm": (2, 3),
               "var": (1, 3), "std": (1, 3), "var_mean": (1, 3), "std_mean": (1, 3), "mode": (1, 2), "kthvalue": (2, 3), "aminmax": (9, 9)}


@rule(*_REDUCTIONS)
def reduced(func, name, args, kwargs):
    """Reductions along dimensions that are whole; all else the general way."""
    t = args[0]
    at, at_keep = _REDUCTIONS[name]
    dim, keepdim = argument(args, kwargs, at, "dim", "axis"), argument(args, kwargs, at_keep, "keepdim", default=False)
    if name in ("max", "min") and isinstance(dim, DTensor):
        return pointwise(func, name, args, kwargs)
    if not isinstance(t, DTensor) or dim is None or len(leaves_of(args, kwargs)) > 1 or not isinstance(dim, (int, tuple, list)) or isinstance(dim, bool):
        return NotImplemented
    if name in ("var", "std", "var_mean", "std_mean") and len(args) > 2:
        return NotImplemented  # older forms by place
    dims = dims_of(dim, t.ndim)
    return structured(func, name, t, dims, _kept(dims, bool(keepdim)), args[1:], kwargs)


@rule("item", "tolist", "__float__", "__int__", "__bool__", "__index__", "__complex__", "is_nonzero", "equal", "allclose")
def value_of(func, name, args, kwargs):
    """Values that Python asks for: of the whole, so every rank of the mesh must ask."""
    return func(*[replicated(a).detach() if isinstance(a, DTensor) else a for a in args], **kwargs)
