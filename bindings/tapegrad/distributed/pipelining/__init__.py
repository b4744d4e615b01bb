"""Pipeline parallelism: each process runs one stage of a model's layers, batches pass through as micro-batches.

A program makes its stages itself (PipelineStage). Cutting a model by tracing it is not there.
"""

import enum

from ..._lazy import more_names as _more_names
from .schedules import Schedule1F1B, ScheduleGPipe
from .stage import PipelineStage

__all__ = ["Pipe", "PipelineStage", "Schedule1F1B", "ScheduleDualPipeV", "ScheduleGPipe", "ScheduleInterleaved1F1B",
           "ScheduleInterleavedZeroBubble", "ScheduleLoopedBFS", "ScheduleZBVZeroBubble", "SplitPoint", "build_stage", "pipe_split", "pipeline"]

__getattr__, __dir__ = _more_names(__name__)


class SplitPoint(enum.Enum):
    """Where a traced model would be cut."""

    BEGINNING, END = 1, 2


def pipe_split() -> None:
    """Marks where a traced model would be cut; without effect where the model runs as it is."""
