"""Factorisations and solvers on CUDA against the CPU: sizes around the warp's, batches that broadcast, and what goes wrong.

Runs where the environment asks for a device, as test_operators.py does; test_simulated.py starts it on the simulated one.
"""

import os
import threading
from contextlib import contextmanager

import pytest
import tapegrad as tg
from device_asked_for import simulated_library

SIMULATED = bool(os.environ.get("TAPEGRAD_CUDA_SIMULATE"))
DTYPES = [tg.float64, tg.complex128, tg.float32]


def matrices(shape, dtype):
    tg.manual_seed(5)
    x = tg.randn(shape, dtype=tg.float64)
    return (tg.complex(x, tg.randn(shape, dtype=tg.float64)) if dtype.is_complex else x).to(dtype)


def close(device, host, where=""):
    device, host = (device, host) if isinstance(device, tuple) else ((device,), (host,))
    for d, h in zip(device, host, strict=True):
        assert d.device.type == "cuda" and d.dtype == h.dtype and d.shape == h.shape and d.stride() == h.stride(), where
        tolerance = 2e-3 if h.dtype in (tg.float32, tg.complex64) else 1e-9
        tg.testing.assert_close(d.cpu(), h, rtol=tolerance, atol=tolerance, msg=lambda text: f"{where}: {text}")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", [1, 3, 16, 17, 40])
def test_square_matrices(dtype, n):
    a = matrices((2, 3, n, n), dtype)
    spd = a @ a.mH + n * tg.eye(n, dtype=dtype)
    there = a.cuda()
    for upper in (False, True):
        close(tuple(tg.linalg.cholesky_ex(spd.cuda(), upper=upper)), tuple(tg.linalg.cholesky_ex(spd, upper=upper)), "cholesky")
        t = a.triu() if upper else a.tril()
        b = matrices((3, n, 2), dtype)
        close(tg.linalg.solve_triangular(t.cuda(), b.cuda(), upper=upper), tg.linalg.solve_triangular(t, b, upper=upper), "triangular")
        close(tg.linalg.solve_triangular(t.cuda().mT, b.cuda(), upper=not upper, unitriangular=n < 17),
              tg.linalg.solve_triangular(t.mT, b, upper=not upper, unitriangular=n < 17), "transposed")
    if dtype.is_complex:  # cuBLAS's pivots are the largest by absolute value, LAPACK's by the sum of both parts
        lu, pivots, info = tg.linalg.lu_factor_ex(there)
        p, l, u = tg.lu_unpack(lu, pivots)
        close((p @ l @ u).mT.contiguous().mT, a.mT.contiguous().mT, "lu")
        assert (l.abs() < 1.5).all() and not info.any()
        p, l, u = tg.linalg.lu(there.mT)
        close((p @ l @ u).mT.contiguous().mT, a.mT, "lu of rows")
    else:
        close(tuple(tg.linalg.lu_factor_ex(there)), tuple(tg.linalg.lu_factor_ex(a)), "lu")
        close(tuple(tg.linalg.lu(there.mT)), tuple(tg.linalg.lu(a.mT)), "lu of rows")
    close(tg.linalg.inv(there), tg.linalg.inv(a), "inv")
    close(tg.linalg.det(there), tg.linalg.det(a), "det")
    close(tuple(tg.linalg.slogdet(there)), tuple(tg.linalg.slogdet(a)), "slogdet")
    b = matrices((4, 2, 3, n, 20), dtype)
    close(tg.linalg.solve(there, b.cuda()), tg.linalg.solve(a, b), "solve")
    factors, pivots = tg.linalg.lu_factor(a)
    for adjoint in (False, True):
        close(tg.linalg.lu_solve(factors.cuda(), pivots.cuda(), b[0].cuda(), adjoint=adjoint), tg.linalg.lu_solve(factors, pivots, b[0], adjoint=adjoint),
              "lu_solve")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(2, 5, 5), (3, 40, 7), (7, 40), (20, 18), (4, 0, 3), (1, 1)])
