"""Anomaly mode names the line of the forward call."""

import inspect
import warnings

import pytest
import tapegrad as tg
from autograd.leaves import Same, leaf


def here():
    return inspect.currentframe().f_back.f_lineno


@pytest.fixture
def anomaly():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with tg.autograd.detect_anomaly():
            yield


def test_nan_names_function_and_line(anomaly):
    x = leaf(-1.0, 4.0)
    y = tg.sqrt(x)
    line = here() - 1
    with pytest.raises(RuntimeError, match="returned nan values in its 0th output") as caught:
        y.sum().backward()
    assert "SqrtBackward0" in str(caught.value) and f"test_anomaly.py:{line}" in str(caught.value)


def test_infinities_are_no_nan(anomaly):
    x = leaf(0.0, 4.0)
    tg.sqrt(x).sum().backward()
    assert x.grad.tolist() == [float("inf"), 0.25]


def test_nan_is_found_among_many(anomaly):
    x = tg.ones(1000, dtype=tg.float64, requires_grad=True)
    weights = tg.ones(1000, dtype=tg.float64)
    weights[567] = float("nan")
    with pytest.raises(RuntimeError, match="MulBackward0"):
        (x * weights).sum().backward()


def test_nan_passes_without_the_mode():
    x = leaf(-1.0)
    tg.sqrt(x).backward()
    assert x.grad.isnan().all()


def test_check_nan_off():
    x = leaf(-1.0)
    with tg.autograd.set_detect_anomaly(True, check_nan=False):
        tg.sqrt(x).backward()
    assert x.grad.isnan().all()


def test_set_detect_anomaly_at_once_and_as_scope():
    tg.autograd.set_detect_anomaly(True)
    try:
        with pytest.raises(RuntimeError, match="nan"):
            tg.sqrt(leaf(-1.0)).backward()
        with tg.autograd.set_detect_anomaly(False):
            tg.sqrt(leaf(-1.0)).backward()
        with pytest.raises(RuntimeError, match="nan"):
            tg.sqrt(leaf(-1.0)).backward()
    finally:
        tg.autograd.set_detect_anomaly(False)
    tg.sqrt(leaf(-1.0)).backward()


def test_detect_anomaly_warns():
    with pytest.warns(UserWarning, match="Anomaly Detection has been enabled"):
        with tg.autograd.detect_anomaly():
            pass


def test_custom_functions(anomaly):
    class Broken(Same):
        @staticmethod
        def backward(ctx, grad):
            return grad * float("nan")

    x = leaf(1.0)
    y = Broken.apply(x)
    line = here() - 1
    with pytest.raises(RuntimeError, match="BrokenBackward") as caught:
        y.backward()
    assert f"test_anomaly.py:{line}" in str(caught.value)


def test_gradients_of_gradients_name_the_forward_line(anomaly):
    x = leaf(0.0)
    y = (x * x * x).sqrt()
    line = here() - 1
    with pytest.raises(RuntimeError, match="nan") as caught:
        tg.autograd.grad(y, x, create_graph=True)
    assert f"test_anomaly.py:{line}" in str(caught.value)
