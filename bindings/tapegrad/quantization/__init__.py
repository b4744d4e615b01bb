"""Quantised models (by their old path), which tapegrad does not have. Names can be imported, using them says so."""

from .._quantized import members as _members

globals().update(_members("quantization"))
