"""Samples of operators that read and write by index."""

import tapegrad


def _ints(make, shape, high, low=0):
    return make(shape, dtype=tapegrad.int64, low=low, high=high)


def _index(make):
    return [((make((4, 5)), [_ints(make, (3,), 4)]), {}), ((make((4, 5)), [_ints(make, (3,), 4), _ints(make, (3,), 5)]), {}),
            ((make((4, 5)), [_ints(make, (2, 1), 4, -4), _ints(make, (3,), 5, -5)]), {}), ((make((5, 4)).t(), [_ints(make, (0,), 4)]), {})]


def _index_tensor(make):
    return _index(make)


def _index_put(make):
    return [((make((4, 5)), [tapegrad.tensor([0, 2, 3])], make((3, 5))), {}), ((make((4, 5)), [tapegrad.tensor([0, 2, 0])], make((5,)), True), {}),
            ((make((4, 5)), [tapegrad.tensor([0, 3]), tapegrad.tensor([1, -1])], make(())), {}), ((make((4, 5)), [make((4, 5)) > 0], make(())), {})]


def index_select(make):
    return [((make((4, 5)), 0, _ints(make, (3,), 4)), {}), ((make((4, 5)), -1, _ints(make, (7,), 5)), {}), ((make((5, 4)).t(), 1, _ints(make, (2,), 5)), {}),
            ((make((4, 5)), 0, _ints(make, (0,), 4)), {}), ((make((2, 3, 4)), 1, _ints(make, (3,), 3)), {})]


def index_add(make):
    return [((make((4, 5)), 0, _ints(make, (3,), 4), make((3, 5))), {}), ((make((4, 5)), 1, _ints(make, (6,), 5), make((4, 6))), {"alpha": 2}),
            ((make((5, 4)).t(), 0, _ints(make, (2,), 4), make((2, 5))), {}), ((make((4,)), 0, _ints(make, (0,), 4), make((0,))), {})]


def index_copy(make):
    return [((make((4, 5)), 0, tapegrad.tensor([2, 0, 3]), make((3, 5))), {}), ((make((4, 5)), 1, tapegrad.tensor([4, 1]), make((4, 2))), {})]


def index_fill(make):
    return [((make((4, 5)), 0, tapegrad.tensor([2, 0]), 1.5), {}), ((make((4, 5)), 1, tapegrad.tensor([4, 1]), make(())), {}), ((make((4, 5)), 1, _ints(make, (0,), 5), 3), {})]


def take(make):
    return [((make((4, 5)), _ints(make, (3, 2), 20)), {}), ((make((5, 4)).t(), _ints(make, (6,), 20, -20)), {}), ((make((4,)), _ints(make, (0,), 4)), {})]


def put(make):
    return [((make((4, 5)), tapegrad.tensor([3, 0, 19]), make((3,))), {}), ((make((4, 5)), tapegrad.tensor([3, 0, 3]), make((3,)), True), {})]


def take_along_dim(make):
    return [((make((4, 5)), _ints(make, (4, 2), 5), 1), {}), ((make((4, 5)), _ints(make, (3, 5), 4), 0), {}), ((make((4, 5)), _ints(make, (6,), 20)), {}),
            ((make((4, 5)), _ints(make, (1, 2), 5), 1), {})]


def gather(make):
    return [((make((4, 5)), 1, _ints(make, (4, 2), 5)), {}), ((make((4, 5)), 0, _ints(make, (2, 3), 4)), {}), ((make((5, 4)).t(), -1, _ints(make, (3, 6), 5)), {}),
            ((make(()), 0, _ints(make, (), 1)), {}), ((make((4, 5)), 0, _ints(make, (0, 5), 4)), {}), ((make((2, 3, 4)), 1, _ints(make, (2, 2, 3), 3)), {})]


_PLACES = [[2, 0, 1, 3, 1], [3, 1, 0, 0, 2]]


