"""States of models and optimizers by parameter names, the same for plain, replicated and sharded models."""

from dataclasses import dataclass

from ... import Tensor, empty, no_grad, zeros_like
from ...nn import Parameter
from ...utils import _pytree
from .._placements import Replicate
from ..fsdp._pieces import without_wrappers
from ..fsdp._units import units_of
from ..tensor import DTensor
from ..tensor._dtensor import wrap
from ..tensor._moves import move_plainly

__all__ = ["StateDictOptions", "get_model_state_dict", "get_optimizer_state_dict", "get_state_dict", "set_model_state_dict",
           "set_optimizer_state_dict", "set_state_dict"]


@dataclass
class StateDictOptions:
    """full_state_dict: whole tensors instead of this rank's pieces; with cpu_offload, on rank 0 only. broadcast_from_rank0: the others may
    pass empty dictionaries when setting whole tensors. strict: names must fit."""

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    keep_submodule_prefixes: bool = True
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False
    dsd_fqn_modifiers: str = "_fqn_modifiers"


def _checked(options: StateDictOptions | None) -> StateDictOptions:
    options = options or StateDictOptions()
    if options.broadcast_from_rank0 and not options.full_state_dict:
        raise ValueError("full_state_dict must be True when broadcast_from_rank0 is True.")
    if options.flatten_optimizer_state_dict:
        raise NotImplementedError("StateDictOptions: flatten_optimizer_state_dict is not supported")
    return options


def _entries(model) -> list:
    """(name without wrappers, tensor, module, its name there) of all parameters and of the buffers that are saved; shared ones at each place."""
    from ...nn.parallel import DistributedDataParallel

    for unit in units_of(model):
        unit.to_pieces()
    found = []
    for path, module in model.named_modules(remove_duplicate=False):
        tensors = [*module._parameters.items(), *((n, b) for n, b in module._buffers.items() if n not in module._non_persistent_buffers_set)]
        for own, tensor in tensors:
            name = f"{path}.{own}" if path else own
            name = without_wrappers(name)
            if isinstance(model, DistributedDataParallel):
                name = name.removeprefix("module.")
            if tensor is not None:
                found.append((name, tensor, module, own))
    return found


def _names(model) -> dict:
    names: dict = {}
    for name, tensor, *_ in _entries(model):
        names.setdefault(id(tensor), name)
    return names


def _others_get_nothing(options: StateDictOptions) -> bool:
    from .. import distributed_c10d as dist

    return options.full_state_dict and options.cpu_offload and dist.is_initialized() and dist.get_rank() != 0


def _given(value, options: StateDictOptions):
    """A value as it is given out."""
    if not isinstance(value, Tensor):
        return value
    value = value.detach()
    if options.full_state_dict and isinstance(value, DTensor):
        value = value.full_tensor()
    return value.cpu() if options.cpu_offload and not _others_get_nothing(options) else value


def get_model_state_dict(model, *, submodules=None, options: StateDictOptions | None = None) -> dict:
    """Parameters and buffers by name. With full_state_dict every rank must call it."""
    options, result, given = _checked(options), {}, {}
    for name, value, *_ in _entries(model):
        if options.ignore_frozen_params and isinstance(value, Parameter) and not value.requires_grad:
            continue
        if id(value) not in given:
            given[id(value)] = _given(value, options)
        if not _others_get_nothing(options):
            result[name] = given[id(value)]
    return result


_COMES = "tensor of rank 0: shape, dtype"


class _FromRank0:
    """A state of which rank 0 sends the tensors, one by one: all ranks ask for them in one order."""

    def __init__(self, state: dict, options: StateDictOptions):
        from .. import distributed_c10d as dist

        self._rank = dist.get_rank() if options.broadcast_from_rank0 and dist.is_initialized() and dist.get_world_size() > 1 else None
        self.state = state
        if self._rank is None:
            return
        box = [None]
        if self._rank == 0:
            box = [_pytree.tree_map(lambda x: {_COMES: (tuple(x.shape), x.dtype)} if isinstance(x, Tensor) else x, _plain_dicts(state))]
        dist.broadcast_object_list(box)
        if self._rank:
            self.state = box[0]

    def here(self, value, like: Tensor):
        """A value on this rank."""
        from .. import distributed_c10d as dist

        if self._rank == 0 and isinstance(value, Tensor):
            value = value.detach().to(_device(like)).contiguous()
            dist.broadcast(value, 0)
        elif isinstance(value, dict) and _COMES in value:
            shape, dtype = value[_COMES]
            value = empty(shape, dtype=dtype, device=_device(like))
            dist.broadcast(value, 0)
        return value


