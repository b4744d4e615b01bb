"""Eigenvalues, singular values and what stands on them, on CUDA: factors multiply to the matrix, values are the CPU's.

Runs where the environment asks for a device, as test_operators.py does; test_simulated.py starts it on the simulated one.
"""

import os

import pytest
import tapegrad as tg

if not (os.environ.get("TAPEGRAD_CUDA_SIMULATE") or os.environ.get("TAPEGRAD_GPU")):
    pytest.skip("no device was asked for in the environment", allow_module_level=True)

DTYPES = [tg.float64, tg.complex128, tg.float32, tg.complex64]
SHAPES = [(2, 3, 5, 5), (1, 1), (7, 2), (2, 7), (35, 9), (9, 35), (17, 17), (4, 0), (0, 3, 3), (2, 0, 5)]


def matrices(shape, dtype, seed=5):
    tg.manual_seed(seed)
    x = tg.randn(shape, dtype=tg.float64)
    return (tg.complex(x, tg.randn(shape, dtype=tg.float64)) if dtype.is_complex else x).to(dtype)


def eps(dtype):
    return 2e-5 if dtype in (tg.float32, tg.complex64) else 1e-12


def near(got, expected, dtype, where=""):
    size = 1 if expected.numel() == 0 else max(1, expected.abs().max().item())
    assert got.shape == expected.shape and got.dtype == expected.dtype, where
    tg.testing.assert_close(got.cpu(), expected.cpu(), rtol=0, atol=eps(dtype) * size, msg=lambda text: f"{where}: {text}")


def orthonormal(q, dtype, where):
    near(q.mH @ q, tg.eye(q.shape[-1], dtype=dtype).expand(*q.shape[:-2], -1, -1), dtype, where)


def check_svd(a, full):
    u, s, vh = tg.linalg.svd(a.cuda(), full_matrices=full)
    expected = tg.linalg.svd(a, full_matrices=full)
    for got, e in zip((u, s, vh), expected, strict=True):
        assert got.device.type == "cuda" and got.shape == e.shape and got.dtype == e.dtype and got.stride() == e.stride()
    k = min(a.shape[-2:])
    near(s, expected[1], a.dtype, "values")
    near(tg.linalg.svdvals(a.cuda()), expected[1], a.dtype, "svdvals")
    orthonormal(u, a.dtype, "left")
    orthonormal(vh.mH, a.dtype, "right")
    near((u[..., :k] * s.unsqueeze(-2)) @ vh[..., :k, :], a, a.dtype, "product")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_singular_values(dtype, shape):
    for full in (False, True) if max(shape) < 30 else (dtype.is_complex,):
        check_svd(matrices(shape, dtype), full)


@pytest.mark.parametrize("dtype", [tg.float64, tg.complex64], ids=str)
def test_singular_values_of_special_matrices(dtype):
    low = matrices((9, 2), dtype) @ matrices((2, 6), dtype)
    for a in (low, low.mT, tg.zeros(4, 3, dtype=dtype), tg.eye(5, dtype=dtype), tg.diag(tg.tensor([1, 1e-20, 1e-3, 0], dtype=dtype)),
              tg.ones(6, 6, dtype=dtype), matrices((2, 3, 8, 5), dtype).transpose(0, 1).flip(2)[..., ::2]):
        check_svd(a, False)
        check_svd(a, True)
    tiny = 1e-30 if dtype == tg.complex64 else 1e-250
    a = matrices((5, 4), dtype)
    near(tg.linalg.svdvals((a * tiny).cuda()) / tiny, tg.linalg.svdvals(a), dtype, "tiny")
    near(tg.linalg.svdvals((a / tiny).cuda()) * tiny, tg.linalg.svdvals(a), dtype, "huge")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(2, 3, 5, 5), (1, 1), (2, 2), (17, 17), (40, 40), (0, 0), (3, 0, 0), (0, 4, 4)], ids=str)
