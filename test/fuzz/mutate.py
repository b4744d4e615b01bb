"""Breaks the arguments of a right call. Every mutator takes the random generator and a value and returns another value;
`mutated` applies one or more of them somewhere in the nested arguments."""

import random

import tapegrad as tg

DTYPES = [tg.bool, tg.uint8, tg.int8, tg.int16, tg.int32, tg.int64, tg.float16, tg.bfloat16, tg.float32, tg.float64, tg.complex64, tg.complex128]
INTEGERS = [0, 1, -1, 2, -2, 3, 7, -7, 63, 64, 65, 1000, -1000, 2**15, 2**31 - 1, 2**31, -(2**31), 2**32, 2**53, 2**62, 2**63 - 1, -(2**63), 2**63, 2**64, 10**30]
REALS = [0.0, -0.0, 0.5, 1.0, -1.0, 2.5, 1e-300, 1e308, -1e308, float("nan"), float("inf"), float("-inf")]
TEXTS = ["", "mean", "sum", "none", "x", "reflect", "\x00", "i,j->ij", "...->", "é" * 100]


class RaisesOnIndex:
    """What a list of numbers may hold: an object that refuses to be one."""

    def __index__(self):
        raise ZeroDivisionError("__index__ refuses")

    __int__ = __float__ = __bool__ = __index__


class WritesOnIndex:
    """Resizes a tensor of the same call while it is asked for its number."""

    def __init__(self, tensor, number):
        self.tensor, self.number = tensor, number

    def __index__(self):
        if self.tensor is not None:
            self.tensor.detach().resize_(0)
        return self.number

    __int__ = __index__

    def __float__(self):
        return float(self.__index__())


def _recursive():
    loop = []
    loop.append(loop)
    return loop


def _foreign(rng: random.Random, call):
    tensors = call.tensors()
    choices = [None, True, 1, -1, 2**40, 1.5, 1j, "text", b"bytes", (), [], {}, set(), [None], [[1, 2], [3]], object(), RaisesOnIndex(), [RaisesOnIndex()], _recursive(), tg.float32,
               tg.device("meta"), tg.contiguous_format, tg.Size([2, 3]), range(3), slice(None), Ellipsis, int, lambda: None, tg.ones(2, 3), [tg.ones(2)] * 2, tg.tensor(1)]
    if tensors:
        t = rng.choice(tensors)
        choices += [WritesOnIndex(t, rng.choice((0, 1, 2))), [WritesOnIndex(t, 1)] * 2, t, [t, t]]
    return rng.choice(choices)


def _extreme(t, rng: random.Random):
    """The same shape with values that no index, no probability and no count should have."""
    t = t.detach().clone()
    if t.numel() == 0 or t.is_meta:
        return t
    flat = t.reshape(-1)
    places = [rng.randrange(flat.numel()) for _ in range(rng.choice((1, 1, 3)))]
    for place in places:
        if t.dtype.is_floating_point or t.dtype.is_complex:
            flat[place] = rng.choice([float("nan"), float("inf"), float("-inf"), 1e300 if t.dtype == tg.float64 else 3e4, -2.0, 1e9 if t.dtype == tg.float64 else -1.0])
        elif t.dtype == tg.bool:  # any byte may lie there
            flat.view(tg.uint8)[place] = rng.choice((0, 1, 2, 255))
        else:
            info = tg.iinfo(t.dtype)
            flat[place] = rng.choice([info.max, info.min, min(100, info.max), 5, 0, max(info.min, -1)])
    return flat.reshape(t.shape)


def _layout(t, rng: random.Random):
    kind = rng.randrange(7)
    if kind == 0 and t.ndim:
        return t.transpose(0, -1)
    if kind == 1 and t.ndim:
        return t[:1].expand(t.shape) if t.shape[0] else t
    if kind == 2:
        return t.expand(3, *t.shape)
    if kind == 3 and t.ndim and t.numel():
        return t.as_strided(t.shape, [rng.choice((0, 1, 2)) if n > 1 else 1 for n in t.shape]) if max(t.shape) < 3 else t.flip(0)
    if kind == 4 and t.ndim and t.shape[0] > 1:
        return t[1:]
    if kind == 5 and t.ndim and t.shape[-1] > 1:
        return t[..., ::2]
    return t.contiguous()


def _shape(t, rng: random.Random):
    kind = rng.randrange(10)
    if kind == 0:
        return t.unsqueeze(rng.randrange(t.ndim + 1))
    if kind == 1 and t.ndim:
        dim = rng.randrange(t.ndim)
        return t.select(dim, 0) if t.shape[dim] else t.unsqueeze(0)
    if kind == 2 and t.ndim:
        return t.narrow(rng.randrange(t.ndim), 0, 0)
    if kind == 3 and t.ndim:
        dim = rng.randrange(t.ndim)
        return tg.cat([t, t], dim)
    if kind == 4 and t.ndim:
        dim = rng.randrange(t.ndim)
        return t.narrow(dim, 0, t.shape[dim] - 1) if t.shape[dim] > 1 else t
    if kind == 5:
        return t.reshape(-1)
    if kind == 6:
        return tg.empty(rng.choice(((), (0,), (1,), (3, 0), (1, 1, 1, 1, 1))), dtype=t.dtype)
    if kind == 7:
        return t.reshape((1,) * (rng.choice((60, 63, 64)) - t.ndim) + tuple(t.shape))
    if kind == 8:  # sizes whose product does not fit, in a tensor that holds nothing
        return tg.empty((0,), dtype=t.dtype).expand(*rng.choice(((2**31, 0), (2**62, 0), (0, 2**40, 2**40)))) if rng.random() < 0.5 else t.reshape(-1)[:1].expand(2**20) if t.numel() else t
    return tg.empty(tuple(t.shape), dtype=t.dtype, device="meta")


