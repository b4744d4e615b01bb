"""Expanded tensors in vmap, and what is made of them: gradients of each sample."""

import pytest
import tapegrad as tg
from pairs import same_as_torch
from tapegrad.func import vmap

torch = pytest.importorskip("torch")
functional = tg.nn.functional
CALLS = {
    "layer_norm": ((2, 4), lambda x, w: functional.layer_norm(x.unsqueeze(0), (2, 4), w).squeeze(0)),
    "prelu": ((2,), lambda x, w: functional.prelu(x[None], w)[0]),
    "bilinear": ((2, 4, 4), lambda x, w: functional.bilinear(x, x, w)),
    "attention": ((2, 4), lambda x, w: functional.scaled_dot_product_attention(x[None], w[None], x[None])[0]),
}


@pytest.mark.parametrize("name", CALLS)
def test_each_sample_of_an_expanded_leaf_has_its_own_gradient(name):
    shape, call = CALLS[name]
    x, base = tg.randn(3, 2, 4), tg.rand(shape) + 0.5

    def gradient(weight):
        y = vmap(call)(x, weight.requires_grad_())
        return tg.autograd.grad((y * tg.arange(float(y.numel())).reshape(y.shape)).sum(), weight)[0]

    tg.testing.assert_close(gradient(base.expand(3, *shape).detach()), gradient(base.expand(3, *shape).clone()))


def test_each_element_of_a_leaf_of_overlapping_windows_has_its_own_gradient():
    windows = tg.arange(6.0).as_strided((3, 4), (1, 1)).detach()  # each element but the first and the last is in several

    def gradient(leaf):
        y = vmap(lambda x: x.view(2, 2).transpose(0, 1).reshape(4) * x.view(4))(leaf.requires_grad_())
        return tg.autograd.grad((y * tg.arange(12.0).reshape(3, 4)).sum(), leaf)[0]

    tg.testing.assert_close(gradient(windows), gradient(windows.clone()))


def _sample_gradients(t, layer, x, reduction):
    from importlib import import_module

    call = import_module(f"{t.__name__}.nn.utils._per_sample_grad").call_for_per_sample_grads
    with t.no_grad():
        for p in layer.parameters():
            p.copy_((t.arange(float(p.numel())) * 0.37).sin().reshape(p.shape))
    losses = (call(layer, loss_reduction=reduction)(x) ** 2).flatten(1).sum(1)
    getattr(losses, reduction)().backward()
    with pytest.raises(RuntimeError, match="Current Expanded Weights accumulates the gradients"):
        call(layer)
    return [([round(v, 3) for v in p.grad_sample.flatten().tolist()], tuple(p.grad_sample.shape), p.grad is None) for p in layer.parameters()]


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("name", ["linear", "conv", "norm"])
@same_as_torch
def test_gradients_of_each_sample(t, name, reduction):
    x = (t.arange(3.0 * 2 * 6) * 0.7).cos().reshape(3, 2, 6)
    layer = {"linear": lambda: t.nn.Sequential(t.nn.Linear(6, 3), t.nn.Tanh(), t.nn.Linear(3, 2)), "conv": lambda: t.nn.Conv1d(2, 3, 3),
             "norm": lambda: t.nn.LayerNorm([2, 6])}[name]()  # fmt: skip
    return _sample_gradients(t, layer, x, reduction)


@same_as_torch
def test_gradients_of_each_sample_refuse_what_is_no_module_or_size(t):
    from importlib import import_module

    call = import_module(f"{t.__name__}.nn.utils._per_sample_grad").call_for_per_sample_grads
    for arguments, options in (((3,), {}), ((t.nn.Linear(1, 1),), {"batch_size": 0}), ((t.nn.Linear(1, 1),), {"loss_reduction": "max"})):
        with pytest.raises(RuntimeError):
            call(*arguments, **options)


@same_as_torch
def test_what_is_written_under_no_grad_is_the_memory_itself(t):
    """Of an expanded leaf there is one place for several elements, which refuses; a dimension of one element shares nothing."""
    from importlib import import_module

    func = import_module(f"{t.__name__}.func")
    alone = t.arange(3.0).as_strided((3, 1), (1, 0)).requires_grad_()
    with t.no_grad():
        func.vmap(lambda x: x.mul_(2))(alone)
        with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
            func.vmap(lambda x: x.mul_(2))(t.arange(3.0).expand(4, 3).requires_grad_())
    return alone.tolist()


_WRITES = {"in place": lambda t, x: x.mul_(2), "of a view": lambda t, x: x.view(-1).mul_(2), "an element": lambda t, x: x.__setitem__(0, 1.0),
           "of an element": lambda t, x: x[0].mul_(3), "filled": lambda t, x: x.fill_(7), "zeroed": lambda t, x: x.zero_(), "copied": lambda t, x: x.copy_(t.ones_like(x)),
           "relu": lambda t, x: t.relu_(x), "by places": lambda t, x: x.index_fill_(0, t.tensor([0]), 2.0), "masked": lambda t, x: x.masked_fill_(x > 0, 1.0),
           "detached": lambda t, x: x.detach().mul_(2), "added": lambda t, x: x.add_(x.sum())}  # fmt: skip


@pytest.mark.parametrize("kind", ["expanded", "windows", "result"])
@pytest.mark.parametrize("name", _WRITES)
@pytest.mark.parametrize("recorded", [True, False])
def test_nothing_is_written_to_elements_that_share_memory(name, kind, recorded):
    """PyTorch raises, too, but where it writes some elements of overlapping windows several times."""
    base = tg.arange(1.0, 7.0)
    leaf = {"expanded": lambda: base[:3].expand(4, 3).detach().requires_grad_(), "windows": lambda: base.as_strided((3, 4), (1, 1)).detach().requires_grad_(),
            "result": lambda: base[:3].requires_grad_().expand(4, 3)}[kind]()  # fmt: skip

    def write(x):
        with tg.set_grad_enabled(recorded):
            _WRITES[name](tg, x)
        return x

    with pytest.raises(RuntimeError):
        vmap(write)(leaf)
    assert base.tolist() == [1.0, 2, 3, 4, 5, 6]
    assert vmap(lambda x: x.clone().mul_(2))(leaf).sum() == 2 * leaf.sum()
