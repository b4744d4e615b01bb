"""Samples of operators that make tensors."""

import tapegrad


def sizes(make):
    return [(((2, 3),), {"dtype": make.dtype}), (((0, 3),), {"dtype": make.dtype}), (((),), {"dtype": make.dtype}), (((2,),), {})]


def empty_strided(make):
    return [(((2, 3), (1, 2)), {"dtype": make.dtype}), (((2, 0), (1, 1)), {"dtype": make.dtype})]


def full(make):
    return [(((2, 3), 1.5), {"dtype": make.dtype}), (((2,), 3), {}), (((), True), {}), (((0,), 1.5), {})]


def scalar_tensor(make):
    return [((1.5,), {"dtype": make.dtype}), ((2.5,), {})]


def like(make):
    return [((make((2, 3)),), {}), ((make((3, 2)).t(),), {}), ((make((0,)),), {}), ((make(()),), {"dtype": tapegrad.int32})]


def full_like(make):
    return [((make((2, 3)), 1.5), {}), ((make((3, 2)).t(), 2), {}), ((make(()), 1), {"dtype": tapegrad.int32})]


def new_sizes(make):
    return [((make((2, 3)), (4, 1)), {}), ((make((2,)), (0, 2)), {}), ((make((2,)), ()), {"dtype": tapegrad.int64})]


def new_empty_strided(make):
    return [((make((2, 3)), (4, 2), (1, 4)), {})]


def new_full(make):
    return [((make((2, 3)), (4, 1), 2.5), {}), ((make((2,)), (3,), 7), {"dtype": tapegrad.int64})]


def arange_end(make):
    return [((5,), {}), ((2.5,), {}), ((0,), {}), ((4,), {"dtype": make.dtype}), ((2.5,), {"dtype": tapegrad.int32}), ((2.5,), {"dtype": tapegrad.int64})]


def arange(make):
    whole = [(numbers, {"dtype": dtype}) for dtype in (tapegrad.int64, tapegrad.int32, tapegrad.uint8) for numbers in (
        (0.5, 5, 1), (0.5, 5.7, 1.5), (5.5, 0.5, -1), (-0.5, 3), (1.5, 1.6), (1.5, 3.5, 1.9), (254, 258))]
    return [((1, 5), {}), ((5, 1, -1), {}), ((0.0, 1.0, 0.1), {}), ((0, 7, 3), {"dtype": make.dtype}), ((0.9, 5, 0.9), {"dtype": tapegrad.int32}), *whole]


def linspace(make):
    return [((0, 1, 5), {"dtype": make.dtype}), ((-2.0, 3.0, 7), {"dtype": make.dtype}), ((1, 2, 1), {"dtype": make.dtype}), ((1, 2, 0), {"dtype": make.dtype})]


def eye(make):
    return [((3,), {"dtype": make.dtype}), ((2, 4), {"dtype": make.dtype}), ((0,), {})]


def tri_indices(make):
    return [((3, 4), {}), ((4, 3, 1), {}), ((3, 3, -1), {}), ((0, 3), {})]


def empty_permuted(make):
    return [(((2, 3, 4), (0, 2, 1)), {"dtype": make.dtype}), (((2, 3), (1, 0)), {}), (((0, 3), (0, 1)), {})]


def range_samples(make):
    whole = [(numbers, {"dtype": dtype}) for dtype in (tapegrad.int64, tapegrad.int32, tapegrad.uint8) for numbers in (
        (0.5, 3), (0.5, 3.7, 1.5), (-0.5, 3), (5.5, 0.5, -1))]
    return [((1, 5), {}), ((0.0, 1.0, 0.25), {}), ((5, 1, -2), {"dtype": make.dtype}), ((0, 3), {"dtype": tapegrad.int64}), *whole]