def test_rectangular_matrices(dtype, shape):
    a = matrices(shape, dtype)
    for mode in ("reduced", "complete", "r"):
        close(tuple(tg.linalg.qr(a.cuda(), mode)), tuple(tg.linalg.qr(a, mode)), f"qr {mode}")
    close(tuple(tg.geqrf(a.cuda())), tuple(tg.geqrf(a)), "geqrf")
    if shape[-2] >= shape[-1]:
        factors, tau = tg.geqrf(a)
        close(tg.linalg.householder_product(factors.cuda(), tau.cuda()), tg.linalg.householder_product(factors, tau), "householder_product")
    if 0 not in shape:
        close(tuple(tg.linalg.lu_factor_ex(a.cuda())), tuple(tg.linalg.lu_factor_ex(a)), "lu")


def test_matrices_without_a_solution():
    singular = tg.tensor([[1.0, 2], [2, 4]], device="cuda")
    assert tg.linalg.inv_ex(singular).info.item() == 2 and tg.linalg.det(singular).item() == 0
    with pytest.raises(RuntimeError, match="linalg.inv: The diagonal element 2 is zero"):
        tg.linalg.inv(singular)
    with pytest.raises(RuntimeError, match="linalg.cholesky: .*leading minor of order 2 is not positive"):
        tg.linalg.cholesky(tg.stack([tg.eye(2, device="cuda"), -tg.eye(2, device="cuda") + tg.tensor([[2.0, 0], [0, 0]], device="cuda")]))
    with pytest.raises(RuntimeError, match="singular"):
        tg.linalg.solve(singular, tg.ones(2, device="cuda"))
    lost = tg.linalg.lu_solve(tg.eye(2, device="cuda"), tg.tensor([1, 7], dtype=tg.int32, device="cuda"), tg.ones(2, 1, device="cuda"))
    with pytest.raises(RuntimeError, match="pivots must be between 1 and the number of rows: got 7"):
        lost.tolist()
    # A column without a finite element, and reflections of numbers whose squares are out of range.
    assert tg.linalg.lu_factor_ex(tg.full((3, 3), float("nan"), device="cuda"))[0].isnan().any().item()
    tiny = matrices((6, 3), tg.float64) * 1e-200
    close(tg.linalg.qr(tiny.cuda())[1] * 1e200, tg.linalg.qr(tiny)[1] * 1e200)


@contextmanager
def solver():
    """Large matrices go to cuSOLVER and cuBLAS: to plain loops in their places on the simulated device. Gives what counts the calls of a function."""
    if not SIMULATED:
        yield lambda name: None
        return
    tg.empty(1, device="cuda")
    library = simulated_library()
    library.tapegrad_simulated_solver(1)
    try:
        yield lambda name: library.tapegrad_simulated_solver_calls(name.encode())
    finally:
        library.tapegrad_simulated_solver(0)


def fails(name, status):
    simulated_library().tapegrad_simulated_solver_fails(name.encode(), status)


