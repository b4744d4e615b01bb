"""FullyShardedDataParallel: fully_shard as a wrapper around a module, with its states."""

import contextlib

from ... import no_grad
from ...nn import Module
from .. import distributed_c10d as dist
from ..tensor import DTensor
from ..tensor._dtensor import local_of
from ._api import *  # noqa: F403
from ._api import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    LocalStateDictConfig,
    MixedPrecisionPolicy,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    ShardingStrategy,
    StateDictType,
)
from ._fully_shard import device_type_of, fully_shard
from ._pieces import hybrid_mesh, mesh_of, without_wrappers
from ._units import units_of

__all__ = ["FullyShardedDataParallel"]

_OWN = "_fsdp_wrapped_module."  # in names of a wrapper's parameters; names of states are without
_CONFIGS = {StateDictType.FULL_STATE_DICT: (FullStateDictConfig, FullOptimStateDictConfig),
            StateDictType.LOCAL_STATE_DICT: (LocalStateDictConfig, ShardedOptimStateDictConfig),
            StateDictType.SHARDED_STATE_DICT: (ShardedStateDictConfig, ShardedOptimStateDictConfig)}


def _replicated(module, group, policy: MixedPrecisionPolicy, ignored: list):
    """The module with copies of its parameters on all ranks, but for those that are left out or that wrappers inside have; None where there
    is nothing to do."""
    from ...nn.parallel.distributed import DistributedDataParallel, _MixedPrecision

    left_out = {id(t) for t in ignored} | {id(t) for m in FullyShardedDataParallel.fsdp_modules(module) for t in [*m.parameters(), *m.buffers()]}
    named = [*module.named_parameters(), *module.named_buffers()]
    names = [n for n, t in named if id(t) in left_out]
    low = policy.param_dtype or policy.reduce_dtype
    if (group.size() == 1 and low is None) or not any(t.requires_grad for _, t in named if id(t) not in left_out):
        return None
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, names)
    return DistributedDataParallel(module, process_group=group,
                                   mixed_precision=_MixedPrecision(policy.param_dtype, policy.reduce_dtype) if low is not None else None)


