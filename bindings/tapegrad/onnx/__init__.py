"""Export to ONNX, which tapegrad does not do. Names can be imported, exporting says what to do instead."""

from __future__ import annotations

import enum

from .._absent import missing_function

__all__ = ["ExportOptions", "OperatorExportTypes", "TensorProtoDataType", "TrainingMode", "dynamo_export", "export", "is_in_onnx_export",
           "is_onnxrt_backend_supported", "register_custom_op_symbolic", "unregister_custom_op_symbolic"]

_WHY = "tapegrad does not write ONNX files\nsave the state_dict, load it into the same model under PyTorch and export it there"


class TrainingMode(enum.Enum):
    """The mode that a model would be exported in."""

    EVAL = 0
    PRESERVE = 1
    TRAINING = 2


class OperatorExportTypes(enum.Enum):
    """How operators would be written."""

    ONNX = 0
    ONNX_ATEN = 1
    ONNX_ATEN_FALLBACK = 2
    ONNX_FALLTHROUGH = 3


class TensorProtoDataType(enum.Enum):
    """The dtypes of ONNX by number."""

    UNDEFINED, FLOAT, UINT8, INT8, UINT16, INT16, INT32, INT64, STRING, BOOL, FLOAT16, DOUBLE, UINT32, UINT64 = range(14)
    COMPLEX64, COMPLEX128, BFLOAT16 = 14, 15, 16


class ExportOptions:
    """Options of dynamo_export, kept."""

    def __init__(self, **options):
        vars(self).update(options)


def is_in_onnx_export() -> bool:
    """Always false."""
    return False


def is_onnxrt_backend_supported() -> bool:
    """Always false."""
    return False


export = _export = missing_function("onnx.export", _WHY)
dynamo_export = missing_function("onnx.dynamo_export", _WHY)
register_custom_op_symbolic = missing_function("onnx.register_custom_op_symbolic", _WHY)
unregister_custom_op_symbolic = missing_function("onnx.unregister_custom_op_symbolic", _WHY)
