"""Optimisation of models for production: only the names of quantisation are here."""

from . import quantization

__all__ = ["quantization"]
