"""Generators of the GPUs. Without a GPU there is nothing to seed, and nothing to keep."""

from __future__ import annotations

from . import _missing

__all__ = ["get_rng_state", "get_rng_state_all", "initial_seed", "manual_seed", "manual_seed_all", "seed", "seed_all", "set_rng_state",
           "set_rng_state_all"]

get_rng_state = _missing("get_rng_state")
initial_seed = _missing("initial_seed")


def get_rng_state_all() -> list:
    """The state of each GPU's generator."""
    return []


def set_rng_state(new_state, device="cuda") -> None:
    """Sets the state of a GPU's generator; RuntimeError without a GPU."""
    _missing("set_rng_state")()


def set_rng_state_all(new_states) -> None:
    """Sets the state of each GPU's generator."""
    for i, state in enumerate(new_states):
        set_rng_state(state, i)


def manual_seed(seed: int) -> None:
    """Seeds the current GPU's generator; without a GPU there is nothing to seed."""


def manual_seed_all(seed: int) -> None:
    """Seeds the generators of all GPUs; without a GPU there is nothing to seed."""


def seed() -> None:
    """Seeds the current GPU's generator by chance; without a GPU there is nothing to seed."""


def seed_all() -> None:
    """Seeds the generators of all GPUs by chance; without a GPU there is nothing to seed."""
