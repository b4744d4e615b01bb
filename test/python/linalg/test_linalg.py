"""Linear algebra beyond what test_rows.py asks of every row: factors that are unique up to a phase only, matrices that
are singular, have repeated eigenvalues, are wide, tall, large or empty."""

import functools
import time

import numpy as np
import pytest
import rows
import tapegrad
import tapegrad as tg
from rows import as_numpy, to_torch

torch = pytest.importorskip("torch")
linalg = tapegrad.linalg
gradcheck, gradgradcheck = tapegrad.autograd.gradcheck, tapegrad.autograd.gradgradcheck
REAL, COMPLEX = tapegrad.float64, tapegrad.complex128
DTYPES = [tapegrad.float32, REAL, tapegrad.complex64, COMPLEX]
dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: rows.dtype_name(type("", (), {"dtype": d})))
SHAPES = [(3, 3), (5, 3), (3, 5), (2, 4, 3), (2, 2, 3, 3), (0, 3), (3, 0), (0, 3, 3), (1, 1)]


def make(*shape, dtype=REAL, seed=0):
    return rows.Make(tapegrad.float64, seed)(shape, dtype=dtype)


def close(got, expected, dtype=REAL):
    tolerance = 3e-4 if dtype in (tapegrad.float32, tapegrad.complex64) else 1e-9
    assert tuple(got.shape) == tuple(expected.shape)
    np.testing.assert_allclose(as_numpy(got), as_numpy(expected), rtol=tolerance, atol=tolerance)


def hermitian(x):
    return (x + x.mH) / 2


@dtypes
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("full", [False, True])
def test_svd(shape, dtype, full):
    A = make(*shape, dtype=dtype)
    U, S, Vh = linalg.svd(A, full_matrices=full)
    expected = torch.linalg.svd(to_torch(A), full_matrices=full)
    assert [tuple(t.shape) for t in (U, S, Vh)] == [tuple(t.shape) for t in expected]
    k = S.shape[-1]
    close(S, expected.S, dtype)
    close((U[..., :k] * S.unsqueeze(-2)) @ Vh[..., :k, :], A, dtype)
    for q in (U, Vh.mH):
        close(q.mH @ q, tapegrad.eye(q.shape[-1], dtype=dtype).expand(*q.shape[:-2], -1, -1), dtype)
    U, S2, V = tapegrad.svd(A, some=not full)
    close((U[..., :k] * S2.unsqueeze(-2)) @ V[..., :k].mH, A, dtype)


@dtypes
@pytest.mark.parametrize("uplo", ["L", "U"])
@pytest.mark.parametrize("shape", [(3, 3), (2, 5, 5), (0, 0), (0, 3, 3), (1, 1)], ids=str)
def test_eigh(shape, dtype, uplo):
    A = hermitian(make(*shape, dtype=dtype))
    half = A.tril() if uplo == "L" else A.triu()  # the other triangle is not read
    L, Q = linalg.eigh(half, UPLO=uplo)
    close(L, torch.linalg.eigh(to_torch(A)).eigenvalues, dtype)
    close(L, linalg.eigvalsh(half, uplo), dtype)
    close((Q * L.unsqueeze(-2)) @ Q.mH, A, dtype)


@dtypes
@pytest.mark.parametrize("shape", [(3, 3), (2, 5, 5), (0, 0), (0, 3, 3), (1, 1)], ids=str)
def test_eig(shape, dtype):
    A = make(*shape, dtype=dtype)
    L, V = linalg.eig(A)
    assert L.is_complex() and V.is_complex()
    close(A.to(V.dtype) @ V, V * L.unsqueeze(-2), dtype)
    close(tapegrad.linalg.vector_norm(V, dim=-2), tapegrad.ones(*L.shape, dtype=V.real.dtype), dtype)
    ours, theirs = as_numpy(linalg.eigvals(A)), torch.linalg.eigvals(to_torch(A)).numpy()
    assert ours.shape == theirs.shape
    for a, b in zip(ours.reshape(-1, max(shape[-1], 1)), theirs.reshape(-1, max(shape[-1], 1))):
        assert np.abs(a[:, None] - b[None]).min(0, initial=9).max(initial=0) < 1e-3


