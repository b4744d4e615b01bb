"""Models whose layers several processes share, one stage each: batches go through in pieces (pipeline parallel).

A program makes its stages itself (PipelineStage). Cutting a model by tracing it is not there.
"""

from __future__ import annotations

import enum

from ..._absent import missing_class, missing_function
from .schedules import Schedule1F1B, ScheduleGPipe
from .stage import PipelineStage

__all__ = ["Pipe", "PipelineStage", "Schedule1F1B", "ScheduleDualPipeV", "ScheduleGPipe", "ScheduleInterleaved1F1B",
           "ScheduleInterleavedZeroBubble", "ScheduleLoopedBFS", "ScheduleZBVZeroBubble", "SplitPoint", "build_stage", "pipe_split", "pipeline"]

_NO_TRACING = "models are not traced: make each stage's module yourself and give it to PipelineStage"
_ONE_STAGE = "several stages on one rank are not supported: use Schedule1F1B or ScheduleGPipe"

Pipe = missing_class("distributed.pipelining.Pipe", _NO_TRACING)
pipeline = missing_function("distributed.pipelining.pipeline", _NO_TRACING)
build_stage = missing_function("distributed.pipelining.build_stage", _NO_TRACING)
ScheduleInterleaved1F1B, ScheduleLoopedBFS, ScheduleInterleavedZeroBubble, ScheduleZBVZeroBubble, ScheduleDualPipeV = (
    missing_class(f"distributed.pipelining.{name}", _ONE_STAGE) for name in (
        "ScheduleInterleaved1F1B", "ScheduleLoopedBFS", "ScheduleInterleavedZeroBubble", "ScheduleZBVZeroBubble", "ScheduleDualPipeV"))


class SplitPoint(enum.Enum):
    """Where a traced model would be cut."""

    BEGINNING, END = 1, 2


def pipe_split() -> None:
    """Marks where a traced model would be cut; without effect where the model runs as it is."""
