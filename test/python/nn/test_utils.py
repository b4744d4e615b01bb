"""nn.utils: normalisations, parametrisations and pruning against PyTorch."""

import copy

import numpy as np
import pytest
import tapegrad as tg
from tapegrad import nn
from twins import close, compare, ours, take_weights, torch

pytestmark = pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated")
pytest.importorskip("torch.nn.utils.prune")
P, Q = nn.utils.parametrize, torch.nn.utils.parametrize


def linears(*args):
    torch.manual_seed(0)
    mine, theirs = nn.Linear(*args), torch.nn.Linear(*args)
    take_weights(mine, theirs)
    return mine, theirs


@pytest.mark.parametrize("dim", [0, 1, None])
def test_weight_norm(dim):
    mine, theirs = linears(4, 3)
    mine, theirs = nn.utils.weight_norm(mine, dim=dim), torch.nn.utils.weight_norm(theirs, dim=dim)
    compare(mine, theirs, (torch.randn(2, 4, requires_grad=True),))
    with pytest.raises(RuntimeError, match="Cannot register two weight_norm hooks"):
        nn.utils.weight_norm(mine)
    close(nn.utils.remove_weight_norm(mine).weight, torch.nn.utils.remove_weight_norm(theirs).weight, "removed")
    with pytest.raises(ValueError, match="weight_norm of 'weight' not found"):
        nn.utils.remove_weight_norm(mine)


@pytest.mark.parametrize("kind", ["Linear", "ConvTranspose1d"])
def test_spectral_norm(kind):
    args = (4, 3) if kind == "Linear" else (4, 3, 2)
    torch.manual_seed(0)
    mine, theirs = getattr(nn, kind)(*args), getattr(torch.nn, kind)(*args)
    mine, theirs = nn.utils.spectral_norm(mine), torch.nn.utils.spectral_norm(theirs)
    x = torch.randn(2, 4) if kind == "Linear" else torch.randn(2, 4, 5)
    compare(mine, theirs, (x.requires_grad_(),))
    for _ in range(2):  # power iterations go on
        close(mine(ours(x)), theirs(x), "later")
    close(nn.utils.remove_spectral_norm(mine).weight, torch.nn.utils.remove_spectral_norm(theirs).weight, "removed")


@pytest.mark.parametrize("name", ["weight_norm", "spectral_norm"])
def test_parametrizations(name):
    mine, theirs = linears(4, 3)
    mine, theirs = getattr(nn.utils.parametrizations, name)(mine), getattr(torch.nn.utils.parametrizations, name)(theirs)
    assert list(mine.state_dict()) == list(theirs.state_dict())
    compare(mine, theirs, (torch.randn(2, 4, requires_grad=True),))
    assert type(mine).__name__ == "ParametrizedLinear"
    mine.eval()
    theirs.eval()
    close(P.remove_parametrizations(mine, "weight").weight, Q.remove_parametrizations(theirs, "weight").weight, "removed")
    assert type(mine) is nn.Linear


def test_old_names_of_weight_norm_load():
    old = nn.utils.weight_norm(nn.Linear(4, 3))
    new = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))
    new.load_state_dict(old.state_dict())
    assert tg.allclose(new.weight, old.weight)


def symmetric(library):
    class Symmetric(library.Module):
        def forward(self, x):
            return x.triu() + x.triu(1).transpose(-1, -2)

        def right_inverse(self, a):
            return a.triu()

    class Double(library.Module):
        def forward(self, x):
            return 2 * x

    return Symmetric(), Double()


def test_register_and_assign():
    mine, theirs = linears(3, 3)
    for library, module, parametrize in ((nn, mine, P), (torch.nn, theirs, Q)):
        first, second = symmetric(library)
        assert parametrize.register_parametrization(module, "weight", first) is module
        parametrize.register_parametrization(module, "weight", second)
        parametrize.register_parametrization(module, "bias", copy.deepcopy(second))
        assert parametrize.is_parametrized(module) and parametrize.is_parametrized(module, "weight")
        assert not parametrize.is_parametrized(module, "other")
        assert parametrize.type_before_parametrizations(module) is library.Linear
    compare(mine, theirs, (torch.randn(2, 3, requires_grad=True),))
    with pytest.raises(RuntimeError, match="parametrization Double does not implement right_inverse"):
        mine.weight = mine.weight
    with P.cached():
        assert mine.weight is mine.weight
    assert mine.weight is not mine.weight
    other = copy.deepcopy(mine)
    assert tg.equal(other.weight, mine.weight) and other.parametrizations.weight.original is not mine.parametrizations.weight.original
    with pytest.raises(RuntimeError, match="Serialization of parametrized modules is only supported through state_dict"):
        mine.__getstate__()
    original = mine.parametrizations.weight.original
    value = mine.weight.detach().clone()
    P.remove_parametrizations(mine, "weight")
    assert mine.weight is original and tg.equal(mine.weight, value) and "bias" not in mine._parameters
    P.remove_parametrizations(mine, "bias", leave_parametrized=False)
    assert type(mine) is nn.Linear and list(mine._parameters) == ["weight", "bias"]


