"""Eigenvalues, singular values and what stands on them, on CUDA: factors multiply to the matrix, values are the CPU's.

Runs where the environment asks for a device, as test_operators.py does; test_simulated.py starts it on the simulated one.
"""


import device_asked_for  # noqa: F401
import pytest
import tapegrad as tg

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


def same_spectrum(got, expected, tolerance, where=""):
    """The same eigenvalues in any order: each expected one takes the nearest that is left."""
    assert got.shape == expected.shape and got.dtype == expected.dtype, where
    n = max(got.shape[-1], 1)
    for mine, theirs in zip(got.cpu().reshape(-1, n).tolist(), expected.reshape(-1, n).tolist(), strict=True):
        for e in theirs:
            nearest = min(mine, key=lambda x: abs(x - e))
            assert abs(nearest - e) <= tolerance, f"{where}: {e} is not in {mine}"
            mine.remove(nearest)


def check_eig(a, tolerance, where="", backward=None):
    """Vectors of length 1 with A V = V diag(w), LAPACK's conventions, and the CPU's values, unless they are as ill-conditioned as `tolerance` None says."""
    w, v = tg.linalg.eig(a.cuda())
    expected, vectors = tg.linalg.eig(a)
    assert (w.dtype, w.shape, v.dtype, v.shape) == (expected.dtype, expected.shape, vectors.dtype, vectors.shape) and w.device.type == "cuda", where
    assert v.numel() < 2 or v.stride() == vectors.stride(), where
    size = (a.abs().max().item() if a.numel() else 1) or 1
    near((a.to(v.dtype) @ v.cpu()) / size, (v * w.unsqueeze(-2)).cpu() / size, backward or a.dtype, where)
    near(tg.linalg.vector_norm(v, dim=-2), tg.ones(w.shape, dtype=w.real.dtype), a.dtype, where)
    if tolerance is not None:
        same_spectrum(w, expected, tolerance, where)
        same_spectrum(tg.linalg.eigvals(a.cuda()), expected, tolerance, where)
    n = max(a.shape[-1], 1)
    for values, columns in zip(w.cpu().reshape(-1, n), v.cpu().reshape(-1, n, n) if v.numel() else []):
        values, columns = values.tolist(), columns.T.tolist()
        for i, x in enumerate(values):
            if a.dtype.is_complex or x.imag != 0:
                largest = max(map(abs, columns[i])) * (1 - 1e-5)  # the largest elements may be as large as each other
                assert any(e.imag == 0 and e.real >= largest for e in columns[i]), where
            else:
                assert all(e.imag == 0 for e in columns[i]), where
            if not a.dtype.is_complex and x.imag > 0:
                assert values[i + 1] == x.conjugate() and columns[i + 1] == [e.conjugate() for e in columns[i]], where
    if not a.dtype.is_complex:  # in exact pairs
        assert sorted(w.flatten().tolist(), key=str) == sorted(w.conj().flatten().tolist(), key=str), where