# Functions of factors that do not depend on their arbitrary phases, in tapegrad and in PyTorch.
INVARIANT = {
    "svd": lambda lib, A: (lambda u, s, vh: [s, (u * s.unsqueeze(-2).square()) @ vh, u[..., :1] @ vh[..., :1, :]])(*lib.linalg.svd(A, full_matrices=False)),
    "svd_full": lambda lib, A: [lib.linalg.svd(A).S],
    "svdvals": lambda lib, A: [lib.linalg.svdvals(A)],
    "svd_u": lambda lib, A: [lib.linalg.svd(A, full_matrices=False)[0].abs()],
    "svd_v": lambda lib, A: [lib.linalg.svd(A, full_matrices=False)[2].abs()],
}
HERMITIAN = {
    "eigh": lambda lib, A: (lambda w, v: [w, (v[..., :1] @ v[..., :1].mH) * 2, (v * w.exp().unsqueeze(-2)) @ v.mH])(*lib.linalg.eigh((A + A.mH) / 2)),
    "eigvalsh": lambda lib, A: [lib.linalg.eigvalsh((A + A.mH) / 2, "U")],
    "cholesky": lambda lib, A: [lib.linalg.cholesky(A @ A.mH + 2 * lib.eye(A.shape[-1], dtype=A.dtype), upper=True)],
    "eig": lambda lib, A: (lambda w, v: [(v * w.exp().unsqueeze(-2)) @ lib.linalg.inv(v), v.abs().sum(-1)])(*lib.linalg.eig(A)),
}


@pytest.mark.parametrize("dtype", [REAL, COMPLEX], ids=["real", "complex"])
@pytest.mark.parametrize("name", [*INVARIANT, *HERMITIAN])
def test_gradients_of_factors(name, dtype):
    function = {**INVARIANT, **HERMITIAN}[name]
    for shape in [(3, 3), (2, 3, 3)] if name in HERMITIAN else [(3, 3), (4, 2), (2, 4), (2, 3, 2)]:
        A = make(*shape, dtype=dtype, seed=5)
        if name == "eig":  # far from repeated
            A = A * 0.3 + tapegrad.diag(tapegrad.tensor([1.0, 2.5, 4.0], dtype=tapegrad.float64)).to(dtype)
        A.requires_grad_(True)
        assert gradcheck(lambda x, function=function: tuple(function(tapegrad, x)), (A,))
        if len(shape) == 2:
            assert gradgradcheck(lambda x, function=function: tuple(function(tapegrad, x)), (A,), atol=1e-4)
        B = to_torch(A)
        ours, theirs = function(tapegrad, A), function(torch, B)
        weights = [make(*t.shape, dtype=t.dtype, seed=i) for i, t in enumerate(ours)]
        got = tapegrad.autograd.grad(ours, A, weights)[0]
        expected = torch.autograd.grad(theirs, B, [to_torch(w) for w in weights])[0]
        np.testing.assert_allclose(as_numpy(got), as_numpy(expected), rtol=1e-7, atol=1e-7)


def test_values_of_repeated_eigenvalues_have_gradients():
    A = tapegrad.eye(3, dtype=REAL).requires_grad_(True)
    for f in (linalg.eigvalsh, linalg.svdvals, lambda x: linalg.eigh(x).eigenvalues, lambda x: linalg.svd(x).S):
        g = tapegrad.autograd.grad(f(A).sum(), A)[0]
        close(g, tapegrad.eye(3, dtype=REAL))


def test_loss_that_depends_on_the_phase_has_no_gradient():
    A = make(3, 3, dtype=COMPLEX).requires_grad_(True)
    with pytest.raises(RuntimeError, match="linalg.eigh: the gradient is ill-defined: the loss depends on the phase of the vectors"):
        linalg.eigh(hermitian(A)).eigenvectors.imag.sum().backward()
    with pytest.raises(RuntimeError, match="linalg.svd: the gradient is ill-defined: the loss depends on the phase of the vectors"):
        linalg.svd(A).U.imag.sum().backward()