def test_eigenvalues(dtype, shape):
    a = matrices(shape, dtype)  # of which one triangle is read
    for uplo in "LU":
        w, v = tg.linalg.eigh(a.cuda(), uplo)
        expected, vectors = tg.linalg.eigh(a, uplo)
        assert w.dtype == expected.dtype and v.stride() == vectors.stride() and v.dtype == vectors.dtype
        near(w, expected, dtype, "values")
        near(tg.linalg.eigvalsh(a.cuda(), uplo), expected, dtype, "eigvalsh")
        orthonormal(v, dtype, "vectors")
        triangle = a.tril(-1) if uplo == "L" else a.triu(1)
        diagonal = a.diagonal(dim1=-2, dim2=-1)
        whole = triangle + triangle.mH + tg.diag_embed(diagonal.real.to(dtype) if dtype.is_complex else diagonal)
        near((v * w.unsqueeze(-2)) @ v.mH, whole, dtype, "product")


@pytest.mark.parametrize("dtype", [tg.float64, tg.complex64], ids=str)
def test_eigenvalues_of_special_matrices(dtype):
    low = matrices((9, 2), dtype)
    for a in (low @ low.mH, tg.zeros(4, 4, dtype=dtype), tg.eye(5, dtype=dtype), tg.ones(6, 6, dtype=dtype), tg.diag(tg.tensor([3, 1, 2, 1], dtype=dtype)),
              tg.diag(tg.ones(4, dtype=dtype), 1) + tg.diag(tg.ones(4, dtype=dtype), -1)):
        w, v = tg.linalg.eigh(a.cuda())
        near(w, tg.linalg.eigvalsh(a), dtype)
        orthonormal(v, dtype, "vectors")
        near((v * w.unsqueeze(-2)) @ v.mH, a, dtype, "product")
    tiny = 1e-30 if dtype == tg.complex64 else 1e-250
    near(tg.linalg.eigvalsh((low @ low.mH * tiny).cuda()) / tiny, tg.linalg.eigvalsh(low @ low.mH), dtype, "tiny")


def test_what_is_not_finite_is_refused():
    for bad in (float("nan"), float("inf")):
        a = tg.eye(3).repeat(2, 1, 1)
        a[1, 2, 0] = bad
        for f in (tg.linalg.svd, tg.linalg.svdvals, tg.linalg.eigh, tg.linalg.eigvalsh, tg.linalg.pinv):
            with pytest.raises(tg.linalg.LinAlgError, match=r"batch element \[1\]: the matrix has infinite elements or NaN"):
                f(a.cuda())
        assert tg.linalg.eigvalsh(a.cuda(), "U").tolist() == [[1, 1, 1], [1, 1, 1]]  # the other triangle is not read


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_pseudo_inverses(dtype):
    for shape in ((5, 3), (3, 5), (2, 4, 4)):
        a = matrices(shape, dtype)
        near(tg.linalg.pinv(a.cuda()), tg.linalg.pinv(a), dtype)
    low = matrices((6, 2), dtype) @ matrices((2, 5), dtype)
    near(tg.linalg.pinv(low.cuda(), rtol=1e-3), tg.linalg.pinv(low, rtol=1e-3), dtype)
    h = matrices((5, 5), dtype)
    near(tg.linalg.pinv((h + h.mH).cuda(), hermitian=True), tg.linalg.pinv(h + h.mH, hermitian=True), dtype)
    assert tg.linalg.matrix_rank(low.cuda(), rtol=1e-3).item() == 2


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", [1, 2, 5, 18, 40])
def test_symmetric_factors(dtype, n):
    a = matrices((2, n, n), dtype)
    a[1].diagonal().zero_()  # blocks of two rows
    b = matrices((3, 2, n, 4), dtype)
    for hermitian in (False, True):
        whole = a + (a.mH if hermitian else a.mT)
        for t in (whole, whole.mT.contiguous().mT):
            got, expected = tg.linalg.ldl_factor_ex(t.cuda(), hermitian=hermitian), tg.linalg.ldl_factor_ex(t, hermitian=hermitian)
            assert got.pivots.tolist() == expected.pivots.tolist() and got.info.tolist() == expected.info.tolist()
            assert got.LD.stride() == expected.LD.stride()
            near(got.LD, expected.LD, dtype, "factors")
        if n == 1:
            continue
        x = tg.linalg.ldl_solve(got.LD, got.pivots, b.cuda(), hermitian=hermitian)
        near(whole @ x.cpu() / 10, b / 10, dtype, "solution")
    with pytest.raises(RuntimeError, match="negative pivots must come in equal pairs"):
        tg.linalg.ldl_solve(tg.eye(2, dtype=dtype).cuda(), tg.tensor([1, -1], dtype=tg.int32).cuda(), tg.ones(2, 1, dtype=dtype).cuda()).tolist()
    with pytest.raises(tg.linalg.LinAlgError, match="block 1 of its factor D is zero"):
        tg.linalg.ldl_factor(tg.zeros(2, 2, dtype=dtype).cuda())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", [1, 3, 8])