@pytest.mark.parametrize("dtype", [*DTYPES, tg.complex64], ids=str)
@pytest.mark.parametrize("shape", [(70, 70), (2, 65, 65), (5, 66, 66)], ids=str)
def test_large_square_matrices(dtype, shape):
    n, count = shape[-1], shape[0] if len(shape) > 2 else 1
    a = (matrices(shape, dtype) / 16 + tg.eye(n, dtype=dtype)).roll(7, -2)  # well conditioned, and rows are exchanged
    spd = a @ a.mH / n + tg.eye(n, dtype=dtype)
    b, wide = matrices((*shape[:-1], 3), dtype), matrices((3, *shape[:-1], 2), dtype)
    with solver() as calls:
        def asked(name, times, at_once=count):
            many = at_once >= (2 if name.startswith("lu") else 4)
            for call, expected in ((name, 0 if many else times), (f"{name}_many", times // at_once if many else 0)):
                assert calls(call) in (None, expected), call
        close(tuple(tg.linalg.lu_factor_ex(a[..., :n - 1, :].cuda())), tuple(tg.linalg.lu_factor_ex(a[..., :n - 1, :])), "lu of a rectangle")
        assert calls("lu") in (None, 0 if count == 5 else count)  # which has no call for many
        for x in (a, a.mT, tg.stack([a, a], -1)[..., 0]):
            close(tuple(tg.linalg.lu_factor_ex(x.cuda())), tuple(tg.linalg.lu_factor_ex(x)), "lu")
            asked("lu", count)
        close(tuple(tg.linalg.lu(a.cuda())), tuple(tg.linalg.lu(a)), "lu unpacked")
        close(tg.linalg.det(a.cuda()), tg.linalg.det(a), "det")
        close(tuple(tg.linalg.slogdet(a.cuda())), tuple(tg.linalg.slogdet(a)), "slogdet")
        asked("lu", 3 * count)
        close(tg.linalg.inv(a.cuda()), tg.linalg.inv(a), "inv")
        asked("lu_solve", count)
        close(tg.linalg.solve(a.cuda(), b.cuda()), tg.linalg.solve(a, b), "solve")
        close(tg.linalg.solve(a.cuda(), b.mT.cuda(), left=False), tg.linalg.solve(a, b.mT, left=False), "solve from the right")
        close(tg.linalg.solve(a.cuda(), b[..., 0].cuda()), tg.linalg.solve(a, b[..., 0]), "solve for a vector")
        asked("lu_solve", 3 * count)
        close(tg.linalg.solve(a.cuda(), wide.cuda()), tg.linalg.solve(a, wide), "solve of a larger batch")
        asked("lu_solve", 3 * count, at_once=3 * count)
        factors, pivots = tg.linalg.lu_factor(a)
        for adjoint in (False, True):
            for f in (factors.cuda(), factors.cuda().contiguous()):
                close(tg.linalg.lu_solve(f, pivots.cuda(), b.cuda(), adjoint=adjoint), tg.linalg.lu_solve(factors, pivots, b, adjoint=adjoint), "lu_solve")
        close(tg.linalg.lu_solve(factors.cuda(), pivots.cuda(), b.mT.cuda(), left=False), tg.linalg.lu_solve(factors, pivots, b.mT, left=False), "lu_solve")
        asked("lu_solve", 5 * count)
        for upper in (False, True):
            mixed = spd.triu() + matrices(shape, dtype).tril(-1) if upper else spd.tril() + matrices(shape, dtype).triu(1)  # one triangle is read
            for x in (mixed, mixed.mT.contiguous().mT):
                close(tuple(tg.linalg.cholesky_ex(x.cuda(), upper=upper)), tuple(tg.linalg.cholesky_ex(x, upper=upper)), "cholesky")
            asked("cholesky", 2 * count)
            l = tg.linalg.cholesky(spd, upper=upper)
            close(tg.cholesky_solve(b.cuda(), l.cuda(), upper=upper), tg.cholesky_solve(b, l, upper=upper), "cholesky_solve")
            close(tg.cholesky_inverse(l.cuda(), upper=upper), tg.cholesky_inverse(l, upper=upper), "cholesky_inverse")
            asked("substitute", 4 * count)
            t = a / n + tg.eye(n, dtype=dtype)  # the other triangle is not read
            for unit in (False, True):
                for x in (t, t.mT.contiguous().mT, tg.stack([t, t], -1)[..., 0]):
                    close(tg.linalg.solve_triangular(x.cuda(), b.cuda(), upper=upper, unitriangular=unit),
                          tg.linalg.solve_triangular(x, b, upper=upper, unitriangular=unit), f"solve_triangular {upper} {unit}")
                close(tg.linalg.solve_triangular(t.cuda(), b.mT.cuda(), upper=upper, left=False, unitriangular=unit),
                      tg.linalg.solve_triangular(t, b.mT, upper=upper, left=False, unitriangular=unit), "from the right")
            asked("substitute", 8 * count)
        out = tg.empty(shape, dtype=dtype, device="cuda")
        assert tg.linalg.inv(a.cuda(), out=out) is out
        tg.testing.assert_close(out.cpu(), tg.linalg.inv(a), rtol=2e-3, atol=2e-3)
        same = [tg.linalg.inv(a.cuda()).cpu() for _ in range(2)]
        assert tg.equal(*same)


@pytest.mark.parametrize("dtype", [*DTYPES, tg.complex64], ids=str)
@pytest.mark.parametrize("shape", [(90, 50), (2, 50, 90), (66, 66), (5000, 1), (1, 5000), (3, 3200, 3)], ids=str)
def test_large_rectangular_matrices(dtype, shape):
    a = matrices(shape, dtype)
    m, n = shape[-2:]
    with solver() as calls:
        for mode in ("reduced", "r", *(["complete"] if m <= 100 else [])):
            close(tuple(tg.linalg.qr(a.cuda(), mode)), tuple(tg.linalg.qr(a, mode)), f"qr {mode}")
        assert calls("qr") != 0
        close(tuple(tg.geqrf(a.cuda())), tuple(tg.geqrf(a)), "geqrf")
        close(tuple(tg.linalg.lu_factor_ex(a.cuda())), tuple(tg.linalg.lu_factor_ex(a)), "lu")
        if m >= n:
            factors, tau = tg.geqrf(a)
            calls("reflections")
            for k in {n, 1}:
                for f in (factors.cuda(), factors.cuda().contiguous()):
                    close(tg.linalg.householder_product(f, tau[..., :k].cuda()), tg.linalg.householder_product(factors, tau[..., :k]), "householder_product")
            assert calls("reflections") != 0
            b = matrices((*shape[:-1], 2), dtype)
            tg.testing.assert_close(tg.linalg.lstsq(a.cuda(), b.cuda(), driver="gels").solution.cpu(), tg.linalg.lstsq(a, b, driver="gels").solution,
                                    rtol=2e-3, atol=2e-3)
            if m <= 100:
                tg.testing.assert_close(tg.ormqr(factors.cuda(), tau.cuda(), b.cuda(), transpose=True).cpu(), tg.ormqr(factors, tau, b, transpose=True),
                                        rtol=2e-3, atol=2e-3)


def test_large_matrices_without_a_solution():
    def both(f, *arguments):
        """The same sentence on both devices."""
        texts = []
        for device in ("cpu", "cuda"):
            with pytest.raises(tg.linalg.LinAlgError) as e:
                f(*(x.to(device) for x in arguments))
            texts.append(str(e.value))
        assert texts[0] == texts[1]

    a = matrices((2, 70, 70), tg.float64)
    singular = a.clone()
    singular[1, :, 40] = 0
    spd = a @ a.mT + tg.eye(70, dtype=tg.float64)
    indefinite = spd.clone()
    indefinite[0, 33, 33] = -1
    with solver():
        for f in (tg.linalg.inv, tg.linalg.lu_factor, lambda x: tg.linalg.inv_ex(x, check_errors=True)):
            both(f, singular)
        both(lambda x: tg.linalg.solve(x, tg.ones(70, 1, dtype=x.dtype, device=x.device)), singular)
        for x in (singular, tg.zeros(65, 65, dtype=tg.float64), tg.cat([singular, singular], -1)):
            close(tg.linalg.lu_factor_ex(x.cuda()).info, tg.linalg.lu_factor_ex(x).info)
            if x.shape[-1] <= 70:
                close(tg.linalg.inv_ex(x.cuda()).info, tg.linalg.inv_ex(x).info)
                close(tg.linalg.det(x.cuda()), tg.linalg.det(x))
        assert tg.linalg.slogdet(singular.cuda()).logabsdet[1].item() == -float("inf")
        both(tg.linalg.cholesky, indefinite)
        for value in (float("nan"), -float("inf"), 0.0, *([float("inf")] if SIMULATED else [])):  # what becomes of inf / inf is up to the library
            bad = spd.clone()
            bad[1, 7, 7] = value
            close(tg.linalg.cholesky_ex(bad.cuda()).info, tg.linalg.cholesky_ex(bad).info)
        lost = a.clone()
        lost[0, 3] = float("nan")
        assert tg.linalg.lu_factor_ex(lost.cuda()).info.tolist() == [0, 0]
        lu, pivots = tg.linalg.lu_factor(lost.cuda())
        assert lu[0].isnan().any() and not lu[1].isnan().any() and ((pivots >= 1) & (pivots <= 70)).all()
        # One alone goes to cuSOLVER, which makes zeros of the row.
        for x in (lost[0], lost[0, :, :40], lost[0, :60]):
            lu, pivots, info = tg.linalg.lu_factor_ex(x.cuda())
            assert info.item() == 0 and lu.isnan().any() and ((pivots >= 1) & (pivots <= 70)).all(), x.shape
        assert tg.linalg.det(lost[0].cuda()).isnan() and tg.linalg.inv(lost[0].cuda()).isnan().any()
        lost[0, 3] = 0
        lost[0, 5, 60] = float("nan")
        lost[0, :, 2] = 0  # the first zero comes before the first NaN
        close(tg.linalg.lu_factor_ex(lost[0].cuda()).info, tg.linalg.lu_factor_ex(lost[0]).info)
        lost[0] = float("nan")
        assert tg.linalg.qr(lost.cuda())[1][0].isnan().any() and tg.linalg.inv(lost.cuda())[0].isnan().any()
        bad = tg.linalg.lu_solve(tg.eye(70, device="cuda"), tg.tensor([71] * 70, dtype=tg.int32, device="cuda"), tg.ones(70, 1, device="cuda"))
        with pytest.raises(RuntimeError, match="pivots must be between 1 and the number of rows: got 71"):
            bad.tolist()
        # Empty batches and no right-hand side.
        for x, y in ((a[:0], a[:0]), (a, a[..., :0])):
            close(tg.linalg.solve(x.cuda(), y.cuda()), tg.linalg.solve(x, y))
            close(tg.linalg.solve_triangular(x.cuda(), y.cuda(), upper=True), tg.linalg.solve_triangular(x, y, upper=True))
        close(tg.linalg.inv(a[:0].cuda()), tg.linalg.inv(a[:0]))


def test_large_ill_conditioned_matrices():
    n = 80
    i = tg.arange(n, dtype=tg.float64)
    hilbert = 1 / (i + i[:, None] + 1) + 1e-10 * tg.eye(n, dtype=tg.float64)
    b = matrices((n, 2), tg.float64)
    with solver():
        x = tg.linalg.solve(hilbert.cuda(), b.cuda()).cpu()
        assert (hilbert @ x - b).abs().max() <= 1e-13 * x.abs().max()
        l = tg.linalg.cholesky(hilbert.cuda()).cpu()
        assert (l @ l.mT - hilbert).abs().max() <= 1e-14
        q, r = (t.cpu() for t in tg.linalg.qr(hilbert.cuda()))
        assert (q @ r - hilbert).abs().max() <= 1e-14 and (q.mT @ q - tg.eye(n, dtype=tg.float64)).abs().max() <= 1e-13


@pytest.mark.parametrize("dtype", [tg.float64, tg.complex128], ids=str)
def test_gradients_of_large_matrices(dtype):
    def gradients(f, device, *leaves):
        leaves = [x.to(device).requires_grad_() for x in leaves]
        total = sum((y.abs() * tg.linspace(1, 2, y.numel(), dtype=tg.float64, device=device).reshape(y.shape)).sum() for y in f(*leaves))
        return [g.cpu() for g in tg.autograd.grad(total, leaves)]

    a = matrices((66, 66), dtype) / 8 + 2 * tg.eye(66, dtype=dtype)
    b = matrices((66, 2), dtype)
    with solver() as calls:
        for f in (lambda a, b: [tg.linalg.solve(a, b)], lambda a, b: [tg.linalg.inv(a), b], lambda a, b: [*tg.linalg.qr(a), b],
                  lambda a, b: [tg.linalg.cholesky(a @ a.mH), b], lambda a, b: [tg.linalg.slogdet(a)[1], b],
                  lambda a, b: [tg.linalg.solve_triangular(a.triu(), b, upper=True)], lambda a, b: [*tg.linalg.lu_factor(a)[:1], b]):
            for device, host in zip(gradients(f, "cuda", a, b), gradients(f, "cpu", a, b), strict=True):
                tg.testing.assert_close(device, host, rtol=1e-9, atol=1e-9)
        assert calls("lu") != 0 and calls("substitute") != 0 and calls("qr") != 0


@pytest.mark.parametrize("dtype", [tg.float64, tg.complex64], ids=str)
def test_spectra_of_large_matrices(dtype):
    a = matrices((2, 72, 66), dtype)
    tolerance = 1e-3 if dtype == tg.complex64 else 1e-9

    def near(x, y):
        tg.testing.assert_close(x.cpu(), y, rtol=tolerance, atol=tolerance)

    with solver() as calls:
        for x in (a, a.mT):
            for full in (False, True):
                u, s, vh = tg.linalg.svd(x.cuda(), full_matrices=full)
                near(s, tg.linalg.svdvals(x))
                near((u[..., :66] * s[..., None, :]) @ vh[..., :66, :], x)
                for q in (u, vh.mH):
                    near(q.mH @ q, tg.eye(q.shape[-1], dtype=dtype).expand(2, -1, -1))
            near(tg.linalg.svdvals(x.cuda()), tg.linalg.svdvals(x))
        assert calls("singular") in (None, 12)
        h = a @ a.mH
        for uplo in "LU":
            w, v = tg.linalg.eigh(h.cuda(), uplo)
            near((v * w[..., None, :].to(dtype)) @ v.mH / 100, h / 100)
            near(v.mH @ v, tg.eye(72, dtype=dtype).expand(2, -1, -1))
            near(tg.linalg.eigvalsh(h.cuda(), uplo) / 100, w.cpu() / 100)
        assert calls("hermitian") in (None, 8)
        w, v = tg.linalg.eig(h[0].cuda())
        near(h[0].to(v.dtype) @ v.cpu() / 100, (v * w).cpu() / 100)
        assert calls("general_bytes") in (None, 1)  # and refused, on the simulated device


def test_what_goes_to_the_library_and_what_does_not():
    a = matrices((16, 65, 65), tg.float64) + 4 * tg.eye(65, dtype=tg.float64)
    with solver() as calls:
        if SIMULATED:
            def asked(f, *names):
                f()
                return [calls(name) for name in names]

            assert asked(lambda: tg.linalg.inv(a.cuda()), "lu", "lu_many", "lu_solve", "lu_solve_many") == [0, 1, 0, 1]
            assert asked(lambda: tg.linalg.inv(a[:, :32, :32].cuda()), "lu", "lu_many") == [0, 0]  # small
            assert asked(lambda: tg.linalg.inv(a[0].cuda()), "lu", "lu_many", "lu_solve", "lu_solve_many") == [1, 0, 1, 0]
            few = tg.eye(130, device="cuda").expand(2, -1, -1)  # and too large for one call
            assert asked(lambda: tg.linalg.inv(few), "lu", "lu_many", "lu_solve", "lu_solve_many") == [2, 0, 2, 0]
            assert asked(lambda: tg.linalg.cholesky(few), "cholesky", "cholesky_many") == [2, 0]
            assert asked(lambda: tg.linalg.qr(few), "qr") == [2] and asked(lambda: tg.linalg.qr(a.cuda()), "qr") == [0]
        for i in range(tg.cuda.device_count()):
            tg.testing.assert_close(tg.linalg.inv(a[0].to(f"cuda:{i}")).cpu(), tg.linalg.inv(a[0]), rtol=1e-9, atol=1e-9)
        # A capture goes without it, and has the same results.
        x = a[0].cuda()
        out, solved = tg.empty_like(x), tg.empty_like(x)
        calls("lu")
        graph = tg.cuda.CUDAGraph()
        with tg.cuda.graph(graph):
            inverse, info = tg.linalg.inv_ex(x)
            out.copy_(inverse)
            solved.copy_(tg.linalg.solve_triangular(x, x.mT, upper=True))
        assert calls("lu") in (None, 0) and calls("substitute") in (None, 1)  # cuBLAS may be captured
        x.copy_(a[1])
        graph.replay()
        tg.testing.assert_close(out.cpu(), tg.linalg.inv(a[1]), rtol=1e-9, atol=1e-9)
        expected = tg.linalg.solve_triangular(a[1], a[1].mT, upper=True)
        tg.testing.assert_close(solved.cpu(), expected, rtol=1e-9, atol=1e-9 * expected.abs().max().item())
        # Many are calls of cuBLAS, which a capture may have.
        many = a[:3].cuda()
        result = tg.empty_like(many)
        graph = tg.cuda.CUDAGraph()
        with tg.cuda.graph(graph):
            result.copy_(tg.linalg.inv_ex(many)[0])
        assert calls("lu_many") in (None, 1) and calls("lu_solve_many") in (None, 1)
        for i in (1, 5):
            many.copy_(a[i:i + 3])
            graph.replay()
            tg.testing.assert_close(result.cpu(), tg.linalg.inv(a[i:i + 3]), rtol=1e-9, atol=1e-9)
        # A recorded step has the bits of its calls.
        def step(x, y):
            inverse, info = tg.linalg.inv_ex(x)
            return inverse @ y + 1, info + 1
        recorded = tg.record(step)
        for i in range(5):
            x, y = a[i].cuda(), a[i + 1].cuda()
            expected = step(x, y)
            assert calls("lu") in (None, 1)
            assert all(tg.equal(p, q) for p, q in zip(recorded(x, y), expected, strict=True))
            assert calls("lu") in (None, 1), i
        # Another thread captures, in the mode that refuses what may allocate anywhere.
        graph, begun, ended = tg.cuda.CUDAGraph(), threading.Event(), threading.Event()

        def capture():
            with tg.cuda.graph(graph, capture_error_mode="global"):
                out.mul_(2)
                begun.set()
                ended.wait()
        thread = threading.Thread(target=capture)
        thread.start()
        begun.wait()
        inverse = tg.linalg.inv(a[2].cuda())
        ended.set()
        thread.join()
        tg.testing.assert_close(inverse.cpu(), tg.linalg.inv(a[2]), rtol=1e-9, atol=1e-9)
        graph.replay()
        tg.testing.assert_close(out.cpu(), 2 * tg.linalg.inv(a[1]), rtol=1e-9, atol=1e-9)
        # Streams and threads of their own.
        results, errors = {}, []

        def work(i):
            try:
                with tg.cuda.stream(tg.cuda.Stream()):
                    results[i] = [(tg.linalg.inv(a[i].cuda()).cpu(), tg.linalg.solve_triangular(a[i].cuda(), a[i].cuda(), upper=True).cpu())
                                  for _ in range(3)]
            except BaseException as e:
                errors.append(e)
        threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not errors
        for i in range(3):
            for inverse, solved in results[i]:
                tg.testing.assert_close(inverse, tg.linalg.inv(a[i]), rtol=1e-9, atol=1e-9)
                tg.testing.assert_close(solved, tg.linalg.solve_triangular(a[i], a[i], upper=True), rtol=1e-9, atol=1e-9)


@pytest.mark.skipif(not SIMULATED, reason="errors are made on the simulated device")
def test_errors_of_the_library():
    a = matrices((2, 70, 70), tg.float64) + 4 * tg.eye(70, dtype=tg.float64)
    x = a.cuda()
    spd = x @ x.mT
    with solver():
        for name, f, call in (("lu", lambda: tg.linalg.inv(x[0]), "cusolverDnXgetrf"), ("lu_solve", lambda: tg.linalg.solve(x[0], x[0]), "cusolverDnXgetrs"),
                              ("lu_many", lambda: tg.linalg.inv(x), "cublasgetrfBatched"),
                              ("lu_solve_many", lambda: tg.linalg.solve(x, x), "cublasgetrsBatched"),
                              ("cholesky_many", lambda: tg.linalg.cholesky(tg.cat([spd, spd])), "cusolverDnpotrfBatched"),
                              ("substitute_many", lambda: tg.linalg.solve_triangular(x.repeat(2, 1, 1), x.repeat(2, 1, 1), upper=True), "cublastrsmBatched"),
                              ("cholesky", lambda: tg.linalg.cholesky(spd), "cusolverDnXpotrf"), ("qr", lambda: tg.linalg.qr(x), "cusolverDnXgeqrf"),
                              ("reflections", lambda: tg.linalg.qr(x), "cusolverDnorgqr"),
                              ("reflections_size", lambda: tg.linalg.qr(x), "cusolverDnorgqr"),
                              ("substitute", lambda: tg.linalg.solve_triangular(x, x, upper=True), "cublastrsm")):
            fails(name, 3 if call.startswith("cublas") else 2)
            with pytest.raises(tg.OutOfMemoryError, match=f"cuda: {call}: out of memory"):
                f()
            fails(name, 6)
            with pytest.raises(RuntimeError, match=f"cuda: {call}: error 6"):
                f()
            f()  # and all is well again
        tg.testing.assert_close(tg.linalg.inv(x).cpu(), tg.linalg.inv(a), rtol=1e-9, atol=1e-9)
        # No memory for the 32 MiB that cuBLAS works in; then Python's collector finds some, and runs calls of its own.
        held = []
        tg.cuda.synchronize()
        tg.cuda.empty_cache()
        try:
            with pytest.raises(tg.OutOfMemoryError):
                while True:
                    held.append(tg.empty(16 << 20, dtype=tg.uint8, device="cuda"))
            with pytest.raises(tg.OutOfMemoryError):
                tg.linalg.solve_triangular(x, x, upper=True)
            solved = []

            class Garbage:
                def __init__(self):
                    self.itself, self.memory = self, [held.pop() for _ in range(4)]

                def __del__(self):
                    self.memory.clear()
                    solved.append(tg.linalg.solve_triangular(x, x, upper=True))
                    solved.append(tg.linalg.inv(x))
            Garbage()
            result = tg.linalg.solve_triangular(x, x, upper=True)
            tg.testing.assert_close(solved[0], result, rtol=0, atol=0)
            tg.testing.assert_close(solved[1].cpu(), tg.linalg.inv(a), rtol=1e-9, atol=1e-9)
        finally:
            held.clear()
        tg.testing.assert_close(tg.linalg.solve_triangular(x, x, upper=True).cpu(), tg.linalg.solve_triangular(a, a, upper=True), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [tg.float32, tg.bfloat16])
@pytest.mark.parametrize("a_sizes, b_sizes", [((12, 16), (3, 16, 8)), ((3, 5, 16), (16, 12)), ((5, 12), (12, 8)), ((3, 5, 16), (3, 16, 8))])
def test_products_of_groups(a_sizes, b_sizes, dtype):
    ends = None if len(a_sizes) + len(b_sizes) == 6 else tg.tensor([4, 4, 11], dtype=tg.int32)
    weight, results = None, []
    host = [tg.randn(sizes, dtype=dtype) for sizes in (a_sizes, b_sizes)]
    for device in ("cpu", "cuda"):
        a, b = (t.detach().to(device).requires_grad_() for t in host)
        made = tg._grouped_mm(a, b, None if ends is None else ends.to(device))
        weight = tg.randn(made.shape, dtype=dtype) if weight is None else weight
        made.backward(weight.to(device))
        assert made.device.type == device
        results.append([t.cpu() for t in (made.detach(), a.grad, b.grad)])
    for ours, theirs in zip(*results[::-1], strict=True):
        tg.testing.assert_close(ours, theirs, rtol=1e-5 if dtype == tg.float32 else 2e-2, atol=1e-5 if dtype == tg.float32 else 0.05)


def test_products_of_groups_wait_for_their_ends():
    a, b, ends = tg.randn(6, 4, device="cuda"), tg.randn(3, 4, 5, device="cuda"), tg.tensor([2, 2, 6], dtype=tg.int32, device="cuda")
    with pytest.raises(RuntimeError, match="the host waits for the device"), tg.strict("sync"):
        tg._grouped_mm(a, b, ends)
    with pytest.raises(ValueError, match="^_grouped_mm: expected ascending ends up to 6 in offs: got 2 behind 3$"):
        tg._grouped_mm(a, b, tg.tensor([3, 2, 6], dtype=tg.int32, device="cuda"))


@pytest.mark.parametrize("sizes", [(6, 8), (2, 3, 8), (8,), (0, 8)])
@pytest.mark.parametrize("frozen", ["", "weight", "bias", "input"])
def test_gradients_of_linear_layers(sizes, frozen):
    names, results = ("input", "weight", "bias"), []
    host = dict(zip(names, (tg.randn(s, dtype=tg.float64) for s in (sizes, (16, 8), (16,))), strict=True))
    for device in ("cpu", "cuda"):
        given = {name: t.detach().to(device).requires_grad_(name != frozen) for name, t in host.items()}
        wanted = [given[name] for name in names if name != frozen]
        loss = (tg.nn.functional.linear(*given.values()) ** 3).sum()
        first = tg.autograd.grad(loss, wanted, create_graph=True)
        second = tg.autograd.grad(sum((g * g).sum() for g in first), wanted)
        results.append([t.cpu() for t in (*first, *second)])
    for ours, theirs in zip(*results[::-1], strict=True):
        tg.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def test_the_gradients_of_weight_and_bias_are_one_call():
    layer, x = tg.nn.Linear(8, 16, device="cuda"), tg.randn(4, 8, device="cuda")
    loss = layer(x).sum()
    with tg.profiler.profile() as profile:
        loss.backward()
    assert any("linear_parameter_grads" in event.key for event in profile.key_averages())
