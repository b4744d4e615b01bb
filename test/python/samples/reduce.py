"""Samples of reductions."""


def _inputs(make, low=-2.0, high=2.0):
    return [make((3, 4), low=low, high=high), make((2, 3, 5), low=low, high=high), make((5, 3), low=low, high=high).t(), make((), low=low, high=high),
            make((2, 70), low=low, high=high)]


def reduce(make):
    cases = [((x,), {}) for x in _inputs(make)]
    x = make((2, 3, 5))
    return cases + [((x, 1), {}), ((x, (0, 2)), {}), ((x, -1, True), {}), ((x, (0, 1, 2), True), {}), ((make((2, 0, 3)), 2), {}), ((make((4, 6)).t()[::2], 0), {}),
                    ((make((40, 33)), 0), {})]


def hash_tensor(make):
    x = make((2, 3, 5))
    return [((y,), {}) for y in _inputs(make)] + [((x, 1), {}), ((x, (0, 2)), {}), ((x, -1), {"keepdim": True}), ((make((4, 6)).t()[::2], 0), {}), ((make((2, 0, 3)), 2), {}),
                                                  ((x > 0, 1), {}), (((make((70, 33)) * 100).int(),), {"mode": 0})]


def reduce_one(make):
    x = make((2, 3, 5), low=0.4, high=1.6)
    return [((y,), {}) for y in _inputs(make, 0.4, 1.6)] + [((x, 1), {}), ((x, -1, True), {}), ((x, 0), {}), ((make((4, 6), low=0.4, high=1.6).t(), 0), {})]


def aminmax(make):
    x = make((2, 3, 5))
    return [((x,), {}), ((x,), {"dim": 1}), ((x,), {"dim": -1, "keepdim": True}), ((make((4, 3)).t(),), {"dim": 0})]


def reduce_nokeep(make):
    x = make((2, 3, 5)) > 0
    return [((x,), {}), ((x, 1), {}), ((x, (0, 2)), {}), ((make((3, 4)),), {}), ((make((0, 3)), 0), {})]


def extremes(make):
    x = make((2, 3, 5))
    return [((x,), {}), ((x, 1), {}), ((x, -1, True), {}), ((make((4, 3)).t(), 0), {}), ((x, make((2, 3, 5))), {}), ((make(()),), {}), ((make((2, 70)), 1), {})]


def reduce_dims(make):
    x = make((2, 3, 5))
    return [((x, 1), {}), ((x, (0, 2)), {}), ((x, -1, True), {}), ((make((4, 3)).t(), 0), {})]


def variance(make):
    x = make((4, 3, 5))
    return [((x,), {}), ((x, 1), {}), ((x, (0, 2)), {}), ((x, -1), {"keepdim": True}), ((x, 0), {"correction": 0}), ((x, 1, False), {}), ((make((4, 3)).t(), 0), {}),
            ((make((2, 70)), 1), {})]


def vector_norm(make):
    x = make((2, 3, 5))
    return [((x,), {}), ((x, 1), {}), ((x, float("inf"), 1), {}), ((x, 3, (0, 2)), {}), ((x, 2, -1, True), {}), ((x, -float("inf"), 0), {}), ((x, 0.5), {}),
            ((make((4, 3)).t(), 2, 0), {})]


def norm(make):
    x = make((2, 3, 5))
    return [((x,), {}), ((x, 1), {}), ((x, "fro", 1), {}), ((x, 2, (0, 2)), {}), ((x, float("inf"), -1, True), {})]
