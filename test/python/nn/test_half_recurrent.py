"""Recurrent layers of 16-bit numbers: no weight is converted, sums and gates are float32, and what goes on to the next step is rounded."""

import os
import subprocess
import sys

import numpy as np
import pytest
import tapegrad as tg
from tapegrad import nn

torch = pytest.importorskip("torch")

HALF = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
TYPES = pytest.mark.parametrize("dtype", HALF)
KINDS = pytest.mark.parametrize(("kind", "more"), [("RNN", {}), ("RNN", {"nonlinearity": "relu"}), ("GRU", {}), ("LSTM", {}), ("LSTM", {"proj_size": 3})], ids=str)
# input, hidden, sequences, steps: a cell; steps by themselves; packed weights, with odd sizes and one sequence; input in steps; several chunks.
SIZES = pytest.mark.parametrize("sizes", [(5, 7, 3, 1), (40, 64, 2, 3), (5, 7, 1, 6), (34, 65, 9, 5), (16, 32, 70, 4)], ids=str)


def networks(kind, dtype, sizes, **options):
    """Ours in 16 bits, the same numbers in float64, and PyTorch's in 16 bits."""
    mine, exact = (getattr(nn, kind)(*sizes[:2], **options) for _ in range(2))
    mine = mine.to(getattr(tg, dtype))
    exact = exact.double()
    exact.load_state_dict({name: value.double() for name, value in mine.state_dict().items()})
    theirs = getattr(torch.nn, kind)(*sizes[:2], **options).to(getattr(torch, dtype))
    theirs.load_state_dict({name: torch.tensor(value.double().numpy()) for name, value in mine.state_dict().items()})
    return mine, exact, theirs


def results(network, x, lengths=None, utils=None):
    """Outputs, final states, and all gradients, as float64."""
    given = utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False) if lengths else x
    out, state = network(given)
    found = [out.data if lengths else out, *(state if isinstance(state, tuple) else (state,))]
    sum((t * t).sum() for t in found).backward()
    return [t.detach().double().numpy() for t in (*found, x.grad, *(p.grad for p in network.parameters()))]


def errors(got, exact):
    """Root mean squares relative to the largest element."""
    return np.array([np.sqrt(np.mean((a - b) ** 2)) / np.abs(b).max() if b.size and np.abs(b).max() > 0 else 0.0 for a, b in zip(got, exact, strict=True)])


def compare(kind, dtype, sizes, lengths=None, batch_first=False, **options):
    tg.manual_seed(0)
    mine, exact, theirs = networks(kind, dtype, sizes, batch_first=batch_first, **options)
    inputs, _, n, steps = sizes
    x = tg.randn(*((n, steps) if batch_first else (steps, n)), inputs).to(getattr(tg, dtype))
    reference = results(exact, x.double().requires_grad_(), lengths, nn.utils)
    ours = errors(results(mine, x.clone().requires_grad_(), lengths, nn.utils), reference)
    other = errors(results(theirs, torch.tensor(x.double().numpy()).to(getattr(torch, dtype)).requires_grad_(), lengths, torch.nn.utils), reference)
    assert (ours < 2 * HALF[dtype]).all(), ours / HALF[dtype]
    assert (ours < 2 * other + HALF[dtype] / 8).all(), ours / other


@TYPES
@KINDS
@SIZES
def test_values_and_gradients(kind, more, dtype, sizes):
    compare(kind, dtype, sizes, **more)


@TYPES
@KINDS
@pytest.mark.parametrize("options", [{"num_layers": 2, "bidirectional": True}, {"bias": False, "batch_first": True}], ids=str)
def test_options(kind, more, dtype, options):
    compare(kind, dtype, (6, 8, 4, 5), **options, **more)


@TYPES
@KINDS
def test_packed_sequences(kind, more, dtype):
    compare(kind, dtype, (6, 8, 12, 7), [3, 7, 1, 7, 2, 2, 5, 6, 1, 1, 4, 7], bidirectional=True, **more)


@TYPES
@pytest.mark.parametrize("steps", [1, 3, 9])
def test_the_state_is_rounded_in_each_step(dtype, steps):
    """256 + 1/2 is not a number of bfloat16, nor 2,048 + 1/2 one of float16: the state stays where it is, as PyTorch's does."""
    large = {"bfloat16": 256.0, "float16": 2048.0}[dtype]
    network = nn.RNN(1, 1, nonlinearity="relu", bias=False).to(getattr(tg, dtype))
    with tg.no_grad():
        network.weight_ih_l0.fill_(1.0)
        network.weight_hh_l0.fill_(1.0)
        out, state = network(tg.full((steps, 1, 1), 0.5).to(getattr(tg, dtype)), tg.full((1, 1, 1), large).to(getattr(tg, dtype)))
    assert out.flatten().tolist() == [large] * steps and state.item() == large


@TYPES
@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_no_weight_is_converted(kind, dtype):
    network, x = getattr(nn, kind)(8, 16).to(getattr(tg, dtype)), tg.randn(5, 3, 8).to(getattr(tg, dtype))
    with tg.no_grad():
        network(x)
        tg._C._start_counting_work()
        network(x)
        assert tg._C._stop_counting_work()["copies"] <= 1  # an LSTM's first state


