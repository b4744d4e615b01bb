"""Layers: from nn/modules.toml to the Python classes and the C++ ones. Called by aten/gen/__main__.py."""

from __future__ import annotations

from .emit_nn_model import load_layers
from .emit_nn_python import python_module


def emit_nn(modules_toml_path, out_dir, write) -> None:
    """Writes <out>/python/tapegrad/nn/_layers.py and <out>/tapegrad/nn/layers*.{h,cpp}. `write(path, text)` keeps what is equal."""
    layers = load_layers(modules_toml_path)
    write("python/tapegrad/nn/_layers.py", python_module(layers))
