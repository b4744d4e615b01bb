"""Layers and losses under PyTorch's root names, against PyTorch."""

import numpy as np
import pytest
import tapegrad as tg

torch = pytest.importorskip("torch")

RANDOM = np.random.RandomState(0)
X = RANDOM.randn(4, 6, 5).astype("float32")
W6, B6, W5, B5 = (RANDOM.randn(n).astype("float32") for n in (6, 6, 5, 5))
TABLE = RANDOM.randint(-2, 3, (7, 3)).astype("float32")  # with equal maxima


def arrays(results):
    return [r.detach().numpy() for r in (results if isinstance(results, tuple) else (results,))]


def both(call, *operands):
    """What both libraries give, with the gradients of floating operands."""
    results = []
    for t, make in ((tg, lambda a: tg.from_numpy(a.copy())), (torch, lambda a: torch.from_numpy(a.copy()))):
        tensors = [make(a).requires_grad_(a.dtype == np.float32) if isinstance(a, np.ndarray) else a for a in operands]
        out = call(t, *tensors)
        first = out[0] if isinstance(out, tuple) else out
        (first * first).sum().backward()
        results.append(arrays(out) + [x.grad.numpy() for x in tensors if hasattr(x, "grad") and x.grad is not None])
    return results


CASES = {
    "layer_norm": (lambda t, x, w, b: t.native_layer_norm(x, [5], w, b, 1e-5), X, W5, B5),
    "layer_norm_two": (lambda t, x: t.native_layer_norm(x, (6, 5), None, None, 0.1), X),
    "group_norm": (lambda t, x, w, b: t.native_group_norm(x, w, b, 4, 6, 5, 3, 1e-5), X, W6, B6),
    "batch_norm": (lambda t, x, w, b: t.native_batch_norm(x, w, b, None, None, True, 0.1, 1e-5), X, W6, B6),
    "batch_norm_running": (lambda t, x, w, b: t.native_batch_norm(x, w, b, t.zeros(6), t.ones(6), False, 0.1, 1e-5), X, W6, B6),
    "channel_shuffle": (lambda t, x: t.native_channel_shuffle(x.detach()[..., None], 3) + 0 * x[..., None], X),
    "bilinear": (lambda t, x, y, w, b: t.bilinear(x[:, 0], y[:, 1], w, b), X, X[::-1].copy(), RANDOM.randn(2, 5, 5).astype("float32"), B5[:2]),
    "dropout_off": (lambda t, x: t.native_dropout(x, 0.5, False), X),
    **{f"ctc_{reduction}": (lambda t, x, reduction=reduction: t.ctc_loss(x.log_softmax(2), t.tensor([[1, 2], [3, 3]]), t.tensor([4, 4]), t.tensor([2, 2]), 0, reduction),
                            X[:, :2].copy()) for reduction in (0, 1, 2)},
}


@pytest.mark.parametrize("name", CASES)
def test_as_in_pytorch(name):
    ours, theirs = both(*CASES[name])
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("padding", [None, 2])
def test_embedding_bag(mode, last, padding):
    indices, offsets = np.array([1, 2, 4, 4, 0, 2, 6]), np.array([0, 2, 2, 5] + [7] * last)
    call = lambda t, w: t.embedding_bag(w, t.from_numpy(indices), t.from_numpy(offsets), False, mode, False, None, last, padding)  # noqa: E731
    ours, theirs = both(call, TABLE)
    np.testing.assert_allclose(ours[0], theirs[0])
    np.testing.assert_allclose(ours[-1], theirs[-1])
    assert ours[1].tolist() == [0, 0, 2, 2, 2, 3, 3]
    if mode == 1:  # for sums and maxima PyTorch fills these as its kernels happen to need them
        assert ours[2].tolist() == theirs[2].tolist()
    if mode == 2:
        assert ours[3].shape == theirs[3].shape
        # what they name holds the maximum; which of equal ones is named is not said
        bags = ours[2] > 0
        found = np.take_along_axis(TABLE, ours[3], 0)
        np.testing.assert_array_equal(found[bags], ours[0][bags])


def test_dropout_mask():
    tg.manual_seed(0)
    x = tg.ones(1000, requires_grad=True)
    out, mask = tg.native_dropout(x, 0.25, True)
    assert mask.dtype == tg.bool and 650 < int(mask.sum()) < 850
    assert tg.equal(out, mask * (1 / 0.75))
    out.sum().backward()
    assert tg.equal(x.grad, out.detach())
    assert not tg.native_dropout(x, 1.0, True)[0].any()
    with pytest.raises(RuntimeError, match="between 0 and 1"):
        tg.native_dropout(x, 1.5, True)


def test_statistics_of_16_bits():
    x = tg.from_numpy(X).bfloat16()
    out, mean, rstd = tg.native_layer_norm(x, [5], None, None, 1e-5)
    assert out.dtype == tg.bfloat16 and mean.dtype == rstd.dtype == tg.float32


def test_wrong_numbers():
    with pytest.raises(ValueError, match="mode is 0"):
        tg.embedding_bag(tg.ones(3, 2), tg.tensor([0]), tg.tensor([0]), False, 3)
    with pytest.raises(ValueError, match="reduction is 0"):
        tg.ctc_loss(tg.zeros(2, 1, 3), tg.tensor([[1]]), tg.tensor([2]), tg.tensor([1]), 0, 5)


def test_anomaly_mode_by_its_root_names():
    assert not tg.is_anomaly_enabled()
    try:
        tg.set_anomaly_enabled(True, False)
        assert tg.is_anomaly_enabled() and not tg.is_anomaly_check_nan_enabled()
    finally:
        tg.set_anomaly_enabled(False)
    assert not tg.is_anomaly_enabled() and tg.is_anomaly_check_nan_enabled()
