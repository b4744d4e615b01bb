"""What the tests of recorded steps share: small networks, batches, steps, and runs that compare with eager bit by bit."""

import functools
import logging

import numpy as np
import pytest
import rows
import tapegrad as tg
from rows import map_tree, tensors_of
from tapegrad import nn
from threads import run_all

F = nn.functional


def plans(step):
    return len(step._replays.plans())


def replays(step):
    return sum(n for _, _, n in step._replays.plans())


def in_threads(work, arguments):
    """Runs work(argument) in a thread for each."""
    run_all([functools.partial(work, a) for a in arguments], limit=60)


def mlp(seed=0):
    tg.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))


def batches(n=12, size=5, seed=1):
    tg.manual_seed(seed)
    return [(tg.randn(size, 6), tg.randint(0, 3, (size,))) for _ in range(n)]


def training(net, optimizer, zero="optimizer", clip=None):
    def step(x, y):
        if zero == "optimizer":
            optimizer.zero_grad()
        elif zero == "module":
            net.zero_grad()
        elif zero == "zeros":
            optimizer.zero_grad(set_to_none=False)
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(net.parameters(), clip)
        optimizer.step()
        if zero == "after":
            optimizer.zero_grad()
        return loss

    return step


def assert_same(a, b, where):
    for (name, p), (_, q) in zip(a.state_dict().items(), b.state_dict().items(), strict=True):
        assert tg.equal(p, q), f"{where}: {name}"
    for (name, p), (_, q) in zip(a.named_parameters(), b.named_parameters(), strict=True):
        assert (p.grad is None) == (q.grad is None), f"{where}: gradient of {name}"
        assert p.grad is None or tg.equal(p.grad, q.grad), f"{where}: gradient of {name}"


def compare(make, data, build=training, least=4, memory=None, graphs=True, **options):
    """Trains two copies, one recorded; all bits equal after each step. Returns the recorded step."""
    (a, first), (b, second) = make(), make()
    eager, step = build(a, first, **options), tg.record(build(b, second, **options), memory=memory, graphs=graphs)
    for i, (x, y) in enumerate(data):
        tg.manual_seed(100 + i)
        expected = eager(x, y)
        after = tg.rand(3)
        tg.manual_seed(100 + i)
        step._replays.scribble()
        got = step(x, y)
        assert tg.equal(tg.rand(3), after), f"step {i}: the generator stands elsewhere"
        assert tg.equal(got, expected) and got.requires_grad == expected.requires_grad, f"step {i}: {step.summary()}"
        assert_same(a, b, f"step {i}")
    assert replays(step) >= least, step.summary()
    return step


class Layers(nn.Module):
    """Dropout, batch norm, a convolution, pooling, an embedding, attention, an LSTM: state and random numbers."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.lstm, self.drop = nn.LSTM(8, 8, batch_first=True), nn.Dropout(0.3)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True, dropout=0.1)
        self.layer, self.out = nn.LayerNorm(8), nn.Linear(8, 3)
        self.embedding = nn.Embedding(6, 8)

    def forward(self, x):
        image = F.max_pool2d(F.relu(self.norm(self.conv(x.view(-1, 1, 2, 3).repeat(1, 1, 4, 4)))), 4)
        series = image.flatten(2).transpose(1, 2)
        series = F.pad(series, (0, 4)) + self.embedding(tg.arange(series.shape[1]))
        series = self.drop(self.lstm(series)[0])
        series = self.layer(series + self.attention(series, series, series, need_weights=False)[0])
        return self.out(F.gelu(series).mean(1))


def warm(f, *args, n=5):
    for _ in range(n):
        f(*args)
    assert replays(f) > 0, f.summary()


def same_bits(function, make, bits, between=None, **options):
    """Five calls with make(seed)'s arguments: results, and what is written to the arguments, are eager's by bits(t). Returns the recorded step.
    between() is called before each of them."""
    step = tg.record(function, **options)
    for seed in range(5):
        args = make(seed)
        again = [a.clone() for a in args]
        step._replays.scribble()
        if between is not None:
            between()
        expected, got = function(*again), step(*args)
        expected, got = ([r] if isinstance(r, tg.Tensor) else list(r) for r in (expected, got))
        for i, (a, b) in enumerate(zip([*expected, *again], [*got, *args], strict=True)):
            assert a.dtype == b.dtype and bits(a) == bits(b), f"{i}, seed {seed}: {step.summary()}"
    assert replays(step) > 0, step.summary()
    return step


def refused(function, *args, caplog, n=6, why):
    """Runs eagerly each time, and says why."""
    caplog.set_level(logging.WARNING, "tapegrad.record")
    step = tg.record(function)
    results = [step(*args) for _ in range(n)]
    assert replays(step) == 0 and any(why in r for r in step._reasons), step.summary()
    assert any(why in r.message for r in caplog.records)
    return results


# --- rows of the op table ---

# What a replay cannot repeat, as reasons say it.
EXPECTED = ("reads a value", "is a view of", "needs a gradient", "was exchanged", "random numbers", "shares memory", "share memory", "runs on",
            "are kept somewhere", "is on ", "other arguments", "sparse", "has another shape", "made has other values", "other sizes or strides")
ROWS = [r for r in rows.load_records() if r.samples and r.kind != "overload" and r.test.get("values") is not False]


def bits_of(value):
    """The tensors of a result as bytes, and what else it is."""
    found = []
    for t in tensors_of([value]):
        t = t.detach().cpu()
        dense = t.to_dense() if t.layout is not tg.strided else t
        found.append((str(t.dtype), tuple(t.shape), dense.reshape(-1).clone().view(tg.uint8).numpy().tobytes() if dense.numel() and dense.ndim
                      else np.asarray(dense.tolist()).tobytes()))
    return found


def _run(function, sample, seed):
    args, kwargs = sample
    tg.manual_seed(seed)
    return function(*args, **kwargs)


def _on(device, samples):
    return samples if device == "cpu" else map_tree(lambda t: t.to(device), samples)


def _samples(record, seed):
    return record.make_samples(tg.float32, seed)


def _with_gradients(record):
    """The row's results and the gradients of its arguments."""

    def function(*args, **kwargs):
        fixed = rows.fixed_tensors(record, args, kwargs)
        leaves = []

        def as_leaf(t):
            if not (t.is_floating_point() or t.is_complex()) or id(t) in fixed:
                return t
            leaves.append(t.detach().requires_grad_())
            return leaves[-1]

        args, kwargs = map_tree(as_leaf, (args, kwargs))
        results = tensors_of([record.function(*args, **kwargs)])
        roots = [r for r in results if r.requires_grad]
        grads = tg.autograd.grad(roots, leaves, [r.detach() * 0.5 for r in roots], allow_unused=True) if roots and leaves else ()
        return [r.detach() for r in results], [g for g in grads if g is not None]

    return function


