"""Samples of pooling. Values are far apart, so that a maximum does not change under finite differences."""

import tapegrad


def _apart(make, shape):
    n = 1
    for s in shape:
        n *= s
    order = tapegrad.tensor(make.random.permutation(n)) if n else tapegrad.zeros(0)
    return (order.to(make.dtype) * 0.1 - 1.0).reshape(shape)


def max_pool1d(make):
    return [((_apart(make, (2, 3, 7)), 2), {}), ((_apart(make, (2, 7)), 3), {"stride": 2, "padding": 1}), ((_apart(make, (1, 2, 8)), 2), {"dilation": 2, "stride": 3, "ceil_mode": True}),
            ((_apart(make, (0, 2, 5)), 2), {}), ((_apart(make, (2, 1, 40)), 3, 1), {})]


def max_pool2d(make):
    return [((_apart(make, (2, 3, 4, 6)), 2), {}), ((_apart(make, (2, 5, 5)), (3, 2)), {"stride": (2, 1), "padding": (1, 0)}),
            ((_apart(make, (1, 2, 5, 7)), 3), {"dilation": (1, 2), "stride": 2, "ceil_mode": True}), ((_apart(make, (0, 2, 4, 4)), 2), {}),
            ((_apart(make, (2, 2, 18, 36)), 2), {}), ((_apart(make, (1, 1, 9, 9)), 3, 1, 1), {})]


def max_pool3d(make):
    return [((_apart(make, (2, 1, 4, 4, 4)), 2), {}), ((_apart(make, (1, 3, 4, 3)), (2, 2, 1)), {"stride": 1}), ((_apart(make, (1, 1, 4, 4, 4)), 3), {"padding": 1, "stride": 2})]


def avg_pool1d(make):
    return [((make((2, 3, 7)), 2), {}), ((make((2, 7)), 3), {"stride": 2, "padding": 1}), ((make((1, 2, 8)), 3), {"padding": 1, "ceil_mode": True, "count_include_pad": False}),
            ((make((0, 2, 5)), 2), {})]


def avg_pool2d(make):
    return [((make((2, 3, 4, 6)), 2), {}), ((make((2, 5, 5)), (3, 2)), {"stride": (2, 1), "padding": (1, 0)}),
            ((make((1, 2, 5, 7)), 3), {"padding": 1, "stride": 2, "ceil_mode": True, "count_include_pad": False}), ((make((1, 1, 4, 4)), 2), {"divisor_override": 3}),
            ((make((1, 2, 40, 40)), 40), {})]


def avg_pool3d(make):
    return [((make((2, 1, 4, 4, 4)), 2), {}), ((make((1, 3, 4, 3)), (2, 2, 1)), {"stride": 1, "divisor_override": 2}), ((make((1, 1, 4, 4, 4)), 3), {"padding": 1, "stride": 2, "count_include_pad": False})]


def adaptive_pool1d(make):
    return [((_apart(make, (2, 3, 7)), 3), {}), ((_apart(make, (2, 8)), 4), {}), ((_apart(make, (1, 2, 5)), 1), {}), ((_apart(make, (1, 2, 3)), 5), {})]


def adaptive_pool2d(make):
    return [((_apart(make, (2, 3, 5, 7)), (2, 3)), {}), ((_apart(make, (2, 6, 6)), 3), {}), ((_apart(make, (1, 2, 4, 5)), 1), {})]


def adaptive_pool3d(make):
    return [((_apart(make, (2, 1, 3, 4, 5)), (2, 2, 3)), {}), ((_apart(make, (1, 3, 4, 4)), 2), {})]


def lp_pool1d(make):
    return [((make((2, 3, 6), low=0.2, high=1), 2.0, 2), {}), ((make((2, 7), low=0.2, high=1), 3.0, 3), {"stride": 2})]


def lp_pool2d(make):
    return [((make((2, 2, 4, 6), low=0.2, high=1), 2.0, 2), {}), ((make((1, 5, 5), low=0.2, high=1), 3.0, (3, 2)), {"stride": 1, "ceil_mode": True})]


def lp_pool3d(make):
    return [((make((1, 2, 4, 4, 4), low=0.2, high=1), 2.0, 2), {})]


def _unpool(make, n, shape, output_size=None):
    pooled, indices = getattr(tapegrad.nn.functional, f"max_pool{n}d_with_indices")(_apart(make, shape), 2)
    return (pooled.detach(), indices, 2), {"output_size": output_size} if output_size else {}


def max_unpool1d(make):
    return [_unpool(make, 1, (2, 2, 6)), _unpool(make, 1, (2, 6)), _unpool(make, 1, (1, 2, 7), [7])]


def max_unpool2d(make):
    return [_unpool(make, 2, (2, 2, 4, 6)), _unpool(make, 2, (1, 4, 4)), _unpool(make, 2, (1, 2, 5, 5), [5, 5])]


def max_unpool3d(make):
    return [_unpool(make, 3, (1, 2, 4, 4, 2))]


def _max_pool(make):
    return [((_apart(make, (2, 2, 4, 4)), (2, 2), (2, 2), (0, 0), (1, 1), False), {})]


def _adaptive_max_pool(make):
    return [((_apart(make, (2, 2, 5, 4)), (2, 3)), {})]


def _avg_pool(make):
    return [((make((2, 2, 4, 4)), (2, 2), (2, 2), (0, 0), False, True, None), {})]


def _avg_pool_grad(make):
    return [((make((2, 2, 2, 2)), (2, 2, 4, 4), (2, 2), (2, 2), (0, 0), False, True, None), {})]


def _adaptive_avg_pool(make):
    return [((make((2, 2, 5, 4)), (2, 3)), {})]


def _adaptive_avg_pool_grad(make):
    return [((make((2, 2, 2, 3)), (2, 2, 5, 4), 2), {})]


def _plane_gather(make):
    return [((make((2, 2, 3, 4)), tapegrad.tensor([[[[0, 5], [7, 11]], [[1, 1], [2, 3]]]] * 2), 2), {})]


def _plane_scatter(make):
    return [((make((2, 2, 2, 2)), tapegrad.tensor([[[[0, 5], [7, 11]], [[1, 1], [2, 3]]]] * 2), (2, 2, 3, 4), 2, True, [], [], [], []), {})]


def fractional_max_pool2d(make):
    return [((_apart(make, (2, 3, 6, 7)), 2), {"output_size": (3, 4), "_random_samples": make((2, 3, 2), low=0, high=1)}),
            ((_apart(make, (2, 8, 8)), (3, 2)), {"output_ratio": [0.5, 0.4], "_random_samples": make((1, 2, 2), low=0, high=1)}),
            ((_apart(make, (1, 1, 5, 4)), 2), {"output_size": 1, "_random_samples": make((1, 1, 2), low=0, high=1)})]


def fractional_max_pool3d(make):
    return [((_apart(make, (1, 2, 5, 6, 4)), 2), {"output_size": (2, 3, 2), "_random_samples": make((1, 2, 3), low=0, high=1)}),
            ((_apart(make, (1, 4, 4, 6)), (1, 2, 3)), {"output_ratio": [0.5, 0.5, 0.5], "_random_samples": make((1, 1, 3), low=0, high=1)})]


def _fractional_max_pool(make):
    return [((_apart(make, (2, 1, 5, 6)), (2, 2), (2, 3), make((2, 1, 2), low=0, high=1)), {})]
