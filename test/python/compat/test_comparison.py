"""testing.assert_close says what PyTorch's says; make_tensor draws what was asked for."""

import numpy as np
import pytest
import tapegrad as tg

torch = pytest.importorskip("torch")
NAN, INF = float("nan"), float("inf")

CASES = {
    "one element": (lambda t: (t.tensor([1.0, 2, 3]), t.tensor([1, 2.5, 3])), {}),
    "two elements of a matrix": (lambda t: (t.tensor([[1.0, 2, 3], [4, 5, 6]]), t.tensor([[1, 2.5, 3], [4.0, 5, 7]])), {}),
    "scalars": (lambda t: (t.tensor(1.0), t.tensor(2.0)), {}),
    "integers": (lambda t: (t.tensor([1, 2]), t.tensor([1, 3])), {}),
    "dtypes": (lambda t: (t.tensor([1, 2]), t.tensor([1, 3.0])), {}),
    "dtypes not checked": (lambda t: (t.tensor([1.0]), t.tensor([1.0], dtype=t.float64)), {"check_dtype": False}),
    "shapes": (lambda t: (t.tensor([1, 2]), t.tensor([1, 2, 3])), {}),
    "strides": (lambda t: (t.tensor([[1.0], [2]]).expand(2, 2), t.tensor([[1.0, 1], [2, 2]])), {"check_stride": True}),
    "devices": (lambda t: (t.empty(1, device="meta"), t.tensor([1.0])), {}),
    "layouts": (lambda t: (t.tensor([1.0]).to_sparse(), t.tensor([1.0])), {}),
    "floats": (lambda t: (1.0, 1.1), {}),
    "ints": (lambda t: (1, 2), {}),
    "an int and a float": (lambda t: (1, 1.0), {}),
    "complex numbers": (lambda t: (1 + 1j, 1 + 2j), {}),
    "bools": (lambda t: (True, False), {}),
    "texts": (lambda t: ("a", "b"), {}),
    "none": (lambda t: (None, 1.0), {}),
    "lists": (lambda t: ([t.tensor([1.0]), t.tensor([2.0])], [t.tensor([1.0]), t.tensor([3.0])]), {}),
    "lengths": (lambda t: ([1], [1, 2]), {}),
    "keys": (lambda t: ({"a": 1}, {"b": 1}), {}),
    "deep": (lambda t: ({"a": {"b": [1, t.tensor([1.0])]}}, {"a": {"b": [1, t.tensor([2.0])]}}), {}),
    "nan": (lambda t: (t.tensor([NAN]), t.tensor([NAN])), {}),
    "equal nan": (lambda t: (t.tensor([NAN, 1]), t.tensor([NAN, 1])), {"equal_nan": True}),
    "infinity": (lambda t: (t.tensor([INF]), t.tensor([1.0])), {}),
    "exact": (lambda t: (t.tensor([1.0]), t.tensor([1.25])), {"rtol": 0, "atol": 0}),
    "one tolerance": (lambda t: (t.tensor([1.0]), t.tensor([1.0])), {"rtol": 0.1}),
    "within tolerance": (lambda t: (t.tensor([1.0]), t.tensor([1.05])), {"rtol": 0.1, "atol": 0}),
    "masks": (lambda t: (t.tensor([True, False]), t.tensor([True, True])), {}),
    "own text": (lambda t: (t.tensor([1.0]), t.tensor([2.0])), {"msg": "own"}),
    "longer text": (lambda t: (t.tensor([1.0]), t.tensor([2.0])), {"msg": lambda text: "more\n" + text}),
    "arrays": (lambda t: (np.array([1.0]), np.array([2.0])), {}),
    "array scalars": (lambda t: (np.float32(1), np.float32(2)), {}),
    "a tensor and a list": (lambda t: (t.tensor([1.0]), [1.0]), {}),
    "bfloat16": (lambda t: (t.tensor([1.0], dtype=t.bfloat16), t.tensor([1.01], dtype=t.bfloat16)), {}),
}


def outcome(library, make, options):
    try:
        library.testing.assert_close(*make(library), **options)
    except Exception as error:
        return type(error).__name__, str(error).replace("tapegrad", "torch")
    return "close", ""


@pytest.mark.parametrize("case", CASES)
def test_assert_close_says_what_torch_says(case):
    make, options = CASES[case]
    assert outcome(tg, make, options) == outcome(torch, make, options)


def test_assert_allclose():
    with pytest.warns(FutureWarning, match="assert_close"):
        tg.testing.assert_allclose(tg.tensor([1.0, NAN]), [1.0, NAN])
    with pytest.warns(FutureWarning), pytest.raises(AssertionError, match="not close"):
        tg.testing.assert_allclose(tg.tensor([1.0]), [1.1])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64", "complex128", "uint8", "int8", "int16", "int32",
                                   "int64", "bool"])
def test_make_tensor(dtype):
    ours = tg.testing.make_tensor(40, 30, dtype=getattr(tg, dtype), device="cpu")
    assert ours.shape == (40, 30) and str(ours.dtype) == f"tapegrad.{dtype}"
    low, high = {"bool": (0, 1), "uint8": (0, 9)}.get(dtype, (-9, 9))
    values = tg.view_as_real(ours) if ours.is_complex() else ours
    assert low <= values.double().min() < low + 1 and high - 1 < values.double().max() <= high


def test_make_tensor_s_options():
    make, f32 = tg.testing.make_tensor, tg.float32
    gaps = make((3, 4), dtype=f32, device="cpu", noncontiguous=True, low=2, high=3, requires_grad=True)
    assert not gaps.is_contiguous() and gaps.min() >= 2 and gaps.max() < 3 and gaps.requires_grad and gaps.shape == (3, 4)
    assert (make(500, dtype=tg.int64, device="cpu", low=-1, high=2, exclude_zero=True) != 0).all()
    assert make(1, 2, 3, 4, dtype=f32, device="cpu", memory_format=tg.channels_last).is_contiguous(memory_format=tg.channels_last)
    for dtype in (tg.bfloat16, tg.float32, tg.complex128):
        with pytest.warns(FutureWarning, match="Passing `low==high`"):
            assert make(3, dtype=dtype, device="cpu", low=1.5, high=1.5).tolist() == [complex(1.5, 1.5) if dtype == tg.complex128 else 1.5] * 3
    for options in ({"low": 2, "high": 1}, {"low": NAN}, {"noncontiguous": True, "memory_format": tg.contiguous_format}):
        with pytest.raises(ValueError, match="make_tensor: "):
            make(2, dtype=f32, device="cpu", **options)
    with pytest.raises(ValueError, match="requires_grad needs"):
        make(2, dtype=tg.int8, device="cpu", requires_grad=True)
    with pytest.raises(ValueError, match="low must be less than high"):
        make(2, dtype=tg.int8, device="cpu", low=1, high=1)