def test_qr_without_q_and_complete_tall_have_no_gradient():
    A = make(4, 3).requires_grad_(True)
    with pytest.raises(RuntimeError, match="linalg.qr: The derivative of linalg.qr depends on Q"):
        linalg.qr(A, "r").R.sum().backward()
    with pytest.raises(RuntimeError, match="linalg.qr: mode 'complete' has no derivative for more rows than columns"):
        linalg.qr(A, "complete").Q.sum().backward()


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_gradient_of_the_determinant_of_singular_matrices_is_the_adjugate(rank):
    A = (make(3, rank) @ make(rank, 3, seed=1)).detach()
    adjugate = np.empty((3, 3))
    for i in range(3):
        for j in range(3):
            adjugate[j, i] = (-1) ** (i + j) * np.linalg.det(np.delete(np.delete(A.numpy(), i, 0), j, 1))
    A.requires_grad_(True)
    g = tapegrad.autograd.grad(linalg.det(A), A)[0]
    np.testing.assert_allclose(g.numpy(), adjugate.T, atol=1e-12)
    assert gradcheck(linalg.det, (A,))


def test_errors_of_singular_matrices():
    zero, batch = tapegrad.zeros(2, 2), tapegrad.stack([tapegrad.eye(2), tapegrad.zeros(2, 2)])
    assert issubclass(linalg.LinAlgError, RuntimeError)
    cases = [
        (lambda: linalg.inv(zero), "linalg.inv: The diagonal element 1 is zero, the inversion could not be completed because the input matrix is singular"),
        (lambda: linalg.inv(batch), "linalg.inv: (Batch element 1): The diagonal element 1 is zero, the inversion could not be completed because the input matrix is singular"),
        (lambda: linalg.solve(zero, zero), "linalg.solve: the matrix is singular: diagonal element 1 of its factor U is zero"),
        (lambda: linalg.lu_factor(zero), "linalg.lu_factor: the matrix is singular: diagonal element 1 of its factor U is zero"),
        (lambda: linalg.cholesky(-batch), "linalg.cholesky: (Batch element 0): The factorization could not be completed because the input is not positive-definite (the leading minor of order 1 is not positive-definite)"),
        (lambda: linalg.cholesky_ex(zero, check_errors=True), "linalg.cholesky: The factorization could not be completed because the input is not positive-definite (the leading minor of order 1 is not positive-definite)"),
        (lambda: linalg.lstsq(tapegrad.eye(3, 1) * tapegrad.tensor([1.0, 0.0]), tapegrad.ones(3, 1), driver="gels"),
         "linalg.lstsq: the matrix does not have full rank: diagonal element 2 of its factor R is zero"),
        (lambda: linalg.svd(zero + float("nan")), "linalg.svd: the matrix has infinite elements or NaN"),
        (lambda: linalg.eigh(zero + float("inf")), "linalg.eigh: the matrix has infinite elements or NaN"),
        (lambda: linalg.eig(zero + float("nan")), "linalg.eig: the matrix has infinite elements or NaN"),
    ]
    for call, message in cases:
        with pytest.raises(linalg.LinAlgError) as error:
            call()
        assert str(error.value) == message


def test_infos_in_the_place_of_errors():
    batch = tapegrad.stack([tapegrad.eye(2), tapegrad.zeros(2, 2)])
    assert linalg.inv_ex(batch).info.tolist() == [0, 1]
    assert linalg.cholesky_ex(batch).info.tolist() == [0, 1]
    assert linalg.lu_factor_ex(batch).info.tolist() == [0, 1]
    assert linalg.solve_ex(batch, batch).info.tolist() == [0, 1]
    assert linalg.det(batch).tolist() == [1, 0]
    assert linalg.slogdet(batch).logabsdet.tolist() == [0, -float("inf")]
    assert linalg.matrix_rank(batch).tolist() == [2, 0]
    assert linalg.cond(batch, 1).tolist() == [1, float("inf")]
    close(linalg.pinv(batch), batch)


