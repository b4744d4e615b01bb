"""States of models and optimizers by parameter names, the same for plain, replicated and sharded models."""

from __future__ import annotations

from dataclasses import dataclass

from ... import Tensor, no_grad
from ..fsdp._units import ShardedParameter, cut, gather_whole
from ..tensor import DTensor
from ..tensor._dtensor import wrap
from ._sharded import Cut

__all__ = ["StateDictOptions", "get_model_state_dict", "get_optimizer_state_dict", "get_state_dict", "set_model_state_dict",
           "set_optimizer_state_dict", "set_state_dict"]

_WRAPPERS = ("_fsdp_wrapped_module.", "module.")


@dataclass
class StateDictOptions:
    """full_state_dict: whole tensors instead of this rank's pieces; with cpu_offload, on rank 0 only. broadcast_from_rank0: the others may
    pass empty dictionaries when setting. strict: names must fit."""

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    keep_submodule_prefixes: bool = True
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False
    dsd_fqn_modifiers: str = "_fqn_modifiers"


def _name(name: str, model) -> str:
    from ...nn.parallel import DistributedDataParallel

    name = name.replace("_fsdp_wrapped_module.", "")
    return name.removeprefix("module.") if isinstance(model, DistributedDataParallel) else name


def _others_get_nothing(options: StateDictOptions) -> bool:
    from .. import distributed_c10d as dist

    return options.full_state_dict and options.cpu_offload and dist.is_initialized() and dist.get_rank() != 0


def _given(value, like, full: bool):
    """A value of a parameter's state as it is given out."""
    if not isinstance(value, Tensor):
        return value
    if isinstance(like, ShardedParameter) and tuple(value.shape) == tuple(like.shape):
        if full:
            return gather_whole(value, like.full_shape, like.process_group)
        return Cut(value.detach(), like.full_shape, like.process_group)
    if isinstance(like, DTensor):
        value = like._shared_state({"": value})[""]
        return value.detach().full_tensor() if full and isinstance(value, DTensor) else value.detach()
    return value.detach()


def get_model_state_dict(model, *, submodules=None, options: StateDictOptions | None = None) -> dict:
    """Parameters and buffers by name. With full_state_dict every rank must call it."""
    options = options or StateDictOptions()
    result = {}
    kept = {id(t) for t in [*model.buffers()]}
    persistent = set(_raw_state(model))
    for name, value in [*model.named_parameters(), *model.named_buffers()]:
        if name not in persistent or (options.ignore_frozen_params and id(value) not in kept and not value.requires_grad):
            continue
        given = _given(value, value, options.full_state_dict)
        if not _others_get_nothing(options):
            result[_name(name, model)] = given
    return result


def _raw_state(model) -> dict:
    from ...nn import Module

    return Module.state_dict(model, keep_vars=True)


