"""Layers: from nn/*.toml to the Python classes and the C++ ones. Called by aten/gen/__main__.py."""

from __future__ import annotations

from pathlib import Path

from .emit_nn_cpp import Support, cpp_files
from .emit_nn_model import load_layers
from .emit_nn_python import python_module


def emit_nn(folder: Path, ops):
    """(path relative to --out, text) of tapegrad/nn/_layers.py, tapegrad/nn/layers.h and its sources."""
    layers = load_layers(folder)
    yield "python/tapegrad/nn/_layers.py", python_module(layers)
    yield from cpp_files(layers, Support(ops, folder / "layer_support.h"))