def test_errors_of_arguments():
    x, names = tapegrad.ones(2, 3), ["inv", "det", "slogdet", "cholesky", "eigh", "eig", "eigvals", "matrix_exp", "solve_ex"]
    for name in names:
        f = getattr(linalg, name)
        extra = (x,) if name == "solve_ex" else ()
        with pytest.raises(RuntimeError, match=r"A must be batches of square matrices: got shape \[2, 3\]"):
            f(x, *extra)
        with pytest.raises(RuntimeError, match="Expected a floating point or complex tensor as A: got int64"):
            f(tapegrad.ones(2, 2, dtype=tapegrad.int64), *extra)
        if name != "matrix_exp":
            with pytest.raises(RuntimeError, match="Low precision dtypes not supported: A is float16"):
                f(tapegrad.ones(2, 2, dtype=tapegrad.float16), *extra)
        with pytest.raises(RuntimeError, match="A must have at least 2 dimensions"):
            f(tapegrad.ones(2), *extra)
    with pytest.raises(RuntimeError, match="linalg.solve: with left=False B must be matrices"):
        linalg.solve(tapegrad.eye(2), tapegrad.ones(2), left=False)
    with pytest.raises(RuntimeError, match="linalg.lu_solve: pivots must be greater or equal to 1 and not greater than 2: got 9"):
        linalg.lu_solve(tapegrad.eye(2), tapegrad.tensor([9, 1], dtype=tapegrad.int32), tapegrad.eye(2))
    with pytest.raises(RuntimeError, match="lu_unpack: pivots must be between 1 and LU.size.-2.. It is 2: got 0"):
        tapegrad.lu_unpack(tapegrad.eye(2), tapegrad.tensor([0, 1], dtype=tapegrad.int32))
    for pivots, message in (([0, 1], "must be between 1 and 2, or their negatives: got 0"), ([1, -1], "must come in equal pairs: got -1 at 1")):
        with pytest.raises(RuntimeError, match=f"linalg.ldl_solve: .*{message}"):
            linalg.ldl_solve(tapegrad.eye(2), tapegrad.tensor(pivots, dtype=tapegrad.int32), tapegrad.eye(2))
    huge = tapegrad.empty(40000, 40000, device="meta")
    for f in (linalg.svd, linalg.eigh):
        with pytest.raises(RuntimeError, match="A is too large for LAPACK's workspace"):
            f(huge)
    with pytest.raises(RuntimeError, match="linalg.svd: driver can be chosen on CUDA devices only"):
        linalg.svd(x, driver="gesvd")
    with pytest.raises(RuntimeError, match="linalg.lu_factor: LU without pivoting is not implemented on the CPU"):
        linalg.lu_factor(x, pivot=False)


@pytest.mark.parametrize("dtype", [tapegrad.float32, COMPLEX], ids=["float32", "complex128"])
@pytest.mark.parametrize("n", [319, 700])
def test_large_matrices_in_blocks(n, dtype):
    A, B = make(n, n, dtype=dtype) + 3 * tapegrad.eye(n, dtype=dtype), make(n, 70, dtype=dtype, seed=1)
    P = A @ A.mH / n + tapegrad.eye(n, dtype=dtype)
    single = dtype == tapegrad.float32

    def near(got, expected):
        scale = max(1.0, np.abs(as_numpy(expected)).max())
        np.testing.assert_allclose(as_numpy(got) / scale, as_numpy(expected) / scale, atol=2e-3 if single else 1e-9)

    for upper in (False, True):
        near(linalg.cholesky(P, upper=upper), torch.linalg.cholesky(to_torch(P), upper=upper))
    near(linalg.solve(A, B), torch.linalg.solve(to_torch(A), to_torch(B)))
    near(linalg.inv(A), torch.linalg.inv(to_torch(A)))
    Pm, L, U = linalg.lu(A[:, : n - 50])
    near(Pm @ L @ U, A[:, : n - 50])
    Pm, L, U = linalg.lu(A[: n - 50])
    near(Pm @ L @ U, A[: n - 50])
    near(linalg.solve_triangular(A, B, upper=True), torch.linalg.solve_triangular(to_torch(A), to_torch(B), upper=True))
    assert int(linalg.cholesky_ex(P - 2 * tapegrad.diag((tapegrad.arange(n) == 500).to(dtype)) * P.abs().amax().to(dtype)).info) in (0, 501)


