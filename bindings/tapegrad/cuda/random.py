"""Random numbers of the GPUs. Each has a default generator, which tapegrad.manual_seed seeds as it does the CPU's: element i of call k since
a seed is the same number on the CPU and on every GPU. Without a GPU there is nothing to seed, and nothing to keep."""

from .. import _C
from .. import device as _Device
from ._core import device_index as _index

__all__ = ["get_rng_state", "get_rng_state_all", "initial_seed", "manual_seed", "manual_seed_all", "seed", "seed_all", "set_rng_state",
           "set_rng_state_all"]


def _generators() -> tuple:
    return tuple(_generator(i, "cuda.default_generators") for i in range(_C._cuda_device_count()))


def _generator(device, op: str):
    index = _index(_Device(device) if isinstance(device, str) else device, op)
    if index >= _C._cuda_device_count():
        raise RuntimeError(f"{op}: device index out of range: cuda:{index}, there are {_C._cuda_device_count()}")
    return _C._default_cuda_generator(index)


def get_rng_state(device="cuda"):
    """The state of a GPU's generator, as bytes in a tensor on the CPU; RuntimeError without a GPU."""
    return _generator(device, "cuda.get_rng_state").get_state()


def get_rng_state_all() -> list:
    """The states of all GPUs' generators."""
    return [g.get_state() for g in _generators()]


def set_rng_state(new_state, device="cuda") -> None:
    """Sets the state of a GPU's generator; RuntimeError without a GPU."""
    _generator(device, "cuda.set_rng_state").set_state(new_state)


def set_rng_state_all(new_states) -> None:
    """Sets the states of all GPUs' generators from what get_rng_state_all gave."""
    for i, state in enumerate(new_states):
        set_rng_state(state, i)


def manual_seed(seed: int) -> None:
    """Seeds the current GPU's generator; without a GPU nothing happens."""
    if _C._cuda_device_count() > 0:
        _generator(None, "cuda.manual_seed").manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Seeds all GPUs' generators; without a GPU nothing happens."""
    for g in _generators():
        g.manual_seed(seed)


def seed() -> None:
    """Seeds the current GPU's generator by chance; without a GPU nothing happens."""
    if _C._cuda_device_count() > 0:
        _generator(None, "cuda.seed").seed()


def seed_all() -> None:
    """Seeds all GPUs' generators by one chance; without a GPU nothing happens."""
    for g in _generators()[:1]:
        manual_seed_all(g.seed())


def initial_seed() -> int:
    """The seed of the current GPU's generator; RuntimeError without a GPU."""
    return _generator(None, "cuda.initial_seed").initial_seed()
