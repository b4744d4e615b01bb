"""Models as ONNX files, for runtimes that read those: `export` translates what `tapegrad.export` writes down. See docs/onnx.md.

    tapegrad.onnx.export(model.eval(), (x,), "model.onnx", dynamic_shapes={"x": {0: "batch"}})
"""

from __future__ import annotations

from .._lazy import more_names as _more_names
from ._errors import OnnxExporterError, UnsupportedOperatorError
from ._exporter import ONNXProgram, export, is_in_onnx_export

__all__ = ["ONNXProgram", "OnnxExporterError", "UnsupportedOperatorError", "export", "is_in_onnx_export"]
__getattr__, __dir__ = _more_names(__name__)
