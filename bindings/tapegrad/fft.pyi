"""Discrete Fourier transforms."""

from ._stubs.fft import *