def test_assignment_goes_through_right_inverse():
    net = nn.Linear(3, 3)
    P.register_parametrization(net, "weight", symmetric(nn)[0])
    value = tg.ones(3, 3)
    net.weight = value
    assert tg.equal(net.weight, value)
    assert tg.equal(net.parametrizations.weight.original, value.triu())


def test_parametrization_mistakes():
    class Grows(nn.Module):
        def forward(self, x):
            return x.repeat(2, 1)

    net = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="Registering a parametrization may not change the shape"):
        P.register_parametrization(net, "weight", Grows())
    assert tuple(net.weight.shape) == (2, 2)
    P.register_parametrization(net, "weight", Grows(), unsafe=True)
    assert tuple(net.weight.shape) == (4, 2)
    with pytest.raises(ValueError, match="does not have a parameter, a buffer, or a parametrized element with name 'nothing'"):
        P.register_parametrization(net, "nothing", Grows())
    with pytest.raises(ValueError, match="does not have a parametrization on bias"):
        P.remove_parametrizations(net, "bias")


@pytest.mark.skipif(not hasattr(tg.linalg, "matrix_exp"), reason="needs linalg.matrix_exp")
@pytest.mark.parametrize("shape", [(3, 3), (5, 3), (3, 5)])
@pytest.mark.parametrize("trivial", [True, False])
@pytest.mark.parametrize("orthogonal_map", ["matrix_exp", "cayley", "householder", None])
def test_orthogonal(shape, orthogonal_map, trivial):
    tg.manual_seed(0)
    net = nn.utils.parametrizations.orthogonal(nn.Linear(*shape, bias=False), orthogonal_map=orthogonal_map, use_trivialization=trivial)
    optimizer = tg.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        net(tg.randn(4, shape[0])).square().sum().backward()
        optimizer.step()
    w = net.weight.detach().numpy()
    w = w if w.shape[0] >= w.shape[1] else w.T
    np.testing.assert_allclose(w.T @ w, np.eye(w.shape[1]), atol=1e-5)


PRUNINGS = [("l1_unstructured", {"amount": 0.4}), ("l1_unstructured", {"amount": 3}), ("ln_structured", {"amount": 2, "n": 2, "dim": 0}),
            ("ln_structured", {"amount": 0.5, "n": float("inf"), "dim": 1}), ("identity", {})]


@pytest.mark.parametrize(("name", "kwargs"), PRUNINGS, ids=str)
def test_pruning(name, kwargs):
    mine, theirs = linears(6, 4)
    for module, library in ((mine, nn), (theirs, torch.nn)):
        prune = library.utils.prune
        assert getattr(prune, name)(module, "weight", **kwargs) is module
        prune.l1_unstructured(module, "weight", amount=2)
        assert prune.is_pruned(module)
    assert list(mine.state_dict()) == list(theirs.state_dict())
    close(mine.weight_mask, theirs.weight_mask, "mask")
    compare(mine, theirs, (torch.randn(2, 6, requires_grad=True),))
    nn.utils.prune.remove(mine, "weight")
    torch.nn.utils.prune.remove(theirs, "weight")
    assert [n for n, _ in mine.named_parameters()] == [n for n, _ in theirs.named_parameters()]
    close(mine.weight, theirs.weight, "after remove")
    assert not nn.utils.prune.is_pruned(mine)


def test_random_pruning():
    prune = nn.utils.prune
    net = prune.random_unstructured(nn.Linear(6, 4), "weight", 0.5)
    assert int((net.weight == 0).sum()) == 12
    net = prune.random_structured(nn.Linear(6, 4), "weight", 3, dim=1)
    assert int((net.weight.detach().abs().sum(0) == 0).sum()) == 3
    with pytest.raises(ValueError, match="amount=-1 should either be a float"):
        prune.random_unstructured(nn.Linear(2, 2), "weight", -1)
    with pytest.raises(ValueError, match="amount=99 should be smaller than the number of parameters to prune=4"):
        prune.l1_unstructured(nn.Linear(2, 2), "weight", 99)
    with pytest.raises(ValueError, match="has to be pruned before pruning can be removed"):
        prune.remove(nn.Linear(2, 2), "weight")


