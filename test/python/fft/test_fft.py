"""Fourier transforms beyond what test_rows.py asks of every row: long lines, bits, windows, errors."""

import numpy as np
import pytest
import rows
import tapegrad
from rows import as_numpy, to_torch

torch = pytest.importorskip("torch")


def make(*shape, dtype=tapegrad.complex128, seed=0):
    return rows.Make(tapegrad.float64, seed)(shape, dtype=dtype)


# Powers, products of odd primes, primes and their doubles: passes, split and convolved lines.
LENGTHS = [1922, 1 << 14, 15015, 3**9, 10007, 2 * 10007, 65536, 5**7, 31 * 31 * 31, 1 << 18]


@pytest.mark.parametrize("n", LENGTHS)
def test_long_lines(n):
    x = make(n)
    scale = np.sqrt(n)
    np.testing.assert_allclose(as_numpy(tapegrad.fft.fft(x)) / scale, np.fft.fft(x.numpy()) / scale, atol=1e-12)
    np.testing.assert_allclose(as_numpy(tapegrad.fft.ifft(x)) * scale, np.fft.ifft(x.numpy()) * scale, atol=1e-12)
    np.testing.assert_allclose(as_numpy(tapegrad.fft.rfft(x.real)) / scale, np.fft.rfft(x.real.numpy()) / scale, atol=1e-12)
    np.testing.assert_allclose(as_numpy(tapegrad.fft.irfft(x, n)) * scale, np.fft.irfft(x.numpy()[: n // 2 + 1], n) * scale, atol=1e-12)


@pytest.mark.parametrize("n", range(1, 70))
def test_every_short_length(n):
    for lines in (1, 3, 20):
        x = make(lines, n)
        np.testing.assert_allclose(tapegrad.fft.fft(x).numpy(), np.fft.fft(x.numpy()), atol=1e-12)
        np.testing.assert_allclose(tapegrad.fft.ifft(x.t(), dim=0).numpy(), np.fft.ifft(x.numpy()).T, atol=1e-12)
        np.testing.assert_allclose(tapegrad.fft.rfft(x.real).numpy(), np.fft.rfft(x.real.numpy()), atol=1e-12)
        h = x[:, : n // 2 + 1]
        np.testing.assert_allclose(tapegrad.fft.irfft(h, n).numpy(), np.fft.irfft(h.numpy(), n), atol=1e-12)


@pytest.mark.parametrize("n", [1000, 1024, 1009])
def test_error_of_float32_is_that_of_rounding(n):
    x = make(4, n, dtype=tapegrad.complex64)
    exact = np.fft.fft(x.numpy().astype(np.complex128))
    error = np.abs(tapegrad.fft.fft(x).numpy() - exact).max() / np.abs(exact).max()
    assert error < (2e-6 if n == 1009 else 5e-7)


def test_same_bits_for_any_number_of_threads():
    inputs = [make(300, 100, dtype=tapegrad.complex64), make(1 << 16, dtype=tapegrad.complex64), make(3, 10007), make(64, 64, 64)]
    results = []
    for threads in (1, 2, 3, 5):
        tapegrad.set_num_threads(threads)
        found = [tapegrad.fft.fft(x) for x in inputs] + [tapegrad.fft.fftn(x) for x in inputs] + [tapegrad.fft.rfft(x.real) for x in inputs]
        results.append([t.numpy().tobytes() for t in found])
    assert all(r == results[0] for r in results)


def test_round_trip_of_the_short_time_transform():
    x = make(2, 1000).real.contiguous()
    window = tapegrad.hann_window(64, dtype=tapegrad.float64)
    for options in ({}, {"normalized": True}, {"onesided": False}):
        spectrum = tapegrad.stft(x, 64, window=window, return_complex=True, **options)
        back = tapegrad.istft(spectrum, 64, window=window, length=1000, **options)
        np.testing.assert_allclose(back.numpy(), x.numpy(), atol=1e-12)


@pytest.mark.parametrize("sym", [True, False])
@pytest.mark.parametrize("name", tapegrad.signal.windows.__all__)
def test_windows(name, sym):
    options = {"general_cosine": [{"a": [0.46, 0.23, 0.31]}], "gaussian": [{"std": 2.0}], "exponential": [{}, {"tau": 3.0}], "kaiser": [{}, {"beta": 5.0}],
               "general_hamming": [{}, {"alpha": 0.6}]}.get(name, [{}])
    for M in (0, 1, 2, 7, 8):
        for o in options:
            got = getattr(tapegrad.signal.windows, name)(M, sym=sym, dtype=tapegrad.float64, **o)
            expected = getattr(torch.signal.windows, name)(M, sym=sym, dtype=torch.float64, **o)
            np.testing.assert_allclose(got.numpy(), expected.numpy(), atol=1e-7)
    with pytest.raises(ValueError, match=f"{name}: the length must not be negative: got -1"):
        getattr(tapegrad.signal.windows, name)(-1, **options[0])


def test_errors():
    x = tapegrad.ones(4)
    cases = [
        (lambda: tapegrad.fft.fft(x, 0), RuntimeError, "fft.fft: the length must be at least 1: got 0"),
        (lambda: tapegrad.fft.fft(x, norm="other"), RuntimeError, "fft.fft: norm must be 'backward', 'forward' or 'ortho': got 'other'"),
        (lambda: tapegrad.fft.rfft(x.to(tapegrad.complex64)), RuntimeError, "fft.rfft: expected a real tensor: got complex64"),
        (lambda: tapegrad.fft.fft(x.half()), RuntimeError, "fft.fft: not implemented for float16\nhint: convert it with .float()"),
        (lambda: tapegrad.fft.irfft(tapegrad.ones(1)), RuntimeError, "fft.irfft: the length must be at least 1: got 0"),
        (lambda: tapegrad.fft.fftn(tapegrad.ones(2, 2), dim=(0, 0)), RuntimeError, "fft.fftn: dimensions must be different: got [0, 0]"),
        (lambda: tapegrad.fft.fftn(x, s=(2, 2)), RuntimeError, "fft.fftn: s of 2 lengths for a tensor of 1 dimensions"),
        (lambda: tapegrad.stft(x, 2), RuntimeError, "stft: return_complex must be given for real input"),
        (lambda: tapegrad.istft(x, 2), RuntimeError, "istft: expected a complex tensor: got float32"),
        (lambda: tapegrad.hann_window(-1), RuntimeError, "window: the length must not be negative: got -1"),
        (lambda: tapegrad.fft.fft(tapegrad.ones(())), IndexError, "fft.fft: dimension -1 of a tensor without dimensions"),
    ]
    for call, kind, message in cases:
        with pytest.raises(kind) as error:
            call()
        assert str(error.value).startswith(message)


def test_integers_and_views():
    for f in (tapegrad.fft.fft, tapegrad.fft.rfft, tapegrad.fft.irfft, tapegrad.fft.fft2):
        assert f(tapegrad.ones(0, 4, 4)).shape[:2] == (0, 4)
    assert tapegrad.fft.fft(tapegrad.tensor([1, 2, 3])).dtype == tapegrad.complex64
    x = make(6, 8, 10)
    for view in (x[::2, :, 1:9:2], x.permute(2, 0, 1), x[:, 3:4].expand(6, 5, 10)):
        expected = torch.fft.fftn(to_torch(view.contiguous()), dim=(0, 2))
        np.testing.assert_allclose(tapegrad.fft.fftn(view, dim=(0, 2)).numpy(), expected.numpy(), atol=1e-12)