def test_same_bits_for_any_number_of_threads():
    A = make(500, 500, dtype=tapegrad.float32)
    P = A @ A.mT + 500 * tapegrad.eye(500)
    batch = make(40, 20, 20, dtype=tapegrad.float32)
    results = []
    for threads in (1, 2, 3, 5):
        tapegrad.set_num_threads(threads)
        found = [linalg.inv(A), linalg.cholesky(P), linalg.solve(A, P), linalg.svdvals(batch), linalg.eigh(batch).eigenvectors, linalg.matrix_exp(A / 500)]
        results.append([t.numpy().tobytes() for t in found])
    assert all(r == results[0] for r in results)


def test_lstsq_of_deficient_rank():
    A, B = tapegrad.ones(5, 3, dtype=REAL), make(5, 2)
    for driver in ("gelsy", "gelsd", "gelss"):
        ours, theirs = linalg.lstsq(A, B, driver=driver), torch.linalg.lstsq(to_torch(A), to_torch(B), driver=driver)
        close(ours.solution, theirs.solution)
        assert int(ours.rank) == 1 and ours.residuals.shape == theirs.residuals.shape == (0,)
    assert linalg.lstsq(tapegrad.zeros(0, 3), tapegrad.zeros(0, 2)).solution.tolist() == [[0, 0]] * 3


def test_matrix_exp_of_large_and_infinite_norms():
    for scale in (1e-4, 0.1, 0.5, 2.0, 5.0, 30.0):
        A = make(4, 4) * scale
        expected = torch.linalg.matrix_exp(to_torch(A))
        np.testing.assert_allclose(linalg.matrix_exp(A).numpy(), expected.numpy(), rtol=1e-9, atol=1e-12 * float(expected.abs().max()))
    assert linalg.matrix_exp(tapegrad.full((2, 2), float("inf"))).isnan().all()


def test_low_rank():
    tapegrad.manual_seed(0)
    A = make(30, 4) @ make(4, 20, seed=1)
    for x in (A, A.mT.contiguous()):
        U, S, V = tapegrad.svd_lowrank(x, q=4)
        close((U * S) @ V.mT, x)
    U, S, V = tapegrad.pca_lowrank(A, q=5)
    centred = A - A.mean(0, keepdim=True)
    close((U * S) @ V.mT, centred)
    with pytest.raises(ValueError, match="svd_lowrank: q must be between 0 and 20: got 21"):
        tapegrad.svd_lowrank(A, q=21)


def test_old_names():
    A = make(3, 3) + 2 * tapegrad.eye(3, dtype=REAL)
    LU, pivots = tapegrad.lu(A)
    close(A.lu()[0], LU)
    P, L, U = tapegrad.lu_unpack(LU, pivots)
    close(P @ L @ U, A)
    close(A.inverse(), linalg.inv(A))
    close(A.norm("nuc"), torch.linalg.matrix_norm(to_torch(A), "nuc"))
    out = (tapegrad.empty(0, dtype=REAL), tapegrad.empty(0, dtype=tapegrad.int32))
    assert tapegrad.lu(A, out=out)[0] is out[0]
    close(out[0], LU)
    assert type(linalg.svd(A)).__name__ == "linalg_svd" and linalg.qr(A).R is not None


