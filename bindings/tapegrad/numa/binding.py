"""How PyTorch's launcher binds ranks to memory nodes: values for programs that prepare them; our launcher does not bind."""

from __future__ import annotations

import dataclasses
import enum

__all__ = ["AffinityMode", "NumaOptions"]


class AffinityMode(str, enum.Enum):
    """The cores of a rank: those near its GPU's memory node, socket, a part of a node of its own, or one shared cache."""

    NODE = "node"
    SOCKET = "socket"
    EXCLUSIVE = "exclusive"
    CORE_COMPLEX = "core-complex"


@dataclasses.dataclass(frozen=True)
class NumaOptions:
    """What `LaunchConfig(numa_options=)` holds. Starting ranks with it raises ValueError."""

    affinity_mode: AffinityMode
    should_fall_back_if_binding_fails: bool = False
