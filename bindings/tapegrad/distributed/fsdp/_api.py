"""Policies and configurations of sharding, by PyTorch's names."""

import enum
from dataclasses import dataclass

__all__ = ["BackwardPrefetch", "CPUOffload", "CPUOffloadPolicy", "FullOptimStateDictConfig", "FullStateDictConfig", "LocalStateDictConfig",
           "MixedPrecision", "MixedPrecisionPolicy", "OffloadPolicy", "OptimStateKeyType", "ShardedOptimStateDictConfig",
           "ShardedStateDictConfig", "ShardingStrategy", "StateDictType"]


class ShardingStrategy(enum.Enum):
    """How a model is cut: FULL_SHARD frees parameters after use, SHARD_GRAD_OP after the backward pass, NO_SHARD keeps them whole."""

    FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD, _HYBRID_SHARD_ZERO2 = range(1, 6)


class BackwardPrefetch(enum.Enum):
    """When the next unit is gathered in a backward pass. Both begin before the present one's gradients are computed."""

    BACKWARD_PRE, BACKWARD_POST = 1, 2


class StateDictType(enum.Enum):
    """How a state is cut: whole, or each rank its pieces."""

    FULL_STATE_DICT, LOCAL_STATE_DICT, SHARDED_STATE_DICT = 1, 2, 3


class OptimStateKeyType(enum.Enum):
    """What an optimizer's state is found by."""

    PARAM_NAME, PARAM_ID = 1, 2


@dataclass(frozen=True)
class MixedPrecisionPolicy:
    """dtypes of gathered parameters, of the reduction of gradients and of a unit's results; None: as they are."""

    param_dtype: object = None
    reduce_dtype: object = None
    output_dtype: object = None
    cast_forward_inputs: bool = True


@dataclass
class MixedPrecision:
    """MixedPrecisionPolicy for FullyShardedDataParallel. Buffers are cast once."""

    param_dtype: object = None
    reduce_dtype: object = None
    buffer_dtype: object = None
    keep_low_precision_grads: bool = False
    cast_forward_inputs: bool = False
    cast_root_forward_inputs: bool = True
    _module_classes_to_ignore: tuple = ()


@dataclass
class OffloadPolicy:
    """Nothing is moved to the host."""


@dataclass
class CPUOffloadPolicy(OffloadPolicy):
    """Pieces on the host. On the CPU they are there."""

    pin_memory: bool = True


@dataclass
class CPUOffload:
    """CPUOffloadPolicy for FullyShardedDataParallel."""

    offload_params: bool = False


@dataclass
class _StateDictConfig:
    offload_to_cpu: bool = False


@dataclass
class FullStateDictConfig(_StateDictConfig):
    """Whole tensors, on rank 0 only where asked for."""

    rank0_only: bool = False


@dataclass
class LocalStateDictConfig(_StateDictConfig):
    """Each rank's pieces."""


@dataclass
class ShardedStateDictConfig(_StateDictConfig):
    """Each rank's pieces."""

    _use_dtensor: bool = False


@dataclass
class FullOptimStateDictConfig(FullStateDictConfig):
    """Whole states."""

    offload_to_cpu: bool = True


@dataclass
class ShardedOptimStateDictConfig(ShardedStateDictConfig):
    """Each rank's states."""

    offload_to_cpu: bool = True
