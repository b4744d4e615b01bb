"""Windows of M samples: symmetric ones, or for `sym=False` one period of a periodic one.

Source of the formulas: F. J. Harris, On the use of windows for harmonic analysis with the discrete Fourier transform,
Proc. IEEE 66 (1978); J. F. Kaiser and R. W. Schafer (1980) for Kaiser's.
"""

import inspect
import math

import tapegrad


def _window(function):
    """Checks what all windows share and gives `function` the options of its tensors in their place."""

    def window(M, *, sym=True, dtype=None, layout=tapegrad.strided, device=None, requires_grad=False, **kwargs):
        name, dtype = function.__name__, dtype or tapegrad.get_default_dtype()
        if M < 0:
            raise ValueError(f"{name}: the length must not be negative: got {M}")
        if layout is not tapegrad.strided:
            raise ValueError(f"{name}: the layout must be strided: got {layout}")
        if dtype not in (tapegrad.float32, tapegrad.float64):
            raise ValueError(f"{name}: dtype must be float32 or float64: got {dtype}")
        if M <= 1:
            return tapegrad.ones((M,), dtype=dtype, device=device, requires_grad=requires_grad)
        wide = tapegrad.arange(M, dtype=tapegrad.float64, device=device)
        return function(wide, M if not sym else M - 1, **kwargs).to(dtype).requires_grad_(requires_grad)

    window.__name__, window.__qualname__, window.__doc__ = function.__name__, function.__qualname__, function.__doc__
    first, *shared = (p for p in inspect.signature(window).parameters.values() if p.kind is not p.VAR_KEYWORD)
    own = [p for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
    window.__signature__ = inspect.Signature([first, *own, *shared])
    return window


@_window
def exponential(k, n, *, center=None, tau=1.0):
    """exp(-|k - center| / tau); the centre is the middle, and must be so for symmetric windows."""
    if tau <= 0:
        raise ValueError(f"exponential: tau must be positive: got {tau}")
    if center is not None and n == k.shape[0] - 1:
        raise ValueError("exponential: center is for sym=False: a symmetric window's is in the middle")
    return (-((k - (n / 2 if center is None else center)).abs()) / tau).exp()


@_window
def cosine(k, n):
    """sin(pi (k + 1/2) / (n + 1))."""
    return ((k + 0.5) * (math.pi / (n + 1))).sin()


@_window
def gaussian(k, n, *, std=1.0):
    """exp(-((k - n / 2) / std)^2 / 2)."""
    if std <= 0:
        raise ValueError(f"gaussian: std must be positive: got {std}")
    return (((k - n / 2) / std).square() * -0.5).exp()


@_window
def kaiser(k, n, *, beta=12.0):
    """I0(beta sqrt(1 - (2 k / n - 1)^2)) / I0(beta)."""
    if beta < 0:
        raise ValueError(f"kaiser: beta must not be negative: got {beta}")
    return tapegrad.kaiser_window(k.shape[0], n == k.shape[0], beta=beta, dtype=tapegrad.float64, device=k.device)


def _cosines(k, n, coefficients):
    """The sum of a_i (-1)^i cos(2 pi i k / n)."""
    return sum(((-1) ** i * a) * (k * (2 * math.pi * i / n)).cos() for i, a in enumerate(coefficients))


@_window
def general_cosine(k, n, *, a):
    """The sum of a_i (-1)^i cos(2 pi i k / n)."""
    a = list(a)
    if not a:
        raise ValueError("general_cosine: at least one coefficient is needed")
    return _cosines(k, n, a)


@_window
def general_hamming(k, n, *, alpha=0.54):
    """alpha - (1 - alpha) cos(2 pi k / n)."""
    return _cosines(k, n, (alpha, 1 - alpha))


@_window
def hamming(k, n):
    """0.54 - 0.46 cos(2 pi k / n)."""
    return _cosines(k, n, (0.54, 0.46))


@_window
def hann(k, n):
    """0.5 - 0.5 cos(2 pi k / n)."""
    return _cosines(k, n, (0.5, 0.5))


@_window
def blackman(k, n):
    """0.42 - 0.5 cos(2 pi k / n) + 0.08 cos(4 pi k / n)."""
    return _cosines(k, n, (0.42, 0.5, 0.08))


@_window
def nuttall(k, n):
    """Nuttall's four terms with the least side lobes."""
    return _cosines(k, n, (0.3635819, 0.4891775, 0.1365995, 0.0106411))


@_window
def bartlett(k, n):
    """1 - |2 k / n - 1|."""
    return 1 - (k * (2 / n) - 1).abs()
