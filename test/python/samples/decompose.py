"""Samples of linear algebra: matrices that are well conditioned where the operator asks for that."""

import tapegrad


def _eye(make, n, m=None):
    return tapegrad.eye(n, m, dtype=make.dtype)


def _regular(make, *batch, n=3):
    """Far from singular: the diagonal outweighs the rest."""
    return make((*batch, n, n)) + 2 * n**0.5 * _eye(make, n)


def _complex(make):
    return {tapegrad.float32: tapegrad.complex64, tapegrad.float64: tapegrad.complex128}.get(make.dtype, make.dtype)


def _regular_complex(make, *batch, n=3):
    return make((*batch, n, n), dtype=_complex(make)) + 2 * n**0.5 * _eye(make, n)


def _positive(make, *batch, n=3, dtype=None):
    x = make((*batch, n, n), dtype=dtype)
    return (x @ x.mH + _eye(make, n)).detach()


def matrices(make):
    return [((make((3, 3)),), {}), ((make((4, 3)),), {}), ((make((3, 4)),), {}), ((make((2, 4, 3)),), {}), ((make((2, 3, 2, 4)),), {}), ((make((3, 5)).t(),), {}),
            ((make((0, 3)),), {}), ((make((3, 0)),), {}), ((make((0, 3, 3)),), {}), ((make((1, 1)),), {}), ((make((3, 3), dtype=_complex(make)),), {}),
            ((make((4, 3), dtype=_complex(make)),), {}), ((make((3, 4), dtype=_complex(make)),), {})]


def squares(make):
    return [((make((3, 3)),), {}), ((make((2, 4, 4)),), {}), ((make((3, 3)).t(),), {}), ((make((0, 0)),), {}), ((make((0, 3, 3)),), {}), ((make((1, 1)),), {}),
            ((make((2, 0, 0)),), {}), ((make((3, 3), dtype=_complex(make)),), {}), ((make((2, 6, 6))[:, ::2, ::2],), {})]


def regular(make):
    return [((_regular(make),), {}), ((_regular(make, 2),), {}), ((_regular(make, 2, 2, n=2),), {}), ((_regular(make).t(),), {}), ((_regular(make, 0),), {}),
            ((_regular(make, n=1),), {}), ((make((0, 0)),), {}), ((_regular_complex(make),), {}), ((_regular_complex(make, 2).mT,), {})]


def positive_definite(make):
    return [((_positive(make),), {}), ((_positive(make, 2),), {}), ((_positive(make, 2, 2, n=2),), {}), ((_positive(make, n=1),), {}), ((make((0, 0)),), {}),
            ((make((0, 3, 3)),), {}), ((_positive(make, dtype=_complex(make)),), {}), ((_positive(make, 2, dtype=_complex(make)).mT,), {})]


def hermitian(make):
    def symmetric(*batch, n=3, dtype=None):
        x = make((*batch, n, n), dtype=dtype)
        return (x + x.mH).detach()

    return [((symmetric(),), {}), ((symmetric(2),), {}), ((symmetric(n=1),), {}), ((make((0, 0)),), {}), ((symmetric(2, 2, n=2),), {}), ((make((0, 3, 3)),), {}),
            ((symmetric(dtype=_complex(make)),), {}), ((symmetric(n=5).t(),), {})]


def _factors(make, *batch, n=3, m=None, dtype=None):
    x = make((*batch, m or n, n), dtype=dtype) + 2 * _eye(make, m or n, n)
    return tapegrad.linalg.lu_factor(x)


def lu_unpack(make):
    return [(_factors(make), {}), (_factors(make, 2), {}), (_factors(make, m=4), {}), (_factors(make, n=4, m=3), {}), (_factors(make), {"unpack_data": False}),
            (_factors(make), {"unpack_pivots": False}), (_factors(make, dtype=_complex(make)), {})]


def _pivots_to_order(make):
    return [((tapegrad.tensor([3, 3, 3], dtype=tapegrad.int32), 4), {}), ((tapegrad.tensor([[1, 2], [2, 2]], dtype=tapegrad.int32), 2), {})]


def qr(make):
    cases = [(args, kwargs) for args, kwargs in matrices(make)]
    return cases + [((make((3, 4)), "complete"), {}), ((make((3, 3)),), {"mode": "complete"})]


def reflectors(make):
    return [(tuple(t.detach() for t in tapegrad.geqrf(make((4, 3)))), {}), (tuple(t.detach() for t in tapegrad.geqrf(make((2, 3, 3)))), {}),
            ((make((4, 3)), make((2,))), {}), ((make((4, 2), dtype=_complex(make)), make((2,), dtype=_complex(make))), {}), ((make((3, 0)), make((0,))), {})]


