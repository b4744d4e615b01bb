"""Exceptions of export."""

from __future__ import annotations


class OnnxExporterError(RuntimeError):
    """An error of export to ONNX."""

    __module__ = "tapegrad.onnx"


class UnsupportedOperatorError(OnnxExporterError, NotImplementedError):
    """The program has calls that ONNX cannot say, or that are not translated: each with the reason and its line."""

    __module__ = "tapegrad.onnx"


class Refused(Exception):
    """Why one call cannot be translated; becomes a line of UnsupportedOperatorError."""
