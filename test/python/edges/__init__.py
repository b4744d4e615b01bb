"""Edge values as operands of every row, and the comparison with PyTorch: values, first and second gradients.

Operands are made from a row's own samples, so that a new row has its edge values with its first sample: pointwise rows get
every combination of edge values, others some of them among their sample's numbers, and sizes of 0 and 1, equal elements,
memory that overlaps itself.
"""

import itertools
import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import rows
import tapegrad
from rows import as_numpy, dtype_name, map_tree, tensors_of, to_torch

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib

torch = rows.torch

# PyTorch itself crashes on some of their tensors of size 0, and gives memory that was never written.
CRASHES_IN_TORCH = ("embedding_bag", "gru", "linalg_lstsq", "lstm", "resize_", "rnn_relu", "rnn_tanh", "nn.EmbeddingBag", "nn.GRU", "nn.LSTM", "nn.RNN")
# ... and on the least integer divided by -1.
DIVISIONS = ("div", "true_divide", "floor_divide", "fmod", "remainder")
# What is found of a singular matrix, or of one with NaN, depends on the LAPACK behind it: of these only sizes.
FACTORS = ("decompose", "solve")
# It crashes on coordinates that are no numbers, too.
FINITE = ("grid_sample",)
# Of an infinity a transform makes infinities and NaN, which of them depends on its plan.
NOT_FINITE_ALIKE = ("fft",)
ELEMENTWISE = ("activation", "compare", "loss", "maths", "pointwise", "special")
# What a value may be off by, relative to itself; gradients go through more steps.
TOLERANCE = {"float64": 1e-9, "float32": 3e-5, "float16": 4e-3, "bfloat16": 3e-2, "complex128": 1e-8, "complex64": 1e-4}


def edge_values(dtype) -> list[float]:
    """Zeros, units, limits of common domains, saturation, least and largest numbers, and what is no number."""
    info = tapegrad.finfo(dtype)
    plain = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 6.0, 17.0, -17.0, 40.0, -40.0, 100.0, -100.0, 1000.0, -1000.0]
    near = [1 - info.eps / 2, 1 + info.eps, -1 + info.eps / 2, 1e-3, info.eps, -info.eps]
    limits = [info.tiny, -info.tiny, info.tiny * info.eps, -info.tiny * info.eps, info.max, -info.max, info.max ** 0.5 * 2]
    return plain + near + limits + [math.inf, -math.inf, math.nan]


# For combinations of many operands, and for picks among ordinary numbers.
def few_edges(dtype) -> list[float]:
    info = tapegrad.finfo(dtype)
    return [0.0, -0.0, 1.0, -1.0, info.tiny * info.eps, -info.max, math.inf, -math.inf, math.nan]


def integer_edges(dtype) -> list[int]:
    if dtype == tapegrad.bool:
        return [0, 1]
    info = tapegrad.iinfo(dtype)
    return sorted({0, 1, 2, 7, 63, info.max, info.max - 1, info.min, info.min + 1} | ({-1, -2, -7} if info.min < 0 else set()))


def is_real(t) -> bool:
    return t.dtype.is_floating_point


@dataclass
class Case:
    """A call. `operands`: of an elementwise one the arrays whose elements belong together, to name where a result differs."""

    name: str
    args: tuple
    kwargs: dict
    operands: list | None = None


def substitute(sample, tensors, keep=lambda t: not is_real(t)):
    """The sample with its floating tensors replaced in turn."""
    rest = iter(tensors)
    return map_tree(lambda t: t if keep(t) else next(rest), sample)


def refused(record, args, kwargs) -> bool:
    try:
        record.torch_function(*to_torch(args), **to_torch(kwargs))
    except Exception:  # noqa: BLE001 - whatever PyTorch raises, it does not take these operands
        return True
    return False