def _scatter_src(make):
    index = tapegrad.tensor(_PLACES)
    return [((make((4, 5)), 0, index, make((2, 5))), {}), ((make((4, 5)), 1, index.t()[:4] % 5, make((4, 2))), {}), ((make((5, 4)).t(), 0, index, make((2, 5))), {}),
            ((make((4, 5)), 0, index[:0], make((0, 5))), {})]


def _scatter_value(make):
    return [((make((4, 5)), 0, tapegrad.tensor(_PLACES), 1.5), {}), ((make((4, 5)), 0, tapegrad.tensor(_PLACES)[:0], 1), {})]


def _scatter_src_reduce(make):
    return [((make((4, 5)), 0, tapegrad.tensor(_PLACES), make((2, 5), low=0.5, high=2)), {"reduce": r}) for r in ("add", "multiply")]


def _scatter_value_reduce(make):
    return [((make((4, 5)), 0, tapegrad.tensor(_PLACES), 1.5), {"reduce": r}) for r in ("add", "multiply")]


def scatter_reduce(make):
    index = tapegrad.tensor(_PLACES)
    return [((make((4, 5), low=0.5, high=2), 0, index, make((2, 5), low=0.5, high=2), r), {"include_self": s})
            for r in ("sum", "prod", "mean", "amax", "amin") for s in (True, False)]


def masked_select(make):
    return [((make((3, 4)), make((3, 4)) > 0), {}), ((make((3, 4)), make((4,)) > 0), {}), ((make((4, 3)).t(), make((3, 4)) > 0), {}), ((make((0, 2)), make((2,)) > 0), {}),
            ((make(()), make(()) < 9), {})]


def nonzero(make):
    return [((make((3, 4)) > 0,), {}), ((make((3, 4)),), {}), ((make((4, 3)).t() > 0,), {}), ((make((0, 2)),), {}), ((_ints(make, (2, 3, 4), 2),), {})]


def _embedding(make):
    return [((make((6, 3)), _ints(make, (2, 4), 6)), {}), ((make((6, 3)), _ints(make, (5,), 6), 2, True), {}), ((make((6, 3)), _ints(make, (0,), 6)), {})]


def _embedding_backward(make):
    return [((make((2, 4, 3)), _ints(make, (2, 4), 6), 6), {}), ((make((5, 3)), _ints(make, (5,), 6), 6, 2, True), {})]


def embedding(make):
    return [((_ints(make, (2, 4), 6), make((6, 3))), {}), ((tapegrad.tensor([0, 1, 5, 0]), make((6, 3))), {"padding_idx": 2}), ((_ints(make, (), 6), make((6, 3))), {}),
            ((_ints(make, (0,), 6), make((6, 3))), {})]


def one_hot(make):
    return [((_ints(make, (3, 2), 5),), {}), ((_ints(make, (4,), 3), 6), {}), ((_ints(make, (0,), 3), 3), {})]


def tri(make):
    return [((make((4, 4)),), {}), ((make((3, 5)), 1), {}), ((make((5, 3)), -1), {}), ((make((2, 3, 4)),), {}), ((make((4, 3)).t(), 1), {}), ((make((0, 3)),), {})]


def diag_embed(make):
    return [((make((3,)),), {}), ((make((2, 3)), 1), {}), ((make((2, 3)), -1, 0, 2), {})]


def diag(make):
    return [((make((3,)),), {}), ((make((3,)), 1), {}), ((make((3,)), -2), {}), ((make((0,)),), {})]


def trace(make):
    return [((make((3, 3)),), {}), ((make((2, 4)),), {}), ((make((4, 2)).t(),), {}), ((make((0, 0)),), {})]


def diagonal_scatter(make):
    return [((make((4, 5)), make((4,))), {}), ((make((4, 5)), make((4,)), 1), {}), ((make((2, 4, 5)), make((2, 3)), -1, 1, 2), {})]


def select_scatter(make):
    return [((make((4, 5)), make((5,)), 0, 2), {}), ((make((4, 5)), make((4,)), 1, -1), {})]


def slice_scatter(make):
    return [((make((6, 5)), make((2, 5)), 0, 1, 3), {}), ((make((6, 5)), make((6, 3)), 1, 0, None, 2), {})]


