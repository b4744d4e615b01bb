"""Samples of the matrix products."""

import tapegrad


def mm(make):
    return [((make((3, 4)), make((4, 5))), {}), ((make((4, 3)).t(), make((5, 4)).t()), {}), ((make((1, 4)), make((4, 1))), {}), ((make((3, 0)), make((0, 2))), {}),
            ((make((0, 4)), make((4, 2))), {}), ((make((33, 70)), make((70, 65))), {}), ((make((6, 8))[::2, ::2], make((4, 5))), {})]


def bmm(make):
    return [((make((2, 3, 4)), make((2, 4, 5))), {}), ((make((2, 4, 3)).transpose(1, 2), make((2, 5, 4)).transpose(1, 2)), {}), ((make((0, 3, 4)), make((0, 4, 5))), {}),
            ((make((1, 3, 4)).expand(2, 3, 4), make((2, 4, 5))), {}), ((make((2, 3, 0)), make((2, 0, 2))), {})]


def grouped_mm(make):
    ends, none = tapegrad.tensor([2, 2, 6], dtype=tapegrad.int32), tapegrad.tensor([0, 0], dtype=tapegrad.int32)
    return [((make((6, 4)), make((3, 4, 5)), ends), {}), ((make((3, 5, 4)).transpose(1, 2), make((5, 7)), ends), {}), ((make((6, 4)).t(), make((6, 5)), ends), {}),
            ((make((2, 3, 4)), make((2, 5, 4)).transpose(1, 2)), {}), ((make((0, 4)), make((2, 4, 5)), none), {}), ((make((5, 3)), make((2, 3, 0)), none), {})]


def linear_parameter_grads(make):
    return [((make((5, 3)), make((5, 4))), {}), ((make((3, 5)).t(), make((4, 5)).t()), {}), ((make((0, 3)), make((0, 2))), {}), ((make((2, 3)), make((2, 0))), {})]


def addmm(make):
    return [((make((3, 5)), make((3, 4)), make((4, 5))), {}), ((make((5,)), make((3, 4)), make((4, 5))), {"beta": 0.5, "alpha": 2.0}), ((make(()), make((4, 3)).t(), make((4, 5))), {}),
            ((make((3, 1)), make((3, 4)), make((4, 5))), {"beta": 0}), ((make((3, 2)), make((3, 0)), make((0, 2))), {"beta": 2.0})]


def baddbmm(make):
    return [((make((2, 3, 5)), make((2, 3, 4)), make((2, 4, 5))), {}), ((make((5,)), make((2, 3, 4)), make((2, 4, 5))), {"beta": 0.5, "alpha": 2.0}), ((make((2, 1, 5)), make((2, 3, 4)), make((2, 4, 5))), {"beta": 0})]


def addbmm(make):
    return [((make((3, 5)), make((2, 3, 4)), make((2, 4, 5))), {}), ((make((5,)), make((2, 3, 4)), make((2, 4, 5))), {"beta": 0.5, "alpha": 2.0})]


def matmul(make):
    return [((make((3, 4)), make((4, 5))), {}), ((make((4,)), make((4,))), {}), ((make((3, 4)), make((4,))), {}), ((make((4,)), make((4, 3))), {}), ((make((2, 3, 4)), make((4, 5))), {}),
            ((make((2, 1, 3, 4)), make((3, 4, 2))), {}), ((make((4,)), make((2, 4, 3))), {}), ((make((2, 3, 4)), make((4,))), {}), ((make((3, 4)), make((2, 4, 2))), {}),
            ((make((2, 4, 3)).transpose(1, 2), make((2, 4, 2))), {}), ((make((0, 3, 4)), make((4, 2))), {}), ((make((2, 3, 0)), make((2, 0, 2))), {})]


def mv(make):
    return [((make((3, 4)), make((4,))), {}), ((make((4, 3)).t(), make((4,))), {}), ((make((3, 0)), make((0,))), {}), ((make((3, 4)), make((8,))[::2]), {})]


def dot(make):
    return [((make((5,)), make((5,))), {}), ((make((10,))[::2], make((5,))), {}), ((make((0,)), make((0,))), {}), ((make((67,)), make((67,))), {})]


def outer(make):
    return [((make((3,)), make((4,))), {}), ((make((0,)), make((4,))), {})]


def addmv(make):
    return [((make((3,)), make((3, 4)), make((4,))), {}), ((make((3,)), make((3, 4)), make((4,))), {"beta": 0.5, "alpha": 2.0}), ((make(()), make((3, 4)), make((4,))), {})]


def addr(make):
    return [((make((3, 4)), make((3,)), make((4,))), {}), ((make((4,)), make((3,)), make((4,))), {"beta": 0.5, "alpha": 2.0})]


def inner(make):
    return [((make((4,)), make((4,))), {}), ((make((2, 4)), make((3, 4))), {}), ((make((2, 3, 4)), make((5, 4))), {}), ((make(()), make((3,))), {})]


