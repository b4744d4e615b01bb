"""Sorting, selecting, scanning, counting and drawing on CUDA against the CPU, for the sizes at which the kernels choose other ways.

Runs where the environment asks for a device, as test_operators.py does; test_simulated.py starts it on the simulated one.
"""


import device_asked_for  # noqa: F401
import pytest
import tapegrad as tg

DTYPES = [tg.float32, tg.float64, tg.bfloat16, tg.int64, tg.int8, tg.bool]


def values_of(shape, dtype, special=True):
    """Few different values, so that ties are common; with NaN, infinities and both zeros where the dtype has them."""
    tg.manual_seed(3)
    x = tg.randint(-20 if dtype.is_signed and dtype != tg.bool else 0, 20, shape)
    x = x > 0 if dtype == tg.bool else x.to(dtype)
    if special and dtype.is_floating_point:
        flat = x.reshape(-1)
        for at, value in enumerate((float("nan"), float("inf"), -0.0, float("-inf"), 0.0, float("nan"))):
            flat[at * 7 % flat.numel()] = value
    return x


def same(device, host, where=""):
    device, host = (device, host) if isinstance(device, tuple) else ((device,), (host,))
    for d, h in zip(device, host):
        assert d.device.type == "cuda" and d.dtype == h.dtype and d.shape == h.shape
        assert d.stride() == h.stride(), where
        d = d.cpu()
        if h.dtype.is_floating_point:  # bits: signs of zeros, and NaN where there is NaN
            assert tg.equal(d.isnan(), h.isnan()) and tg.equal(tg.signbit(d.nan_to_num(0)), tg.signbit(h.nan_to_num(0))), where
            d, h = d.nan_to_num(0), h.nan_to_num(0)
        assert tg.equal(d, h), where


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape, dim", [((7,), 0), ((5, 33), 1), ((40, 6), 0), ((3, 2500), 1), ((2, 2049, 2), 1), ((1,), 0), ((3, 1), 1)])
def test_sort_and_select(dtype, shape, dim):
    x = values_of(shape, dtype)
    y = x.to("cuda")
    n = shape[dim]
    for descending in (False, True):
        same(tuple(y.sort(dim, descending, stable=True)), tuple(x.sort(dim, descending, stable=True)), "sort")
        same(y.argsort(dim, descending, stable=True), x.argsort(dim, descending, stable=True), "argsort")
        for k in {1, min(n, 5), n // 2, n}:
            same(tuple(y.topk(k, dim, descending)), tuple(x.topk(k, dim, descending)), f"topk {k}")
    for k in {1, (n + 1) // 2, n}:
        same(tuple(y.kthvalue(k, dim)), tuple(x.kthvalue(k, dim)), f"kthvalue {k}")
    for f in (tg.mode, tg.median, tg.nanmedian):
        same(tuple(f(y, dim)), tuple(f(x, dim)), f.__name__)
    same(tg.median(y), tg.median(x))
    same(tg.nanmedian(y), tg.nanmedian(x))


def test_topk_of_long_rows():
    x = values_of((2, 30000), tg.float32)
    for k in (1, 17, 256, 300):
        same(tuple(x.to("cuda").topk(k)), tuple(x.topk(k)), str(k))


@pytest.mark.parametrize("shape, dim", [((9,), 0), ((30000,), 0), ((3, 9000), 1), ((5, 100), 1), ((50, 7), 0), ((40, 3, 40), 1), ((2, 5000, 3), 1)])
def test_scans(shape, dim):
    for dtype in DTYPES:
        x = values_of(shape, dtype)
        y = x.to("cuda")
        same(tuple(y.cummax(dim)), tuple(x.cummax(dim)), f"cummax {dtype}")
        same(tuple(y.cummin(dim)), tuple(x.cummin(dim)), f"cummin {dtype}")
        x = values_of(shape, dtype, special=False)
        y = x.to("cuda")
        same(y.cumsum(dim), x.cumsum(dim), f"cumsum {dtype}")  # whole numbers: sums are exact
        if not dtype.is_floating_point:
            same(y.cumprod(dim), x.cumprod(dim), f"cumprod {dtype}")
            same(y.cumsum(dim, dtype=tg.int8), x.cumsum(dim, dtype=tg.int8), "wraps around")
    x = tg.randn(shape, dtype=tg.float64) * 30
    for f in (tg.logcumsumexp, tg.cumsum, tg.cumprod):
        tg.testing.assert_close(f(x.to("cuda"), dim).cpu(), f(x, dim), rtol=1e-10, atol=1e-9)  # summed in another order
        first, second = (f(x.to("cuda"), dim).cpu() for _ in range(2))
        assert tg.equal(first, second)
    x.reshape(-1)[:3] = tg.tensor([float("-inf"), float("-inf"), float("nan")], dtype=tg.float64)
    tg.testing.assert_close(tg.logcumsumexp(x.to("cuda"), dim).cpu(), tg.logcumsumexp(x, dim), rtol=1e-12, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [tg.float32, tg.int64, tg.bfloat16, tg.bool, tg.complex64], ids=str)
def test_unique(dtype):
    x = values_of((60, 50), dtype) if not dtype.is_complex else tg.complex(*(values_of((60, 50), tg.float32, False) for _ in range(2)))
    y = x.to("cuda")
    for flags in ({}, {"return_inverse": True, "return_counts": True}):
        for given, there in ((x, y), (x[:, :1] > 0 if not dtype.is_complex else x[:, :2], y[:, :1] > 0 if not dtype.is_complex else y[:, :2])):
            for dim in (None, 0, 1):
                for f in (tg.unique, tg.unique_consecutive):
                    got, expected = f(there, dim=dim, **flags), f(given, dim=dim, **flags)
                    if dtype.is_complex:
                        assert [t.tolist() for t in (got if flags else [got])] == [t.tolist() for t in (expected if flags else [expected])]
                    else:
                        same(got, expected, f"{f.__name__} {dim}")
    assert tg.unique(y[:0]).shape == (0,)


def test_search_and_count():
    sequence = values_of((4, 300), tg.float32).sort(-1).values
    wanted = tg.cat([values_of((4, 77), tg.float32), tg.full((4, 1), float("nan"))], -1)
    for right in (False, True):
        same(tg.searchsorted(sequence.cuda(), wanted.cuda(), right=right), tg.searchsorted(sequence, wanted, right=right))
        same(tg.bucketize(wanted.cuda(), sequence[0].cuda(), right=right, out_int32=True), tg.bucketize(wanted, sequence[0], right=right, out_int32=True))
    shuffled, order = values_of((4, 90), tg.float64), None
    order = shuffled.argsort(-1)
    same(tg.searchsorted(shuffled.cuda(), wanted.cuda(), sorter=order.cuda()), tg.searchsorted(shuffled, wanted, sorter=order))
    same(tg.isin(wanted.cuda(), sequence.cuda()), tg.isin(wanted, sequence))
    same(tg.isin(wanted.cuda(), 3.0, invert=True), tg.isin(wanted, 3.0, invert=True))
    x = tg.randn(10000) * 5
    for bins, low, high in ((7, 0, 0), (100, -3, 4), (2000, -1, 1)):
        same(tg.histc(x.cuda(), bins, low, high), tg.histc(x, bins, low, high))
    with pytest.raises(RuntimeError, match="finite: got nan at element 2"):
        tg.histc(tg.tensor([1.0, 2, float("nan")], device="cuda"), 3)
    numbers = tg.randint(0, 500, (3000,))
    same(tg.bincount(numbers.cuda(), minlength=600), tg.bincount(numbers, minlength=600))
    same(tg.bincount(numbers.cuda(), x[:3000].cuda()), tg.bincount(numbers, x[:3000]))
    with pytest.raises(RuntimeError, match="must not be negative: got -1"):
        tg.bincount(tg.tensor([1, -1], device="cuda"))


def test_draws_are_those_of_the_cpu():
    p = tg.rand(1003)
    weights = tg.rand(5, 700) * (tg.rand(5, 700) > 0.3)
    rates = tg.rand(501) * 40
    cases = [
        lambda d: tg.randperm(1, device=d), lambda d: tg.randperm(5000, device=d), lambda d: tg.randperm(77, device=d, dtype=tg.float64),
        lambda d: tg.bernoulli(p.to(d)), lambda d: tg.empty(1003, device=d).bernoulli_(p.to(d)),
        lambda d: tg.multinomial(weights.to(d), 900, replacement=True), lambda d: tg.multinomial(weights.to(d), 40),
        lambda d: tg.multinomial(weights[0].double().to(d), 3, replacement=True), lambda d: tg.poisson(rates.to(d)),
        lambda d: tg.binomial(tg.full((1003,), 30.0, device=d), p.to(d)),
    ]
    for n, draw in enumerate(cases):
        tg.manual_seed(n)
        host = draw("cpu")
        tg.manual_seed(n)
        assert tg.equal(draw("cuda").cpu(), host), n
    for draw in (lambda d: tg._standard_gamma(rates.to(d)), lambda d: tg._sample_dirichlet(weights.to(d) + 0.1)):
        tg.manual_seed(1)
        host = draw("cpu")
        tg.manual_seed(1)
        tg.testing.assert_close(draw("cuda").cpu(), host, rtol=1e-6, atol=0)


def test_bad_arguments_of_draws_are_raised_at_the_next_value():
    for draw, sentence in [
        (lambda: tg.bernoulli(tg.tensor([0.5, 1.5], device="cuda")), r"probabilities lie in \[0, 1\]: got 1.5"),
        (lambda: tg.poisson(tg.tensor([-2.0], device="cuda")), "rates must be finite and not negative: got -2"),
        (lambda: tg.binomial(tg.tensor([2.5], device="cuda"), tg.tensor([0.5], device="cuda")), "counts must be whole numbers"),
        (lambda: tg.multinomial(tg.tensor([1.0, float("nan")], device="cuda"), 1), "weights must be finite and not negative: got nan"),
        (lambda: tg.multinomial(tg.zeros(3, device="cuda"), 1), "positive sum: got 0"),
        (lambda: tg.multinomial(tg.tensor([1.0, 0, 0], device="cuda"), 2), "fewer categories of positive weight than samples without replacement: got 1"),
    ]:
        drawn = draw()
        with pytest.raises(RuntimeError, match=sentence):
            drawn.tolist()
    assert tg.randperm(3, device="cuda").sum().item() == 3
