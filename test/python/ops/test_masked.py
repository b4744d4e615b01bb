"""Masked reductions and normalisations against PyTorch's."""

import numpy as np
import pytest
import tapegrad as tg

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

REDUCTIONS = ["sum", "prod", "amax", "amin", "mean", "var", "std", "logsumexp"]
ALONG = ["cumsum", "cumprod", "softmax", "log_softmax", "softmin"]


def sample(dtype="float64", seed=0):
    random = np.random.default_rng(seed)
    values, mask = random.uniform(-2, 2, (4, 5)), random.integers(0, 2, (4, 5)).astype(bool)
    mask[1] = False
    if dtype == "int64":
        values = random.integers(-9, 9, (4, 5))
    x, m = tg.tensor(values), tg.tensor(mask)
    return x, m, torch.tensor(values), torch.tensor(mask)


def same(ours, theirs):
    assert str(ours.dtype).split(".")[-1] == str(theirs.dtype).split(".")[-1]
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-9, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("dim", [None, 0, -1, (0, 1), ()])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name, dim):
    x, m, tx, tm = sample()
    for options in ({}, {"keepdim": True}):
        ours, theirs = getattr(tg.masked, name), getattr(torch.masked, name)
        same(ours(x, dim, mask=m, **options), theirs(tx, dim, mask=tm, **options))
        same(ours(x, dim, mask=m[0], **options), theirs(tx, dim, mask=tm[0], **options))
        same(ours(x, dim, **options), theirs(tx, dim, **options))


@pytest.mark.parametrize("name", ["sum", "prod", "amax", "amin", "argmax", "argmin"])
def test_reductions_of_integers(name):
    x, m, tx, tm = sample("int64")
    same(getattr(tg.masked, name)(x, 1, mask=m), getattr(torch.masked, name)(tx, 1, mask=tm))


@pytest.mark.parametrize("name", ALONG)
def test_along_a_dimension(name):
    x, m, tx, tm = sample()
    same(getattr(tg.masked, name)(x, 1, mask=m), getattr(torch.masked, name)(tx, 1, mask=tm))
    same(getattr(tg.masked, name)(x, 0), getattr(torch.masked, name)(tx, 0))


@pytest.mark.parametrize("ord", [2.0, 1.0, 0.0, 3.0, float("inf"), float("-inf")])
def test_norms(ord):
    x, m, tx, tm = sample()
    same(tg.masked.norm(x, ord, 1, mask=m), torch.masked.norm(tx, ord, 1, mask=tm))
    if ord > 0:
        same(tg.masked.normalize(x, ord, 1, mask=m), torch.masked.normalize(tx, ord, 1, mask=tm))


def test_others():
    x, m, tx, tm = sample()
    for name in ("argmax", "argmin", "median"):
        same(getattr(tg.masked, name)(x, 1, mask=m), getattr(torch.masked, name)(tx, 1, mask=tm))
    same(tg.masked.var(x, 1, False, mask=m), torch.masked.var(tx, 1, False, mask=tm))
    y, ty = x.flip(0), tx.flip(0)
    same(tg.masked.logaddexp(x, y, input_mask=m, other_mask=m[0]), torch.masked.logaddexp(tx, ty, input_mask=tm, other_mask=tm[0]))


def test_gradient():
    x, m, tx, tm = sample()
    for name in ("sum", "mean", "logsumexp", "prod", "norm"):
        a, b = x.clone().requires_grad_(), tx.clone().requires_grad_()
        getattr(tg.masked, name)(a, dim=1, mask=m)[0].backward()
        getattr(torch.masked, name)(b, dim=1, mask=tm)[0].backward()
        same(a.grad, b.grad)


def test_mistakes():
    with pytest.raises(IndexError, match="masked.sum: the mask has more dimensions than the input"):
        tg.masked.sum(tg.ones(2), mask=tg.ones(2, 2) > 0)
    with pytest.raises(ValueError, match="masked.mean: expected a floating or complex dtype"):
        tg.masked.mean(tg.ones(2, dtype=tg.int64))
