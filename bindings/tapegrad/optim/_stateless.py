"""An optimizer applied temporarily to other parameters and state."""

import contextlib
from collections import defaultdict

__all__ = ["swap_in_optimizer_params_and_state"]

_NAME = "swap_in_optimizer_params_and_state"


def _matched(optimizer, parameters: dict, given: dict) -> list:
    """(own group, given group, its parameters) for each group, everything checked."""
    if not optimizer.state:
        raise RuntimeError(f"{_NAME} requires initialized optimizer state.")
    if not isinstance(given, dict):
        raise RuntimeError(f"{_NAME} requires a DCP-style optimizer state_dict.")
    state, groups = given.get("state"), given.get("param_groups")
    if not isinstance(state, dict) or any(isinstance(k, int) and not isinstance(v, dict) for k, v in state.items()):
        raise RuntimeError(f"{_NAME} requires swapin_optim_state['state'] to be a dict mapping packed parameter ids to per-param "
                           f"state dicts, got {type(state).__name__}.")
    if not isinstance(groups, list):
        raise RuntimeError(f"{_NAME} requires swapin_optim_state['param_groups'] to be a list of param-group dicts, got "
                           f"{type(groups).__name__}.")
    if len(groups) != len(optimizer.param_groups):
        raise RuntimeError("swapin_optim_state has a different number of parameter groups than the live optimizer.")
    rest, seen, result = list(parameters.values()), set(), []
    for i, (own, group) in enumerate(zip(optimizer.param_groups, groups, strict=True)):
        numbers = group.get("params") if isinstance(group, dict) else None
        if not isinstance(numbers, list) or not all(isinstance(n, int) for n in numbers):
            raise RuntimeError(f"{_NAME} requires optimizer.state_dict()-style param_groups[*]['params'] entries keyed by packed "
                               "parameter ids.")
        if len(own["params"]) != len(numbers):
            raise RuntimeError(f"swapin_optim_state param group {i} has a different number of params than the live optimizer "
                               "param group.")
        if own.keys() != group.keys():
            raise RuntimeError(f"{_NAME} requires optimizer.state_dict()-style param group keys to exactly match the live optimizer "
                               f"group keys for group {i}. Keys only in swap-in: {[k for k in group if k not in own]}. "
                               f"Keys only in live: {[k for k in own if k not in group]}.")
        if len(rest) < len(numbers):
            raise RuntimeError(f"{_NAME} requires the explicit parameter state to match optimizer.param_groups ordering.")
        result.append((own, group, rest[:len(numbers)]))
        del rest[:len(numbers)]
        seen.update(numbers)
    extra = [key for key in state if key not in seen]
    if extra:
        raise RuntimeError(f"{_NAME} requires swapin_optim_state['state'] to be keyed only by packed parameter ids from "
                           f"param_groups[*]['params']; got extra keys {extra!r}.")
    return result


@contextlib.contextmanager
def swap_in_optimizer_params_and_state(optimizer, swapin_parameters: dict, swapin_optim_state: dict):
    """Within the context `optimizer` works on `swapin_parameters` (in the order of its own) with the state and the options of
    `swapin_optim_state` (as `state_dict()` gives it); afterwards it is as before. Tensors of the given state are written in
    place."""
    matched = _matched(optimizer, swapin_parameters, swapin_optim_state)
    old_state, old_groups = optimizer.state, [dict(group) for group in optimizer.param_groups]
    try:
        state: defaultdict = defaultdict(dict)
        for own, group, params in matched:
            own.update({key: value for key, value in group.items() if key != "params"}, params=params)
            for p, number in zip(params, group["params"], strict=True):
                state[p] = dict(swapin_optim_state["state"].get(number, {}))
        optimizer.state = state
        yield
    finally:
        for own, old in zip(optimizer.param_groups, old_groups, strict=True):
            own.clear()
            own.update(old)
        optimizer.state = old_state
