"""Every family of operators: float32 at 64, 4,096, 262,144 and 16 M elements, bfloat16 at 4,096 and 262,144."""

from ..harness import Case

SIZES = {64: (8, 8), 4096: (64, 64), 262_144: (512, 512), 16_777_216: (4096, 4096)}
LARGEST = {"sort": 262_144, "argsort": 262_144, "unique": 262_144, "randperm": 262_144, "median": 262_144, "kthvalue": 262_144, "multinomial": 262_144}


def _label(n: int) -> str:
    return "16 M" if n > 1 << 20 else f"{n:,}"


def tensors(lib, shape, dtype):
    """Positive numbers, so that log and pow are at home; the same in both libraries."""
    n = shape[0] * shape[1]
    x = ((lib.arange(n) * 7919) % 10007).float().div(10007).add(0.01).reshape(shape).to(dtype)
    index = (lib.arange(n) * 7907 % shape[0]).reshape(shape)
    return x, x.flip(0) + 0.5, index


def _pointwise(lib, x, y, index):
    return {
        "add": lambda: x + y, "mul by a number": lambda: x * 2, "div": lambda: x / y, "pow": lambda: x**1.7, "exp": lambda: x.exp(), "log": lambda: x.log(),
        "sin": lambda: x.sin(), "tanh": lambda: x.tanh(), "erf": lambda: x.erf(), "gelu": lambda: lib.nn.functional.gelu(x), "atan2": lambda: lib.atan2(x, y),
        "maximum": lambda: lib.maximum(x, y), "clamp": lambda: x.clamp(0.2, 0.8), "x < y": lambda: x < y, "where": lambda: lib.where(x < y, x, y),
        "addcmul": lambda: lib.addcmul(x, x, y), "add_ in place": lambda: y.add_(0.0), "row + column": lambda: x[:1] + x[:, :1],
        "int64 add": lambda: index + 1, "int64 //": lambda: index // 3,
    }


def _reductions(lib, x, y, index):
    table = {"sum": lambda: x.sum(), "mean": lambda: x.mean(), "var": lambda: x.var(), "amax": lambda: x.amax(), "argmax": lambda: x.argmax(),
             "norm": lambda: lib.linalg.vector_norm(x), "prod": lambda: x.prod(), "all": lambda: (x > 0).all(), "count_nonzero": lambda: x.count_nonzero(),
             "int64 sum": lambda: index.sum()}
    for dim, where in ((0, "over rows"), (1, "along rows")):
        for name in ("sum", "mean", "var", "amax", "argmax", "logsumexp", "max", "norm"):
            table[f"{name} {where}"] = lambda dim=dim, f=getattr(x, name): f(dim=dim)
    cube = x.reshape(4, -1, x.shape[1])
    return table | {"sum over the middle": lambda: cube.sum(1), "sum but the middle": lambda: cube.sum((0, 2))}


def _copies(lib, x, y, index):
    cube = x.reshape(4, -1, x.shape[1])
    return {
        "clone": lambda: x.clone(), "transpose": lambda: x.t().contiguous(), "permute (2, 0, 1)": lambda: cube.permute(2, 0, 1).contiguous(),
        "every second column": lambda: x[:, ::2].contiguous(), "cat rows": lambda: lib.cat([x, y]), "cat columns": lambda: lib.cat([x, y], 1),
        "stack last": lambda: lib.stack([x, y], -1), "flip": lambda: x.flip(1), "roll": lambda: x.roll(3, 1), "repeat": lambda: x.repeat(2, 1),
        "repeat_interleave": lambda: x.repeat_interleave(2, 0), "tril": lambda: x.tril(), "pad": lambda: lib.nn.functional.pad(x, (1, 1, 1, 1)),
        "to float64": lambda: x.double(), "to int64": lambda: x.long(), "zeros_like": lambda: lib.zeros_like(x), "copy_": lambda: y.copy_(x),
        "fill_": lambda: y.fill_(1.0),
    }


def _indexing(lib, x, y, index):
    mask, row = x > 0.5, index[:, 0].contiguous()
    flat = index.reshape(-1)
    return {
        "gather 0": lambda: x.gather(0, index), "gather 1": lambda: x.gather(1, index), "scatter": lambda: x.scatter(1, index, y),
        "scatter_add 0": lambda: x.scatter_add(0, index, y), "scatter_add 1": lambda: x.scatter_add(1, index, y), "index_select 0": lambda: x.index_select(0, row),
        "index_select 1": lambda: x.index_select(1, row), "index_add": lambda: x.index_add(0, row, y), "x[rows]": lambda: x[row], "x[rows, columns]": lambda: x[index, index],
        "take": lambda: x.take(flat), "masked_select": lambda: x[mask], "masked_fill": lambda: x.masked_fill(mask, 0.0), "nonzero": lambda: mask.nonzero(),
        "x[mask] = 0": lambda: y.__setitem__(mask, 0.0), "index_put": lambda: x.index_put((row,), y), "one_hot": lambda: lib.nn.functional.one_hot(row, x.shape[0]),
    }