def test_distances_of_many_points_need_memory_for_the_result_only():
    x = tapegrad.randn(3000, 64)
    tapegrad.cpu.reset_peak_memory_stats()
    before = tapegrad.cpu.max_memory_allocated()
    for p in (1.0, 2.0):
        assert tapegrad.cdist(x, x, p).shape == (3000, 3000)
    assert tapegrad.cpu.max_memory_allocated() - before < 4 * 3000 * 3000 * 4


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 2.0, 3.0, float("inf")])
def test_distances_in_every_norm(p):
    for shape, others in (((1, 1), (1, 1)), ((3, 5), (70, 5)), ((130, 3), (65, 3)), ((9, 300), (66, 300)), ((2, 1, 4, 3), (3, 7, 3)), ((0, 2), (3, 2)), ((2, 0), (3, 0))):
        a, b = make(*shape).numpy().copy(), make(*others, seed=1).numpy().copy()
        b[..., :1, :] = a.reshape(-1, *a.shape[-2:])[0, :1] if a.size else 0  # distance zero, too
        for dtype, tolerance in ((tapegrad.float16, 2e-3), (tapegrad.bfloat16, 1e-2), (tapegrad.float32, 1e-5), (tapegrad.float64, 1e-12)):
            x, y = tapegrad.tensor(a, dtype=dtype), tapegrad.tensor(b, dtype=dtype)
            expected = torch.cdist(torch.tensor(x.double().numpy()), torch.tensor(y.double().numpy()), p, "donot_use_mm_for_euclid_dist").numpy()
            found = tapegrad.cdist(x, y, p, "donot_use_mm_for_euclid_dist")
            assert found.dtype == dtype and tuple(found.shape) == expected.shape
            np.testing.assert_allclose(found.double().numpy() / (1 + expected), expected / (1 + expected), atol=tolerance, rtol=0)
        x, y = tapegrad.tensor(a, requires_grad=True), tapegrad.tensor(b, requires_grad=True)
        u, v = torch.tensor(a, requires_grad=True), torch.tensor(b, requires_grad=True)
        g = make(*expected.shape, seed=2).numpy()
        tapegrad.cdist(x, y, p, "donot_use_mm_for_euclid_dist").backward(tapegrad.tensor(g))
        torch.cdist(u, v, p, "donot_use_mm_for_euclid_dist").backward(torch.tensor(g))
        np.testing.assert_allclose(x.grad.numpy(), u.grad.numpy(), atol=1e-9)
        np.testing.assert_allclose(y.grad.numpy(), v.grad.numpy(), atol=1e-9)


def test_gradient_of_the_maximum_norm_where_coordinates_tie():
    a, b = [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]], [[2.0, -2.0, 1.0], [0.0, 0.0, 0.0]]
    x, y = tapegrad.tensor(a, requires_grad=True), tapegrad.tensor(b, requires_grad=True)
    u, v = torch.tensor(a, requires_grad=True), torch.tensor(b, requires_grad=True)
    tapegrad.cdist(x, y, float("inf")).sum().backward()
    torch.cdist(u, v, float("inf")).sum().backward()
    assert x.grad.tolist() == u.grad.tolist() and y.grad.tolist() == v.grad.tolist()


@pytest.mark.parametrize("p", [1.0, 2.0, float("inf")])
def test_gradient_of_distances_at_every_remainder(p):
    for shape, others in (((5, 4), (17, 4)), ((4, 129), (16, 129)), ((7, 260), (33, 260)), ((2, 3, 5), (2, 1, 5))):
        a, b = make(*shape).numpy().copy(), make(*others, seed=1).numpy().copy()
        b[..., 0, :] = a[..., 0, :]
        b[..., -1, 0] = np.inf
        if p != np.inf:  # where NaN is no distance for PyTorch
            a[..., -1, 1] = np.nan
        for dtype in ("float32", "float64"):
            found, expected = [], []
            for t, out in ((tapegrad, found), (torch, expected)):
                for wanted in ((True, True), (True, False), (False, True)):
                    x, y = (t.tensor(v.astype(dtype), requires_grad=w) for v, w in zip((a, b), wanted))
                    distances = t.cdist(x, y, p, "donot_use_mm_for_euclid_dist")
                    g = t.tensor(make(*distances.shape, seed=2).numpy().astype(dtype))
                    out += t.autograd.grad(distances, [v for v in (x, y) if v.requires_grad], g)
            for mine, theirs in zip(found, expected):
                mine, theirs = mine.numpy(), theirs.numpy()
                known = np.full(theirs.shape, True) if p == 2 else ~np.isnan(theirs)  # the sign of NaN is 0 here
                np.testing.assert_allclose(mine[known], theirs[known], rtol=2e-5 if dtype == "float32" else 1e-12, atol=1e-5)


