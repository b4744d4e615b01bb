"""Factorisations and solvers on CUDA against the CPU: sizes around the warp's, batches that broadcast, and what goes wrong.

Runs where the environment asks for a device, as test_operators.py does; test_simulated.py starts it on the simulated one.
"""


import device_asked_for  # noqa: F401
import pytest
import tapegrad as tg

DTYPES = [tg.float64, tg.complex128, tg.float32]


def matrices(shape, dtype):
    tg.manual_seed(5)
    x = tg.randn(shape, dtype=tg.float64)
    return (tg.complex(x, tg.randn(shape, dtype=tg.float64)) if dtype.is_complex else x).to(dtype)


def close(device, host, where=""):
    device, host = (device, host) if isinstance(device, tuple) else ((device,), (host,))
    for d, h in zip(device, host, strict=True):
        assert d.device.type == "cuda" and d.dtype == h.dtype and d.shape == h.shape and d.stride() == h.stride(), where
        tolerance = {tg.float32: 2e-3}.get(h.dtype, 1e-9)
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