def tensordot(make):
    return [((make((2, 3, 4)), make((3, 4, 5))), {}), ((make((2, 3)), make((3, 5)), 1), {}), ((make((2,)), make((3,)), 0), {})]


def _tensordot(make):
    return [((make((2, 3, 4)), make((4, 3, 5)), [1, 2], [1, 0]), {})]


def einsum(make):
    return [(("ij,jk->ik", [make((3, 4)), make((4, 5))]), {}), (("ij,jk", [make((3, 4)), make((4, 5))]), {}), (("ii->i", [make((4, 4))]), {}), (("ii", [make((3, 3))]), {}),
            (("bij,bjk->bik", [make((2, 3, 4)), make((2, 4, 5))]), {}), (("...ij,...jk->...ik", [make((2, 3, 4)), make((4, 5))]), {}), (("ij->ji", [make((3, 4))]), {}),
            (("i,j->ij", [make((3,)), make((4,))]), {}), (("ijk->", [make((2, 3, 4))]), {}), (("ab,bc,cd->ad", [make((2, 3)), make((3, 4)), make((4, 2))]), {}),
            (("bi,oij,bj->bo", [make((2, 3)), make((4, 3, 2)), make((2, 2))]), {}), (("b...->...", [make((2, 3))]), {}),
            (("ij,ik->ijk", [make((2, 3)), make((2, 4))]), {}), (("ij,k->kij", [make((2, 3)), make((4,))]), {}),
            # What is not summed has the dtype of the product, and sums of integers are int64.
            (("i,j->ij", [make((3,), dtype=tapegrad.int32, high=5), make((4,), dtype=tapegrad.int64, high=5)]), {}),
            (("ij,ik->ijk", [make((2, 3), dtype=tapegrad.uint8, high=5), make((2, 4), dtype=tapegrad.int8, high=5)]), {}),
            (("i,j->ji", [make((3,), dtype=tapegrad.bool), make((4,), dtype=tapegrad.bool)]), {}),
            (("i,j->ij", [make((3,), dtype=tapegrad.int32, high=5), make((4,))]), {}),
            (("ij,jk->k", [make((2, 3), dtype=tapegrad.int32, high=5), make((3, 4), dtype=tapegrad.int64, high=5)]), {}),
            (("ij,jk->ik", [make((2, 3), dtype=tapegrad.int8, high=5), make((3, 4), dtype=tapegrad.int8, high=5)]), {})]


def linear(make):
    return [((make((3, 4)), make((5, 4)), make((5,))), {}), ((make((4,)), make((5, 4))), {}), ((make((2, 3, 4)), make((5, 4)), make((5,))), {}), ((make((0, 4)), make((5, 4)), make((5,))), {}),
            ((make((3, 4)), make((4, 5)).t()), {}), ((make((3, 4)), make((4,))), {}), ((make((4, 3)).t(), make((5, 4)), make((5,))), {}),
            *(((make(size), make((5, 4)), make(bias)), {}) for size in ((3, 4), (2, 3, 4)) for bias in ((1, 5), (1,), (), (1, 1)))]  # fmt: skip


def bilinear(make):
    return [((make((3, 4)), make((3, 2)), make((5, 4, 2)), make((5,))), {}), ((make((2, 3, 4)), make((2, 3, 2)), make((2, 4, 2))), {})]


def multi_dot(make):
    return [(([make((2, 3)), make((3, 4)), make((4, 2))],), {}), (([make((2, 3)), make((3, 4))],), {}), (([make((2, 5)), make((5, 1)), make((1, 4)), make((4, 3))],), {})]


def kron(make):
    return [((make((2, 3)), make((3, 2))), {}), ((make((2,)), make((3,))), {}), ((make((2, 2)), make((3,))), {})]


def cross(make):
    return [((make((4, 3)), make((4, 3))), {"dim": 1}), ((make((3, 4)), make((3, 4)), 0), {}), ((make((2, 3)), make((2, 3))), {"dim": -1})]


def _cdist(make):
    return [((make((1, 3, 4)), make((1, 5, 4)), p), {}) for p in (0.5, 1.0, 2.0, 3.0, float("inf"))] + [((make((2, 3, 2)), make((2, 70, 2)), 1.0), {}), ((make((2, 0, 4)), make((2, 3, 4)), 1.0), {}), ((make((1, 2, 0)), make((1, 3, 0)), 1.0), {})]


def cdist(make):
    return [((make((3, 4)), make((5, 4))), {}), ((make((2, 3, 4)), make((2, 2, 4))), {"p": 1.0}), ((make((3, 4)), make((5, 4))), {"p": 3.0})]


def _coo_mm(make):
    import tapegrad
    return [((tapegrad.tensor([[0, 2, 2], [1, 0, 1]]), make((3,)), make((2, 4)), 3), {})]


def _coo_solve(make):
    import tapegrad
    places = tapegrad.tensor([[0, 1, 2, 2, 0], [0, 1, 2, 0, 1]])
    return [((places, make((5,)).abs() + 1, make((3, 2)), upper, unit), {}) for upper in (True, False) for unit in (True, False)]