def bincount(make):
    return [((_ints(make, (9,), 4),), {}), ((_ints(make, (9,), 4), make((9,))), {}), ((_ints(make, (9,), 4),), {"minlength": 8}), ((_ints(make, (0,), 4),), {})]


def _sorted(make, shape):
    return make(shape, low=0.1, high=1).cumsum(-1)


def searchsorted(make):
    line = _sorted(make, (6,))
    return [((line, make((3, 2), low=0, high=4)), {}), ((line, 1.2), {}), ((_sorted(make, (2, 5)), make((2, 3), low=0, high=3)), {"right": True}),
            ((line, line.clone()), {"side": "right", "out_int32": True})]


def bucketize(make):
    line = _sorted(make, (6,))
    return [((make((3, 2), low=0, high=4), line), {}), ((1.2, line), {}), ((line.clone(), line), {"right": True})]


def _unique(make):
    x = _ints(make, (4, 5), 4)
    return [((x,), {}), ((x, True, True, True), {}), ((x[:, :1], True, True, True, 0), {}), ((make((0,)),), {})]


def _unique_consecutive(make):
    x = tapegrad.tensor([1, 1, 2, 2, 2, 1, 3])
    return [((x,), {}), ((x, True, True), {}), ((x.reshape(7, 1), True, True, 0), {})]


def isin(make):
    a, b = _ints(make, (3, 4), 6), _ints(make, (3,), 6)
    return [((a, b), {}), ((a, b), {"invert": True}), ((a, 2), {}), ((a, b[:0]), {})]


def histc(make):
    x = make((50,))
    return [((x, 5), {}), ((x, 4, -0.5, 0.5), {}), ((x[:0], 3, 0, 1), {})]


def embedding_bag(make):
    from tapegrad import tensor
    weight = make((6, 3))
    flat, offsets = tensor([1, 2, 4, 5, 4, 3, 2, 0]), tensor([0, 4, 4, 6])
    return [((flat, weight, offsets), {"mode": "sum"}), ((flat, weight, offsets), {}), ((flat, weight, offsets), {"mode": "max"}),
            ((flat, weight, offsets), {"mode": "sum", "per_sample_weights": make((8,))}),
            ((flat, weight, tensor([0, 3, 8])), {"include_last_offset": True}),
            ((flat, weight, offsets), {"mode": "mean", "padding_idx": 4}), ((flat, weight, offsets), {"mode": "max", "padding_idx": -2}),
            ((flat, weight, offsets), {"mode": "sum", "padding_idx": 4, "per_sample_weights": make((8,))}),
            ((tensor([[1, 2], [0, 0], [5, 1]]), weight), {"mode": "mean"}),
            ((tensor([[1, 2], [0, 0], [5, 1]]), weight), {"mode": "sum", "per_sample_weights": make((3, 2))})]


def _embedding_bag(make):
    from tapegrad import tensor
    return [((make((4, 2)), tensor([0, 3, 3, 1]), tensor([0, 1, 4]), None, True, -1, False, False), {})]


def index_reduce(make):
    index = tapegrad.tensor([2, 0, 2, 1])
    return [((make((4, 5), low=0.5, high=2), 0, index, make((4, 5), low=0.5, high=2), r), {}) for r in ("prod", "mean", "amax", "amin")] + [
        ((make((5, 4), low=0.5, high=2).t(), 1, index, make((4, 4), low=0.5, high=2), r), {"include_self": False}) for r in ("prod", "mean", "amax", "amin")]


def nonzero_static(make):
    x = make((3, 4)) > 0
    return [((x,), {"size": 4}), ((x,), {"size": 20, "fill_value": -7}), ((x,), {"size": 0}), ((make((0, 2)) > 0,), {"size": 2})]


def unravel_index(make):
    return [((_ints(make, (5,), 24), (2, 3, 4)), {}), ((_ints(make, (2, 3), 12), (3, 4)), {}), ((_ints(make, (), 6), 6), {}), ((_ints(make, (0,), 1), (2, 2)), {})]