# A row's other forms: gradients, in place on its first argument, and into tensors that are given.
FORMS = {"gradients": (lambda r: r.differentiable and r.test.get("grad") is not False, _with_gradients),
         "in place": (lambda r: r.inplace, lambda r: lambda first, *args, **kwargs: getattr(first, r.name + "_")(*args, **kwargs) if isinstance(first, tg.Tensor) else first),
         "out": (lambda r: r.out, lambda r: r.function)}


def _with_outs(record, samples):
    """The samples with tensors for their results."""
    made = []
    for args, kwargs in samples:
        try:
            result = record.function(*args, **kwargs)
        except (RuntimeError, ValueError, IndexError, TypeError):
            result = tg.empty(0)
        outs = tuple(tg.empty_like(t) for t in tensors_of([result]))
        made.append((args, {**kwargs, "out": outs[0] if len(outs) == 1 else outs}))
    return made


def replays_of_row(record, device="cpu", more=(), form=None):
    """Runs the row's samples recorded and eagerly, with the numbers of four seeds; the bits are the same. Returns how often it was replayed, and how
    many graphs its plans have. On a device the row is called twice in a step, as one kernel is no graph. `more`: reasons against a replay that are
    expected, too; `form`: one of FORMS."""
    one = FORMS[form][1](record) if form else record.function
    function = one if device == "cpu" else lambda *args, **kwargs: (one(*args, **kwargs), one(*args, **kwargs))
    try:
        made = [_on(device, _samples(record, seed)) for seed in range(4)]
    except (KeyError, RuntimeError, NotImplementedError):
        made = [_on(device, record.make_samples(None, seed)) for seed in range(4)]
    if form == "out":
        made = [_with_outs(record, samples) for samples in made]
    replayed, graphs, reasons = 0, 0, set()
    for n in range(len(made[0])):
        step = tg.record(function, pure=True)
        for seed, samples in enumerate(made):
            sample = map_tree(lambda t: t.detach(), samples[n])
            again = map_tree(lambda t: t.clone() if t.layout is tg.strided else t, sample)
            if form == "in place":
                sample = map_tree(lambda t: t.clone() if t.layout is tg.strided else t, sample)  # not expanded
            try:
                expected = _run(function, again, seed)
            except (RuntimeError, ValueError, IndexError, TypeError) as error:
                with pytest.raises(type(error)):
                    _run(step, sample, seed)
                continue
            step._replays.scribble()
            got = _run(step, sample, seed)
            assert bits_of(got) == bits_of(expected), f"{record.name} sample {n}, seed {seed}: {step.summary()}"
            # What it wrote to its arguments, too.
            assert bits_of(sample) == bits_of(again), f"{record.name} sample {n}, seed {seed}: {step.summary()}"
        replayed += sum(count for _, _, count in step._replays.plans())
        graphs += sum(use["graphs"] for use in step._replays.memory())
        reasons |= step._reasons
    unknown = [r for r in reasons if not any(known in r for known in (*EXPECTED, *more))]
    assert not unknown, f"{record.name}: {unknown}"
    return replayed, graphs