def accepted(record, sample, floats, values, dtype) -> list[list[float]]:
    """For each floating operand the edge values that PyTorch takes there: probabilities must lie in [0, 1]."""
    found = []
    for place in range(len(floats)):
        column = []
        for value in values:
            new = [tapegrad.full((2,), 0.5, dtype=dtype) for _ in floats]
            new[place] = tapegrad.tensor([0.5, value], dtype=dtype)
            if not refused(record, *substitute(sample, new)):
                column.append(value)
        found.append(column)
    return found


def elementwise_cases(record, dtype):
    """Every combination of edge values, for each way in which the row's samples call it."""
    seen = set()
    for args, kwargs in record.make_samples(dtype):
        floats = [t for t in tensors_of([args, kwargs]) if is_real(t)]
        others = [t for t in tensors_of([args, kwargs]) if not is_real(t)]
        key = (len(floats), repr(map_tree(lambda t: str(t.dtype), (args, kwargs))))
        if not floats or len(floats) > 3 or any(t.ndim for t in others) or key in seen:
            continue
        seen.add(key)
        values = edge_values(dtype) if len(floats) < 3 else few_edges(dtype)
        columns = [values] * len(floats)
        if "polynomial" in record.name:  # the last operand is a degree
            columns[-1] = [v for v in values if abs(v) <= 40]
        for attempt in range(2):
            grid = list(itertools.product(*columns))
            operands = [np.array(column, dtype=np.float64) for column in zip(*grid)]
            new = substitute((args, kwargs), [tapegrad.tensor(o, dtype=dtype) for o in operands])
            if not refused(record, *new):
                yield Case(f"edges {len(seen)}", *new, operands)
                break
            columns = accepted(record, (args, kwargs), floats, values, dtype)
            if attempt or not all(columns):
                break


def integer_cases(record, dtype):
    """Combinations of an integer dtype's limits, where PyTorch takes the dtype."""
    seen = set()
    for args, kwargs in record.make_samples(tapegrad.float64):
        tensors = tensors_of([args, kwargs])
        key = (len(tensors), repr(map_tree(lambda t: "", (args, kwargs))))
        mixed = len({is_real(t) for t in tensors}) > 1
        if "polynomial" in record.name or not tensors or len(tensors) > 2 or mixed or key in seen:
            continue
        seen.add(key)
        for nonzero in (False, True):
            values = [v for v in integer_edges(dtype) if v or not nonzero]
            grid = itertools.product(*[values] * len(tensors))
            if record.name in DIVISIONS:
                grid = [pair for pair in grid if pair != (min(values), -1)]
            elif record.name == "lcm":  # divides by PyTorch's gcd, which may be -1
                grid = [pair for pair in grid if min(values) not in pair or min(values) >= 0]
            operands = [np.array(column) for column in zip(*grid)]
            new = substitute((args, kwargs), [tapegrad.tensor(o.tolist(), dtype=dtype) for o in operands], lambda t: False)
            if not refused(record, *new):
                yield Case(f"{str(dtype).rsplit('.')[-1]} {len(seen)}", *new, operands)
                break


