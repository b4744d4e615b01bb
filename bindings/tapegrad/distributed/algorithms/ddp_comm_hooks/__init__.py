"""Communication hooks of DistributedDataParallel that compress gradients or reduce them over fewer ranks."""

import enum
import functools

from . import debugging_hooks as debugging
from . import default_hooks, post_localSGD_hook
from . import default_hooks as default
from . import powerSGD_hook as powerSGD
from . import quantization_hooks as quantization

__all__ = ["DDPCommHookType", "default_hooks", "post_localSGD_hook", "register_ddp_comm_hook"]


def _plain(comm_hook, model, state) -> None:
    model.register_comm_hook(state, comm_hook)


def _power(comm_hook, model, state, matrix_approximation_rank: int, start_powerSGD_iter: int = 1000) -> None:
    model.register_comm_hook(powerSGD.PowerSGDState(state, matrix_approximation_rank, start_powerSGD_iter), comm_hook)


class _Hook:
    def __init__(self, register, hook, **settings):
        self._call = functools.partial(register, comm_hook=hook, **settings)

    def __call__(self, **kwargs) -> None:
        self._call(**kwargs)


class DDPCommHookType(enum.Enum):
    """Hooks by name; DDPCommHookType.NAME.value(model=model, state=process_group) registers one."""

    ALLREDUCE = _Hook(_plain, default.allreduce_hook)
    FP16_COMPRESS = _Hook(_plain, default.fp16_compress_hook)
    BF16_COMPRESS = _Hook(_plain, default.bf16_compress_hook)
    QUANTIZE_PER_TENSOR = _Hook(_plain, quantization.quantization_pertensor_hook)
    QUANTIZE_PER_CHANNEL = _Hook(_plain, quantization.quantization_perchannel_hook)
    POWER_SGD = _Hook(_power, powerSGD.powerSGD_hook, matrix_approximation_rank=1)
    POWER_SGD_RANK2 = _Hook(_power, powerSGD.powerSGD_hook, matrix_approximation_rank=2)
    BATCHED_POWER_SGD = _Hook(_power, powerSGD.batched_powerSGD_hook, matrix_approximation_rank=1)
    BATCHED_POWER_SGD_RANK2 = _Hook(_power, powerSGD.batched_powerSGD_hook, matrix_approximation_rank=2)
    NOOP = _Hook(_plain, debugging.noop_hook)


def register_ddp_comm_hook(comm_hook_type: DDPCommHookType, model, state=None) -> None:
    """Registers a hook by its name; state is the process group."""
    comm_hook_type.value(model=model, state=state)