def test_gradient_of_distances_has_the_same_bits_for_any_number_of_threads():
    x, y, threads, found = make(300, 20).float(), make(200, 20, seed=1).float(), tapegrad.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            tapegrad.set_num_threads(count)
            u, v = x.clone().requires_grad_(), y.clone().requires_grad_()
            tapegrad.cdist(u, v, 1.0).sum().backward()
            found.append((u.grad.numpy().tobytes(), v.grad.numpy().tobytes()))
    finally:
        tapegrad.set_num_threads(threads)
    assert found[0] == found[1] == found[2]


def test_distances_with_infinities_and_nan():
    special = tapegrad.tensor([[0.0, 1.0], [float("inf"), 1.0], [float("nan"), 1.0]])
    for p in (0.0, 1.0, 2.0, 3.0, float("inf")):
        found = tapegrad.cdist(special, tapegrad.zeros(70, 2), p, "donot_use_mm_for_euclid_dist")[:, 69].tolist()
        assert found[0] == 1 and (found[1] == (2 if p == 0 else float("inf"))) and (found[2] == 2 if p == 0 else found[2] != found[2])


def test_distances_of_near_points_far_from_the_origin():
    x = 1000 + tapegrad.arange(90, dtype=tapegrad.float32).reshape(30, 3) / 64
    exact = tapegrad.cdist(x.double(), x.double(), compute_mode="donot_use_mm_for_euclid_dist")
    assert (tapegrad.cdist(x, x) - exact).abs().max() < 2e-3
    x.requires_grad_()
    tapegrad.cdist(x, x).sum().backward()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("count", [199, 201, 700])
def test_long_chains_of_matrices(count):
    """From 200 matrices on the order of products is found in linear time."""
    rng = np.random.default_rng(count)
    sizes = rng.integers(1, 9, count + 1)
    arrays = [rng.standard_normal((m, n)) / np.sqrt(n) for m, n in zip(sizes, sizes[1:])]
    product = tapegrad.linalg.multi_dot([tapegrad.from_numpy(a) for a in arrays])
    expected = functools.reduce(np.matmul, arrays)
    np.testing.assert_allclose(product.numpy(), expected, rtol=1e-9, atol=1e-12 * np.abs(expected).max())


def test_a_chain_too_long_for_cubic_time():
    eye = tapegrad.eye(2)
    begun = time.perf_counter()
    assert tapegrad.equal(tapegrad.chain_matmul(*[eye] * 20_000), eye)
    assert time.perf_counter() - begun < 20


def test_norms_by_old_names():
    def run(t):
        x = t.tensor([[[3.0, 0.0], [0.0, 4.0]], [[1.0, 2.0], [2.0, 4.0]]])
        return [r.tolist() for r in (t.nuclear_norm(x[1]), t.nuclear_norm(x, dim=(1, 2)), t.nuclear_norm(x[0], keepdim=True), t.frobenius_norm(x, dim=[]),
                                     t.frobenius_norm(x, [1, 2]), t.frobenius_norm(x, 1, True), t.frobenius_norm(x[0], (0, 1), out=t.empty(0)))]

    np.testing.assert_allclose([np.ravel(r).sum() for r in run(tg)], [np.ravel(r).sum() for r in run(torch)], rtol=1e-6)