def _ordering(lib, x, y, index):
    flat, edges = x.reshape(-1), lib.linspace(0, 1, 257)
    return {
        "sort": lambda: x.sort(-1), "sort 1-d": lambda: flat.sort(), "argsort 0": lambda: x.argsort(0), "topk 8": lambda: x.topk(8), "topk 8 1-d": lambda: flat.topk(8),
        "kthvalue": lambda: x.kthvalue(3), "median": lambda: x.median(-1), "unique": lambda: index.unique(), "searchsorted": lambda: lib.searchsorted(edges, flat.float()),
        "bincount": lambda: lib.bincount(index.reshape(-1)), "histc": lambda: lib.histc(flat.float(), 64), "cummax": lambda: x.cummax(-1),
    }


def _scans(lib, x, y, index):
    f = lib.nn.functional
    weight, bias = y[0].clone(), y[1].clone()
    return {
        "cumsum 0": lambda: x.cumsum(0), "cumsum 1": lambda: x.cumsum(1), "cumprod 1": lambda: x.cumprod(1), "logcumsumexp 1": lambda: x.logcumsumexp(1),
        "diff": lambda: x.diff(), "softmax 1": lambda: x.softmax(1), "softmax 0": lambda: x.softmax(0), "log_softmax 1": lambda: x.log_softmax(1),
        "layer_norm": lambda: f.layer_norm(x, (x.shape[1],), weight, bias), "rms_norm": lambda: f.rms_norm(x, (x.shape[1],), weight),
        "batch_norm": lambda: f.batch_norm(x, None, None, weight, bias, True), "normalize": lambda: f.normalize(x, dim=1),
        "mse_loss": lambda: f.mse_loss(x, y), "cross_entropy": lambda: f.cross_entropy(x, index[:, 0]), "dropout": lambda: f.dropout(x, 0.1),
    }


def _random(lib, x, y, index):
    shape, n = x.shape, x.numel()
    return {
        "rand": lambda: lib.rand(shape, dtype=x.dtype), "randn": lambda: lib.randn(shape, dtype=x.dtype), "randint": lambda: lib.randint(0, 100, shape),
        "bernoulli": lambda: lib.bernoulli(x.clamp(max=1)), "exponential_": lambda: y.exponential_(), "randperm": lambda: lib.randperm(n),
        "multinomial": lambda: lib.multinomial(x, 4, True),
    }


def _backward(lib, x, y, index):
    """Forward and backward of one operator."""
    f = lib.nn.functional
    a, table = x.detach().clone().requires_grad_(), y.detach().clone().requires_grad_()
    row = index[:, 0].contiguous()

    def through(function, leaf=a):
        def run():
            leaf.grad = None
            result = function()
            (result if result.ndim == 0 else result.sum()).backward()

        return run

    return {
        "mul and sum": through(lambda: a * y), "exp": through(lambda: a.exp()), "mean over rows": through(lambda: a.mean(0)), "amax along rows": through(lambda: a.amax(1)),
        "softmax": through(lambda: a.softmax(1)), "layer_norm": through(lambda: f.layer_norm(a, (a.shape[1],))), "gather": through(lambda: a.gather(1, index)),
        "index_select": through(lambda: a.index_select(0, row)), "embedding": through(lambda: f.embedding(row, table), table), "cumsum": through(lambda: a.cumsum(1)),
        "cat": through(lambda: lib.cat([a, a])), "transpose and mul": through(lambda: a.t() * y), "slice": through(lambda: a[:, 1:]), "sort": through(lambda: a.sort()[0]),
        "gelu": through(lambda: f.gelu(a)), "where": through(lambda: lib.where(x > 0.5, a, y)),
    }


FAMILIES = {"pointwise": _pointwise, "reductions": _reductions, "copies": _copies, "indexing": _indexing, "ordering": _ordering, "scans and norms": _scans,
            "random": _random, "backward": _backward}


def cases(libraries, rounds=5):
    for family, make in FAMILIES.items():
        for dtype, sizes in (("float32", SIZES), ("bfloat16", (4096, 262_144))):
            for n in sizes:
                runs = {name: make(lib, *tensors(lib, SIZES[n], getattr(lib, dtype))) for name, lib in libraries.items() if name != "numpy"}
                for operator in runs["tapegrad"]:
                    if dtype != "float32" and operator.startswith("int64") or n > LARGEST.get(operator.split()[0], n):
                        continue
                    yield Case(f"{family}, {dtype}", f"{operator}, {_label(n)}", {name: table[operator] for name, table in runs.items()},
                               rounds=rounds)