def _tensor(t, rng: random.Random, call):
    t = t.detach() if rng.random() < 0.5 else t
    kind = rng.randrange(9)
    if kind <= 1:
        return t.to(rng.choice(DTYPES))
    if kind <= 3:
        return _shape(t, rng)
    if kind == 4:
        return _layout(t, rng)
    if kind == 5:
        return _extreme(t, rng)
    if kind == 6:  # a storage that lost its elements under the view
        whole = t.detach().clone()
        part = whole[..., :1] if whole.ndim else whole
        (part if rng.random() < 0.3 else whole).resize_(0)
        return rng.choice((whole, part))
    if kind == 7:
        return rng.choice([t, *call.tensors()])
    return _foreign(rng, call)


def _value(value, rng: random.Random, call):
    if isinstance(value, tg.Tensor):
        return _tensor(value, rng, call)
    if rng.random() < 0.15:
        return _foreign(rng, call)
    if isinstance(value, bool):
        return rng.choice([not value, None, 1, "true"])
    if isinstance(value, int):
        return rng.choice([*INTEGERS, value + 1, value - 1, -value, float(value), tg.tensor(value)])
    if isinstance(value, float):
        return rng.choice([*REALS, -value, int(value) if value == value and abs(value) < 1e9 else 0])
    if isinstance(value, str):
        return rng.choice([*TEXTS, value + "x", value[:-1]])
    if isinstance(value, tg.dtype):
        return rng.choice(DTYPES)
    if isinstance(value, (list, tuple)):
        kind, items = rng.randrange(4), list(value)
        if kind == 0:
            items.append(items[-1] if items else 1)
        elif kind == 1 and items:
            items.pop(rng.randrange(len(items)))
        elif kind == 2 and items:
            at = rng.randrange(len(items))
            items[at] = _value(items[at], rng, call)
        else:
            items = items * rng.choice((0, 2, 40))
        return rng.choice((list, tuple))(items)
    return _foreign(rng, call)


class Call:
    """Arguments of one call, to be broken."""

    def __init__(self, args, kwargs):
        self.args, self.kwargs = list(args), dict(kwargs)

    def tensors(self) -> list:
        found, waiting = [], [*self.args, *self.kwargs.values()]
        while waiting:
            value = waiting.pop()
            if isinstance(value, tg.Tensor):
                found.append(value)
            elif isinstance(value, (list, tuple)) and len(value) < 50:
                waiting += [v for v in value if v is not value and not (isinstance(v, list) and v and v[0] is v)]
        return found


def _optional(rng: random.Random, call, arguments):
    """Gives an argument that the sample left out a value of its own type."""
    name, kind, default, _ = rng.choice(arguments)
    base = kind.rstrip("?").partition("[")[0].partition("|")[0]
    start = {"int": 1, "float": 0.5, "Scalar": 1.5, "bool": True, "str": "mean", "DType": tg.float32, "Tensor": tg.ones(2, 3)}.get(base)
    value = [start] * 2 if "[" in kind and start is not None else start
    call.kwargs[name] = _value(value, rng, call) if rng.random() < 0.6 else value


def mutated(rng: random.Random, args, kwargs, arguments) -> Call:
    """The call with one thing broken, now and then with several."""
    call = Call(args, kwargs)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        kind = rng.random()
        if kind < 0.72 and call.args:
            at = rng.randrange(len(call.args))
            call.args[at] = _value(call.args[at], rng, call)
        elif kind < 0.82 and call.kwargs:
            name = rng.choice(list(call.kwargs))
            call.kwargs[name] = _value(call.kwargs[name], rng, call)
        elif kind < 0.92 and arguments:
            _optional(rng, call, arguments)
        elif kind < 0.95 and call.args:
            call.args.pop()
        elif kind < 0.97:
            call.args.append(_foreign(rng, call))
        else:
            call.kwargs[rng.choice(("out", "dim", "dtype", "nonsense", "input"))] = _foreign(rng, call)
    return call


def target(rng: random.Random, like, call):
    """A tensor (or several) for `out=` that may be wrong in every way."""
    if isinstance(like, (list, tuple)):
        return tuple(target(rng, v, call) for v in like)
    kind = rng.randrange(6)
    others = call.tensors()
    if kind == 0 and others:
        return rng.choice(others)
    if kind == 1 and isinstance(like, tg.Tensor):
        return _tensor(like.detach().clone(), rng, call)
    if kind == 2 and others:
        t = rng.choice(others).detach()
        return t.transpose(0, -1) if t.ndim else t
    if kind == 3 and isinstance(like, tg.Tensor) and like.ndim:
        return tg.empty(1, dtype=like.dtype).expand(like.shape)
    if kind == 4:
        return _foreign(rng, call)
    return tg.empty(0)