def complex_cases(record):
    """Complex numbers on the axes, where the branch cuts are, at the unit circle, and large and small ones; all finite."""
    parts = [0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 1e-3, 40.0]
    seen = set()
    for args, kwargs in record.make_samples(tapegrad.float64):
        floats = [t for t in tensors_of([args, kwargs]) if is_real(t)]
        key = (len(floats), repr(map_tree(lambda t: str(t.dtype), (args, kwargs))))
        if not floats or len(floats) > 2 or len(floats) < len(tensors_of([args, kwargs])) or key in seen:
            continue
        seen.add(key)
        values = [complex(re, im) for re, im in itertools.product(parts[:len(parts) // len(floats)], repeat=2)]
        operands = [np.array(column) for column in zip(*itertools.product(*[values] * len(floats)))]
        new = substitute((args, kwargs), [tapegrad.tensor(o) for o in operands])
        if not refused(record, *new):
            yield Case(f"complex {len(seen)}", *new, operands)


def overlapping(t):
    """A tensor of t's size whose rows are windows on one line of numbers: neighbours share memory."""
    if t.ndim < 2 or t.numel() == 0:
        return t
    length = sum(s - 1 for s in t.shape) + 1
    return t.detach().reshape(-1)[:length].clone().as_strided(t.shape, (1,) * t.ndim)


def expanded(t):
    return t[:1].expand(t.shape) if t.ndim and t.shape[0] else t


def resized(t, old: int, new: int):
    for d in range(t.ndim):
        if t.shape[d] == old:
            t = t.narrow(d, 0, 0) if new == 0 else t.narrow(d, 0, 1)
    return t


def sample_cases(record, dtype, most=6):
    """Each sample with edge values among its numbers, with equal elements, overlapping memory, and sizes of 0 and 1."""
    samples = record.make_samples(dtype)
    step = max(1, len(samples) // most)
    rng = np.random.default_rng(5)
    # Not the largest number: whether a sum of many overflows depends on the order of its parts.
    values = [v for v in few_edges(dtype) if not 1e300 < abs(v) < math.inf]
    if record.name in FINITE:
        values = values[:5]
    for n, (args, kwargs) in enumerate(samples[::step][:most]):
        floats = [t for t in tensors_of([args, kwargs]) if is_real(t)]
        if sum(t.numel() for t in floats) > 8000:
            continue

        def each(name, f, args=args, kwargs=kwargs):
            return Case(f"sample {n * step} {name}", *map_tree(lambda t: f(t) if is_real(t) else t, (args, kwargs)))

        def pick(share, choices):
            def f(t):
                array = as_numpy(t).astype(np.float64, copy=True)
                places = rng.random(array.shape) < share
                array[places] = rng.choice(choices, int(places.sum()))
                return tapegrad.tensor(array, dtype=t.dtype)
            return f

        def one(value):
            place = rng.integers(sum(t.numel() for t in floats)) if sum(t.numel() for t in floats) else 0

            def f(t):
                nonlocal place
                array = as_numpy(t).astype(np.float64, copy=True)
                if 0 <= place < array.size:
                    array.reshape(-1)[place] = value
                place -= array.size
                return tapegrad.tensor(array, dtype=t.dtype)
            return f

        special = floats and record.family not in FACTORS
        yield each("as it is", lambda t: t)
        for k in range(3 if special else 0):
            value = values[(3 * n + k) % len(values)]
            yield each(f"one {value}", one(value))
        if special:
            yield each("some 0", pick(0.4, [0.0, -0.0]))
            yield each("some of all", pick(0.3, values))
            yield each("all 0", lambda t: tapegrad.zeros_like(t))
            yield each("equal", lambda t: tapegrad.full_like(t, 0.5))
            if math.inf in values:
                yield each("infinite", lambda t: tapegrad.full_like(t, math.inf))
            if math.isnan(values[-1]):
                yield each("NaN", lambda t: tapegrad.full_like(t, math.nan))
        if special and record.test.get("layout", True) and record.kind != "view":  # of views the strides are the result
            yield each("expanded", expanded)
            yield each("overlapping", overlapping)
        if n < 4 and record.name not in CRASHES_IN_TORCH:
            for size in sorted({s for t in tensors_of([args, kwargs]) for s in t.shape}):
                for new in (0, 1):
                    if size > new:
                        yield Case(f"sample {n * step} size {size} to {new}",
                                   *map_tree(lambda t: resized(t, size, new), (args, kwargs)))


class Comparison:
    """One case in both libraries; `differences` are sentences, each of one element or of a whole result."""

    def __init__(self, record, case, dtype, gradients=True):
        self.record, self.case, self.dtype = record, case, str(dtype).rsplit(".")[-1]
        self.ours, self.theirs = record.function, record.torch_function
        if record.test.get("hermitian"):  # one triangle is read: the other is to change with it
            self.ours, self.theirs = (
                lambda *args, f=f, **kwargs: f(*map_tree(lambda t: (t + t.mH) / 2 if t.ndim > 1 else t, args), **kwargs) for f in (self.ours, self.theirs))
        self.compared = 0
        self.differences = []
        self.precise = None
        with np.errstate(all="ignore"):
            self._run(gradients)

    def _say(self, stage, text):
        self.differences.append(f"{stage} {self.dtype} {self.case.name}: {text}")

    def _both(self, stage, ours, theirs):
        """Results of both, or None twice; an error of ours alone is a difference."""
        try:
            expected = theirs()
        except Exception:  # noqa: BLE001
            return None, None
        try:
            return ours(), expected
        except Exception as error:  # noqa: BLE001
            self._say(stage, f"raises {type(error).__name__}: {str(error).splitlines()[0][:150]}")
            return None, None

    def _run(self, gradients):
        case, fixed = self.case, rows.fixed_tensors(self.record, self.case.args, self.case.kwargs)

        def leaf(t):
            floating = t.dtype.is_floating_point or t.dtype.is_complex
            return t.detach().requires_grad_(bool(gradients and floating and id(t) not in fixed))

        mine = map_tree(leaf, (case.args, case.kwargs))
        # PyTorch gets memory of its own for every element.
        other = to_torch(map_tree(lambda t: t.detach().contiguous().requires_grad_(t.requires_grad), mine))
        got, expected = self._both("value", lambda: self.ours(*mine[0], **mine[1]), lambda: self.theirs(*other[0], **other[1]))
        if expected is None:
            return
        if self.dtype in ("float32", "float16", "bfloat16"):
            wide = map_tree(lambda t: t.detach().double() if t.dtype.is_floating_point else t, other)
            try:
                self.precise = tensors_of(self.theirs(*wide[0], **wide[1]))
            except Exception:  # noqa: BLE001
                self.precise = None
        if not tensors_of(expected):
            self.compared += 1
            if not (got == expected or (got != got and expected != expected)):
                self._say("value", f"{got}, torch {expected}")
        self._compare("value", tensors_of(got), tensors_of(expected), self.precise)
        if not gradients:
            return
        pairs = [(g, e) for g, e in zip(tensors_of(got), tensors_of(expected)) if e.requires_grad and g.requires_grad]
        if not pairs:
            return
        mine, other = ([t for t in tensors_of(side) if t.requires_grad] for side in (mine, other))
        self._gradients("grad", [g for g, _ in pairs], [e for _, e in pairs], mine, other, 3)

    def _gradients(self, stage, got, expected, mine, other, seed):
        weights = [cotangent(g.shape, g.dtype, seed + i) for i, g in enumerate(got)]
        again = stage == "grad"

        def ours():
            return tapegrad.autograd.grad(got, mine, weights, create_graph=again, materialize_grads=True)

        def theirs():
            found = torch.autograd.grad(expected, other, [to_torch(w) for w in weights], create_graph=again, allow_unused=True)
            return [torch.zeros_like(t) if g is None or g._is_zerotensor() else g for t, g in zip(other, found)]

        got, expected = self._both(stage, ours, theirs)
        if expected is None:
            return
        self._compare(stage, got, expected)
        if again:
            pairs = [(g, e) for g, e in zip(got, expected) if g.requires_grad and e.requires_grad]
            if pairs:
                self._gradients("grad2", [g for g, _ in pairs], [e for _, e in pairs], mine, other, 7)

    def _compare(self, stage, got, expected, precise=None):
        if len(got) != len(expected):
            self._say(stage, f"{len(got)} results, torch {len(expected)}")
        for i, (g, e) in enumerate(zip(got, expected)):
            self.compared += 1
            if tuple(g.shape) != tuple(e.shape):
                self._say(stage, f"shape {tuple(g.shape)}, torch {tuple(e.shape)}")
            elif dtype_name(g) != dtype_name(e):
                self._say(stage, f"dtype {dtype_name(g)}, torch {dtype_name(e)}")
            else:
                exact = as_numpy(precise[i]) if precise and len(precise) == len(expected) and precise[i].shape == e.shape else None
                self._elements(stage, i, as_numpy(g), as_numpy(e), dtype_name(e), exact)

    def _elements(self, stage, i, got, expected, dtype, exact):
        floating = dtype in TOLERANCE
        if not floating:
            wrong = got != expected
        else:
            tolerance = TOLERANCE[dtype] * (1 if stage == "value" else 10)
            wrong = ~close(got, expected, tolerance, stage == "value" and self.record.kind == "pointwise")
            if exact is not None:
                wrong &= ~close(got, exact.astype(expected.dtype), tolerance)
            if stage == "value" and self.case.operands and not dtype.startswith("complex"):
                both = (got == 0) & (expected == 0)
                wrong |= both & (np.signbit(got) != np.signbit(expected))
            if self.record.family in NOT_FINITE_ALIKE:
                wrong &= np.isfinite(got) | np.isfinite(expected)
        if not wrong.any():
            return
        places = np.argwhere(wrong) if wrong.ndim else [()]
        operands = self.case.operands
        named = operands and wrong.shape == operands[0].shape
        for place in places if named else places[:1]:
            index = tuple(place)
            at = " at (" + ", ".join(f"{o[index]:.6g}" for o in operands) + ")" if named else f" {len(places)} of {wrong.size}"
            self._say(stage, f"[{i}]{at}: {got[index]!s}, torch {expected[index]!s}")


def cotangent(shape, dtype, seed):
    """Fixed weights of both signs, none near zero."""
    rng = np.random.default_rng(seed)
    values = rng.uniform(0.5, 1.5, tuple(shape)) * rng.choice([-1.0, 1.0], tuple(shape))
    if dtype.is_complex:
        values = values * (1 + 0.5j)
    return tapegrad.tensor(values, dtype=dtype)


def close(got, expected, tolerance, relative=False):
    """Equal infinities and NaN, and finite numbers within the tolerance of their own size, or of 1 where that is asked."""
    return np.isclose(got, expected, rtol=tolerance, atol=0 if relative else tolerance, equal_nan=True)


def load_known():
    """differences.toml: [[difference]] tables of rows, match (a regular expression found in the sentence), reason."""
    known = tomllib.loads(Path(__file__).with_name("differences.toml").read_text()).get("difference", [])
    for entry in known:
        entry["pattern"] = re.compile(entry["match"])
    return known


class Callable:
    """What is compared and is no row: a name and a function per library."""

    kind, family, args, test, writes = "composite", "", (), {}, False

    def __init__(self, name, function=None, torch_function=None):
        self.name = name
        if function:
            self.function, self.torch_function = function, torch_function


def check(name, differences, known, excused=""):
    """Fails with what is new, and with what is listed and no longer so."""
    new, gone = judge(name, differences, known, excused)
    assert not new, f"{name}: {len(new)} differences from PyTorch:\n" + "\n".join(new[:20])
    assert not gone, f"{name}: listed in differences.toml, and no longer so: {gone}"


def judge(name, differences, known, excused=""):
    """What is new among the differences of a row, and which listed ones did not occur. What is listed under the name `excused` is not new,
    and need not occur."""
    entries = [entry for entry in known if name in entry["rows"]]
    others = [entry for entry in known if excused in entry["rows"]]
    new = [d for d in differences if not any(entry["pattern"].search(d) for entry in entries + others)]
    gone = [entry["match"] for entry in entries
            if not entry.get("some_processors") and not any(entry["pattern"].search(d) for d in differences)]
    return new, gone
