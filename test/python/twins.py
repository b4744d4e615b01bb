"""Our module and PyTorch's of the same name, with the same weights, compared on the same inputs."""

import numpy as np
import pytest
import tapegrad as tg
from tapegrad import nn

torch = pytest.importorskip("torch")


def ours(value):
    """The same nested value for tapegrad."""
    if isinstance(value, torch.nn.utils.rnn.PackedSequence):
        return nn.utils.rnn.PackedSequence(*(ours(v) for v in value))
    if isinstance(value, torch.Tensor):
        wanted = value.requires_grad
        return tg.tensor(value.detach().numpy().copy()).requires_grad_(wanted)
    if isinstance(value, (tuple, list)):
        return type(value)(ours(v) for v in value)
    return value


def flat(values) -> list:
    """The tensors of nested values."""
    if values is None:
        return []
    if isinstance(values, (tuple, list)):
        return [t for v in values for t in flat(v)]
    return [values] if hasattr(values, "detach") else []


def close(got, want, what: str, rtol: float = 2e-5, atol: float = 5e-6) -> None:
    got, want = flat(got), flat(want)
    assert len(got) == len(want), f"{what}: {len(got)} tensors, expected {len(want)}"
    for a, b in zip(got, want, strict=True):
        a, b = a.detach().numpy(), b.detach().numpy()
        assert a.shape == b.shape and a.dtype == b.dtype, f"{what}: {a.dtype} {a.shape}, expected {b.dtype} {b.shape}"
        largest = float(np.abs(b[np.isfinite(b)]).max()) if b.size and b.dtype.kind == "f" and np.isfinite(b).any() else 0.0
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol + 1e-6 * largest, err_msg=what)


def take_weights(mine, theirs) -> None:
    assert list(mine.state_dict()) == list(theirs.state_dict())
    mine.load_state_dict({key: tg.tensor(value.detach().numpy().copy()) for key, value in theirs.state_dict().items()})


def total(outputs):
    return sum((o * o).sum() + (o * 0.3).sum() for o in flat(outputs) if o.is_floating_point())


def compare(mine, theirs, inputs, kwargs=None, my_inputs=None, my_kwargs=None, text: bool = True, what: str = "") -> None:
    """Same text, state, outputs and gradients of floating inputs and of all parameters."""
    kwargs = kwargs or {}
    if text:
        assert repr(mine) == repr(theirs)
    assert [n for n, _ in mine.named_parameters()] == [n for n, _ in theirs.named_parameters()]
    take_weights(mine, theirs)
    my_inputs = ours(tuple(inputs)) if my_inputs is None else my_inputs
    my_kwargs = {k: ours(v) for k, v in kwargs.items()} if my_kwargs is None else my_kwargs
    want, got = theirs(*inputs, **kwargs), mine(*my_inputs, **my_kwargs)
    close(got, want, f"{what} result")
    loss, my_loss = total(want), total(got)
    if not (hasattr(loss, "requires_grad") and loss.requires_grad):
        return
    loss.backward()
    my_loss.backward()
    pairs = list(zip(flat(my_inputs) + flat(list(my_kwargs.values())), flat(list(inputs)) + flat(list(kwargs.values())), strict=True))
    for a, b in pairs:
        if b.grad is not None:
            close(a.grad, b.grad, f"{what} gradient of an input", rtol=1e-4, atol=2e-5)
    for (name, p), (_, q) in zip(mine.named_parameters(), theirs.named_parameters(), strict=True):
        assert (p.grad is None) == (q.grad is None), name
        if q.grad is not None:
            close(p.grad, q.grad, f"{what} gradient of {name}", rtol=1e-4, atol=2e-5)


def pair(kind: str, *args, **kwargs):
    """tapegrad's and PyTorch's module of one class; PyTorch's has the weights of seed 0."""
    torch.manual_seed(0)
    return getattr(nn, kind)(*args, **kwargs), getattr(torch.nn, kind)(*args, **kwargs)
