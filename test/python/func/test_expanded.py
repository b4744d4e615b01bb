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
