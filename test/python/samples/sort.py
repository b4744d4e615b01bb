"""Samples of sorting and selecting. Their values differ from each other, as PyTorch leaves the order of equal ones open."""

import tapegrad


def _distinct(make, *shape, scale=1):
    n = 1
    for s in shape:
        n *= s
    return tapegrad.tensor((make.random.permutation(n) - n // 2) * scale).to(make.dtype).reshape(shape)


def sort(make):
    if make.dtype == tapegrad.uint8:
        x = tapegrad.tensor(make.random.permutation(200)).to(make.dtype)
        return [((x,), {}), ((x, 0, True), {}), ((x.reshape(10, 20), 0), {})]
    return [((_distinct(make, 3, 7),), {}), ((_distinct(make, 3, 7), 0), {}), ((_distinct(make, 2, 5, 4), 1, True), {}), ((_distinct(make, 7, 3).t(), -1), {}),
            ((_distinct(make, 250),), {"descending": True}), ((_distinct(make, 1),), {}), ((make(()),), {}), ((make((0, 3)), 0), {}), ((make((3, 0)),), {}),
            ((_distinct(make, 4, 5),), {"stable": True, "dim": 0})]


def argsort(make):
    return [((_distinct(make, 3, 7),), {}), ((_distinct(make, 3, 7), 0, True), {}), ((_distinct(make, 300),), {}), ((make(()),), {}), ((_distinct(make, 3, 4),), {"stable": True}),
            ((_distinct(make, 7, 3).t(),), {"descending": True})]


def msort(make):
    return [((_distinct(make, 5, 3),), {}), ((_distinct(make, 9),), {}), ((_distinct(make, 2, 3, 4),), {})]


def topk(make):
    return [((_distinct(make, 3, 7), 2), {}), ((_distinct(make, 3, 7), 3, 0), {}), ((_distinct(make, 4, 6), 6), {}), ((_distinct(make, 300), 5), {}),
            ((_distinct(make, 2, 150), 4, -1, False), {}), ((_distinct(make, 7, 3).t(), 2), {"largest": False}), ((make(()), 1), {}), ((_distinct(make, 3, 4), 0), {})]


def kthvalue(make):
    return [((_distinct(make, 3, 7), 2), {}), ((_distinct(make, 3, 7), 3, 0), {}), ((_distinct(make, 300), 120), {"keepdim": True}), ((_distinct(make, 2, 5, 4), 1, 1), {}),
            ((make(()), 1), {}), ((_distinct(make, 7, 3).t(), 7, -1), {})]


def median(make):
    return [((_distinct(make, 3, 7),), {}), ((_distinct(make, 3, 6), 1), {}), ((_distinct(make, 2, 5, 4), 1, True), {}), ((_distinct(make, 7, 3).t(), 0), {}), ((make(()),), {}),
            ((_distinct(make, 301),), {})]


def mode(make):
    return [((_distinct(make, 3, 7),), {}), ((_distinct(make, 3, 6), 0, True), {}), ((_distinct(make, 2, 5, 4), 1), {}), ((make(()),), {})]


def quantile(make):
    x = _distinct(make, 3, 7, scale=0.5) if make.dtype.is_floating_point else _distinct(make, 3, 7)
    q = tapegrad.tensor([0.17, 0.47, 0.93]).to(make.dtype)
    return [((x, 0.3), {}), ((x, 0.6, 1), {}), ((x, 0.6, 0, True), {}), ((x, q), {}), ((x, q, 1), {}), ((x, q, 0, True), {}), ((x, 0.35, 1), {"interpolation": "lower"}),
            ((x, 0.35, 1), {"interpolation": "higher"}), ((x, 0.35, 1), {"interpolation": "nearest"}), ((x, 0.35, 1), {"interpolation": "midpoint"}),
            ((x, 0.7), {"keepdim": True})]
