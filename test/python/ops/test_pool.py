"""Pooling beyond what the rows' samples hold: windows and sizes that only fit in 64 bits, or do not."""

import pytest
import tapegrad as tg

F = tg.nn.functional


@pytest.mark.parametrize("kernel, dilation", [(40, 1), (40, 3), (10**6, 1), (10**6, 3), (2**31 - 1, 1)])
def test_a_window_far_wider_than_the_input(kernel, dilation):
    """The work is that of the elements there are, not of the window; PyTorch 2.13 walks through the window."""
    x = tg.arange(2 * 18 * 36, dtype=tg.float32).reshape(1, 2, 18, 36)
    stride = min(kernel * dilation, 2**31 - 1)
    values, places = F.max_pool2d(x, kernel, stride=stride, padding=0, dilation=dilation, ceil_mode=True, return_indices=True)
    expected = x[..., ::dilation, ::dilation].amax((2, 3), keepdim=True)
    assert tg.equal(values, expected)
    assert tg.equal(x.flatten(2).gather(2, places.flatten(2)).reshape(values.shape), expected)


def test_sizes_of_max_unpool_that_do_not_fit():
    x, places = tg.ones(1, 2, 3), tg.zeros(1, 2, 3, dtype=tg.int64)
    for kernel in (2**63 - 1, 2**62):
        with pytest.raises(RuntimeError, match=f"max_unpool1d: the output's size does not fit: got kernel_size .{kernel}., stride .{kernel}., padding .0."):
            F.max_unpool1d(x, places, kernel)
    with pytest.raises(RuntimeError, match="max_unpool: index 6 is out of range for planes of 6 elements"):
        F.max_unpool1d(x, places + 6, 2)


def test_gradient_of_a_power_with_the_least_exponent():
    x = tg.ones(3, dtype=tg.float64, requires_grad=True)
    (x ** -(2**63)).sum().backward()
    assert x.grad.tolist() == [-(2.0**63)] * 3


def test_sums_of_integers_wrap():
    most = tg.full((1, 2, 40), 2**31 - 1, dtype=tg.int32)
    assert F.adaptive_avg_pool1d(most, 1).flatten().tolist() == [-1, -1]  # -40 / 40
    # The least integer divided by -1 is a trap of the processor.
    least = tg.full((1, 1, 1), -(2**63), dtype=tg.int64)
    pooled = F.avg_pool2d(least, 1, divisor_override=-1)
    assert pooled.item() == -(2**63)


def test_number_of_layers_that_overflows():
    x, h, weights = tg.zeros(2, 5, 3), tg.zeros(2, 2, 2), [tg.zeros(6, 3), tg.zeros(6, 2)] * 4
    with pytest.raises(RuntimeError, match="gru: expected a state of 4611686018427387904 layers in both directions"):
        tg.gru(x, h, weights, False, 2**62, 0.0, True, True, True)


def test_the_worst_index_is_named():
    """Whichever plane and whichever thread meets it first, and nothing is written beside the planes."""
    x, at = tg.ones(64, 600, 4), tg.zeros(64, 600, 4, dtype=tg.int64)
    at[3, 5, 2], at[40, 7, 1], at[60, 1, 0] = 9, 1 << 40, 8
    before = tg.get_num_threads()
    try:
        for threads in (1, 2, 3):
            tg.set_num_threads(threads)
            with pytest.raises(RuntimeError, match="^max_unpool: index 1099511627776 is out of range for planes of 8 elements"):
                F.max_unpool1d(x, at, 2)
            at[63, 0, 0] = -5
            with pytest.raises(RuntimeError, match="^max_unpool: index -5 is out of range for planes of 8 elements"):
                F.max_unpool1d(x, at, 2)
            at[63, 0, 0] = 0
    finally:
        tg.set_num_threads(before)


@pytest.mark.parametrize("dtype", [tg.bfloat16, tg.float16], ids=str)
def test_adaptive_maxima_of_16_bits_are_those_of_float32(dtype):
    tg.manual_seed(1)
    for pool, sizes, out in ((F.adaptive_max_pool1d, (2, 3, 9), 4), (F.adaptive_max_pool2d, (2, 3, 7, 33), (3, 5)), (F.adaptive_max_pool3d, (2, 2, 5, 6, 7), (2, 4, 3))):
        x = tg.randn(*sizes).to(dtype)
        x.view(-1)[17], x.view(-1)[40] = float("nan"), float("-inf")
        values, at = pool(x, out, return_indices=True)
        expected, where = pool(x.float(), out, return_indices=True)
        assert at.equal(where)
        assert tg.allclose(values.float(), expected, rtol=0, atol=0, equal_nan=True)
