"""Recurrent networks and packed sequences against PyTorch."""

import copy
import pickle

import numpy as np
import pytest
import tapegrad as tg
from tapegrad import nn
from twins import compare, ours, pair, take_weights, torch

OPTIONS = [{}, {"num_layers": 2}, {"bidirectional": True}, {"num_layers": 2, "bidirectional": True, "bias": False},
           {"batch_first": True, "num_layers": 3}]
KINDS = [("RNN", {}), ("RNN", {"nonlinearity": "relu"}), ("GRU", {}), ("LSTM", {}), ("LSTM", {"proj_size": 3})]


def states(kind, count, n, hidden, proj=0, batch=True):
    shape = (count, n, hidden) if batch else (count, hidden)
    h = torch.randn(*shape[:-1], proj or hidden, requires_grad=True)
    return (h, torch.randn(shape, requires_grad=True)) if kind == "LSTM" else h


@pytest.mark.parametrize("length", [1, 7])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(("kind", "more"), KINDS, ids=str)
def test_padded(kind, more, options, length):
    mine, theirs = pair(kind, 5, 6, **options, **more)
    x = torch.randn(length, 3, 5, requires_grad=True)
    directions = 2 if options.get("bidirectional") else 1
    if options.get("batch_first"):
        x = x.detach().transpose(0, 1).contiguous().requires_grad_()
    compare(mine, theirs, (x,), what="without a state")
    mine.zero_grad()
    theirs.zero_grad()
    hx = states(kind, options.get("num_layers", 1) * directions, 3, 6, more.get("proj_size", 0))
    compare(mine, theirs, (x.detach().requires_grad_(), hx), what="with a state")


@pytest.mark.parametrize("options", OPTIONS[:4], ids=str)
@pytest.mark.parametrize(("kind", "more"), KINDS, ids=str)
@pytest.mark.parametrize("enforce_sorted", [True, False])
def test_packed(kind, more, options, enforce_sorted):
    mine, theirs = pair(kind, 4, 6, **options, **more)
    lengths = [6, 4, 4, 2, 1] if enforce_sorted else [2, 6, 1, 4, 4]
    data = torch.randn(6, 5, 4, requires_grad=True)
    mine_data = ours(data)
    packed = torch.nn.utils.rnn.pack_padded_sequence(data, lengths, enforce_sorted=enforce_sorted)
    my_packed = nn.utils.rnn.pack_padded_sequence(mine_data, lengths, enforce_sorted=enforce_sorted)
    directions = 2 if options.get("bidirectional") else 1
    hx = states(kind, options.get("num_layers", 1) * directions, 5, 6, more.get("proj_size", 0))
    my_hx = ours(hx)
    compare(mine, theirs, (packed, hx), my_inputs=(my_packed, my_hx))
    assert abs(mine_data.grad.numpy() - data.grad.numpy()).max() < 1e-4


@pytest.mark.parametrize(("kind", "more"), KINDS, ids=str)
def test_without_batch_dimension(kind, more):
    mine, theirs = pair(kind, 4, 6, bidirectional=True, **more)
    hx = states(kind, 2, 0, 6, more.get("proj_size", 0), batch=False)
    compare(mine, theirs, (torch.randn(5, 4, requires_grad=True), hx))


@pytest.mark.parametrize(("n", "hidden", "length"), [(1, 5, 20), (9, 33, 6), (40, 17, 5), (70, 64, 4)])
@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_sizes_that_do_not_fill_vectors_or_chunks(kind, n, hidden, length):
    mine, theirs = pair(kind, 3, hidden)
    compare(mine, theirs, (torch.randn(length, n, 3, requires_grad=True),))


@pytest.mark.parametrize(("kind", "more"), KINDS, ids=str)
def test_second_derivative(kind, more):
    net = getattr(nn, kind)(2, 4, bidirectional=True, dtype=tg.float64, **more)
    x = tg.randn(3, 2, 2, dtype=tg.float64, requires_grad=True)
    weights = [p.detach().requires_grad_() for p in net.parameters()]
    names = [n for n, _ in net.named_parameters()]

    def run(x, *values):
        for name, value in zip(names, values, strict=True):
            del net._parameters[name]
            setattr(net, name, value)
        try:
            return net(x)[0]
        finally:
            for name, value in zip(names, values, strict=True):
                delattr(net, name)
                net.register_parameter(name, nn.Parameter(value.detach()))

    assert tg.autograd.gradcheck(run, (x, *weights), check_undefined_grad=False)
    if more.get("nonlinearity") != "relu":
        assert tg.autograd.gradgradcheck(run, (x, *weights))


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16"])
def test_dtypes(dtype):
    mine, theirs = pair("LSTM", 4, 8, dtype=None)
    take_weights(mine, theirs)
    x = torch.randn(5, 3, 4)
    mine, theirs = mine.to(getattr(tg, dtype)), theirs.double()
    got = mine(ours(x).to(getattr(tg, dtype)))[0]
    assert got.dtype == getattr(tg, dtype)
    assert abs(got.double().detach().numpy() - theirs(x.double())[0].detach().numpy()).max() < (1e-9 if dtype == "float64" else 0.03)


