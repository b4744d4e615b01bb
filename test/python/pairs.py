"""The same data as a tapegrad and as a torch tensor, and their comparison."""

import functools
import inspect

import numpy as np
import pytest
import tapegrad as tg

try:
    import torch
except ImportError:  # only the comparison needs it
    torch = None

DTYPES = ["float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "bool", "complex64", "complex128"]


def pair(data, dtype: str | None = None, **options):
    """tapegrad's and torch's tensor of the same data: an array or nested lists."""
    if isinstance(data, np.ndarray):
        ours, theirs = tg.tensor(data.copy()), torch.tensor(data.copy())
        if dtype is not None:
            ours, theirs = ours.to(getattr(tg, dtype)), theirs.to(getattr(torch, dtype))
        if options.get("requires_grad"):
            ours, theirs = ours.requires_grad_(True), theirs.requires_grad_(True)
        return ours, theirs
    ours, theirs = dict(options), dict(options)
    if dtype is not None:
        ours["dtype"], theirs["dtype"] = getattr(tg, dtype), getattr(torch, dtype)
    return tg.tensor(data, **ours), torch.tensor(data, **theirs)


def same_as_torch(function):
    """The test that a function of a library, and of what else the test is given, returns the same for tapegrad and for torch."""

    @functools.wraps(function)
    def test(**given):
        pytest.importorskip("torch")
        ours, theirs = function(tg, **given), function(torch, **given)
        assert ours == theirs, f"{ours!r}, expected {theirs!r}"

    signature = inspect.signature(function)
    test.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])
    return test


def name_of(dtype) -> str:
    return str(dtype).rpartition(".")[2]


def class_or_error(function):
    """The name of the class of what it returns, or the error's class and text."""
    try:
        return type(function()).__name__
    except Exception as error:
        return type(error).__name__, str(error)


def as_numpy(tensor) -> np.ndarray:
    """The values of either library's tensor; bfloat16 as float32."""
    tensor = tensor.detach()
    if name_of(tensor.dtype) == "bfloat16":
        tensor = tensor.float()
    return tensor.resolve_conj().numpy()


def assert_same(ours, theirs, rtol: float = 0.0, atol: float = 0.0, strides: bool = False):
    """Equal in type, dtype, shape and values, also inside lists, tuples and dictionaries."""
    if isinstance(theirs, torch.Tensor):
        assert isinstance(ours, tg.Tensor), f"expected a tensor, got {type(ours)}"
        assert name_of(ours.dtype) == name_of(theirs.dtype)
        assert tuple(ours.shape) == tuple(theirs.shape)
        assert ours.requires_grad == theirs.requires_grad
        if strides:
            assert ours.stride() == theirs.stride()
            assert ours.storage_offset() == theirs.storage_offset()
        np.testing.assert_allclose(as_numpy(ours), as_numpy(theirs), rtol=rtol, atol=atol, equal_nan=True)
    elif isinstance(theirs, (list, tuple)):
        assert isinstance(ours, (list, tuple)) and len(ours) == len(theirs)
        for a, b in zip(ours, theirs):
            assert_same(a, b, rtol, atol, strides)
    elif isinstance(theirs, float):
        assert type(ours) is float
        assert ours == theirs or (ours != ours and theirs != theirs) or abs(ours - theirs) <= atol + rtol * abs(theirs)
    else:
        assert type(ours) is type(theirs) and ours == theirs


def outcome(function):
    """The result of a call, or the exception it raised."""
    try:
        return function()
    except Exception as error:  # noqa: BLE001 - the kind is what is compared
        return error


def assert_same_outcome(ours, theirs, rtol: float = 0.0, atol: float = 0.0, kinds: bool = False, more: bool = False):
    """Runs both: either both give the same result or both raise; `kinds`: an exception of the same class; `more`: ours
    may give a result where torch has none."""
    a, b = outcome(ours), outcome(theirs)
    if isinstance(b, Exception):
        if more and not isinstance(a, Exception):
            return
        assert isinstance(a, Exception), f"expected {b!r}, got {a!r}"
        if kinds:
            assert isinstance(a, type(b)) or isinstance(b, type(a)), f"expected {b!r}, got {a!r}"
    else:
        if isinstance(a, Exception):
            raise AssertionError(f"expected {b!r}") from a
        assert_same(a, b, rtol, atol)
