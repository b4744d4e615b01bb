"""Samples of padding."""


def constant_pad_nd(make):
    return [((make((3, 4)), (1, 2)), {}), ((make((3, 4)), (1, -2, 0, 3), 1.5), {}), ((make((2, 3, 4)), (0, 0, 1, 1)), {}), ((make((0, 3)), (1, 1)), {}), ((make((4, 3)).t(), (-1, -1)), {})]


def pad(make):
    return [((make((3, 4)), (1, 2)), {}), ((make((3, 4)), (1, 2, -1, 0)), {"value": 2.5}), ((make((2, 3, 5)), (2, 1)), {"mode": "reflect"}), ((make((1, 2, 4, 5)), (1, 2, 2, 1), "replicate"), {}),
            ((make((1, 2, 4, 5)), (1, 2, 2, 1), "circular"), {}), ((make((1, 1, 3, 3, 3)), (1, 1, 2, 0, 1, 2), "reflect"), {}), ((make((2, 5)), (2, 2), "reflect"), {}),
            ((make((1, 2, 4, 5)), (1, 0, 3, 1), "reflect"), {})]


def _pad_mode(make):
    return [((make((1, 2, 4)), (1, 2), "reflect"), {})]


def _pad_mode_grad(make):
    return [((make((1, 2, 7)), (1, 2, 4), (1, 2), "reflect"), {})]