@TYPES
@KINDS
def test_as_many_threads_as_there_are(kind, more, dtype):
    network, x = getattr(nn, kind)(48, 96, bidirectional=True, **more).to(getattr(tg, dtype)), tg.randn(6, 40, 48).to(getattr(tg, dtype))
    before, found = tg.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            tg.set_num_threads(threads)
            network.zero_grad()
            found.append([a.tobytes() for a in results(network, x.clone().requires_grad_())])
    finally:
        tg.set_num_threads(before)
    assert found[0] == found[1] == found[2]


@TYPES
@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_cells(kind, dtype):
    for n, width in ((1, 200), (3, 9), (24, 64)):
        cell, twin = (getattr(nn, kind + "Cell")(width, width) for _ in range(2))
        cell = cell.to(getattr(tg, dtype))
        twin = twin.double()
        twin.load_state_dict({name: value.double() for name, value in cell.state_dict().items()})
        x = tg.randn(n, width).to(getattr(tg, dtype))

        def run(module, x):
            out = module(x)
            parts = list(out) if isinstance(out, tuple) else [out]
            sum((t * t).sum() for t in parts).backward()
            return [t.detach().double().numpy() for t in (*parts, x.grad, *(p.grad for p in module.parameters()))]

        assert (errors(run(cell, x.clone().requires_grad_()), run(twin, x.double().requires_grad_())) < HALF[dtype]).all()


@TYPES
@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_second_derivatives(kind, dtype):
    def run(network, x):
        (out, _), first = network(x), None
        (first,) = tg.autograd.grad((out * out).sum(), x, create_graph=True)
        (first * first).sum().backward()
        return [t.double().numpy() for t in (first.detach(), x.grad, *(p.grad for p in network.parameters() if p.grad is not None))]

    tg.manual_seed(0)
    mine, exact, _ = networks(kind, dtype, (5, 6))
    x = tg.randn(4, 3, 5).to(getattr(tg, dtype))
    assert (errors(run(mine, x.clone().requires_grad_()), run(exact, x.double().requires_grad_())) < 4 * HALF[dtype]).all()


@TYPES
@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_nothing_and_what_is_not_finite(kind, dtype):
    for steps in (1, 3, 5):
        for width, hidden in ((64, 256), (1024, 512), (3, 4)):  # products of few rows, transposed ones, small ones
            network = getattr(nn, kind)(width, hidden).to(getattr(tg, dtype))
            x = tg.zeros(steps, 0, width, dtype=getattr(tg, dtype)).requires_grad_()
            out, _ = network(x)
            assert out.shape == (steps, 0, hidden) and out.dtype == getattr(tg, dtype)
            out.sum().backward()
            assert x.grad.shape == x.shape and all((p.grad == 0).all() for p in network.parameters())
    with pytest.raises(RuntimeError, match="sequence length to be larger than 0"):
        network(tg.zeros(0, 2, 3, dtype=getattr(tg, dtype)))
    x = tg.zeros(5, 9, 3, dtype=getattr(tg, dtype))
    x[2, 4, 1] = float("nan")
    out, _ = network(x)
    assert out[2:, 4].isnan().all() and out[:, [0, 1, 2, 3, 5, 6, 7, 8]].isfinite().all() and out[:2].isfinite().all()
    sizes = {"RNN": 4, "GRU": 12, "LSTM": 16}[kind]
    weights = [tg.zeros(sizes, 0).to(x.dtype), tg.zeros(sizes, 4).to(x.dtype)]  # no input at all
    state = tg.ones(1, 9, 4).to(x.dtype)
    run = {"RNN": tg.rnn_tanh, "GRU": tg.gru, "LSTM": tg.lstm}[kind]
    for steps in (1, 5):
        given = [state, state] if kind == "LSTM" else state
        assert run(tg.zeros(steps, 9, 0, dtype=x.dtype), given, weights, False, 1, 0.0, False, False, False)[0].isfinite().all()


def test_one_dtype_is_asked_for():
    network = nn.LSTM(3, 4).to(tg.bfloat16)
    network.weight_hh_l0.data = network.weight_hh_l0.data.half()
    with pytest.raises(RuntimeError, match="the state's weight must have the input's dtype bfloat16: got float16"):
        network(tg.zeros(5, 2, 3, dtype=tg.bfloat16))


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_under_autocast(kind):
    network, x = getattr(nn, kind)(8, 16), tg.randn(6, 3, 8)
    with tg.autocast("cpu", dtype=tg.bfloat16):
        out, _ = network(x)
    assert out.dtype == tg.bfloat16 and (out.float() - network(x)[0]).abs().max() < 0.02
    out.float().sum().backward()
    assert all(p.grad.dtype == tg.float32 for p in network.parameters())


def test_samples_of_vmap():
    network, x = nn.GRU(5, 6).to(tg.bfloat16), tg.randn(4, 7, 3, 5).bfloat16()
    found = tg.func.vmap(lambda x: network(x)[0])(x)
    assert (found.float() - tg.stack([network(s)[0] for s in x]).float()).abs().max() < 0.01


def test_processors_without_such_instructions():
    """The same tests by AVX2, which multiplies no 16-bit numbers."""
    if os.environ.get("TAPEGRAD_ISA"):
        pytest.skip("an instruction set was asked for: this test asks for another one")
    tests = [f"{__file__}::{name}" for name in ("test_values_and_gradients", "test_the_state_is_rounded_in_each_step", "test_as_many_threads_as_there_are")]
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests], capture_output=True, text=True, timeout=300, env={**os.environ, "TAPEGRAD_ISA": "avx2"})
    assert done.returncode == 0, done.stdout[-2000:]
