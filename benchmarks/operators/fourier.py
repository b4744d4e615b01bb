"""Fourier transforms of lines of 4 to 1 M elements, of batches and of pictures, in float32."""

from ..harness import Case


def _case(name, label, libraries, shape, run, complex_=True):
    runs = {}
    for library, lib in libraries.items():
        if library != "numpy":
            x = lib.randn(*shape, dtype=lib.complex64 if complex_ else lib.float32)
            runs[library] = lambda lib=lib, x=x: run(lib, x)
    return Case("FFT", f"{name} of {label}", runs)


def _stft(lib, x):
    return lib.stft(x, 512, window=lib.hann_window(512), return_complex=True)


def cases(libraries):
    for n in (4, 16, 64, 256, 1000, 1009, 1024, 65536, 1 << 20):
        yield _case("fft", n, libraries, (n,), lambda lib, x: lib.fft.fft(x))
    for n in (64, 1024, 65536):
        yield _case("rfft", n, libraries, (n,), lambda lib, x: lib.fft.rfft(x), False)
        yield _case("irfft", n, libraries, (n // 2 + 1,), lambda lib, x: lib.fft.irfft(x))
    for shape in ((1000, 64), (256, 1024), (64, 1000)):
        label = f"{shape[0]} x {shape[1]}"
        yield _case("fft", label, libraries, shape, lambda lib, x: lib.fft.fft(x))
        yield _case("rfft", label, libraries, shape, lambda lib, x: lib.fft.rfft(x), False)
    for n in (64, 512, 1024):
        yield _case("fft2", f"{n} x {n}", libraries, (n, n), lambda lib, x: lib.fft.fft2(x))
    yield _case("stft", "16000 by 512", libraries, (16000,), _stft, False)
