"""Samples of operators that put tensors together."""


def cat(make):
    return [(([make((2, 3)), make((4, 3))],), {}), (([make((2, 3)), make((2, 1)), make((2, 0))], 1), {}), (([make((3, 2)).t(), make((2, 3))], -2), {}),
            (([make((2, 3, 4)), make((2, 1, 4))], 1), {}), (([make((0,)), make((3,))],), {}), (([make((3,))],), {})]


def stack(make):
    return [(([make((2, 3)), make((2, 3))],), {}), (([make((2, 3)), make((3, 2)).t()], -1), {}), (([make(()), make(())],), {}), (([make((0, 2))] * 2, 1), {})]


def hstack(make):
    return [(([make((2, 3)), make((2, 1))],), {}), (([make((3,)), make((2,))],), {}), (([make(()), make(())],), {})]


def vstack(make):
    return [(([make((2, 3)), make((2, 3))],), {}), (([make((3,)), make((3,))],), {})]


def meshgrid(make):
    return [((make((2,)), make((3,))), {}), ((make((2,)), make((3,)), make((2,))), {})]


def block_diag(make):
    return [((make((2, 3)), make((1, 2))), {}), ((make((3,)), make(())), {})]


def broadcast_tensors(make):
    return [((make((2, 1)), make((3,))), {}), ((make(()), make((2, 3))), {})]
