"""CUDA devices. Without any, questions are answered and everything else says in one sentence what is missing."""

from __future__ import annotations

_MISSING = ("cuda: tapegrad was installed without its CUDA library, or there is no CUDA device\n"
            "use device='cpu', or ask tapegrad.cuda.is_available() first")


def is_available() -> bool:
    """Whether tensors can be on a GPU."""
    return False


def device_count() -> int:
    """The number of GPUs."""
    return 0


def is_initialized() -> bool:
    return False


def manual_seed(seed: int) -> None:
    """Seeds the current GPU's generator; without a GPU there is nothing to seed."""


def manual_seed_all(seed: int) -> None:
    """Seeds the generators of all GPUs; without a GPU there is nothing to seed."""


def empty_cache() -> None:
    """Gives free GPU memory back; without a GPU there is none."""


def _missing(*args, **kwargs):
    raise RuntimeError(_MISSING)


current_device = current_stream = default_stream = get_device_capability = get_device_name = get_device_properties = _missing
init = max_memory_allocated = mem_get_info = memory_allocated = memory_reserved = memory_summary = set_device = _missing
synchronize = Event = Stream = device = stream = _missing