def _plain_dicts(value):
    if isinstance(value, dict):
        return {k: _plain_dicts(v) for k, v in value.items()}
    return [_plain_dicts(v) for v in value] if isinstance(value, (list, tuple)) else value


def _device(like: Tensor):
    if like.is_meta:
        return like.device_mesh.device_type if isinstance(like, DTensor) else "cpu"
    return like.device


def set_model_state_dict(model, model_state_dict: dict, *, options: StateDictOptions | None = None):
    """Takes whole tensors or this rank's pieces; parameters without values, on the device meta, come to life.

    Gives what load_state_dict gives: missing and unexpected names. Raises RuntimeError for these where options.strict says so, ValueError
    for other shapes.
    """
    from ...nn._state import _IncompatibleKeys

    options = _checked(options)
    source, own = _FromRank0(model_state_dict, options), _entries(model)
    names = {name for name, *_ in own}
    missing, unexpected = [n for n, *_ in own if n not in source.state], [n for n in source.state if n not in names]
    if options.strict and (missing or unexpected):
        raise RuntimeError(f"set_model_state_dict: missing: {', '.join(missing[:8]) or 'none'}; unexpected: {', '.join(unexpected[:8]) or 'none'}")
    alive: dict = {}  # what took the place of tensors without values
    with no_grad():
        for name, target, module, key in own:
            if name not in source.state:
                continue
            value = _piece(source.here(source.state[name], target), target, name)
            if not target.is_meta:
                target.copy_(value)
                continue
            if id(target) not in alive:
                value = value.to(dtype=target.dtype, device=_device(target), copy=True)
                alive[id(target)] = Parameter(value, target.requires_grad) if isinstance(target, Parameter) else value
            (module._parameters if key in module._parameters else module._buffers)[key] = alive[id(target)]
    return _IncompatibleKeys(missing, unexpected)


def _piece(value, target, name: str):
    """A value as one that lies as target does."""
    if tuple(value.shape) != tuple(target.shape):
        raise ValueError(f"set_state_dict: {name!r} has shape {list(value.shape)}, expected {list(target.shape)}")
    if isinstance(target, DTensor) and not isinstance(value, DTensor):
        spec = target._spec
        value = value.detach().to(_device(target))
        part = move_plainly(value, spec.with_placements([Replicate()] * spec.mesh.ndim), spec.placements)
        return wrap(part.clone() if part is value else part, spec)
    return value


def _list(optimizers) -> list:
    return list(optimizers) if isinstance(optimizers, (list, tuple)) else [optimizers]


def get_optimizer_state_dict(model, optimizers, *, submodules=None, options: StateDictOptions | None = None) -> dict:
    """{"state": by parameter name, "param_groups": with names}. With full_state_dict every rank must call it."""
    options, names = _checked(options), _names(model)
    result: dict = {"state": {}, "param_groups": []}
    for optimizer in _list(optimizers):
        for group in optimizer.param_groups:
            for p in group["params"]:
                state = optimizer.state.get(p)
                if state:
                    given = {k: _given(v, options) for k, v in (p._shared_state(state) if isinstance(p, DTensor) else state).items()}
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
            p.grad = zeros_like(p)
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
    source, names = _FromRank0(optim_state_dict, _checked(options)), _names(model)
    saved = source.state
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
                    here = ((k, source.here(v, p)) for k, v in state.items())
                    local[i] = {k: _piece(v, p, names[id(p)]) if isinstance(v, Tensor) and v.dim() and v.shape == p.shape else v for k, v in here}
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
