"""Random numbers of the GPUs. There is one default generator for all devices: element i of call k is the same number on the
CPU and on every GPU, so these are its functions. Without a GPU there is nothing to seed, and nothing to keep."""

from __future__ import annotations

from .. import _C
from .. import device as _Device
from ._core import device_index as _index

__all__ = ["get_rng_state", "get_rng_state_all", "initial_seed", "manual_seed", "manual_seed_all", "seed", "seed_all", "set_rng_state",
           "set_rng_state_all"]


def _root():
    from .. import random

    return random


def _there() -> bool:
    return _C._cuda_device_count() > 0


def _generators() -> tuple:
    return (_root().default_generator,) * _C._cuda_device_count()


def get_rng_state(device="cuda"):
    """The state of the generator, as bytes in a tensor on the CPU; RuntimeError without a GPU."""
    _check(device, "cuda.get_rng_state")
    return _root().get_rng_state()


def _check(device, op: str) -> None:
    index = _index(_Device(device) if isinstance(device, str) else device, op)
    if index >= _C._cuda_device_count():
        raise RuntimeError(f"{op}: device index out of range: cuda:{index}, there are {_C._cuda_device_count()}")


def get_rng_state_all() -> list:
    """The state of the generator, once per GPU."""
    return [get_rng_state(i) for i in range(_C._cuda_device_count())]


def set_rng_state(new_state, device="cuda") -> None:
    """Sets the state of the generator; RuntimeError without a GPU."""
    _check(device, "cuda.set_rng_state")
    _root().set_rng_state(new_state)


def set_rng_state_all(new_states) -> None:
    """Sets the state of the generator from what get_rng_state_all gave."""
    for i, state in enumerate(new_states):
        set_rng_state(state, i)


def manual_seed(seed: int) -> None:
    """Seeds the generator; without a GPU nothing happens."""
    if _there():
        _root().manual_seed(seed)


manual_seed_all = manual_seed


def seed() -> None:
    """Seeds the generator by chance; without a GPU nothing happens."""
    if _there():
        _root().seed()


seed_all = seed


def initial_seed() -> int:
    """The seed of the generator; RuntimeError without a GPU."""
    _C._cuda_current_device("cuda.initial_seed")
    return _root().initial_seed()
