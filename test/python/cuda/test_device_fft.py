"""Fourier transforms on CUDA against the CPU: lengths with small and large prime factors, short and long lines, any dimension.

Runs where the environment asks for a device, as test_operators.py does; test_simulated.py starts it on the simulated one.
"""

import os

import device_asked_for  # noqa: F401
import pytest
import tapegrad as tg

fft = tg.fft


def numbers(shape, dtype=tg.complex128):
    tg.manual_seed(3)
    x = tg.randn(shape, dtype=tg.float64)
    return (tg.complex(x, tg.randn(shape, dtype=tg.float64)) if dtype.is_complex else x).to(dtype)


def close(device, host, where=""):
    assert device.device.type == "cuda" and device.dtype == host.dtype and device.stride() == host.stride(), where
    n = 1 if host.numel() == 0 else host.abs().max().item()
    tolerance = (2e-6 if host.dtype in (tg.float32, tg.complex64) else 1e-14) * max(n, 1)
    tg.testing.assert_close(device.cpu(), host, rtol=0, atol=tolerance, msg=lambda text: f"{where}: {text}")


# One element, every radix, a prime above the largest, and products; then what does not fit shared memory: many passes, a
# large prime factor, and a power of it.
LENGTHS = [*range(1, 35), 37, 44, 62, 64, 74, 97, 120, 169, 243, 256, 1000, 1369, 2187, 3125, 4096, 4099, 6006, 10007]


@pytest.mark.parametrize("dtype", [tg.complex128, tg.complex64], ids=str)
@pytest.mark.parametrize("n", LENGTHS)
def test_lengths(n, dtype):
    x = numbers((3, n), dtype)
    y = x.cuda()
    close(fft.fft(y), fft.fft(x), "fft")
    close(fft.ifft(y), fft.ifft(x), "ifft")
    real = x.real.contiguous()
    close(fft.rfft(real.cuda()), fft.rfft(real), "rfft")
    close(fft.fft(real.cuda()), fft.fft(real), "fft of real numbers")
    half = x[:, : n // 2 + 1]
    close(fft.irfft(half.cuda(), n), fft.irfft(half, n), "irfft")


@pytest.mark.parametrize("shape, dim", [((40, 6), 0), ((3, 37, 4), 1), ((2, 3, 16), 2), ((2, 5000, 3), 1), ((0, 8), 1), ((7, 2, 5), 1)])
@pytest.mark.parametrize("norm", ["backward", "forward", "ortho"])
def test_dimensions_and_factors(shape, dim, norm):
    x = numbers(shape)
    for make in (lambda t: t, lambda t: t.mT.contiguous().mT, lambda t: t.flip(0)[::2], lambda t: t.conj()):
        a, b = make(x), make(x.cuda())
        for f in (fft.fft, fft.ifft, fft.hfft):
            close(f(b, dim=dim, norm=norm), f(a, dim=dim, norm=norm), f.__name__)
        for f in (fft.rfft, fft.ihfft):
            close(f(b.real, dim=dim, norm=norm), f(a.real, dim=dim, norm=norm), f.__name__)


def test_several_dimensions():
    x = numbers((4, 6, 5, 12))
    for dim in ((-1, -2), (0, 1, 2, 3), (0, 2), (3, 1, 2)):
        close(fft.fftn(x.cuda(), dim=dim), fft.fftn(x, dim=dim), f"fftn {dim}")
        close(fft.irfftn(x.cuda(), dim=dim), fft.irfftn(x, dim=dim), f"irfftn {dim}")
    close(fft.rfft2(x.real.cuda()), fft.rfft2(x.real))
    many = numbers((2, 1) * 7)  # more dimensions than a kernel takes
    close(fft.fftn(many.permute(*range(13, -1, -1)).cuda()), fft.fftn(many.permute(*range(13, -1, -1))))


def test_batches_that_do_not_fill_blocks():
    for count in (1, 2, 31, 1025):
        x = numbers((count, 6), tg.complex64)
        close(fft.fft(x.cuda()), fft.fft(x), str(count))
        close(fft.fft(x.mT.contiguous().cuda(), dim=0), fft.fft(x.mT.contiguous(), dim=0), f"{count} across")


def test_the_same_line_has_the_same_bits_in_any_batch():
    """Of our own kernels; cuFFT has others for other layouts, whose last bits differ."""
    x = numbers((50, 74), tg.complex64).cuda()
    whole = fft.fft(x)
    near = tg.equal if "TAPEGRAD_CUDA_SIMULATE" in os.environ else lambda a, b: bool((a - b).abs().max() <= 1e-6 * b.abs().max())
    assert all(near(fft.fft(x[i]), whole[i]) for i in (0, 1, 49)) and near(fft.fft(x.mT, dim=0).mT, whole)
    assert tg.equal(fft.fft(x), whole)


def test_what_is_not_finite_stays_in_its_line():
    x = tg.ones(3, 16, device="cuda")
    x[1, 5] = float("nan")
    y = fft.rfft(x)
    assert y[1].isnan().all().item() and not y[0].isnan().any().item() and not y[2].isnan().any().item()
    assert y[0, 0].item() == 16 and y[0, 1:].abs().max().item() == 0


def test_nothing_waits_and_graphs_repeat_transforms():
    x, s = numbers((4, 37)).cuda(), numbers((2, 5, 5)).cuda()
    with tg.strict("sync"):
        fft.irfft(fft.rfft(x.real), 37)
    graph = tg.cuda.CUDAGraph()
    with tg.cuda.graph(graph):
        y, e = fft.fft(x), tg.linalg.matrix_exp(s)
    for seed in (1, 2):
        new = numbers((4, 37)) * seed
        x.copy_(new)
        s.copy_(numbers((2, 5, 5)) * (seed / 10))
        graph.replay()
        close(y, fft.fft(new))
        tg.testing.assert_close(e.cpu(), tg.linalg.matrix_exp(numbers((2, 5, 5)) * (seed / 10)))
