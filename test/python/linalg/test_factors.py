"""QR by blocks, and the eigenvalues and singular values of small real matrices, which have kernels of their own: sizes on both sides of every limit,
matrices that are deficient, graded, of extreme scale."""

import numpy as np
import pytest
import tapegrad

linalg = tapegrad.linalg
RNG = np.random.default_rng(5)
DTYPES = ["float32", "float64", "complex64", "complex128"]
SIZES = [1, 2, 3, 8, 9, 16, 17, 31, 32, 33, 64, 65]


def matrix(m, n, dtype, kind="random"):
    a = RNG.standard_normal((m, n))
    if dtype.startswith("complex"):
        a = a + 1j * RNG.standard_normal((m, n))
    half = max(1, min(m, n) // 2)
    made = {"random": lambda: a, "deficient": lambda: a[:, :half] @ a[:half], "graded": lambda: a * np.logspace(0, -6, n), "zero": lambda: 0 * a,
            "identity": lambda: np.eye(m, n) + 0 * a, "ones": lambda: np.ones((m, n)) + 0 * a, "diagonal": lambda: np.diag(np.arange(max(m, n)))[:m, :n] + 0 * a,
            "tiny": lambda: a * 1e-25, "huge": lambda: a * 1e25, "clustered": lambda: np.linalg.qr(a)[0] if m >= n else a}
    return made[kind]().astype(dtype)


def assert_small(difference, scale, dtype, factor):
    assert np.abs(difference).max(initial=0) <= factor * np.finfo(dtype).eps * max(scale, 1e-300)


def wide(a):
    return a.astype("complex128" if a.dtype.kind == "c" else "float64")


KINDS = ["random", "deficient", "graded", "zero", "identity", "ones", "diagonal", "tiny", "huge", "clustered"]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", KINDS)
def test_eigenvalues_of_small_matrices(kind, dtype):
    for n in SIZES:
        a = matrix(n, n, dtype, kind)
        h = (a + a.T) / 2
        norm = np.linalg.norm(wide(h))
        for uplo in "LU":
            triangle = np.tril(h) if uplo == "L" else np.triu(h)  # the other one is not read
            values, vectors = (wide(t.numpy()) for t in linalg.eigh(tapegrad.tensor(triangle), UPLO=uplo))
            assert_small(wide(h) @ vectors - vectors * values, norm, dtype, 8 * n)
            assert_small(vectors.T @ vectors - np.eye(n), 1, dtype, 8 * n)
            assert_small(values - np.linalg.eigvalsh(wide(h)), norm, dtype, 8 * n)
            assert_small(linalg.eigvalsh(tapegrad.tensor(triangle), UPLO=uplo).numpy() - values, norm, dtype, 8 * n)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", KINDS)
def test_singular_values_of_small_matrices(kind, dtype):
    for m, n in [(n + extra, n) for n in SIZES for extra in (0, 3)] + [(1, 5), (8, 16), (9, 20), (31, 32), (32, 33)]:
        a = matrix(m, n, dtype, kind)
        norm = np.linalg.norm(wide(a))
        for full in (False, True):
            u, s, vh = (wide(t.numpy()) for t in linalg.svd(tapegrad.tensor(a), full_matrices=full))
            k = len(s)
            assert (s >= 0).all() and (np.diff(s) <= 0).all()
            assert_small((u[:, :k] * s) @ vh[:k] - wide(a), norm, dtype, 8 * max(m, n))
            for q in (u, vh.T):
                assert_small(q.T @ q - np.eye(q.shape[1]), 1, dtype, 8 * max(m, n))
            assert_small(s - np.linalg.svd(wide(a), compute_uv=False), norm, dtype, 8 * max(m, n))


def test_small_singular_values_keep_their_digits():
    """Rotations of columns find each value to relative, not absolute precision where columns differ in scale."""
    scales = np.logspace(0, -5, 6)
    a = (np.linalg.qr(RNG.standard_normal((6, 6)))[0] * scales).astype("float32")
    found = linalg.svd(tapegrad.tensor(a)).S.numpy()
    np.testing.assert_allclose(found, np.linalg.svd(a.astype("float64"), compute_uv=False), rtol=3e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("m", "n"), [(127, 127), (128, 128), (200, 130), (130, 200), (260, 129), (9000, 20), (257, 64)])
def test_qr_by_blocks(m, n, dtype):
    a = matrix(m, n, dtype)
    norm = np.linalg.norm(wide(a))
    for mode in ("reduced", "complete") if m < 1000 else ("reduced",):
        q, r = (wide(t.numpy()) for t in linalg.qr(tapegrad.tensor(a), mode=mode))
        assert not np.tril(r, -1).any()
        assert_small(q @ r - a, norm, dtype, 10)
        assert_small(q.conj().T @ q - np.eye(q.shape[1]), 1, dtype, 60)
    only = wide(linalg.qr(tapegrad.tensor(a), mode="r").R.numpy())
    np.testing.assert_array_equal(only, r[: len(only)])
    reflectors, tau = tapegrad.geqrf(tapegrad.tensor(a))
    if m >= n:
        product = linalg.householder_product(reflectors, tau)
        assert_small(wide(product.numpy()) - q[:, :n], 1, dtype, 60)


def test_the_same_bits_for_any_number_of_threads():
    large, batch = tapegrad.tensor(matrix(300, 300, "float32")), tapegrad.tensor(np.stack([matrix(30, 30, "float32") for _ in range(60)]))
    results = []
    for threads in (1, 2, 3, 5):
        tapegrad.set_num_threads(threads)
        found = [*linalg.qr(large), *linalg.svd(batch), *linalg.eigh(batch + batch.mT)]
        results.append([t.numpy().tobytes() for t in found])
    assert all(r == results[0] for r in results)
    # A matrix of a batch comes out as it does alone.
    assert linalg.svd(batch[7]).U.numpy().tobytes() == linalg.svd(batch).U[7].numpy().tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", KINDS)
def test_qr_of_small_matrices(kind, dtype):
    for m, n in [(n, n) for n in SIZES] + [(1, 4), (5, 2), (2, 5), (17, 16), (16, 33), (64, 3), (3, 64), (65, 3)]:
        a = matrix(m, n, dtype, kind)
        norm = np.linalg.norm(wide(a))
        for mode in ("reduced", "complete"):
            q, r = (wide(t.numpy()) for t in linalg.qr(tapegrad.tensor(a), mode=mode))
            assert not np.tril(r, -1).any()
            assert_small(q @ r - a, norm, dtype, 8 * max(m, n))
            assert_small(q.T @ q - np.eye(q.shape[1]), 1, dtype, 8 * max(m, n))
        np.testing.assert_array_equal(wide(linalg.qr(tapegrad.tensor(a), mode="r").R.numpy()), r[: min(m, n)])
        if kind == "random":  # signs are LAPACK's
            assert_small(r - np.linalg.qr(wide(a), mode="complete")[1], norm, dtype, 40 * max(m, n))


@pytest.mark.parametrize("n", [3, 20, 200])
def test_matrices_that_are_not_finite(n):
    """QR hands on what is not finite, the others refuse it."""
    for bad in (float("nan"), float("inf")):
        a = tapegrad.eye(n)
        a[n // 2, n // 3] = bad
        assert not tapegrad.isfinite(linalg.qr(a).R).all()
        for refused in (linalg.svd, linalg.eigh):
            with pytest.raises(linalg.LinAlgError, match="infinite elements or NaN"):
                refused(a)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("upper", [False, True])
def test_cholesky(upper, dtype):
    for n in [*range(1, 11), 40, 400]:
        a = matrix(n, n, dtype)
        positive = a @ a.conj().T + np.eye(n).astype(dtype)
        triangle = np.triu(positive) if upper else np.tril(positive)  # the other one is not read
        factor, info = linalg.cholesky_ex(tapegrad.tensor(triangle), upper=upper)
        found = wide(factor.numpy())
        assert info.item() == 0
        assert not (np.tril(found, -1) if upper else np.triu(found, 1)).any()
        assert_small((found.conj().T @ found if upper else found @ found.conj().T) - positive, np.linalg.norm(wide(positive)), dtype, 8 * n)
        for bad in (-1.0, 0.0, float("nan")):
            row = n // 2
            triangle[row, row] = bad
            assert linalg.cholesky_ex(tapegrad.tensor(triangle), upper=upper).info.item() == row + 1
