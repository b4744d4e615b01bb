"""Every row of nn/*.toml against PyTorch: text, state, values and gradients, with the same weights."""

import sys
from pathlib import Path

import numpy as np
import pytest
import tapegrad as tg
from tapegrad import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from aten.gen.emit_nn_model import load_layers  # noqa: E402

torch = pytest.importorskip("torch")

LAYERS = {layer.name: layer for layer in load_layers(Path(__file__).resolve().parents[3] / "nn")}
CASES = [(name, i) for name, layer in LAYERS.items() for i in range(len(layer.get("test")))]


def ours(value):
    if isinstance(value, torch.Tensor):
        return tg.tensor(value.detach().numpy().copy()) if value.dim() else tg.tensor(value.item(), dtype=tg.float32)
    if isinstance(value, (tuple, list)):
        return type(value)(ours(v) for v in value)
    return value


def make_inputs(layer, sample):
    torch.manual_seed(0)
    inputs = []
    for text in sample[1:]:
        value = eval(text, {"t": torch})  # noqa: S307
        if isinstance(value, tuple) and all(isinstance(n, int) for n in value):
            value = torch.randn(value)
        inputs.append(value)
    return inputs


def differentiable(values):
    found = []
    for v in values:
        if isinstance(v, (tuple, list)):
            found += differentiable(v)
        elif isinstance(v, (torch.Tensor, tg.Tensor)) and v.is_floating_point():
            found.append(v)
    return found


def close(a, b, what):
    if isinstance(b, (tuple, list)):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            close(x, y, what)
        return
    a, b = a.detach().numpy(), b.detach().numpy()
    assert a.shape == b.shape, f"{what}: shape {a.shape}, expected {b.shape}"
    assert a.dtype == b.dtype, f"{what}: dtype {a.dtype}, expected {b.dtype}"
    # Sums cancel: what is left of large terms is only as exact as those.
    largest = float(np.abs(b).max()) if b.size else 0.0
    np.testing.assert_allclose(a, b, rtol=2e-5, atol=5e-6 + 1e-6 * largest, err_msg=what)


def total(outputs):
    outputs = outputs if isinstance(outputs, (tuple, list)) else [outputs]
    return sum((o * o).sum() + o.sum() for o in outputs if o.is_floating_point())


@pytest.mark.parametrize(("name", "index"), CASES, ids=[f"{n}-{i}" for n, i in CASES])
def test_against_torch(name, index):
    layer = LAYERS[name]
    sample = layer.get("test")[index]
    theirs = eval(f"nn.{name}{sample[0]}", {"nn": torch.nn, "t": torch})  # noqa: S307
    mine = eval(f"nn.{name}{sample[0]}", {"nn": nn, "t": tg})  # noqa: S307
    assert repr(mine) == repr(theirs)
    assert list(mine.state_dict()) == list(theirs.state_dict())
    assert [n for n, _ in mine.named_parameters()] == [n for n, _ in theirs.named_parameters()]
    assert {n: tuple(v.shape) for n, v in mine.state_dict().items()} == {n: tuple(v.shape) for n, v in theirs.state_dict().items()}
    with tg.no_grad():
        for key, value in theirs.state_dict().items():
            mine.state_dict()[key].copy_(ours(value))
    inputs = make_inputs(layer, sample)
    my_inputs = [ours(v) for v in inputs]
    inplace = getattr(mine, "inplace", False)
    if not inplace:  # the first input, and those given as a shape: the others may be targets without a gradient
        for i, text in enumerate(sample[1:]):
            if i == 0 or "." not in text:
                for v in differentiable([inputs[i], my_inputs[i]]):
                    v.requires_grad_()
    want = theirs(*inputs)
    got = mine(*my_inputs)
    close(got, want, f"{name}{sample[0]}")
    loss, my_loss = total(want), total(got)
    if loss.requires_grad:
        loss.backward()
        my_loss.backward()
        for v, w in zip(differentiable(my_inputs), differentiable(inputs), strict=True):
            assert (v.grad is None) == (w.grad is None)
            if w.grad is not None:
                close(v.grad, w.grad, f"{name}{sample[0]}: gradient of the input")
        for (n, p), (_, q) in zip(mine.named_parameters(), theirs.named_parameters(), strict=True):
            close(p.grad, q.grad, f"{name}{sample[0]}: gradient of {n}")
    for (n, p), (_, q) in zip(mine.named_buffers(), theirs.named_buffers(), strict=True):
        close(p, q, f"{name}{sample[0]}: buffer {n}")
    mine.eval()
    theirs.eval()
    if not inplace:
        close(mine(*my_inputs), theirs(*inputs), f"{name}{sample[0]} in evaluation")


@pytest.mark.parametrize("name", sorted(LAYERS))
def test_signature(name):
    import inspect

    def shape(cls):
        parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
        return [(p.name, p.default if not isinstance(p.default, float) else round(p.default, 12), p.kind)
                for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]

    assert shape(getattr(nn, name)) == shape(getattr(torch.nn, name))


@pytest.mark.parametrize("name", sorted(n for n, layer in LAYERS.items() if layer.get("reset")))
def test_initial_values_have_the_same_distribution(name):
    call = {"Linear": "(300, 200)", "Bilinear": "(20, 30, 40)", "Embedding": "(200, 300, padding_idx=3)", "EmbeddingBag": "(200, 300)",
            "LayerNorm": "(50)", "RMSNorm": "(50)", "PReLU": "(3)", "GroupNorm": "(3, 12)"}.get(name)
    if call is None:
        call = "(40, 60, 3)" if "Conv" in name else "(100, 50)" if "Cell" in name else "(30)"
    tg.manual_seed(1)  # what the bounds below are for must not depend on what ran before
    torch.manual_seed(1)
    mine = eval(f"nn.{name}{call}", {"nn": nn})  # noqa: S307
    theirs = eval(f"nn.{name}{call}", {"nn": torch.nn})  # noqa: S307
    for (key, a), (_, b) in zip(mine.state_dict().items(), theirs.state_dict().items(), strict=True):
        a, b = a.detach().numpy().astype(np.float64), b.detach().numpy().astype(np.float64)
        assert a.shape == b.shape
        if a.size < 1000:
            if np.ptp(b) == 0:
                np.testing.assert_array_equal(a, b, err_msg=key)
            else:
                assert np.abs(a).max() <= np.abs(b).max() * 1.2 + 1e-9, key
            continue
        np.testing.assert_allclose(a.std(), b.std(), rtol=0.03, err_msg=key)
        np.testing.assert_allclose(a.mean(), b.mean(), atol=4 * b.std() / np.sqrt(b.size), err_msg=key)
        if "Embedding" not in name:
            np.testing.assert_allclose(np.abs(a).max(), np.abs(b).max(), rtol=0.02, err_msg=key)
