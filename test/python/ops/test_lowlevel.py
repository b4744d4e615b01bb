"""Functions of the root module that layers are made of, and lobpcg: against PyTorch."""

import numpy as np
import pytest
import tapegrad as tg

torch = pytest.importorskip("torch")
RNG = np.random.default_rng(0)


def both(call, *arrays, dtype="float32"):
    """What the call makes of the arrays in both libraries, as lists of arrays."""
    def run(t):
        results = call(t, *(t.tensor(a.astype(dtype)) if a.dtype.kind == "f" else t.tensor(a) for a in arrays))
        return [np.asarray(r.detach()) for r in (results if isinstance(results, (tuple, list)) else [results])]

    mine, theirs = run(tg), run(torch)
    assert len(mine) == len(theirs)
    for a, b in zip(mine, theirs):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    return mine


X = RNG.standard_normal((2, 4, 3, 3))


def quantized(name, *where):
    def call(t, x, *scales):
        x = x.requires_grad_()
        y = getattr(t, name)(x, *scales, *where)
        y.square().sum().backward()
        return [y, x.grad]

    return call


@pytest.mark.parametrize(("call", "arrays"), [
    (quantized("fake_quantize_per_tensor_affine", 0.1, 3, -8, 7), [X]),
    (quantized("fake_quantize_per_tensor_affine", 0, 0, 15), [X, np.array(0.25)]),
    (quantized("fake_quantize_per_channel_affine", 1, -8, 7), [X, np.array([0.1, 0.2, 0.3, 0.4]), np.array([0, 1, 2, 3], dtype="int32")]),
    (lambda t, w: t.embedding_renorm_(w, t.tensor([0, 2, 2]), 1.0, 2.0), [3 * RNG.standard_normal((5, 3))]),
    (lambda t, theta: t.affine_grid_generator(theta, (2, 1, 2, 3), False), [RNG.standard_normal((2, 2, 3))]),
    (lambda t, x: t.nn.functional.normalize(x, p=1.5, dim=(-2, -1)), [X]),
    (lambda t, x: t.nn.functional.normalize(x, dim=[0]), [X]),
])
def test_low_level_functions(call, arrays):
    both(call, *arrays)


def test_their_mistakes():
    for wrong in (lambda t, x: t.fake_quantize_per_tensor_affine(x, 0.1, 0, 5, 3), lambda t, x: t.fake_quantize_per_channel_affine(x, t.ones(2), t.ones(3).int(), 1, 0, 7)):
        for t in (tg, torch):
            with pytest.raises(RuntimeError):
                wrong(t, t.ones(2, 3))
    assert tg.has_lapack and not tg.has_mkl


def definite(n, seed):
    a = np.random.default_rng(seed).standard_normal((n, n))
    return a @ a.T + 0.1 * np.eye(n)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("second", [False, True])
def test_lobpcg(largest, second):
    A, B, X = definite(40, 1), definite(40, 2) if second else None, np.random.default_rng(3).standard_normal((40, 3))
    expected = torch.lobpcg(torch.tensor(A), B=None if B is None else torch.tensor(B), X=torch.tensor(X), largest=largest, niter=500, tol=1e-9)
    steps = []
    E, V = tg.lobpcg(tg.tensor(A), B=None if B is None else tg.tensor(B), X=tg.tensor(X), largest=largest, niter=500, tol=1e-9, tracker=lambda s: steps.append(s.ivars["istep"]))
    np.testing.assert_allclose(E.numpy(), expected[0].numpy(), rtol=1e-6)
    residual = A @ V.numpy() - (V.numpy() if B is None else B @ V.numpy()) * E.numpy()
    assert np.abs(residual).max() < 1e-5 and steps == list(range(len(steps))) and 2 < len(steps) < 200
    np.testing.assert_allclose(V.numpy().T @ (V.numpy() if B is None else B @ V.numpy()), np.eye(3), atol=1e-8)


def test_lobpcg_of_other_kinds():
    A = tg.tensor(definite(30, 4))
    E = tg.linalg.eigvalsh(A)
    np.testing.assert_allclose(tg.lobpcg(A.to_sparse(), k=2, niter=300)[0].numpy(), E[-2:].flip(0).numpy(), rtol=1e-6)
    batch = tg.lobpcg(tg.stack([A, 2 * A])[None], k=1, niter=300)
    assert batch[0].shape == (1, 2, 1) and batch[1].shape == (1, 2, 30, 1)
    np.testing.assert_allclose(batch[0].flatten().numpy(), [E[-1].item(), 2 * E[-1].item()], rtol=1e-6)
    assert tg.lobpcg(A.float(), k=1, X=tg.zeros(30, 1).index_fill_(0, tg.tensor([3]), 1.0))[0].dtype == tg.float32
    near = tg.lobpcg(A, k=2, largest=False, iK=tg.linalg.inv(A), niter=15)[0]  # a good preconditioner: few steps
    np.testing.assert_allclose(near.numpy(), E[:2].numpy(), rtol=1e-5)
    np.testing.assert_allclose(tg.lobpcg(tg.eye(9), k=3)[0].numpy(), 1.0, rtol=1e-5)  # residuals of nothing but rounding
    grads = []
    for t in (tg, torch):
        leaf = t.tensor(definite(20, 5)).requires_grad_()
        values, vectors = t.lobpcg(leaf, k=2, X=t.tensor(np.random.default_rng(6).standard_normal((20, 2))), tol=1e-12, niter=2000)
        (values * t.tensor([1.0, 2.0], dtype=t.float64)).sum().backward()
        grads.append(((leaf.grad + leaf.grad.T) / 2).numpy())
    np.testing.assert_allclose(*grads, atol=1e-6)
    for wrong, message in ((lambda: tg.lobpcg(tg.eye(5), k=2), "smaller than 3 x the number of requested eigenpairs"), (lambda: tg.lobpcg(tg.ones(9, 8)), "A must be square"),
                           (lambda: tg.lobpcg(tg.eye(9), method="other"), "method must be 'basic' or 'ortho'"), (lambda: tg.lobpcg(tg.eye(9), k=0), "k must be between 1 and")):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            wrong()
    with pytest.raises(RuntimeError, match="expected a floating dtype"):
        tg.lobpcg(tg.eye(9, dtype=tg.int64))
    with pytest.raises(NotImplementedError, match="gradients of sparse matrices"):
        tg.lobpcg(A.to_sparse().requires_grad_(), k=1)


def test_pca_lowrank_of_a_sparse_matrix():
    A = np.random.default_rng(0).standard_normal((12, 5)) * (np.random.default_rng(1).random((12, 5)) < 0.5)
    for center in (True, False):
        S = tg.pca_lowrank(tg.tensor(A).to_sparse(), q=5, center=center)[1]
        np.testing.assert_allclose(S.numpy(), np.linalg.svd(A - A.mean(0) * center, compute_uv=False), atol=1e-8)