def test_global_and_custom_pruning():
    results = []
    torch.manual_seed(0)
    source = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Linear(5, 3))
    mine = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 3))
    take_weights(mine, source)
    for library, net in ((nn, mine), (torch.nn, source)):
        prune = library.utils.prune
        prune.global_unstructured([(net[0], "weight"), (net[1], "weight")], prune.L1Unstructured, amount=0.3)
        results.append([net[0].weight_mask.numpy(), net[1].weight_mask.numpy()])
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)
    mask = tg.eye(3, 5)
    net = nn.utils.prune.custom_from_mask(nn.Linear(5, 3), "weight", mask)
    assert tg.equal((net.weight != 0).float(), mask)


def test_fusion():
    torch.manual_seed(0)
    for kind, fuse in (("Conv2d", "fuse_conv_bn_eval"), ("Linear", "fuse_linear_bn_eval")):
        args = (3, 4, 2) if kind == "Conv2d" else (3, 4)
        norm = "BatchNorm2d" if kind == "Conv2d" else "BatchNorm1d"
        theirs = torch.nn.Sequential(getattr(torch.nn, kind)(*args), getattr(torch.nn, norm)(4))
        mine = nn.Sequential(getattr(nn, kind)(*args), getattr(nn, norm)(4))
        x = torch.randn(5, 3, 6, 6) if kind == "Conv2d" else torch.randn(5, 3)
        theirs(x)
        take_weights(mine, theirs)
        mine.eval()
        theirs.eval()
        fused = getattr(nn.utils, fuse)(*mine)
        close(fused(ours(x)), theirs(x), "fused")
        close(fused.weight, getattr(torch.nn.utils, fuse)(*theirs).weight, "weight")
    with pytest.raises(AssertionError, match="Fusion only for eval!"):
        nn.utils.fuse_linear_bn_eval(nn.Linear(2, 2), nn.BatchNorm1d(2))


def test_functional_call():
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    net[1].weight = net[0].weight
    other = {"0.weight": tg.zeros(2, 2, requires_grad=True), "1.bias": tg.ones(2)}
    before = net[0].weight
    out = nn.utils.stateless.functional_call(net, other, tg.ones(1, 2))
    assert out.tolist() == [[1, 1]] and net[0].weight is before and net[1].weight is before
    out.sum().backward()
    assert other["0.weight"].grad is not None and before.grad is None
    with pytest.raises(KeyError, match="functional_call: the module has no parameter or buffer 'nothing'"):
        nn.utils.stateless.functional_call(net, {"nothing": before}, tg.ones(1, 2))
    with pytest.raises(RuntimeError, match="missing"):
        nn.utils.stateless.functional_call(net, other, tg.ones(1, 2), strict=True)
    wrapped = nn.DataParallel(net)
    assert list(wrapped.state_dict())[0] == "module.0.weight" and tg.equal(wrapped(tg.ones(1, 2)), net(tg.ones(1, 2)))


@pytest.mark.parametrize("lib", ["tapegrad", "torch"])
def test_private_functions_of_pruning_and_words_of_sequences(lib):
    nn = pytest.importorskip(lib, reason="compared with PyTorch").nn
    prune, rnn, zeros = nn.utils.prune, nn.utils.rnn, pytest.importorskip(lib).zeros
    for amount, error in (("x", TypeError), (1.1, ValueError), (-10, ValueError)):
        with pytest.raises(error):
            prune._validate_pruning_amount_init(amount)
    with pytest.raises(ValueError, match="amount=20 should be smaller than the number of parameters to prune=19"):
        prune._validate_pruning_amount(20, 19)
    prune._validate_pruning_amount(0.3, 0)
    assert [prune._compute_nparams_toprune(a, 15) for a in (0, 10, 1, 1.0, 0.4)] == [0, 10, 1, 15, 6]
    with pytest.raises(RuntimeError, match="Expected iterable for input sequences, but got arg of type"):
        rnn.pad_sequence(5)
    with pytest.raises(RuntimeError, match="Cannot pack empty tensors"):
        rnn.pack_padded_sequence(zeros(0, 1, 10), zeros(1).long() + 1)
    with pytest.raises(RuntimeError, match="Cannot pack empty tensors"):
        rnn.pack_padded_sequence(zeros(0, 0), [])
