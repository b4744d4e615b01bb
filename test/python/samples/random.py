"""Samples of random operators; their values are tested in test_random.py."""

import tapegrad


def random_sizes(make):
    return [(((2, 3),), {"dtype": make.dtype}), (((),), {}), (((0, 2),), {})]


def random_like(make):
    return [((make((2, 3)),), {}), ((make((3, 2)).t(),), {}), ((make(()),), {"dtype": tapegrad.float64})]


def randperm(make):
    return [((5,), {}), ((0,), {}), ((300,), {"dtype": tapegrad.int32})]


def multinomial(make):
    return [((make((5,), low=0.1), 3), {}), ((make((2, 5), low=0.1), 7, True), {})]


def poisson(make):
    return [((make((5,), low=0.1),), {}), ((make((2, 3), low=9.0, high=200.0),), {}), ((make((0, 3), low=0.1),), {})]


def binomial(make):
    return [((make((5,), low=0.1).round().abs() * 7, make((), low=0.2, high=0.8)), {}), ((make((2, 1), low=50.0, high=90.0).round(), make((3,), low=0.2, high=0.8)), {})]


def dropout(make):
    return [((make((3, 4)), 0.3), {}), ((make((3, 4)), 0.3, False), {}), ((make(()),), {}), ((make((4, 0)),), {})]


def dropout1d(make):
    return [((make((2, 3, 4)), 0.3), {}), ((make((3, 4)),), {})]


def dropout2d(make):
    return [((make((2, 3, 4, 2)), 0.3), {}), ((make((2, 3, 1, 2)), 0.3, False), {})]


def dropout3d(make):
    return [((make((2, 3, 4, 2, 2)), 0.3), {}), ((make((3, 1, 2, 2)),), {})]


def fill_random(make):
    return [((make((2, 3)),), {}), ((make((4, 3)).t(),), {}), ((make(()),), {})]


def fill_geometric(make):
    return [((make((2, 3)), 0.4), {}), ((make((0,)), 0.4), {})]


def randint(make):
    return [((5, (2, 3)), {}), ((-4, 9, (3,)), {"dtype": make.dtype}), ((2, 3, ()), {}), ((1, (0, 2)), {})]


def randint_like(make):
    return [((make((2, 3)), 5), {}), ((make((3, 2)).t(), -3, 4), {"dtype": tapegrad.int64}), ((make(()), 2), {})]


def normal(make):
    return [((make((2, 3)), make((2, 3), low=0.1)), {}), ((make((3,)), 2.0), {}), ((1.0, make((3,), low=0.1)), {}),
            ((0.5, 1.5, (2, 3)), {"dtype": make.dtype}), ((make((0, 2)),), {})]


def bernoulli(make):
    return [((make((2, 3), low=0.0),), {}), ((make((3, 2)).t(), 0.3), {}), ((make((), low=0.0),), {})]


def fill_bernoulli(make):
    return [((make((2, 3)),), {}), ((make((4, 3)).t(), 0.3), {}), ((make((2, 3)), make((3,), low=0.0)), {})]


def fill_integers(make):
    return [((make((2, 3)),), {}), ((make((4, 3)).t(), 5), {}), ((make((4,)), -3, 9), {}), ((make((0,)), 2), {})]