def _from_rank0(state: dict, options: StateDictOptions) -> dict:
    from .. import distributed_c10d as dist

    if not options.broadcast_from_rank0 or not dist.is_initialized() or dist.get_world_size() == 1:
        return state
    box = [state if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(box)
    return box[0]


def set_model_state_dict(model, model_state_dict: dict, *, options: StateDictOptions | None = None):
    """Takes whole tensors or this rank's pieces. Gives what load_state_dict gives: missing and unexpected names."""
    from ...nn._state import _IncompatibleKeys

    options = options or StateDictOptions()
    state = dict(_from_rank0(model_state_dict, options))
    own = {_name(n, model): t for n, t in [*model.named_parameters(), *model.named_buffers()] if n in _raw_state(model)}
    missing, unexpected = [n for n in own if n not in state], [n for n in state if n not in own]
    if options.strict and (missing or unexpected):
        raise RuntimeError(f"set_model_state_dict: missing: {', '.join(missing[:8]) or 'none'}; unexpected: {', '.join(unexpected[:8]) or 'none'}")
    with no_grad():
        for name, target in own.items():
            if name in state:
                target.copy_(_piece(state[name], target, name))
    return _IncompatibleKeys(missing, unexpected)


def _piece(value, target, name: str):
    if isinstance(value, Cut):
        value = value.piece
    elif isinstance(target, ShardedParameter) and not isinstance(value, ShardedParameter) and tuple(value.shape) == target.full_shape:
        value = cut(value, target.process_group)
    elif isinstance(target, DTensor) and not isinstance(value, DTensor):
        value = wrap(target._own_state(value), target._spec)
    if tuple(value.shape) != tuple(target.shape):
        raise ValueError(f"set_state_dict: {name!r} has shape {list(value.shape)}, expected {list(target.shape)}")
    return value


def _list(optimizers) -> list:
    return list(optimizers) if isinstance(optimizers, (list, tuple)) else [optimizers]


def get_optimizer_state_dict(model, optimizers, *, submodules=None, options: StateDictOptions | None = None) -> dict:
    """{"state": by parameter name, "param_groups": with names}. With full_state_dict every rank must call it."""
    options = options or StateDictOptions()
    names = {id(p): _name(n, model) for n, p in model.named_parameters()}
    result: dict = {"state": {}, "param_groups": []}
    for optimizer in _list(optimizers):
        for group in optimizer.param_groups:
            for p in group["params"]:
                state = optimizer.state.get(p)
                if state:
                    given = {k: _given(v, p, options.full_state_dict) if isinstance(v, Tensor) and v.dim() else v for k, v in state.items()}
                    if not _others_get_nothing(options):
                        result["state"][names[id(p)]] = given
            result["param_groups"].append({**{k: v for k, v in group.items() if k != "params"}, "params": [names[id(p)] for p in group["params"]]})
    return {} if _others_get_nothing(options) else result


def init_states(optimizer) -> None:
    """Makes the states of an optimizer that has not stepped yet, so that there is something to load into: a step with gradients of 0 and
    learning rates of 0, without effect on the parameters."""
    if optimizer.state or any(p.grad is not None for g in optimizer.param_groups for p in g["params"]):
        return
    rates = [g.get("lr") for g in optimizer.param_groups]
    with no_grad():
        values = [(p, p.detach().clone()) for g in optimizer.param_groups for p in g["params"] if p.requires_grad]
        for p, _ in values:
            p.grad = p.new_zeros(p.shape)
        for g in optimizer.param_groups:
            g["lr"] = 0.0
        optimizer.step()
        for p, value in values:
            p.copy_(value)
        for g, lr in zip(optimizer.param_groups, rates, strict=True):
            g["lr"] = lr
    optimizer.zero_grad(set_to_none=True)


def set_optimizer_state_dict(model, optimizers, optim_state_dict: dict, *, options: StateDictOptions | None = None) -> None:
    """Takes what get_optimizer_state_dict gave, whole or in pieces."""
    options = options or StateDictOptions()
    saved = _from_rank0(optim_state_dict, options)
    names = {id(p): _name(n, model) for n, p in model.named_parameters()}
    by_names = {tuple(g["params"]): g for g in saved["param_groups"]}
    for optimizer in _list(optimizers):
        local, groups, at = {}, [], 0
        for group in optimizer.param_groups:
            of_group = tuple(names[id(p)] for p in group["params"])
            if of_group not in by_names:
                raise ValueError(f"set_optimizer_state_dict: no saved group has the parameters {', '.join(of_group[:4])} ...")
            for i, p in enumerate(group["params"], at):
                state = saved["state"].get(names[id(p)])
                if state is not None:
                    local[i] = {k: _piece(v, p, names[id(p)]) if isinstance(v, Cut) or (isinstance(v, Tensor) and v.dim()) else v
                                for k, v in state.items()}
            n = len(group["params"])
            groups.append({**{k: v for k, v in by_names[of_group].items() if k != "params"}, "params": list(range(at, at + n))})
            at += n
        optimizer.load_state_dict({"state": local, "param_groups": groups})


def get_state_dict(model, optimizers, *, submodules=None, options: StateDictOptions | None = None) -> tuple:
    """(get_model_state_dict, get_optimizer_state_dict); an optimizer that has not stepped gets its states first, to load into."""
    for optimizer in _list(optimizers):
        init_states(optimizer)
    return get_model_state_dict(model, options=options), get_optimizer_state_dict(model, optimizers, options=options)


def set_state_dict(model, optimizers, *, model_state_dict: dict, optim_state_dict: dict, options: StateDictOptions | None = None):
    """set_model_state_dict and set_optimizer_state_dict."""
    result = set_model_state_dict(model, model_state_dict, options=options)
    set_optimizer_state_dict(model, optimizers, optim_state_dict, options=options)
    return result


_init_optim_state = init_states  # PyTorch's name for it
