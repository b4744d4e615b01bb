"""Seeds and the states of the default generators."""

import contextlib

from ._C import _cuda_device_count, _cuda_state, _default_cuda_generator, _functions, default_generator
from ._warn import warn

get_rng_state = _functions[""]["get_rng_state"]
initial_seed = _functions[""]["initial_seed"]
manual_seed = _functions[""]["manual_seed"]
seed = _functions[""]["seed"]
set_rng_state = _functions[""]["set_rng_state"]
__all__ = ["default_generator", "fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state"]


@contextlib.contextmanager
def fork_rng(devices=None, enabled: bool = True, device_type: str = "cuda"):
    """A context after which the default generators go on as if nothing had been drawn in it.

    Args:
        devices: GPUs, as numbers or devices, whose generators are meant beside the CPU's; None: all.
        enabled: False: a context that does nothing.
        device_type: "cuda".
    """
    if not enabled:
        yield
        return
    state = get_rng_state()
    unused = devices is None and not _cuda_state()[0]  # asking for their number would load CUDA: all are as one seed left them
    if unused:
        indices = (0,)
    elif devices is None:
        indices = range(_cuda_device_count())
        if len(indices) > 1:
            warn(f"fork_rng: the generators of all {len(indices)} GPUs are saved: name those that are used (devices=...)")
    else:
        from .cuda._core import device_index

        indices = [device_index(d, "fork_rng") for d in devices]
    states = [(i, _default_cuda_generator(i).get_state()) for i in indices]
    try:
        yield
    finally:
        set_rng_state(state)
        if unused and _cuda_state()[0]:
            states = [(i, states[0][1]) for i in range(_cuda_device_count())]
        for i, kept in states:
            _default_cuda_generator(i).set_state(kept)
