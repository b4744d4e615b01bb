"""Samples of pointwise operators: one, two and three operands, numbers, broadcasting, empty and strided tensors."""

import math

import tapegrad


def _shapes(make, low, high):
    wide = make((4, 6), low=low, high=high)
    return [make((3, 4), low=low, high=high), make((), low=low, high=high), make((0, 3), low=low, high=high),
            wide.t(), wide[:, ::2], make((1,), low=low, high=high).expand(5), make((2, 3, 37), low=low, high=high)]


def _unary(make, low=-3.0, high=3.0):
    return [((t,), {}) for t in _shapes(make, low, high)]


def unary(make):
    return _unary(make)


def unary_any(make):
    return _unary(make)


def unary_nonzero(make):
    return [((t.abs() + 0.3,), {}) for t in _shapes(make, -2, 2)] + [((-(t.abs() + 0.4),), {}) for t in _shapes(make, -2, 2)[:2]]


def unary_positive(make):
    return _unary(make, 0.2, 3.0)


def unary_small(make):
    return _unary(make, -0.9, 0.9)


def unary_above_one(make):
    return _unary(make, 1.1, 4.0)


def rounding(make):
    return _unary(make) + [((make((3, 4), low=-99, high=99),), {"decimals": d}) for d in (0, 2, -1)]


def logit(make):
    return _unary(make, 0.1, 0.9) + [((make((3,), low=-1, high=2),), {"eps": 0.2})]


def polygamma(make):
    return [((n, make((3, 2), low=0.5, high=3)), {}) for n in (0, 1, 2)]


def _pairs(make, low=-2.0, high=2.0):
    def m(shape):
        return make(shape, low=low, high=high)

    return [(m((3, 4)), m((3, 4))), (m((3, 4)), m((4,))), (m((3, 1)), m((1, 4))), (m(()), m((2, 3))), (m((0, 3)), m((3,))),
            (m((4, 3)).t(), m((3, 4))), (m((3, 8))[:, ::2], m((3, 4)))]


def binary(make):
    return [(pair, {}) for pair in _pairs(make)]


def ldexp(make):
    """Powers of floating and of integral dtypes."""
    powers = tapegrad.tensor([[2, 0, 5, 1]], dtype=tapegrad.int8)  # PyTorch takes the gradient of negative ones for 0
    return binary(make) + [((make((3, 4)), powers), {}), ((make(()), powers[0].long()), {}), ((make((3, 4)).t(), powers[:, :3].int()), {}),
                           ((make((0, 4)), powers), {})]


def binary_nonzero(make):
    return [((a.abs() + 0.3, b.abs() + 0.4), {}) for a, b in _pairs(make)] + [((-(a.abs() + 0.3), b.abs() + 0.4), {}) for a, b in _pairs(make)[:2]]


def binary_positive(make):
    return [(pair, {}) for pair in _pairs(make, 0.2, 3.0)]


def binary_alpha(make):
    return binary(make) + [((make((3, 4)), 2), {}), ((make((3,)), 1.5), {"alpha": 2}), ((make((3,)), make((3,))), {"alpha": -2})]


def divisor(make):
    return [((a * 3, b.abs() + 0.7), {}) for a, b in _pairs(make)] + [((make((3, 4), low=-5, high=5), 1.7), {}), ((make((3,), low=-5, high=5), make((3,), low=-2.5, high=-0.7)), {})]


def division(make):
    cases = [((a * 3, b.abs() + 0.7), {}) for a, b in _pairs(make)] + [((make((3, 4)), 2), {})]
    return cases + [((make((4, 5), low=-5, high=5), make((5,), low=0.6, high=2)), {"rounding_mode": m}) for m in ("floor", "trunc")]


def power(make):
    x = make((3, 4), low=0.3, high=2)
    return ([((x, e), {}) for e in (0, 1, 2, 3, -1, -2, 0.5, -0.5, 1.7)] + [((make((3, 4), low=-2, high=-0.5), e), {}) for e in (2, 3, -1)]
            + [((x, make((4,))), {}), ((2, make((3,))), {}), ((0.7, make((2, 3))), {}), ((make(()), 2), {}), ((make((0, 2)), 2), {})])


def clamp(make):
    x = make((3, 4), low=-2, high=2)
    return [((x,), {"min": -0.5, "max": 0.7}), ((x, -0.5), {}), ((x,), {"max": 0.6}), ((x, make((4,), low=-2, high=-1), make((3, 1), low=0.1, high=1)), {}),
            ((x.t(), -0.3, 0.3), {}), ((make((0, 2)), 0, 1), {}), ((make(()), -0.1, 0.1), {})]


def bound(make):
    x = make((3, 4), low=-2, high=2)
    return [((x, 0.3), {}), ((x, make((4,))), {}), ((make((0,)), 0), {}), ((make(()), 0.1), {})]


def lerp(make):
    return [((make((3, 4)), make((3, 4)), 0.3), {}), ((make((3, 4)), make((4,)), 0.8), {}), ((make((3, 4)), make((3, 4)), make((3, 1), low=0, high=1)), {}),
            ((make((0, 4)), make((4,)), 0.5), {}), ((make(()), make(()), 0.5), {})]


def addc(make):
    return [((make((3, 4)), make((3, 4)), make((3, 4), low=0.5, high=2)), {}), ((make((3, 4)), make((4,)), make((3, 1), low=0.5, high=2)), {"value": 0.7}),
            ((make((0, 4)), make((4,)), make((1,), low=0.5, high=2)), {}), ((make(()), make(()), make((), low=0.5, high=2)), {"value": -2})]