def ormqr(make):
    return [((make((4, 2)), make((2,)), make((4, 3))), {}), ((make((4, 4)), make((4,)), make((2, 4))), {"left": False}), ((make((4, 2)), make((2,)), make((4, 3))), {"transpose": True}),
            ((make((2, 3, 2)), make((2, 2)), make((2, 3, 2))), {}), ((make((2, 4)), make((2,)), make((2, 3))), {})]


def svd(make):
    cases = matrices(make)
    return cases + [(args, {"full_matrices": False}) for args, _ in cases[:6]]


def solve_matrices(make):
    return [((_regular(make), make((3, 2))), {}), ((_regular(make, 2), make((2, 3, 2))), {}), ((_regular(make), make((2, 3, 2))), {}), ((_regular(make, 2), make((3, 2))), {}),
            ((_regular(make, 2, 1, n=2), make((3, 2, 1))), {}), ((make((0, 0)), make((0, 2))), {}), ((_regular(make), make((3, 0))), {}), ((_regular(make, 0), make((0, 3, 2))), {}),
            ((_regular_complex(make), make((3, 2), dtype=_complex(make))), {}), ((_regular(make).t(), make((2, 3)).t()), {})]


def solve(make):
    return [*solve_matrices(make), ((_regular(make), make((3,))), {}), ((_regular(make, 2), make((2, 3))), {}), ((_regular(make), make((2, 3))), {"left": False}),
            ((_regular_complex(make, 2), make((4, 3), dtype=_complex(make))), {"left": False})]


def _lu_solve(make):
    return [((*_factors(make), make((3, 2))), {}), ((*_factors(make, 2), make((3, 2))), {"adjoint": True}), ((*_factors(make), make((2, 3, 2))), {}),
            ((*_factors(make, dtype=_complex(make)), make((3, 2), dtype=_complex(make))), {"adjoint": True})]


def lu_solve(make):
    return [*_lu_solve(make), ((*_factors(make), make((2, 3))), {"left": False}), ((*_factors(make, 2), make((2, 3))), {"left": False, "adjoint": True}),
            ((*_factors(make, dtype=_complex(make)), make((2, 3), dtype=_complex(make))), {"left": False})]


def lu_solve_old(make):
    return [((make((3, 2)), *_factors(make)), {}), ((make((2, 3, 1)), *_factors(make, 2)), {})]


def _solve_triangular(make):
    return [((_regular(make), make((3, 2)), True, False), {}), ((_regular(make, 2), make((3, 2)), False, False), {}), ((_regular(make), make((2, 3, 2)), True, True), {}),
            ((_regular(make).t(), make((3, 2)), False, True), {}), ((_regular_complex(make).mT, make((3, 2), dtype=_complex(make)), True, False), {})]


def solve_triangular(make):
    cases = [((a, b), {"upper": upper, "unitriangular": unit}) for (a, b, upper, unit), _ in _solve_triangular(make)]
    return [*cases, ((_regular(make), make((2, 3))), {"upper": True, "left": False}), ((_regular_complex(make), make((2, 2, 3), dtype=_complex(make))), {"upper": False, "left": False}),
            ((make((0, 0)), make((0, 2))), {"upper": True}), ((make((6, 6))[::2, ::2] + 3 * _eye(make, 3), make((3, 1))), {"upper": False})]


def triangular_solve(make):
    return [((make((3, 2)), _regular(make)), {}), ((make((3, 2)), _regular(make)), {"upper": False}), ((make((2, 3, 2)), _regular(make, 2), True, True), {}),
            ((make((3, 2)), _regular(make)), {"unitriangular": True})]


def _factor(make, *batch, dtype=None):
    return tapegrad.linalg.cholesky(_positive(make, *batch, dtype=dtype))


def cholesky_solve(make):
    return [((make((3, 2)), _factor(make)), {}), ((make((2, 3, 2)), _factor(make).mH, True), {}), ((make((3, 2), dtype=_complex(make)), _factor(make, dtype=_complex(make))), {})]


def cholesky_inverse(make):
    return [((_factor(make),), {}), ((_factor(make, 2).mH, True), {}), ((_factor(make, dtype=_complex(make)),), {})]


def ldl_solve(make):
    def case(*batch, n=4):
        x = make((*batch, n, n))
        return tuple(tapegrad.linalg.ldl_factor((x + x.mT).detach()))

    return [((*case(), make((4, 2))), {}), ((*case(2), make((2, 4, 1))), {})]


def _lstsq(make):
    return [((make((4, 2)), make((4, 3)), 1e-9, "gelsy"), {}), ((make((2, 4)), make((2, 3)), 1e-9, "gels"), {}), ((make((2, 4, 2)), make((2, 4, 1)), 1e-9, "gelsd"), {})]


