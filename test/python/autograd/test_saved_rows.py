"""What is saved for gradients, over every row of the op table: a program that writes to a result or to an operand after the call is accepted where
PyTorch accepts it, and gives the gradients that it would have without the write."""

import itertools

import pytest
import rows
import tapegrad
from rows import assert_equal, map_tree, tensors_of, to_torch

torch = pytest.importorskip("torch")

RECORDS = [r for r in rows.load_records() if r.samples and r.torch_function is not None and r.differentiable
           and (r.modules or r.method) and not r.writes and r.test.get("values") is not False]
MOST_SAMPLES = 12  # of a row

CELL = "one step for gates and state, which finds the gates again from its operands; PyTorch keeps the gates of the forward pass"
# What some rows keep on purpose and PyTorch does not, so that a write to it is refused, and why.
KEPT = {
    "tanhshrink": (["operands[0]"], "one pass over the input; PyTorch subtracts and keeps tanh(input)"),
    "ndtr": (["operands[0]"], "one pass over the input; PyTorch keeps input / sqrt(2), a second tensor"),
    "ldexp": (["operands[0]", "operands[1]"], "a product with a power of two, which keeps both factors; PyTorch keeps the result of the power alone"),
    "polar": (["operands[0]", "operands[1]"], "the gradient is exact where abs is 0; PyTorch keeps the result, which has lost the angle there"),
    "cross_entropy": (["operands[0]"], "one pass that keeps a number for each sample; PyTorch keeps log_softmax, a second tensor of the size of the logits"),
    "scaled_dot_product_attention": (["operands[0]", "operands[1]", "operands[2]", "operands[3]", "results[0]"],
                                     "blocks of scores that are found again from the operands, for all shapes; where PyTorch has no such kernel it keeps "
                                     "scaled copies and all scores"),
    "matmul": (["operands[1]"], "operands are read where they lie; PyTorch expands and copies them, and keeps the copies"),
    "instance_norm": (["operands[1]"], "the weight is read where it lies; PyTorch repeats it for each sample, and keeps that"),
    "rms_norm": (["operands[0]", "operands[1]"], "one kernel; PyTorch composes it, and keeps the product that the weight is multiplied with"),
    "pdist": (["operands[0]"], "the points are read where they lie; PyTorch copies those that are not dense, and keeps the copy"),
    **dict.fromkeys(("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"), ([f"operands[{i}]" for i in range(7)], CELL)),
}


def is_floating(t) -> bool:
    return t.dtype.is_floating_point or t.dtype.is_complex


class Run:
    """One call of a row in one of the libraries: operands that may be written to, and the gradients of those that want one."""

    def __init__(self, library, function, sample, wanted):
        self.library = library
        library.manual_seed(1)
        place = itertools.count()
        self.leaves, self.operands = [], []

        def operand(t):
            t = t.detach().clone()
            if next(place) in wanted:
                self.leaves.append(t.requires_grad_(True))
                t = t.clone()  # no leaf: it may be written to
            self.operands.append(t)
            return t

        args, kwargs = map_tree(operand, sample)
        self.results = tensors_of(function(*args, **kwargs))

    def write(self, kind: str, place: int) -> None:
        t = getattr(self, kind)[place].detach()
        t.add_(1) if is_floating(t) else t.copy_(t.clone())  # an index written to may lead PyTorch out of bounds

    def has_gradients(self) -> bool:
        return any(r.requires_grad and r.numel() for r in self.results)  # PyTorch's pdist of one point dies in backward

    def gradients(self):
        roots = [r for r in self.results if r.requires_grad and r.numel()]
        weights = [rows.Make(tapegrad.float64, 3 + i)(tuple(r.shape), dtype=getattr(tapegrad, rows.dtype_name(r))) for i, r in enumerate(roots)]
        weights = weights if self.library is tapegrad else to_torch(weights)
        found = self.library.autograd.grad(roots, self.leaves, weights, allow_unused=True)
        return [self.library.zeros_like(leaf) if g is None else g for g, leaf in zip(found, self.leaves)]


def outcome(library, function, sample, wanted, program=None):
    """The gradients, or None where the program is refused."""
    run = Run(library, function, sample, wanted)
    try:
        if program is not None:
            run.write(*program)
    except RuntimeError:
        return "not writable"
    try:
        return run.gradients()
    except RuntimeError as error:
        if "modified by an inplace operation" in str(error) or "has been modified inplace" in str(error):
            return None
        raise


def programs_of(results, operands):
    return [*(("results", i) for i in range(len(results))), *(("operands", i) for i in range(len(operands)))]


def wishes(record, sample):
    """Which operands want a gradient: all that can, and each alone."""
    out = rows.fixed_tensors(record, *sample)
    can = [i for i, t in enumerate(tensors_of(sample)) if is_floating(t) and id(t) not in out]
    return [can, *([i] for i in can if len(can) > 1)] if can else []


