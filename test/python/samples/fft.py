"""Samples of Fourier transforms: lengths of every kind of radix, primes, and every way of the kernels."""

import tapegrad


def _complex(make):
    return {tapegrad.float32: tapegrad.complex64, tapegrad.float64: tapegrad.complex128}[make.dtype]


def _fft_c2c(make):
    c = _complex(make)
    return [((make((2, 6), dtype=c), [1], 1.0, True), {}), ((make((3, 4), dtype=c), [0, 1], 0.5, False), {}), ((make((5,), dtype=c), [0], 1.0, False), {})]


def _fft_r2c(make):
    return [((make((2, 6)), 1, 1.0, True), {}), ((make((5, 2)), 0, 0.5, True), {}), ((make((2, 4)), 1, 1.0, False), {}), ((make((1,)), 0, 1.0, True), {})]


def _fft_c2r(make):
    c = _complex(make)
    return [((make((2, 4), dtype=c), 1, 6, 1.0), {}), ((make((3, 2), dtype=c), 0, 5, 0.5), {}), ((make((1,), dtype=c), 0, 1, 1.0), {}), ((make((2,), dtype=c), 0, 2, 1.0), {})]


def _options(x):
    return [((x, 7), {}), ((x, 3, 0), {}), ((x,), {"norm": "ortho"}), ((x,), {"norm": "forward", "dim": 0}), ((x,), {"norm": "backward", "n": 4})]


LENGTHS = (1, 2, 3, 4, 5, 6, 7, 11, 12, 30, 37, 64, 97, 100)


def fft_one(make):
    c = _complex(make)
    return [*_options(make((4, 5), dtype=c)), *_options(make((4, 5))), *[((make((n,), dtype=c),), {}) for n in LENGTHS], ((make((3, 2, 8), dtype=c)[:, :, ::2],), {}),
            ((make((5, 3), dtype=c).t(),), {}), ((make((40, 12), dtype=c),), {"dim": 0}), ((make((33, 30)),), {}), ((make((37, 74), dtype=c),), {}),
            ((make((1024,), dtype=c),), {}), ((make((1500,), dtype=c),), {}), ((make((2, 4096), dtype=c),), {}), ((make((1031,), dtype=c),), {})]


def fft_real(make):
    return [*_options(make((4, 5))), *[((make((n,)),), {}) for n in LENGTHS], ((make((5, 3)).t(),), {}), ((make((40, 12)),), {"dim": 0}),
            ((make((33, 9)),), {}), ((make((37, 74)),), {}), ((make((1024,)),), {}), ((make((1501,)),), {}), ((make((3, 4096)),), {}), ((make((2, 2 * 1031)),), {})]


def fft_half(make):
    c = _complex(make)
    lengths = [((make((n // 2 + 1,), dtype=c), n), {}) for n in LENGTHS]
    return [*_options(make((4, 5), dtype=c)), *lengths, ((make((4, 5), dtype=c),), {}), ((make((4, 5)),), {}), ((make((5, 4), dtype=c).t(), 7), {}), ((make((7, 40), dtype=c), 13, 0), {}),
            ((make((33, 5), dtype=c), 9), {}), ((make((3, 2049), dtype=c),), {}), ((make((513,), dtype=c), 1025), {})]


def _boxes(x):
    return [((x,), {}), ((x, (3, 6)), {}), ((x,), {"dim": (0, 2)}), ((x, (2, 5), (2, 0)), {}), ((x,), {"norm": "ortho"}), ((x,), {"norm": "forward"}), ((x, (-1, 3)), {})]


def fft_one_2(make):
    return [*_boxes(make((3, 4, 5), dtype=_complex(make))), *_boxes(make((3, 4, 5)))[:2]]


def fft_one_n(make):
    return [*fft_one_2(make), ((make((3, 4, 5), dtype=_complex(make)), None, (1,)), {})]


def fft_real_2(make):
    return _boxes(make((3, 4, 5)))


def fft_real_n(make):
    return [*fft_real_2(make), ((make((3, 4)), None, (0,)), {})]


def fft_half_2(make):
    return _boxes(make((3, 4, 5), dtype=_complex(make)))


def fft_half_n(make):
    return [*fft_half_2(make), ((make((3, 4), dtype=_complex(make)), None, (0,)), {})]


def fftfreq(make):
    return [((n,), {}) for n in (1, 4, 5)] + [((6, 0.5), {}), ((5,), {"d": 2.0, "dtype": tapegrad.float64})]


def fftshift(make):
    return [((make((4,)),), {}), ((make((3, 4)),), {}), ((make((3, 4)), 0), {}), ((make((2, 3, 4)), (0, 2)), {}), ((make((5,), dtype=_complex(make)),), {})]


def stft(make):
    x = make((40,))
    complex_ = {"return_complex": True}
    return [((x, 8), complex_), ((make((2, 40)), 8, 3, 6, make((6,), low=0.5)), complex_), ((x, 8), {"center": False, "window": make((8,), low=0.5), "return_complex": True}),
            ((x, 7), {"onesided": False, "return_complex": True, "normalized": True}), ((x, 8), {"return_complex": False}), ((make((40,), dtype=_complex(make)), 8), {}),
            ((x, 8), {"pad_mode": "constant", "return_complex": True}), ((x, 8, 2, 5), {"center": False, "align_to_window": True, "return_complex": True})]


def istft(make):
    c = _complex(make)
    window = make((8,), low=0.5, high=1.0)
    return [((make((5, 9), dtype=c), 8), {"window": window}), ((make((2, 5, 9), dtype=c), 8, 3), {"window": window}), ((make((5, 6), dtype=c), 8, 2), {"window": window, "length": 9}),
            ((make((8, 6), dtype=c), 8), {"onesided": False, "window": window}), ((make((8, 6), dtype=c), 8), {"onesided": False, "return_complex": True, "window": window}),
            ((make((5, 6), dtype=c), 8), {"normalized": True, "window": window}), ((make((5, 6), dtype=c), 8, 2, 6), {"window": make((6,), low=0.5)})]


def window(make):
    return [((n,), {}) for n in (0, 1, 2, 7, 16)] + [((9, False), {}), ((8,), {"periodic": False, "dtype": tapegrad.float64})]