def lstsq(make):
    return [((make((4, 2)), make((4, 3))), {}), ((make((4, 2)), make((4, 3))), {"driver": "gels"}), ((make((2, 4)), make((2, 3))), {"driver": "gelsd"}),
            ((make((2, 4, 2)), make((2, 4, 3))), {"driver": "gelss"}), ((make((3, 4, 2)), make((3, 4))), {"driver": "gelsd"}), ((make((3, 3)), make((3, 2)), 1e-6), {}),
            ((make((4, 2), dtype=_complex(make)), make((4, 1), dtype=_complex(make))), {"driver": "gels"})]


def pinv_matrices(make):
    return [((make((4, 3)),), {}), ((make((3, 4)),), {}), ((make((2, 3, 3)) + 2 * _eye(make, 3),), {}), ((make((0, 3)),), {}), ((make((3, 2), dtype=_complex(make)),), {})]


def pinv(make):
    return pinv_matrices(make)


def pinv_rcond(make):
    return [((make((4, 3)), 1e-3), {}), ((make((2, 3, 4)), tapegrad.tensor([1e-3, 1e-4], dtype=make.dtype)), {})]


def matrix_power(make):
    return [((_regular(make), 3), {}), ((_regular(make, 2), 0), {}), ((_regular(make), -2), {}), ((_regular(make), 1), {}), ((make((3, 3)), 5), {}), ((_regular_complex(make), -1), {})]


def tensorinv(make):
    return [((make((2, 3, 6)) + _eye(make, 6).reshape(2, 3, 6) * 4,), {}), ((make((4, 2, 2)) + _eye(make, 4).reshape(4, 2, 2) * 4, 1), {})]


def tensorsolve(make):
    return [((make((2, 3, 6)) + _eye(make, 6).reshape(2, 3, 6) * 4, make((2, 3))), {}), ((make((6, 2, 3)) + _eye(make, 6).reshape(6, 2, 3) * 4, make((6,))), {})]


def _norm_inputs(make):
    return [make((3, 4)), make((2, 4, 3)), make((3, 3), dtype=_complex(make))]


def matrix_norm_order(make):
    orders = [1, -1, 2, -2, float("inf"), -float("inf")]
    return [((x, p), {}) for x in _norm_inputs(make) for p in orders] + [((make((2, 3, 4)), 1, (0, 2)), {}), ((make((2, 3, 4)), float("inf"), (2, 0), True), {}), ((make((2, 3, 4)), 2, (0, 2), True), {})]


def matrix_norm_name(make):
    return [((x, p), {}) for x in _norm_inputs(make) for p in ("fro", "nuc")] + [((make((2, 3, 4)), "nuc", (0, 2), True), {}), ((make((2, 3, 4)), "fro", (2, 0), True), {}), ((make((2, 3, 4)),), {})]


def linalg_norm_order(make):
    return [((make((2, 3, 4)),), {}), ((make((3, 4)), 2), {}), ((make((5,)), 3), {}), ((make((2, 3, 4)), 1, (0, 1)), {}), ((make((2, 3, 4)), float("inf"), 1, True), {}),
            ((make((2, 3, 4)), None, (1, 2)), {}), ((make((3, 3)), -2), {}), ((make((0, 3)), 1), {}),
            ((make((2, 3, 0)), float("inf"), (1, 2)), {}), ((make((0, 0)), 2), {})]


def linalg_norm_name(make):
    return [((make((3, 4)), "fro"), {}), ((make((3, 4)), "nuc"), {}), ((make((2, 3, 4)), "nuc", (0, 2)), {})]


def cond_order(make):
    return [((_regular(make),), {}), ((_regular(make, 2), 1), {}), ((_regular(make), float("inf")), {}), ((make((4, 3)), -2), {}), ((make((4, 3)), 2), {}), ((make((0, 0)),), {})]


def cond_name(make):
    return [((_regular(make), "fro"), {}), ((_regular(make, 2), "nuc"), {})]


def linalg_cross(make):
    return [((make((4, 3)), make((4, 3))), {}), ((make((3, 4)), make((3, 4))), {"dim": 0}), ((make((4, 3)), make((1, 3))), {})]


def linalg_diagonal(make):
    return [((make((3, 4)),), {}), ((make((2, 3, 4)),), {"offset": 1}), ((make((2, 3, 4)),), {"dim1": 0, "dim2": 2})]


def vecdot(make):
    return [((make((4,)), make((4,))), {}), ((make((2, 4)), make((2, 4))), {}), ((make((2, 4)), make((4,))), {}), ((make((4, 2)), make((4, 2))), {"dim": 0}),
            ((make((2, 4), dtype=_complex(make)), make((2, 4), dtype=_complex(make))), {})]


def vander(make):
    return [((make((4,)),), {}), ((make((2, 3)),), {"N": 5}), ((tapegrad.tensor([1, 2, 3]),), {}), ((make(()),), {"N": 3})]
