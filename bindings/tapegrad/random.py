"""Seeds and the state of the default generator."""

import contextlib

from ._C import _functions, default_generator

get_rng_state = _functions[""]["get_rng_state"]
initial_seed = _functions[""]["initial_seed"]
manual_seed = _functions[""]["manual_seed"]
seed = _functions[""]["seed"]
set_rng_state = _functions[""]["set_rng_state"]
__all__ = ["default_generator", "fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state"]


@contextlib.contextmanager
def fork_rng(devices=None, enabled: bool = True, device_type: str = "cuda"):
    """A context after which the default generator goes on as if nothing had been drawn in it."""
    if not enabled:
        yield
        return
    state = get_rng_state()
    try:
        yield
    finally:
        set_rng_state(state)
