"""Printing: PyTorch's text, number for number."""

import math
import re

import numpy as np
import pytest
import tapegrad as tg
from pairs import DTYPES, pair

torch = pytest.importorskip("torch")
RNG = np.random.default_rng(0)


def joined(text):
    """Without the line breaks before what follows the numbers: the longer name of the package moves them."""
    return re.sub(r",\n +(dtype|size|device|grad_fn|requires_grad)=", r", \1=", text)


def same_text(ours, theirs):
    for text in (repr, str):
        assert joined(text(ours)) == joined(text(theirs).replace("torch.", "tapegrad."))
        if "torch." not in text(theirs):
            assert text(ours) == text(theirs)


NUMBERS = {
    "one": [1.0],
    "integral": [1.0, 2.0, 300.0],
    "fractions": [0.5, 1.25, -3.75],
    "tiny": [1e-5, 1e-6],
    "huge": [1e9, 2e9],
    "wide range": [1e-3, 1.0, 1e4],
    "ratio of 1000": [1.0, 1000.0],
    "above it": [1.0, 1001.5],
    "below it": [0.001, 1.0],
    "nan": [math.nan],
    "nan among others": [math.nan, 1.0, 2.5],
    "infinities": [math.inf, -math.inf, 1.0],
    "only infinities": [math.inf, -math.inf],
    "zeros": [0.0, 0.0],
    "negative zero": [-0.0, 1.5],
    "negative": [-1.0, -20.0],
    "long fraction": [1 / 3, 2 / 3, 1e-1],
    "exactly 1e8": [1e8, 1.0],
    "small integral": [0.0, 1e-4],
    "float32's largest": [3.4e38],
    "denormal": [1e-42],
    "empty": [],
    "integral large": [123456.0, 7.0],
    "integral and infinite": [1.0, math.inf, math.nan],
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("name", NUMBERS)
def test_floats(name, dtype):
    same_text(*pair(NUMBERS[name], dtype))
    same_text(*pair([NUMBERS[name], NUMBERS[name]], dtype))
    for value in NUMBERS[name][:1]:
        same_text(*pair(value, dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_and_shape(dtype):
    for shape in [(), (1,), (3,), (2, 3), (2, 2, 2), (1, 1, 1, 1), (0,), (0, 3), (2, 0, 4), (50,), (30, 2), (2, 1, 2, 1, 2)]:
        a, b = pair(RNG.integers(0, 120, shape), dtype)
        same_text(a, b)
        if dtype not in ("bool", "uint8", "complex64", "complex128"):
            same_text(-a, -b)


@pytest.mark.parametrize("shape", [(1001,), (1000,), (40, 40), (3, 500), (500, 3), (12, 12, 12), (2000, 1), (1, 2000), (7, 7, 7, 7), (2, 2, 600)])
def test_summaries(shape):
    for data in (RNG.standard_normal(shape), RNG.integers(-1000, 1000, shape), RNG.standard_normal(shape) > 0,
                 RNG.standard_normal(shape) * 1e6, RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape)):
        same_text(*pair(data))


def test_random_values():
    for i in range(200):
        shape = tuple(RNG.integers(0, 5, RNG.integers(0, 4)))
        scale = 10.0 ** RNG.integers(-8, 9)
        data = RNG.standard_normal(shape) * scale
        if i % 3 == 0:
            data = np.round(data)
        if i % 4 == 0:
            data = np.asarray(data, dtype=np.float32)
        if i % 5 == 0:
            data = np.asarray(data * 10.0 ** RNG.integers(-4, 5, shape))
        same_text(*pair(np.asarray(data)))


def test_complex():
    for data in ([1 + 2j], [1.5 - 2.25j, 3 + 0j], [1e-5 + 1e5j, 1 + 1j], [complex(math.nan, math.inf), 1 - 1j],
                 [complex(-0.0, -0.0)], 3 - 4j, [complex(1, -math.inf)], [[1 + 1j, 100 - 20j], [0.5j, -0.25]]):
        for dtype in ("complex64", "complex128"):
            same_text(*pair(data, dtype))


def test_gradients():
    a, b = pair([1.0, 2.0], requires_grad=True)
    same_text(a, b)
    for f in (lambda t: t * 2, lambda t: t.sum(), lambda t: t.exp(), lambda t: t.view(1, 2), lambda t: t + t, lambda t: t.clone(),
              lambda t: t[0], lambda t: t.detach(), lambda t: -t, lambda t: t.relu(), lambda t: t.reshape(2, 1).t(), lambda t: t.mean(),
              lambda t: t / 3, lambda t: t - 1, lambda t: t.sigmoid(), lambda t: t.tanh(), lambda t: t ** 2, lambda t: t.unsqueeze(0) @ t.unsqueeze(1)):
        same_text(f(a), f(b))
    same_text(tg.nn.Parameter(tg.ones(2)), torch.nn.Parameter(torch.ones(2)))
    same_text(tg.nn.Parameter(tg.ones(2), requires_grad=False), torch.nn.Parameter(torch.ones(2), requires_grad=False))
    wide, other = pair(list(np.arange(9.0) + 0.5), requires_grad=True)
    same_text(wide, other)
    same_text(wide * 1000, other * 1000)
    for n in range(1, 14):
        wide, other = pair(list(np.arange(float(n)) + 0.5), requires_grad=True)
        same_text(wide * 2, other * 2)
        same_text(wide.double(), other.double())


def test_views_and_layouts():
    a, b = pair(np.arange(24.0).reshape(2, 3, 4))
    same_text(a.transpose(0, 2), b.transpose(0, 2))
    same_text(a[:, ::2], b[:, ::2])
    same_text(a.expand(2, 2, 3, 4), b.expand(2, 2, 3, 4))
    same_text(a[0, 0, 0], b[0, 0, 0])


def test_meta():
    for shape in [(2, 3), (), (0,)]:
        for dtype in ("float32", "float64", "int64"):
            same_text(tg.empty(shape, device="meta", dtype=getattr(tg, dtype)), torch.empty(shape, device="meta", dtype=getattr(torch, dtype)))


OPTIONS = [{"precision": 2}, {"precision": 8}, {"threshold": 5}, {"edgeitems": 1, "threshold": 2}, {"linewidth": 40}, {"linewidth": 200},
           {"sci_mode": True}, {"sci_mode": False}, {"profile": "short"}, {"profile": "full"}, {"precision": 0}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_options(options):
    from torch import _tensor_str

    datasets = [[1.0, 2.5, 1e-6], [1.0, 2.0], list(range(30)), RNG.standard_normal((4, 30)), [1 + 2.5j, 3e5j], [[True] * 30]]
    saved = torch._tensor_str.PRINT_OPTS
    before = (saved.precision, saved.threshold, saved.edgeitems, saved.linewidth, saved.sci_mode)
    try:
        torch.set_printoptions(**options)
        with tg.printoptions(**options):
            for data in datasets:
                same_text(*pair(np.asarray(data)))
    finally:
        opts = _tensor_str.PRINT_OPTS
        opts.precision, opts.threshold, opts.edgeitems, opts.linewidth, opts.sci_mode = before
    assert tg.get_printoptions()["precision"] == 4


def test_default_dtype_decides_what_is_said():
    try:
        tg.set_default_dtype(tg.float64)
        torch.set_default_dtype(torch.float64)
        for dtype in ("float32", "float64", "complex64", "complex128"):
            same_text(*pair([1.0, 2.0], dtype))
    finally:
        tg.set_default_dtype(tg.float32)
        torch.set_default_dtype(torch.float32)


def test_subclass_and_attributes():
    class Mine(tg.Tensor):
        pass

    class Theirs(torch.Tensor):
        pass

    assert repr(tg.ones(2).as_subclass(Mine)) == repr(torch.ones(2).as_subclass(Theirs)).replace("Theirs", "Mine")


def test_nested_in_containers():
    a, b = pair([[1.0, 2.0], [3.0, 4.0]])
    assert repr({"x": a, "l": [a, a[0]]}) == repr({"x": b, "l": [b, b[0]]})
    assert f"{a!r} {a!s} {a}" == f"{b!r} {b!s} {b}"
    assert "%s" % a == "%s" % b


def test_printing_leaves_no_trace():
    a = tg.ones(2, requires_grad=True) * 2
    with tg.no_grad():
        repr(a)
    repr(a)
    assert a.grad_fn is not None and a._version == 0
    with tg.inference_mode():
        assert repr(tg.ones(1)) == "tensor([1.])"


def test_sizes_dtypes_devices():
    for ours, theirs in [(tg.Size([1, 2]), torch.Size([1, 2])), (tg.Size([]), torch.Size([])), (tg.float32, torch.float32), (tg.bool, torch.bool),
                         (tg.device("cpu"), torch.device("cpu")), (tg.device("cuda:1"), torch.device("cuda:1")), (tg.strided, torch.strided),
                         (tg.channels_last, torch.channels_last), (tg.device("cpu", 0), torch.device("cpu", 0))]:
        same_text(ours, theirs)


def test_html_escapes():
    assert "<" in tg.arange(4.0).reshape(2, 2)._repr_html_()
