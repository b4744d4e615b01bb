"""Sizes and strides near 2^63, which only tensors without elements can have, and counts that no memory holds."""

import signal
import time

import numpy as np
import pytest
import tapegrad as tg

HUGE = 2**62


def empty_of(*sizes, dtype=tg.float32):
    return tg.empty(sizes, dtype=dtype)


def test_results_without_elements():
    assert tg.reshape(empty_of(0, 2, dtype=tg.float64).requires_grad_(), (0, HUGE)).sum().item() == 0
    assert tg.nn.functional.pad(empty_of(0, 3), (1, HUGE)).shape == (0, HUGE + 4)
    assert tg.eye(0, 2**63 - 1).shape == (0, 2**63 - 1)
    assert empty_of(HUGE, 0).sum(0).shape == (0,)
    assert empty_of(HUGE, 0, 1).sum((0, 1)).tolist() == [0.0]
    assert empty_of(0, HUGE).mul(2).shape == (0, HUGE)
    assert empty_of(HUGE, 0).unflatten(-1, (-1, 3)).shape == (HUGE, 0, 3)
    assert tg.combinations(tg.arange(3), 2**31 - 1).shape == (0, 2**31 - 1)
    x = tg.ones(2, requires_grad=True)
    assert tg.polygamma(2**63 - 1, x).tolist() == [float("inf")] * 2
    tg.polygamma(2**63 - 1, x).sum().backward()  # its derivative is of an order that does not fit
    assert tg.cov(tg.arange(6.0), correction=-2**63).item() == pytest.approx(17.5 / 2**63)
    assert [t.shape for t in empty_of(0, 2).chunk(3)] == [(0, 2)] * 3


@pytest.mark.parametrize("call", [
    lambda: tg.view_as_real(empty_of(HUGE, 0, dtype=tg.complex64)),
    lambda: empty_of(HUGE, 0, 1, dtype=tg.complex128).view(tg.uint8).view(HUGE, 0, 16),
    lambda: tg.nn.functional.affine_grid(tg.ones(1, 3, 4), (1, 2, 2, 2**63 - 1, 2)),
    lambda: tg.rms_norm(tg.ones(2, 3, 4), (3, HUGE), tg.ones(3, 4)),
    lambda: tg.conv_transpose1d(empty_of(0, 2, 4), tg.ones(2, 3, 2), groups=HUGE),
    lambda: tg.conv_transpose3d(tg.ones(2, 1, 2, 2, 2), tg.ones(1, 1, 2, 2, 2), stride=2**63 - 1, output_padding=1),
    lambda: tg.conv2d(tg.ones(1, 2, 4, 4), tg.ones(2, 2, 2, 2), padding=HUGE),
    lambda: tg.conv2d(tg.ones(1, 2, 4, 4), tg.ones(2, 2, 3, 3), dilation=HUGE),
    lambda: tg.conv2d(tg.ones(1, 2, 4, 4), tg.ones(2, 2, 3, 3), dilation=HUGE, padding="same"),
    lambda: empty_of(HUGE, 0).chunk(2**40),
    lambda: empty_of(0, 2).chunk(2**40),
    lambda: empty_of(HUGE, 0).split(2),
    lambda: empty_of(HUGE, 0).unbind(),
    lambda: tg.ones(2).tensor_split(2**50),
    lambda: tg.kron(tg.ones(2, 3), empty_of(HUGE, 0)),
    lambda: tg.nn.functional.one_hot(tg.tensor([2**63 - 1])),
])
def test_what_cannot_be_is_refused(call):
    begin = time.monotonic()
    with pytest.raises((RuntimeError, ValueError)) as raised:
        call()
    assert ":" in str(raised.value)
    assert time.monotonic() - begin < 5


def test_matrices_without_inner_dimension():
    for dtype in (tg.float32, tg.float64, tg.int64, tg.bfloat16, tg.complex64):
        c = tg.arange(35).reshape(5, 7).to(dtype)
        assert tg.equal(tg.addmm(c, empty_of(5, 0, dtype=dtype), empty_of(0, 7, dtype=dtype), beta=2), c * 2)
        assert tg.equal(tg.mm(empty_of(5, 0, dtype=dtype), empty_of(0, 7, dtype=dtype)), tg.zeros(5, 7, dtype=dtype))
        big = tg.bmm(empty_of(3, 300, 0, dtype=dtype), empty_of(3, 0, 200, dtype=dtype))
        assert big.shape == (3, 300, 200) and not big.any()


def ends_when_interrupted(call):
    """Seconds from the alarm to the end of the call; it may also be done before."""
    def alarm(signum, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, alarm)
    begin = time.monotonic()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        call()
        return 0.0
    except KeyboardInterrupt:
        return time.monotonic() - begin - 0.1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("call", [
    lambda: tg.fft.rfft(tg.ones(2**23 + 9)),  # its plan takes longer than the transform
    lambda: tg.fft.irfft(tg.ones(2**22 + 1, dtype=tg.complex128)),
    lambda: tg.ones(2**21).unbind(),
    lambda: tg.mm(tg.ones(2**28, 0), tg.ones(0, 2)),
], ids=["rfft", "irfft", "unbind", "mm"])
def test_long_calls_end(call):
    assert ends_when_interrupted(call) < 1.5  # 0.2 on an idle machine


@pytest.mark.parametrize("shape", [(2**62, 0), (2**40, 0, 4), (2**40, 2**10, 0)], ids=str)
def test_batch_norm_of_nothing(shape):
    assert tg.nn.functional.batch_norm(tg.empty(shape), None, None, training=True).shape == shape


@pytest.mark.parametrize("n", [4097, 10007, 2**16 + 1, 3 * 2**15, 65520])
def test_long_transforms(n):
    x = np.random.default_rng(n).standard_normal(n)
    for dtype, tolerance in ((tg.float32, 1e-6), (tg.float64, 1e-14)):
        got = tg.fft.rfft(tg.tensor(x, dtype=dtype)).numpy()
        expected = np.fft.rfft(x)
        assert np.abs(got - expected).max() < tolerance * np.abs(expected).max() * 4
        back = tg.fft.irfft(tg.tensor(expected, dtype=tg.complex64 if dtype == tg.float32 else tg.complex128), n=n).numpy()
        assert np.abs(back - x).max() < tolerance * 8