GENERAL = [(2, 3, 5, 5), (1, 1), (2, 2), (300, 2, 2), (100, 3, 3), (17, 17), (33, 33), (40, 40), (0, 0), (3, 0, 0), (0, 4, 4)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", GENERAL, ids=str)
def test_general_eigenvalues(dtype, shape):
    narrow = dtype in (tg.float32, tg.complex64)
    a = matrices(shape, dtype)
    check_eig(a, 1e-3 if narrow else 1e-9)
    check_eig(a.mT, 1e-3 if narrow else 1e-9, "transposed")


@pytest.mark.parametrize("dtype", [tg.float64, tg.complex128, tg.float32, tg.complex64], ids=str)
def test_general_eigenvalues_of_special_matrices(dtype):
    """Triangular, permuted, companion, orthogonal, normal, badly scaled and defective ones."""
    narrow = dtype in (tg.float32, tg.complex64)
    fine = 1e-4 if narrow else 1e-11
    a = matrices((9, 9), dtype)
    shuffle = tg.tensor([4, 7, 0, 2, 8, 1, 3, 6, 5])
    triangle = a.triu()
    blocks = tg.block_diag(a[:3, :3], a[3:4, 3:4], a[4:, 4:])
    for name, x in {"upper": triangle, "lower": a.tril(), "shuffled": triangle[shuffle][:, shuffle], "blocks": blocks[shuffle][:, shuffle], "one column": a * tg.eye(9, dtype=dtype)[3],
                    "hessenberg": a.triu(-1), "zero": a * 0, "eye": tg.eye(6, dtype=dtype), "ones": tg.ones(7, 7, dtype=dtype), "rank 2": a[:, :2] @ a[:2],
                    "hermitian": a + a.mH, "skew": a - a.mH, "orthogonal": tg.linalg.qr(a).Q, "rotation": tg.tensor([[0, 1], [-1, 0]], dtype=dtype),
                    "cycle": tg.roll(tg.eye(16, dtype=dtype), 1, 0), "twice": tg.block_diag(a[:4, :4], a[:4, :4])}.items():
        values = tg.linalg.eigvals(x)
        gap = None if name in ("rank 2", "ones", "lower") and narrow else fine * max(1, values.abs().max().item()) * 10
        check_eig(x, gap, name)
    ints = tg.tensor([[0, 0, 1, -1], [0, -1, -1, 1], [-1, -1, -1, 1], [-1, 1, 1, -1]], dtype=dtype)  # a block [0 0; 1 0] is left
    check_eig(ints, fine * 10, "integers")
    w = tg.linalg.eigvals(triangle[shuffle][:, shuffle].cuda())
    assert sorted(w.tolist(), key=str) == sorted(triangle.diagonal().to(w.dtype).tolist(), key=str)  # nothing is rounded
    # Of scales far apart, which balancing brings together: values are right to their own size.
    d = tg.tensor([2.0 ** (4 * i) for i in range(9)], dtype=tg.float64).to(dtype)
    scaled = a * d.unsqueeze(-1) / d
    same_spectrum(tg.linalg.eigvals(scaled.cuda()), tg.linalg.eigvals(a), fine * 100, "scaled")
    check_eig(scaled, None, "scaled")
    # Jordan blocks: one vector, and values that are right to a root of the precision.
    jordan = tg.eye(8, dtype=dtype) * 2 + tg.diag(tg.ones(7, dtype=dtype), 1)
    check_eig(jordan, 1e-6, "jordan")
    check_eig(jordan.mT, 1e-6, "lower jordan")
    q = tg.linalg.qr(a[:8, :8]).Q
    check_eig(q @ jordan @ q.mH, None, "turned jordan")
    # The companion matrix of (x - 1) ... (x - 6).
    companion = tg.diag(tg.ones(5, dtype=tg.float64), -1)
    companion[0] = tg.tensor([21.0, -175, 735, -1624, 1764, -720])
    same_spectrum(tg.linalg.eigvals(companion.to(dtype).cuda()), tg.arange(6, 0, -1).to(w.dtype), 2e-2 if narrow else 1e-9, "companion")
    tiny = 1e-30 if narrow else 1e-250
    for by in (tiny, 1 / tiny):
        same_spectrum(tg.linalg.eigvals((a * by).cuda()) / by, tg.linalg.eigvals(a), fine * 10, str(by))


@pytest.mark.parametrize("dtype", [tg.float64, tg.complex128], ids=str)
def test_derivatives_of_general_eigenvalues(dtype):
    def function(x):
        w, v = tg.linalg.eig(x)
        return ((v * w.exp().unsqueeze(-2)) @ tg.linalg.inv(v)).abs().sum() + v.abs().square().square().sum() + tg.linalg.eigvals(x).square().sum().real

    a = matrices((2, 4, 4), dtype) * 0.2 + tg.diag(tg.tensor([1.0, 2, 3, 5], dtype=dtype))
    grads = []
    for x in (a, a.cuda()):
        x = x.detach().requires_grad_()
        grads.append(tg.autograd.grad(function(x), x)[0].cpu())
    near(grads[0], grads[1], dtype)


def test_general_eigenvalues_are_refused_and_named_as_others_are():
    a = matrices((4, 4), tg.float32).cuda()
    with tg.strict("sync"), pytest.raises(RuntimeError, match="test_device_spectral.py"):
        tg.linalg.eigvals(a)
    with pytest.raises(RuntimeError, match=r"linalg.eig: A must be batches of square matrices: got shape \[3, 4\]"):
        tg.linalg.eig(a[:3])


def test_what_is_not_finite_is_refused():
    for bad in (float("nan"), float("inf")):
        a = tg.eye(3).repeat(2, 1, 1)
        a[1, 2, 0] = bad
        for f in (tg.linalg.svd, tg.linalg.svdvals, tg.linalg.eigh, tg.linalg.eigvalsh, tg.linalg.eig, tg.linalg.eigvals, tg.linalg.pinv):
            with pytest.raises(tg.linalg.LinAlgError, match=r"\(Batch element 1\): the matrix has infinite elements or NaN"):
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
