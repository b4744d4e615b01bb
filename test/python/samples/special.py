"""Samples of special functions."""

import tapegrad


def logit_unit(make):
    return [((make(s, low=0.02, high=0.98),), {}) for s in ((3, 4), (), (0, 3), (5,))] + [((make((4, 6), low=0.1, high=0.9).t(),), {})]


def zeta(make):
    return [((make((3, 4), low=1.2, high=5), make((3, 4), low=0.3, high=4)), {}), ((make((3, 1), low=1.5, high=9), make((4,), low=1, high=40)), {}),
            ((2.0, make((5,), low=0.1, high=3)), {}), ((make((5,), low=1.5, high=3), 2.5), {}), ((3.0, make((5,), low=-2.8, high=-2.2)), {}), ((make((0,), low=2, high=3), 1.0), {})]


def igamma(make):
    return [((make((3, 4), low=0.2, high=4), make((3, 4), low=0.1, high=6)), {}), ((make((3, 1), low=0.5, high=2), make((4,), low=0.5, high=9)), {}),
            ((make((4,), low=11, high=60), make((4,), low=5, high=70)), {}), ((make((0, 4), low=1, high=2), make((4,), low=1, high=2)), {}), ((make((), low=1, high=2), make((), low=1, high=2)), {})]


def mvlgamma(make):
    return [((make((3, 4), low=2.5, high=6), p), {}) for p in (1, 3, 5)] + [((make((3, 2), low=2.5, high=6).t(), 2), {}), ((make((0,), low=3, high=4), 2), {}), ((make((), low=3, high=4), 4), {})]


def polynomial(make):
    degrees = tapegrad.tensor([0, 1, 2, 5, 6, 7, 9, -1])
    return [((make((3, 8)), degrees.to(make.dtype)), {}), ((make((3, 8), low=-1.6, high=1.6), degrees), {}), ((make((2, 3)), 4), {}), ((0.3, degrees.to(make.dtype)), {}),
            ((make((8, 3)).t(), degrees.to(make.dtype)), {}), ((make((0,)), 3), {}), ((make(()), 8), {})]
