"""Samples of copies, fills and conversions."""

import tapegrad


def copy_(make):
    return [((make((3, 4)), make((3, 4))), {}), ((make((3, 4)), make((4,))), {}), ((make((4, 3)).t(), make((3, 4))), {}), ((make((3, 4)), make((4, 3)).t()), {}),
            ((make((0, 2)), make((2,))), {}), ((make(()), make(())), {}), ((make((3,)), make((3,), dtype=tapegrad.int64, low=0, high=9)), {}),
            ((make((40, 50)), make((50, 40)).t()), {})]


def fill_(make):
    return [((make((3, 4)), 2.5), {}), ((make((4, 3)).t(), make(())), {}), ((make((0, 2)), 1), {}), ((make((3, 6))[:, ::2], -1), {})]


def _to_copy(make):
    return [((make((3, 4)),), {"dtype": tapegrad.float64}), ((make((4, 3)).t(),), {"dtype": tapegrad.float64}), ((make((2, 3)),), {"dtype": tapegrad.complex128}),
            ((make((2, 3), low=-9, high=9),), {"dtype": tapegrad.int32}), ((make((0,)),), {"dtype": tapegrad.float64})]


def binary_same(make):
    return [((make((3, 4)), make((3, 4))), {}), ((make((0, 2)), make((0, 2))), {}), ((make(()), make(())), {})]


def resize_(make):
    return [((make((3, 4)), (2, 6)), {}), ((make((3, 4)), (2, 2)), {})]


def masked_scatter(make):
    return [((make((3, 4)), make((3, 4)) > 0, make((3, 4))), {}), ((make((3, 4)), make((4,)) > 0, make((12,))), {}), ((make((0, 2)), make((2,)) > 0, make((2,))), {}),
            ((make((4, 3)).t(), make((3, 4)) > 0, make((20,))), {})]


def fill_diagonal_(make):
    return [((make((3, 4)), 2.5), {}), ((make((7, 3)), 1), {}), ((make((7, 3)), 1.5, True), {}), ((make((11, 2)), 1.5, True), {}), ((make((3, 3, 3)), -1), {}), ((make((4, 3)).t(), 2), {}), ((make((0, 2)), 2), {})]