def where(make):
    c = make((3, 4)) > 0
    return [((c, make((3, 4)), make((3, 4))), {}), ((c, make((4,)), make((3, 1))), {}), ((c, make((3, 4)), 0.5), {}), ((c, 2.0, make((4,))), {}),
            ((make((4,)) > 0, make((3, 4)), make(())), {}), ((make((0, 4)) > 0, make((4,)), make((1,))), {})]


def masked_fill(make):
    return [((make((3, 4)), make((3, 4)) > 0, 2.5), {}), ((make((3, 4)), make((4,)) > 0, make(())), {}), ((make((0, 4)), make((4,)) > 0, 1), {}),
            ((make((4, 3)).t(), make((3, 1)) > 0, -1), {}), ((make(()), make(()) > 0, 3), {})]


def comparison(make):
    a = make((3, 4), dtype=tapegrad.int64, low=-2, high=3)
    return binary(make) + [((make((3, 4)), 0), {}), ((make((3, 4)), 0.5), {}), ((a, make((4,), dtype=tapegrad.int64, low=-2, high=3)), {}), ((a, 1), {}), ((a, 0.5), {}),
                           ((a > 0, a < 1), {})]


def logical(make):
    return [(pair, {}) for pair in _pairs(make)] + [((make((3, 4)) > 0, make((4,)) > 0), {}), ((make((3,), dtype=tapegrad.int32, low=-1, high=2), make((3,)) > 0), {})]


def logical_unary(make):
    return [((make((3, 4)),), {}), ((make((3, 4)) > 0,), {}), ((make((5,), dtype=tapegrad.int32, low=-1, high=2),), {})]


def bits(make):
    a, b = make((3, 4), dtype=tapegrad.int64, low=-9, high=9), make((4,), dtype=tapegrad.int64, low=-9, high=9)
    return [((a, b), {}), ((a, 5), {}), ((a.to(tapegrad.uint8), b.to(tapegrad.uint8)), {}), ((a > 0, b > 0), {}), ((a.t(), a.t()), {})]


def bits_unary(make):
    a = make((3, 4), dtype=tapegrad.int64, low=-9, high=9)
    return [((a,), {}), ((a.to(tapegrad.uint8),), {}), ((a > 0,), {}), ((a.t(),), {})]


def shifts(make):
    a = make((3, 4), dtype=tapegrad.int64, low=-9, high=9)
    return [((a, make((4,), dtype=tapegrad.int64, low=0, high=5)), {}), ((a, 2), {}), ((a.to(tapegrad.int32), 3), {})]


def special_values(make):
    x = tapegrad.tensor([0.0, -0.0, 1.5, -2.0, math.inf, -math.inf, math.nan]).to(make.dtype)
    return [((x,), {}), ((make((2, 3)),), {}), ((make((0,)),), {})]


def closeness(make):
    a = make((3, 4))
    return [((a, a.clone()), {}), ((a, a + 1e-6), {}), ((a, a + 0.1), {}), ((a, a + 0.1), {"atol": 0.2}),
            ((tapegrad.full((2,), math.nan, dtype=a.dtype), tapegrad.full((2,), math.nan, dtype=a.dtype)), {"equal_nan": True}), ((make((0,)), make((0,))), {})]


def closeness_plain(make):
    a = make((3, 4))
    return [((a, a.clone()), {}), ((a, a + 1), {}), ((a, make((4, 3))), {}), ((make((0,)), make((0,))), {})]


def threshold(make):
    return [((t, 0.25, -7.0), {}) for t in _shapes(make, -2, 2)]


def hardtanh(make):
    return _unary(make) + [((make((3, 4), low=-3, high=3), -0.4, 1.3), {})]


def leaky_relu(make):
    return _unary(make) + [((make((3, 4)), 0.3), {})]


def elu(make):
    return _unary(make) + [((make((3, 4)), 0.7), {})]


def gelu(make):
    return _unary(make) + [((make((3, 4)),), {"approximate": "tanh"})]


def softplus(make):
    return _unary(make) + [((make((3, 4), low=-3, high=3), 2.0, 3.0), {})]


def shrink(make):
    return _unary(make) + [((make((3, 4)), 0.3), {})]


def glu(make):
    return [((make((3, 4)),), {}), ((make((4, 3)), 0), {}), ((make((2, 6, 3)), 1), {}), ((make((4, 3)).t(),), {}), ((make((0, 4)),), {})]


def prelu(make):
    return [((make((2, 3, 4)), make((3,), low=0.1, high=0.5)), {}), ((make((5,)), make((1,), low=0.1, high=0.5)), {}), ((make((2, 3)), make((3,))), {})]


def rrelu(make):
    return [((make((4, 5)),), {}), ((make((3,)), 0.1, 0.3), {}), ((make((2, 3)), 0.25, 0.25, True), {}), ((make((0, 3)),), {})]


def integer_pairs(make):
    def m(shape, dtype=tapegrad.int64):
        return make(shape, dtype=dtype, low=-40, high=40)

    return [((m((3, 4)), m((4,))), {}), ((m((3, 1), tapegrad.int32), m((4,), tapegrad.int32)), {}), ((m((4, 3)).t(), m(())), {}), ((m((0, 3)), m((3,))), {}),
            ((m((3, 4), tapegrad.uint8), m((3, 4), tapegrad.uint8)), {}), ((m((3,), tapegrad.int16), m((3,))), {})]


def float_power(make):
    x = make((3, 4), low=0.3, high=2)
    return [((x, 2), {}), ((x, make((4,))), {}), ((2, make((3,))), {}), ((make((3,), dtype=tapegrad.int64, low=1, high=5), -1), {}), ((x.double(), make((3, 4)).double()), {}),
            ((x.t(), 0.5), {}), ((make((0, 2)), 2), {})]
