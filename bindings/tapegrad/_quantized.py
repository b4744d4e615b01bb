"""Quantised models, which tapegrad does not have. Names can be imported, using them says so."""

from __future__ import annotations

import contextlib

from ._absent import missing_class, missing_function

WHY = "quantised tensors and models are not supported: bfloat16 and float16 are what makes models small here"

FUNCTIONS = ("convert", "convert_fx", "fuse_modules", "fuse_modules_qat", "get_default_qat_qconfig", "get_default_qconfig", "prepare",
             "prepare_fx", "prepare_qat", "prepare_qat_fx", "quantize", "quantize_dynamic", "quantize_qat", "propagate_qconfig_",
             "add_quant_dequant", "swap_module", "get_default_qconfig_mapping")
CLASSES = ("FakeQuantize", "HistogramObserver", "MinMaxObserver", "MovingAverageMinMaxObserver", "ObserverBase",
           "PerChannelMinMaxObserver", "QConfig", "QConfigMapping", "FakeQuantizeBase")


def members(module: str) -> dict:
    """What a module of quantisation holds."""
    from .nn.module import Module

    class QuantStub(Module):
        """A place where a quantised model would take numbers apart: here the identity."""

        def __init__(self, qconfig=None):
            super().__init__()

        def forward(self, x):
            return x

    class DeQuantStub(QuantStub):
        """A place where a quantised model would put numbers together: here the identity."""

    found = {f: missing_function(f"{module}.{f}", WHY) for f in FUNCTIONS}
    found.update({c: missing_class(f"{module}.{c}", WHY) for c in CLASSES})
    found.update(QuantStub=QuantStub, DeQuantStub=DeQuantStub, default_qconfig=None, default_dynamic_qconfig=None,
                 disable_observer=contextlib.nullcontext)
    return found