def test_booleans_are_no_factors_but_of_booleans():
    x, b, m = tg.ones(2), tg.tensor([True, False]), tg.ones(2, 2)
    for call in (lambda: tg.add(x, x, alpha=True), lambda: x.sub(1, alpha=True), lambda: x.clone().add_(x, alpha=True), lambda: tg.rsub(x, x, alpha=True),
                 lambda: tg.add(b, x, alpha=True), lambda: tg.addr(m, x, x, beta=True), lambda: tg.addr(m, x, x, alpha=True)):
        with pytest.raises(RuntimeError, match="Boolean (alpha|beta) only supported for Boolean results"):
            call()
    assert tg.add(b, b, alpha=True).tolist() == [True, False] and tg.addr(m.bool(), b, b, beta=False, alpha=True).tolist() == [[True, False], [False, False]]


@pytest.mark.parametrize("lib", ["tapegrad", "torch"])
def test_words_that_programs_look_for(lib):
    t = pytest.importorskip(lib, reason="compared with PyTorch")
    x, cube = t.ones(3), t.zeros(5, 2, 2)
    cube[:3] = t.eye(2)
    for use, error, text in (
        (lambda: t.linalg.cholesky(cube), t.linalg.LinAlgError, r"\(Batch element 3\): The factorization could not be completed"),
        (lambda: t.linalg.inv(cube), t.linalg.LinAlgError, r"\(Batch element 3\): The diagonal element 1 is zero, the inversion could not be completed"),
        (lambda: t.linalg.inv(cube.unsqueeze(0)), t.linalg.LinAlgError, r"\(Batch element 3\): The diagonal element"),
        (lambda: t.linalg.vector_norm(x[:0], float("inf")), RuntimeError, "linalg.vector_norm cannot compute"),
        (lambda: t.linalg.pinv(x), RuntimeError, "expected a tensor with 2 or more dimensions"),
        (lambda: t.linalg.qr(x), RuntimeError, "linalg.qr: The input tensor A must have at least 2 dimensions"),
        (lambda: t.linalg.qr(cube, "hello"), RuntimeError, "qr received unrecognized mode 'hello'"),
        (lambda: t.linalg.slogdet(cube.half()), RuntimeError, "Low precision dtypes not supported"),
        (lambda: t.linalg.matrix_exp(cube.int()), RuntimeError, "Expected a floating point or complex tensor"),
        (lambda: t.linalg.matrix_norm(cube, dim=(0,)), RuntimeError, "linalg.matrix_norm:.*must be a 2-tuple"),
        (lambda: t.linalg.matrix_norm(cube, ord=8), RuntimeError, "Order 8 not supported"),
        (lambda: t.linalg.tensorinv(cube, ind=1), RuntimeError, "Expected self to satisfy the requirement"),
        (lambda: t.linalg.multi_dot([]), RuntimeError, "expected at least 2 tensors"),
        (lambda: t.linalg.pinv(cube, out=t.empty(0, dtype=t.int32)), RuntimeError, "but got result with dtype Int"),
        (lambda: t.linalg.cond(cube[0], out=t.empty(0, dtype=t.int64)), RuntimeError, "castable from Float dtype, but got result with dtype Long"),
        (lambda: t.cholesky_inverse(cube[0], out=t.empty(0, dtype=t.bool)), RuntimeError, "but got result with dtype Bool"),
        (lambda: t.inner(x, x[:2]), RuntimeError, r"inner\(\) the last dimension must match on both input tensors but got shapes \[3\] and \[2\]"),
        (lambda: t.tensordot(x, x, -1), RuntimeError, "expects dims >= 0"),
        (lambda: t.amax(cube[:, :0], 1), IndexError, "Expected reduction dim"),
        (lambda: t.argmin(cube[:, :0], 1), IndexError, "Expected reduction dim"),
        (lambda: t.bincount(t.tensor([-1])), RuntimeError, "1-d non-negative integral"),
        (lambda: t.quantile(x[:0], 0.5), RuntimeError, r"quantile\(\) input tensor must be non-empty"),
        (lambda: t.histogram(t.ones(2, dtype=t.int32), 2), RuntimeError, "not implemented for"),
    ):  # fmt: skip
        with pytest.raises(error, match=text):
            use()
