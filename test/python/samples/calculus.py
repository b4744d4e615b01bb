"""Samples of differences, integrals and statistics."""

import tapegrad


def diff(make):
    return [((make((3, 5)),), {}), ((make((3, 5)), 2, 0), {}), ((make((4, 3)).t(), 1, -1), {}), ((make((3,)), 5), {}), ((make((3, 4)), 0), {}),
            ((make((3, 4)) > 0,), {}), ((make((3, 4)), 1, 1, make((3, 2)), make((3, 1))), {}), ((make((0, 4)),), {}), ((make((3, 0)),), {}),
            ((make((6,), dtype=tapegrad.int64, low=-9, high=9),), {"append": make((2,), dtype=tapegrad.int64, low=-9, high=9)})]


def gradient_even(make):
    x = make((4, 5))
    return [((x,), {}), ((x,), {"spacing": 0.5}), ((x,), {"dim": 1, "edge_order": 2}), ((x,), {"dim": (1, 0), "spacing": 2}), ((make((3, 4)).t(),), {"dim": -1})]


def gradient_steps(make):
    x = make((4, 5))
    return [((x,), {"spacing": [0.5, 2.0]}), ((x,), {"spacing": [0.25], "dim": [1]}), ((x,), {"spacing": (2.0, 3.0), "dim": (1, 0), "edge_order": 2})]


def gradient_places(make):
    x = make((4, 5))
    a, b = tapegrad.tensor([0.0, 1.0, 1.5, 3.5]).to(make.dtype), tapegrad.tensor([0.0, 0.5, 2.0, 2.5, 4.0]).to(make.dtype)
    return [((x,), {"spacing": [a, b]}), ((x,), {"spacing": [b], "dim": 1, "edge_order": 2})]


def trapezoid(make):
    return [((make((3, 5)),), {}), ((make((3, 5)),), {"dx": 0.5, "dim": 0}), ((make((3, 5)), make((5,))), {}), ((make((3, 5)), make((3, 5))), {"dim": 0}),
            ((make((3, 5)), make((5,)).expand(3, 5)), {"dim": 1}), ((make((2, 3, 5)), make((3, 5))), {}), ((make((5, 3)).t(),), {}), ((make((1,)),), {})]


def cov(make):
    x = make((3, 5))
    f, a = tapegrad.tensor([1, 2, 1, 3, 1]), make((5,), low=0.1, high=1)
    return [((x,), {}), ((x,), {"correction": 0}), ((x,), {"fweights": f}), ((x,), {"aweights": a}), ((x,), {"fweights": f, "aweights": a, "correction": 2}),
            ((make((6,)),), {}), ((make((5, 3)).t(),), {}), ((make((3, 4), dtype=tapegrad.int64, low=-5, high=5),), {})]


def corrcoef(make):
    return [((make((3, 5)),), {}), ((make((6,)),), {}), ((make((5, 3)).t(),), {}), ((make((3, 4), dtype=tapegrad.complex128),), {})]


def histogram_edges(make):
    x = make((4, 5), low=-2, high=2)
    edges = tapegrad.tensor([-1.5, -0.5, 0.0, 1.25]).to(make.dtype)
    return [((x, edges), {}), ((x, edges), {"density": True}), ((x, edges), {"weight": make((4, 5), low=0, high=1)}), ((edges, edges), {}), ((make((0,)), edges), {})]


def histogram_count(make):
    x = make((4, 5), low=-2, high=2)
    return [((x, 5), {}), ((x, 4), {"range": (-1.0, 1.0)}), ((x, 3), {"weight": make((4, 5), low=0, high=1), "density": True}), ((make((0,)), 3), {}),
            ((tapegrad.ones(3, dtype=make.dtype), 2), {})]


def _histogramdd(make):
    e = tapegrad.tensor([-1.0, 0.0, 0.25, 1.0]).to(make.dtype)
    return [((make((7, 2)), [e, e[1:]]), {}), ((make((7, 2)), [e, e], make((7,), low=0, high=1), True), {})]


def combinations(make):
    return [((make((4,)),), {}), ((make((4,)), 3), {}), ((make((3,)), 2, True), {}), ((make((3,)), 4), {}), ((make((3,)), 0), {}), ((make((3,)), 1), {}), ((make((6,))[::2],), {})]


def dist(make):
    return [((make((3, 4)), make((3, 4))), {}), ((make((3, 4)), make((4,)), 1), {}), ((make((3,)), make((3,)), 3.5), {}), ((make(()), make(())), {}),
            ((make((4, 3)).t(), make((3, 4)), float("inf")), {}), ((make((0,)), make((0,))), {})]


def pdist(make):
    return [((make((4, 3)),), {}), ((make((5, 2)), 1.0), {}), ((make((5, 2)), 3.0), {}), ((make((2, 4)).t(), float("inf")), {}), ((make((1, 3)),), {}), ((make((0, 3)),), {})]


def renorm(make):
    return [((make((3, 4)), 2, 0, 1.0), {}), ((make((3, 4)), 1, 1, 0.7), {}), ((make((2, 3, 4)), 2.5, -1, 1.5), {}), ((make((4, 3)).t(), 2, 0, 10.0), {})]