def test_exponentials(dtype, n):
    a = matrices((3, n, n), dtype) / n
    for size in (1e-3, 0.1, 0.6, 1.5, 4, 30):  # every degree of the approximants, and squarings
        scaled = a * tg.tensor([1, 0.3, 0.01]).reshape(3, 1, 1).to(dtype) * size
        near(tg.linalg.matrix_exp(scaled.cuda()), tg.linalg.matrix_exp(scaled), dtype, str(size))
    near(tg.linalg.matrix_exp(a.mT.cuda()), tg.linalg.matrix_exp(a.mT), dtype, "transposed")
    a[1, 0, 0] = float("nan")
    lost = tg.linalg.matrix_exp(a.cuda())
    assert lost[1].isnan().all().item() and not lost[0].isnan().any().item() and not lost[2].isnan().any().item()


def test_exponentials_of_large_matrices():
    """By products of the whole batch, each with its own squarings."""
    a = matrices((2, 65, 65), tg.complex64) * tg.tensor([0.3, 0.02]).reshape(2, 1, 1)
    near(tg.linalg.matrix_exp(a.cuda()), tg.linalg.matrix_exp(a), tg.complex64)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(2, 7, 3), (3, 7), (4, 4), (0, 3), (3, 0), (2, 0, 3)], ids=str)
def test_least_squares(dtype, shape):
    a, b = matrices(shape, dtype), matrices((*shape[:-1], 2), dtype)
    for driver in ("gels", "gelsy", "gelsd", "gelss"):
        got, expected = tg.linalg.lstsq(a.cuda(), b.cuda(), driver=driver), tg.linalg.lstsq(a, b, driver=driver)
        for g, e in zip(got, expected, strict=True):
            near(g / 10, e / 10, g.dtype if g.dtype.is_floating_point or g.dtype.is_complex else tg.float32, driver)
    if min(shape) > 0:
        low = a.clone()
        low[..., -1] = low[..., 0] if shape[-1] > 1 else 0
        got, expected = tg.linalg.lstsq(low.cuda(), b.cuda(), rcond=1e-4, driver="gelsd"), tg.linalg.lstsq(low, b, rcond=1e-4, driver="gelsd")
        near(got.solution / 10, expected.solution / 10, dtype)
        assert got.rank.tolist() == expected.rank.tolist()
        with pytest.raises(tg.linalg.LinAlgError, match="linalg.lstsq: .*the matrix has infinite elements or NaN"):
            tg.linalg.lstsq((a * float("nan")).cuda(), b.cuda())
        with pytest.raises(tg.linalg.LinAlgError, match="linalg.lstsq: .*does not have full rank"):
            tg.linalg.lstsq((a * 0).cuda(), b.cuda(), driver="gels")