def same(a, b) -> bool:
    try:
        assert_equal(a, b, "gradient", 1e-7)
    except AssertionError:
        return False
    return True


def differences(record):
    """Programs with a write that PyTorch accepts and we refuse, or whose gradients are neither those without the write nor PyTorch's."""
    for n, sample in enumerate(record.make_samples(tapegrad.float64, seed=1)[:MOST_SAMPLES]):
        theirs = to_torch(sample)
        for wanted in wishes(record, sample):
            try:
                run = Run(torch, record.torch_function, theirs, wanted)
            except (RuntimeError, NotImplementedError, TypeError):
                continue  # a call that PyTorch does not take, or without a derivative
            mine = Run(tapegrad, record.function, sample, wanted)
            if not (run.has_gradients() and mine.has_gradients()):
                continue
            try:
                reference = run.gradients()
            except (RuntimeError, NotImplementedError):
                continue  # a derivative that PyTorch does not have
            plain = mine.gradients()
            for program in programs_of(mine.results, mine.operands):
                expected = outcome(torch, record.torch_function, theirs, wanted, program)
                got = outcome(tapegrad, record.function, sample, wanted, program)
                place = f"{program[0]}[{program[1]}]"
                where = f"sample {n}, gradients of operands {wanted}, a write to {place}"
                if "not writable" in (got, expected):
                    continue
                if got is None and expected is not None and same(expected, reference):  # else PyTorch reads what was written
                    yield place, f"{where}: refused, and accepted by PyTorch"
                if got is not None and not same(got, plain) and (expected is None or same(expected, reference) or not same(got, expected)):
                    yield "", f"{where}: other gradients"


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r.name)
def test_writes_after_a_call_are_accepted_as_in_torch(record):
    found = list(differences(record))
    kept, _ = KEPT.get(record.name, ([], ""))
    wrong = [text for place, text in found if place not in kept]
    assert not wrong, "\n".join(wrong)
    assert found or not kept, f"{record.name} has no difference any more: take it off the list"


PROGRAMS = {
    "masked quotient": lambda t, a, c: (a / c).masked_fill_(a < 0.5, 0),
    "normalized, then shifted": lambda t, a, c: t.nn.functional.normalize(a).add_(1),
    "shares, one of them set": lambda t, a, c: with_first(a / a.sum(1, keepdim=True)),
    "power of a half, set": lambda t, a, c: with_first(a**0.5),
    "power of minus a half": lambda t, a, c: (a**-0.5).clamp_(max=1),
    "power of minus one": lambda t, a, c: (a**-1).mul_(2),
    "quotient of a number": lambda t, a, c: (1 / a).sub_(a),
    "quotient written through a view": lambda t, a, c: with_first(t.div(a, c).view(-1)),
    "mean scaled": lambda t, a, c: (a / c).mean(0).mul_(3),
    "layer_norm": lambda t, a, c: t.nn.functional.layer_norm(a, (3,)).add_(1),
    "cosine": lambda t, a, c: t.nn.functional.cosine_similarity(a, c).mul_(2),
    "standardized": lambda t, a, c: ((a - a.mean(0)) / a.std(0)).mul_(c),
    "lrn": lambda t, a, c: t.nn.functional.local_response_norm(a[None], 2).add_(1),
    "erfinv": lambda t, a, c: t.erfinv(a * 0.3).add_(1),
}


def with_first(y):
    y[0] = 0
    return y


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_that_write_to_results(name):
    def run(t):
        a, c = (t.tensor(v, dtype=t.float64, requires_grad=True) for v in ([[0.3, 1.2, 2.0], [0.7, 0.1, 1.1]], [[1.5, 0.2, 0.9], [2.0, 1.0, 0.4]]))
        y = PROGRAMS[name](t, a, c)
        (y * y).sum().backward()
        return [y] + [t.zeros_like(x) if x.grad is None else x.grad for x in (a, c)]

    assert_equal(run(tapegrad), run(torch), name, 1e-9)


@pytest.mark.parametrize("p", [0.5, -0.5, -1])
def test_second_derivatives_of_powers_that_are_roots(p):
    x = tapegrad.tensor([0.5, 2.0, 3.0], dtype=tapegrad.float64, requires_grad=True)
    assert (x**p).grad_fn.name() == "PowBackward0"
    assert tapegrad.autograd.gradcheck(lambda x: x**p, x) and tapegrad.autograd.gradgradcheck(lambda x: x**p, x)
    z = tapegrad.tensor([0.5 + 1j, -2.0 + 0.3j], requires_grad=True, dtype=tapegrad.complex128)
    assert tapegrad.autograd.gradcheck(lambda z: z**p, z) and tapegrad.autograd.gradgradcheck(lambda z: z**p, z)
    mine, theirs = ((lambda x: t.autograd.grad(x**p, x, t.ones(3))[0].tolist())(t.tensor([0.0, -0.0, 4.0], requires_grad=True)) for t in (tapegrad, torch))
    assert mine == theirs