class FullyShardedDataParallel(Module):
    """Wraps a module whose parameters become pieces, one per rank; those of wrapped modules inside stay theirs.

    The arguments are PyTorch's. use_orig_params makes no difference: parameters are cut one by one and keep their names.
    """

    def __init__(self, module, process_group=None, sharding_strategy=None, cpu_offload=None, auto_wrap_policy=None, backward_prefetch=None,
                 mixed_precision=None, ignored_modules=None, param_init_fn=None, device_id=None, sync_module_states=False,
                 forward_prefetch=False, limit_all_gathers=True, use_orig_params=False, ignored_states=None, device_mesh=None):
        super().__init__()
        if ignored_modules and ignored_states:
            raise ValueError("FullyShardedDataParallel: expected ignored_modules or ignored_states: got both")
        left_out = [*(ignored_modules or ignored_states or ())]
        left_out_modules = {id(m) for part in left_out if isinstance(part, Module) for m in part.modules()}
        ignored = [p for part in left_out for p in (part.parameters() if isinstance(part, Module) else [part])]
        if param_init_fn is not None:
            for m in module.modules():
                if any(p.is_meta for p in m.parameters(recurse=False)):
                    param_init_fn(m)
        strategy = sharding_strategy or ShardingStrategy.FULL_SHARD
        hybrid = strategy in (ShardingStrategy.HYBRID_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2)
        given, device_type = process_group if process_group is not None else device_mesh, device_type_of(module)
        mesh = hybrid_mesh(device_type) if hybrid and given is None else mesh_of(given, device_type)
        group, replicas = mesh.get_group(mesh.ndim - 1), mesh.get_group(0) if mesh.ndim == 2 else None
        if sync_module_states:
            with no_grad():
                for t in [*module.parameters(), *module.buffers()]:
                    if not isinstance(t, DTensor) and all(t is not p for p in ignored):
                        dist.broadcast(t, group=group, group_src=0)
                        if replicas is not None:
                            dist.broadcast(t, group=replicas, group_src=0)
        if hybrid != (replicas is not None):
            raise ValueError("FullyShardedDataParallel: hybrid strategies, and only they, take process_group=(shards, copies) or a "
                             f"device_mesh of two dimensions: got {strategy} and {mesh}")
        options = {"device_mesh": mesh, "sharding_strategy": strategy, "mixed_precision": mixed_precision,
                   "ignored_states": ignored or None}
        if auto_wrap_policy is not None:
            from .wrap import _wrap_children

            _wrap_children(module, auto_wrap_policy, lambda m: m if id(m) in left_out_modules else FullyShardedDataParallel(m, **options))
        if mixed_precision is not None and mixed_precision.buffer_dtype is not None:
            for b in module.buffers():
                if b.is_floating_point():
                    b.data = b.data.to(mixed_precision.buffer_dtype)
        policy = MixedPrecisionPolicy() if mixed_precision is None else MixedPrecisionPolicy(
            mixed_precision.param_dtype, mixed_precision.reduce_dtype or mixed_precision.param_dtype, None, True)
        self.process_group, self.sharding_strategy = group, strategy
        if strategy is not ShardingStrategy.NO_SHARD:
            frees = strategy in (ShardingStrategy.FULL_SHARD, ShardingStrategy.HYBRID_SHARD)
            fully_shard(module, mesh=mesh, reshard_after_forward=frees, mp_policy=policy, ignored_params=set(ignored))
        else:
            self.__dict__["_replicated"] = _replicated(module, group, policy, ignored)
        self._fsdp_wrapped_module = module
        self._register_state_dict_hook(self._finish_state)
        self.register_load_state_dict_pre_hook(self._add_own_name)
        self._state_type, self._state_config, self._optim_config = StateDictType.FULL_STATE_DICT, FullStateDictConfig(), FullOptimStateDictConfig()

    @property
    def module(self):
        """The wrapped module."""
        return self._fsdp_wrapped_module

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("_fsdp_wrapped_module"), name)

    def __getitem__(self, key):
        return self.module[key]

    def forward(self, *args, **kwargs):
        """The module's result."""
        return (self.__dict__.get("_replicated") or self._fsdp_wrapped_module)(*args, **kwargs)

    def check_is_root(self) -> bool:
        """Whether no other unit holds this one."""
        return all(u.root.units[0] is u for u in units_of(self)[:1])

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0):
        """Scales the gradients so that the norm of the whole model's is at most max_norm; gives the norm before."""
        from ...nn.utils import clip_grad_norm_

        return clip_grad_norm_(self.parameters(), max_norm, norm_type)

    @contextlib.contextmanager
    def no_sync(self):
        """Inside, gradients stay whole and add up."""
        units = units_of(self)
        before = [u.syncs for u in units]
        for u in units:
            u.syncs = False
        try:
            with contextlib.ExitStack() as stack:
                for m in self.modules():
                    if m.__dict__.get("_replicated") is not None:
                        stack.enter_context(m.__dict__["_replicated"].no_sync())
                yield
        finally:
            for u, syncs in zip(units, before, strict=True):
                u.syncs = syncs

    @staticmethod
    def fsdp_modules(module, root_only: bool = False) -> list:
        """The wrappers in a module."""
        found = [m for m in module.modules() if isinstance(m, FullyShardedDataParallel)]
        return found[:1] if root_only else found

    @staticmethod
    @contextlib.contextmanager
    def summon_full_params(module, recurse: bool = True, writeback: bool = True, rank0_only: bool = False, offload_to_cpu: bool = False,
                           with_grads: bool = False):
        """Inside, the module has whole parameters; what is written to them is kept where writeback is set."""
        units = units_of(module)
        with no_grad():
            for u in units:
                u.to_pieces()
                for s in u.slots:
                    s.put(s.leaf(s.gather_alone()))
        try:
            yield
        finally:
            with no_grad():
                for u in units:
                    for s in u.slots:
                        m, name = s.places[0]
                        if writeback:
                            now = m._parameters[name]
                            s.local.copy_(s.cut(local_of(now).detach() if s.inner else now.detach()))
                        s.put(s.piece)

    # --- states ---

    @staticmethod
    def set_state_dict_type(module, state_dict_type, state_dict_config=None, optim_state_dict_config=None):
        """How state_dict() of all wrappers in a module is cut."""
        for m in FullyShardedDataParallel.fsdp_modules(module):
            kinds = _CONFIGS[state_dict_type]
            m._state_type = state_dict_type
            m._state_config = state_dict_config or kinds[0]()
            m._optim_config = optim_state_dict_config or kinds[1]()

    @staticmethod
    @contextlib.contextmanager
    def state_dict_type(module, state_dict_type, state_dict_config=None, optim_state_dict_config=None):
        """set_state_dict_type for a scope."""
        wrappers = FullyShardedDataParallel.fsdp_modules(module)
        before = [(m._state_type, m._state_config, m._optim_config) for m in wrappers]
        FullyShardedDataParallel.set_state_dict_type(module, state_dict_type, state_dict_config, optim_state_dict_config)
        try:
            yield
        finally:
            for m, (kind, config, optim_config) in zip(wrappers, before, strict=True):
                m._state_type, m._state_config, m._optim_config = kind, config, optim_config

    def _finish_state(self, module, state, prefix, metadata) -> None:
        """Names without the wrapper's own; values whole or pieces, as the state dict type says. Whole: every rank must call it."""
        full = self._state_type is StateDictType.FULL_STATE_DICT
        drop = full and getattr(self._state_config, "rank0_only", False) and dist.get_rank(self.process_group) != 0
        for key in [k for k in state if k.startswith(prefix)]:
            value = state.pop(key)
            if full and isinstance(value, DTensor):
                value = value.detach().full_tensor()
            if full and getattr(self._state_config, "offload_to_cpu", False) and hasattr(value, "cpu"):
                value = value.cpu()
            if not drop:
                state[prefix + key[len(prefix):].removeprefix(_OWN)] = value

    @staticmethod
    def _add_own_name(module, state, prefix, *rest) -> None:
        for key in [k for k in state if k.startswith(prefix) and not k.startswith(prefix + _OWN)]:
            state[prefix + _OWN + key[len(prefix):]] = state.pop(key)

    @staticmethod
    def optim_state_dict(model, optim, optim_state_dict=None, group=None) -> dict:
        """The optimizer's state by parameter names, whole where the model's state dict type is. Every rank must call it."""
        wrappers = FullyShardedDataParallel.fsdp_modules(model)
        full = not wrappers or wrappers[0]._state_type is StateDictType.FULL_STATE_DICT
        keep = not (full and wrappers and getattr(wrappers[0]._optim_config, "rank0_only", False) and dist.get_rank(wrappers[0].process_group))
        return FullyShardedDataParallel._states_by_name(model, optim, optim_state_dict, full, keep)

    @staticmethod
    def _states_by_name(model, optim, state, full: bool, keep: bool) -> dict:
        state = state if state is not None else optim.state_dict()
        names = {id(p): without_wrappers(n) for n, p in model.named_parameters()}
        params = [p for g in optim.param_groups for p in g["params"]]
        result: dict = {"state": {}, "param_groups": []}
        for i, p in enumerate(params):
            values = state["state"].get(i)
            if values is None:
                continue
            if full and isinstance(p, DTensor):
                values = {k: v.full_tensor() if isinstance(v, DTensor) else v for k, v in p._shared_state(values).items()}
            if keep:
                result["state"][names[id(p)]] = values
        at = 0
        for g in state["param_groups"]:
            n = len(g["params"])
            result["param_groups"].append({**g, "params": [names[id(p)] for p in params[at:at + n]]})
            at += n
        return result

    @staticmethod
    def full_optim_state_dict(model, optim, optim_input=None, rank0_only: bool = True, group=None) -> dict:
        """The whole state by parameter names, on rank 0 only where said; the others get an empty dictionary. Every rank must call it."""
        mine = not rank0_only or dist.get_rank(group) == 0
        state = FullyShardedDataParallel._states_by_name(model, optim, None, True, mine)
        return state if mine else {}

    @staticmethod
    def sharded_optim_state_dict(model, optim, group=None) -> dict:
        """This rank's pieces of the state by parameter names."""
        return FullyShardedDataParallel._states_by_name(model, optim, None, False, True)

    @staticmethod
    def scatter_full_optim_state_dict(full_optim_state_dict, model, optim_input=None, optim=None, group=None) -> dict:
        """What optim.load_state_dict takes, from the whole state that rank 0 has; the others pass anything. Every rank must call it.

        Without optim, its parameters are those of the model, in order. Tensors come whole to each rank, which keeps its part of each.
        """
        from ...optim import SGD
        from ..checkpoint.state_dict import StateDictOptions, _FromRank0, _piece

        source = _FromRank0(full_optim_state_dict, StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
        states, own = source.state["state"], {without_wrappers(n): p for n, p in model.named_parameters()}

        def part(name: str, value):
            value, p = source.here(value, own[name]), own[name]
            return _piece(value, p, name) if getattr(value, "shape", None) == p.shape and value.dim() else value

        parts = {name: {k: part(name, v) for k, v in states[name].items()} for name in own if name in states}
        optim = optim if optim is not None else SGD(model.parameters(), lr=1.0)
        return FullyShardedDataParallel.optim_state_dict_to_load(model, optim, {**source.state, "state": parts})

    @staticmethod
    def optim_state_dict_to_load(model, optim, optim_state_dict, is_named_optimizer=False, load_directly=False, group=None) -> dict:
        """What optim.load_state_dict takes, from what optim_state_dict gave."""
        names = {id(p): without_wrappers(n) for n, p in model.named_parameters()}
        params = [p for g in optim.param_groups for p in g["params"]]
        state: dict = {}
        for i, p in enumerate(params):
            values = optim_state_dict["state"].get(names[id(p)])
            if values is not None:
                state[i] = values  # of which the optimizer keeps its part
        groups, at = [], 0
        for g, own in zip(optim_state_dict["param_groups"], optim.param_groups, strict=True):
            n = len(own["params"])
            groups.append({**{k: v for k, v in g.items() if k != "params"}, "params": list(range(at, at + n))})
            at += n
        result = {"state": state, "param_groups": groups}
        if load_directly:
            optim.load_state_dict(result)
        return result
