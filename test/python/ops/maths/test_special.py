"""Special functions at their edges, against values computed to 30 digits, and functions of PyTorch's root module."""

import math

import pytest
import tapegrad as tg

inf, nan = math.inf, math.nan


def value(function, *args):
    return function(*(tg.tensor(float(a), dtype=tg.float64) for a in args)).item()


# name, arguments, value; from mpmath at 30 digits.
KNOWN = [
    ("airy_ai", (-7.5,), 0.32177571638064788),
    ("airy_ai", (-60.0,), 0.077787824477115584),
    ("airy_ai", (30.0,), 3.2082175915504956e-49),
    ("bessel_j0", (24.9,), 0.08324596835301549),
    ("bessel_j0", (25.1,), 0.10827567149994945),
    ("bessel_j1", (200.0,), -0.054304538182378223),
    ("bessel_y0", (0.5,), -0.44451873350670656),
    ("bessel_y1", (0.001,), -636.62216723113941),
    ("bessel_y1", (40.0,), -0.0057935058215496329),
    ("modified_bessel_k0", (0.01,), 4.7212447301610949),
    ("modified_bessel_k1", (30.0,), 2.1677320018915494e-14),
    ("scaled_modified_bessel_k0", (500.0,), 0.056035915417234515),
    ("i0e", (700.0,), 0.015081295651531358),
    ("i1", (-0.5,), -0.25789430539089632),
    ("erfcx", (30.0,), 0.018795888861416751),
    ("log_ndtr", (-40.0,), -804.60844201375379),
    ("igammac", (50.0, 50.0), 0.48119168452795672),
    ("igammac", (2.5, 0.25), 0.99212329323262959),
    ("zeta", (3.0, 2.5), 0.1181020258208637),
    ("zeta", (3.0, -2.5), 0.054102025820863702),
]


@pytest.mark.parametrize("name, args, expected", KNOWN, ids=lambda k: str(k))
def test_known_values(name, args, expected):
    function = getattr(tg.special, name, None) or getattr(tg, name)
    assert value(function, *args) == pytest.approx(expected, rel=2e-13, abs=1e-16)


@pytest.mark.parametrize("name", sorted(tg.special.__all__))
def test_nothing_hangs_or_crashes_at_the_edges(name):
    """Every special function of one or two arguments answers at infinities, NaN and the largest numbers."""
    edges = tg.tensor([0.0, -0.0, inf, -inf, nan, 1e308, -1e308, 1e-308, 2.0**53, -3.5, 1e9], dtype=tg.float64)
    function = getattr(tg.special, name)
    if name in ("softmax", "log_softmax", "logsumexp", "multigammaln", "polygamma", "round", "logit"):
        return
    try:
        result = function(edges)
    except TypeError:
        result = function(edges[:, None], edges)
    assert result.dtype == tg.float64


def test_poles_and_limits():
    assert value(tg.special.bessel_y0, 0) == -inf and math.isnan(value(tg.special.bessel_y1, -1))
    assert value(tg.special.modified_bessel_k0, 0) == inf and value(tg.special.scaled_modified_bessel_k1, inf) == 0
    assert value(tg.special.zeta, 1, 2) == inf and value(tg.special.zeta, 2, -3) == inf and math.isnan(value(tg.special.zeta, 2.5, -3.5))
    assert value(tg.igamma, 0, 1) == 1 and value(tg.igammac, 2, inf) == 0 and math.isnan(value(tg.igamma, -1, 1))
    assert value(tg.special.ndtri, 0) == -inf and value(tg.special.ndtri, 1) == inf and math.isnan(value(tg.special.ndtri, 1.5))
    assert value(tg.special.chebyshev_polynomial_t, 0.3, 10**12) == pytest.approx(math.cos(10**12 * math.acos(0.3)), abs=1e-3)
    assert math.isnan(value(tg.special.hermite_polynomial_h, 1.0, 1000)) and value(tg.special.laguerre_polynomial_l, 1.0, -4) == 0
    assert value(tg.special.i1, -inf) == -inf and value(tg.special.spherical_bessel_j0, inf) == 0


def test_derivatives_that_do_not_exist_say_so():
    x = tg.ones(2, requires_grad=True)
    with pytest.raises(NotImplementedError, match="airy_ai: the derivative with respect to input is not implemented"):
        tg.special.airy_ai(x).sum().backward()
    with pytest.raises(NotImplementedError, match="igamma: the derivative with respect to input"):
        tg.igamma(x, tg.ones(2)).sum().backward()


@pytest.mark.parametrize("dtype", [tg.float16, tg.bfloat16, tg.float32, tg.float64])
def test_nextafter_is_the_neighbour(dtype):
    x = tg.tensor([1.0, -1.0, 0.0, 0.0, 2.0, inf], dtype=dtype)
    y = tg.tensor([2.0, -2.0, -1.0, 1.0, 2.0, 0.0], dtype=dtype)
    up = tg.nextafter(x, y)
    info = tg.finfo(dtype)
    smallest = {tg.float16: 2.0**-24, tg.bfloat16: 2.0**-133, tg.float32: 2.0**-149, tg.float64: 5e-324}[dtype]
    assert up.tolist() == [1 + info.eps, -1 - info.eps, -smallest, smallest, 2.0, info.max]


def test_integers_at_their_ends():
    low = tg.tensor([-(2**63)])
    assert tg.gcd(low, tg.tensor([6])).item() == 2 and tg.gcd(low, tg.tensor([0])).item() == -(2**63)
    assert tg.lcm(tg.tensor([0, 4]), tg.tensor([0, 6])).tolist() == [0, 12]


def test_reflections_of_two_names():
    for name, other in [("expit", "sigmoid"), ("gammaln", "lgamma"), ("psi", "digamma"), ("gammainc", "igamma"), ("gammaincc", "igammac"),
                        ("modified_bessel_i0", "i0"), ("multigammaln", "mvlgamma")]:
        assert name in tg.special.__all__, (name, other)
    with pytest.raises(AttributeError, match="did you mean 'digamma'"):
        _ = tg.special.digama
