"""Recorded steps: a function of tensors runs eagerly, is recorded while it runs, and from then on its calls of kernels are
replayed without Python, dispatch, tape and allocation of what it needs in between. The same kernels run on the same numbers,
so the results have eager's bits. `tapegrad.compile` is the same under PyTorch's name. See docs/recorded.md.

    @tapegrad.record
    def step(x, y):
        optimizer.zero_grad()
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
        return loss
"""

from __future__ import annotations

import sys
import types

from .. import _C
from .._root.recording import is_compiling, is_exporting, is_recording
from ._compile import compile
from ._feeder import Feeder, feeder
from ._memory import memory
from ._modules import modules
from ._step import RecordedStep, logger, record, reset, stance

__all__ = ["Feeder", "RecordedStep", "compile", "feeder", "is_compiling", "is_exporting", "is_recording", "logger", "loops", "memory", "modules", "record", "reset", "stance"]


def loops(enabled: bool) -> bool:
    """Whether plans that are made from now on have loops made at run time for runs of arithmetic (x86), and kernels for chains on a GPU (NVRTC):
    the same bits without them. Returns what it was."""
    return _C._set_loops(enabled)


class _Module(types.ModuleType):
    """`tapegrad.record` is a module and a decorator."""

    def __call__(self, function=None, **options):
        return record(function, **options)


sys.modules[__name__].__class__ = _Module