def test_dropout_between_layers():
    tg.manual_seed(0)
    net = nn.LSTM(3, 40, num_layers=2, dropout=0.5)
    x = tg.randn(4, 2, 3)
    assert not tg.equal(net(x)[0], net(x)[0])
    net.eval()
    assert tg.equal(net(x)[0], net(x)[0])


def test_state_of_absent_sequences_and_gradient_of_final_state():
    """Only the final state is used: the output's gradient is absent."""
    for kind in ("GRU", "LSTM"):
        mine, theirs = pair(kind, 3, 4)
        take_weights(mine, theirs)
        x = torch.randn(5, 2, 3, requires_grad=True)
        my_x = ours(x)
        pick = (lambda r: r[1][1]) if kind == "LSTM" else (lambda r: r[1])
        pick(theirs(x)).sum().backward()
        pick(mine(my_x)).sum().backward()
        assert abs(my_x.grad.numpy() - x.grad.numpy()).max() < 1e-5


def test_any_number_of_threads_gives_the_same_bits():
    net, x = nn.LSTM(20, 50, 2, bidirectional=True), tg.randn(6, 37, 20)
    results = []
    for threads in (1, 2, 3, 5):
        tg.set_num_threads(threads)
        net.zero_grad()
        net(x)[0].square().sum().backward()
        results.append([net(x)[0].detach(), *(p.grad.clone() for p in net.parameters())])
    for other in results[1:]:
        assert all(tg.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_functional_entries():
    net = nn.LSTM(3, 4, 2, bidirectional=True)
    x, h, c = tg.randn(5, 2, 3), tg.zeros(4, 2, 4), tg.zeros(4, 2, 4)
    params = [p.detach() for p in net.parameters()]
    with tg.no_grad():
        assert tg.equal(tg.lstm(x, (h, c), params, True, 2, 0.0, False, True, False)[0], net(x)[0])
        assert tg.equal(tg.lstm(x[:, 0], tg.ones(5, dtype=tg.int64), (h[:, :1], c[:, :1]), params, True, 2, 0.0, False, True)[0],
                        net(x[:, :1])[0][:, 0])


def test_copies_and_pickles():
    net, x = nn.GRU(3, 4), tg.randn(2, 1, 3)
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert tg.equal(other(x)[0], net(x)[0])
        assert other.weight_ih_l0 is not net.weight_ih_l0


@pytest.mark.parametrize(("make", "error"), [
    (lambda m: m.LSTM(0, 3), ValueError), (lambda m: m.LSTM(3, 3, proj_size=3), ValueError), (lambda m: m.GRU(3, 4, proj_size=2), ValueError),
    (lambda m: m.RNN(3, 4, nonlinearity="sin"), ValueError), (lambda m: m.RNN(3, 4, dropout=1.5), ValueError),
    (lambda m: m.RNN(3, 4.5), TypeError), (lambda m: m.RNN(3, 4, bias=1), TypeError), (lambda m: m.RNN(3, 4, num_layers=0), ValueError)])
def test_constructor_mistakes(make, error):
    with pytest.raises(error) as theirs:
        make(torch.nn)
    with pytest.raises(error) as mine:
        make(nn)
    assert str(mine.value) == str(theirs.value)


@pytest.mark.parametrize(("shape", "state"), [((4, 3), None), ((2, 3, 7), None), ((2, 3, 5), (1, 2, 6)), ((2, 3, 5), (3, 6)), ((3, 5), (1, 1, 6)),
                                              ((1, 2, 3, 4), None)])
@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
def test_forward_mistakes(kind, shape, state):
    def run(library, module):
        x = library.zeros(shape)
        hx = None if state is None else library.zeros(state)
        module(x, (hx, hx) if kind == "LSTM" and hx is not None else hx)

    mine, theirs = pair(kind, 5, 6)
    with pytest.raises((RuntimeError, ValueError)) as want:
        run(torch, theirs)
    with pytest.raises(want.type) as got:
        run(tg, mine)
    assert str(got.value) == str(want.value).replace("torch.Size", "")


def test_packing():
    rnn, theirs = nn.utils.rnn, torch.nn.utils.rnn
    sequences = [torch.arange(3), torch.arange(5) + 10, torch.arange(1) + 20]
    packed, want = rnn.pack_sequence(ours(sequences), enforce_sorted=False), theirs.pack_sequence(sequences, enforce_sorted=False)
    assert [t.tolist() for t in packed] == [t.tolist() for t in want]
    assert [t.tolist() for t in rnn.unpack_sequence(packed)] == [t.tolist() for t in sequences]
    for kwargs in ({}, {"batch_first": True}, {"total_length": 8, "padding_value": -1}):
        for got, expected in zip(rnn.pad_packed_sequence(packed, **kwargs), theirs.pad_packed_sequence(want, **kwargs), strict=True):
            assert got.tolist() == expected.tolist()
    assert packed.float().data.dtype == tg.float32
    assert packed.to(tg.int64) is packed
    padded = torch.arange(12).view(3, 4)
    for batch_first in (True, False):
        for lengths in ([3, 2, 1], [3, 2, 2, 1]):
            if len(lengths) == (3 if batch_first else 4):
                a = rnn.pack_padded_sequence(ours(padded), lengths, batch_first)
                b = theirs.pack_padded_sequence(padded, lengths, batch_first)
                assert a.data.tolist() == b.data.tolist()
                assert a.batch_sizes.tolist() == b.batch_sizes.tolist()


@pytest.mark.parametrize("lengths", [[1, 2], [2, 0], [3, 1, 1]])
def test_packing_mistakes(lengths):
    with pytest.raises(RuntimeError):
        torch.nn.utils.rnn.pack_padded_sequence(torch.zeros(3, 2, 1), lengths)
    with pytest.raises(RuntimeError):
        nn.utils.rnn.pack_padded_sequence(tg.zeros(3, 2, 1), lengths)
    with pytest.raises(RuntimeError, match="Expected lengths of at most 3 steps, but got 9"):
        nn.utils.rnn.pack_padded_sequence(tg.zeros(3, 2, 1), [9, 1])
    with pytest.raises(ValueError, match="Expected total_length to be at least the length of the longest sequence"):
        nn.utils.rnn.pad_packed_sequence(nn.utils.rnn.pack_padded_sequence(tg.zeros(3, 2, 1), [3, 2]), total_length=2)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_flat_weights_can_be_set(kind):
    """As in PyTorch: forward takes them (dropped weights), the parameters stay, and one that is set again or moved takes its place back."""
    def results(t, layer):
        x = t.ones(2, 1, 2)
        with t.no_grad():
            for i, p in enumerate(layer.parameters()):
                p.fill_(0.1 * (i + 1))
        seen = [layer(x)[0]]
        own = list(layer.parameters())
        dropped = [w * 0.5 for w in layer._flat_weights]
        layer._flat_weights = dropped
        assert all(a is b for a, b in zip(layer._flat_weights, dropped)) and all(a is b for a, b in zip(layer.parameters(), own)) and not isinstance(dropped[0], t.nn.Parameter)
        seen.append(layer(x)[0])
        seen[-1].sum().backward()
        assert own[0].grad is not None
        layer.weight_hh_l0 = t.nn.Parameter(layer.weight_hh_l0.detach() * 2)
        assert layer._flat_weights[1] is layer.weight_hh_l0
        seen.append(layer(x)[0])
        layer.double()
        assert all(a is b for a, b in zip(layer._flat_weights, layer.parameters()))
        return [s.tolist() for s in (*seen, layer(x.double())[0])]

    mine, theirs = (results(t, getattr(t.nn, kind)(2, 3)) for t in (tg, torch))
    np.testing.assert_allclose(np.array(mine), np.array(theirs), atol=1e-6)
    with pytest.raises(ValueError, match="expected 4 weights: got 1"):
        tg.nn.LSTM(2, 3)._flat_weights = [tg.nn.Parameter(tg.ones(12, 2))]


def test_a_state_of_another_kind():
    x, state = tg.ones(2, 2, 3), tg.zeros(1, 2, 4)
    with pytest.raises(TypeError, match=r"^hx must be the pair of tensors \(h, c\): got Tensor$"):
        nn.LSTM(3, 4)(x, state)
    with pytest.raises(TypeError, match=r"^hx must be a Tensor: got tuple\nonly an LSTM's state is a pair$"):
        nn.GRU(3, 4)(x, (state, state))
    assert nn.LSTM(3, 4)(x, [state, state])[0].shape == (2, 2, 4)
