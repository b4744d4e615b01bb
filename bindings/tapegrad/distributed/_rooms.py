"""The parts of torch.distributed that only several processes need, by PyTorch's paths: importing works, using says why not.

Each path is a module object made here and entered into sys.modules, so that `import` of it works.
"""

from __future__ import annotations

import enum
import sys
import types

from .._absent import missing_class, missing_function
from . import _placements

_WHY = "tapegrad runs one process so far, and a model or a state of one process is whole"

# Classes and functions by path.
_ROOMS = {
    "_composable.fsdp": ("MixedPrecisionPolicy CPUOffloadPolicy FSDPModule", "fully_shard"),
    "_composable.replicate": ("", "replicate"),
    "_functional_collectives": ("AsyncCollectiveTensor", "all_gather_tensor all_reduce all_to_all_single all_to_all_single_autograd wait_tensor "
                                "reduce_scatter_tensor"),
    "algorithms._checkpoint.checkpoint_wrapper": ("CheckpointWrapper", "apply_activation_checkpointing checkpoint_wrapper offload_wrapper"),
    "algorithms.ddp_comm_hooks.powerSGD_hook": ("PowerSGDState", "powerSGD_hook batched_powerSGD_hook"),
    "algorithms.ddp_comm_hooks.post_localSGD_hook": ("PostLocalSGDState", "post_localSGD_hook"),
    "algorithms.model_averaging.averagers": ("ModelAverager PeriodicModelAverager", ""),
    "autograd": ("context", "backward get_gradients"),
    "checkpoint": ("FileSystemReader FileSystemWriter HuggingFaceStorageReader HuggingFaceStorageWriter DefaultLoadPlanner DefaultSavePlanner "
                   "StorageReader StorageWriter LoadPlanner SavePlanner", "save load async_save save_state_dict load_state_dict"),
    "checkpoint.default_planner": ("DefaultLoadPlanner DefaultSavePlanner", ""),
    "checkpoint.format_utils": ("_EmptyStateDictLoadPlanner", "_load_state_dict dcp_to_torch_save torch_save_to_dcp"),
    "checkpoint.hf_storage": ("HuggingFaceStorageReader HuggingFaceStorageWriter", ""),
    "checkpoint.optimizer": ("", "load_sharded_optimizer_state_dict"),
    "checkpoint.state_dict_loader": ("", "_load_state_dict load load_state_dict"),
    "checkpoint.state_dict": ("StateDictOptions", "get_model_state_dict get_optimizer_state_dict get_state_dict set_model_state_dict "
                              "set_optimizer_state_dict set_state_dict _init_optim_state"),
    "checkpoint.stateful": ("Stateful", ""),
    "fsdp": ("FullyShardedDataParallel MixedPrecision CPUOffload CPUOffloadPolicy MixedPrecisionPolicy OffloadPolicy FSDPModule "
             "FullStateDictConfig LocalStateDictConfig ShardedStateDictConfig FullOptimStateDictConfig ShardedOptimStateDictConfig", "fully_shard register_fsdp_forward_method"),
    "fsdp.sharded_grad_scaler": ("ShardedGradScaler", ""),
    "fsdp.wrap": ("ModuleWrapPolicy CustomPolicy", "always_wrap_policy enable_wrap lambda_auto_wrap_policy size_based_auto_wrap_policy "
                  "transformer_auto_wrap_policy wrap"),
    "launcher": ("LaunchConfig", "elastic_launch"),
    "pipelining": ("PipelineStage Schedule1F1B ScheduleGPipe", "pipeline pipe_split"),
    "rpc": ("RRef TensorPipeRpcBackendOptions WorkerInfo", "get_worker_info init_rpc remote rpc_async rpc_sync shutdown"),
    "rpc.functions": ("", "async_execution"),
    "run": ("", "get_args_parser main parse_args run"),
    "tensor": ("DTensor", "distribute_module distribute_tensor ones empty full rand randn zeros"),
    "tensor.experimental": ("", "context_parallel implicit_replication local_map"),
    "tensor.parallel": ("ColwiseParallel ParallelStyle PrepareModuleInput PrepareModuleOutput RowwiseParallel SequenceParallel",
                        "loss_parallel parallelize_module"),
    "tensor.placement_types": ("", ""),
    "tensor._utils": ("", "compute_local_shape_and_global_offset"),
}
# Paths that hold what another one holds.
_ALSO = {"_tensor": "tensor", "_tensor.experimental": "tensor.experimental", "_tensor.placement_types": "tensor.placement_types", "fsdp.fully_sharded_data_parallel": "fsdp", "fsdp.api": "fsdp",
         "launcher.api": "launcher", "tensor.parallel.style": "tensor.parallel", "algorithms.ddp_comm_hooks.default": None,
         "checkpoint.filesystem": "checkpoint"}


class ShardingStrategy(enum.Enum):
    """How a model would be cut."""

    FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD, _HYBRID_SHARD_ZERO2 = range(1, 6)


class BackwardPrefetch(enum.Enum):
    """When parameters would be collected in a backward pass."""

    BACKWARD_PRE, BACKWARD_POST = 1, 2


class StateDictType(enum.Enum):
    """How a state would be cut."""

    FULL_STATE_DICT, LOCAL_STATE_DICT, SHARDED_STATE_DICT = 1, 2, 3


class OptimStateKeyType(enum.Enum):
    """What an optimizer's state would be found by."""

    PARAM_NAME, PARAM_ID = 1, 2


class SplitPoint(enum.Enum):
    """Where a model would be cut into stages."""

    BEGINNING, END = 1, 2


class CheckpointImpl(enum.Enum):
    """How activations would be computed again."""

    REENTRANT, NO_REENTRANT = 1, 2


_VALUES = {"fsdp": (ShardingStrategy, BackwardPrefetch, StateDictType, OptimStateKeyType), "pipelining": (SplitPoint,),
           "algorithms._checkpoint.checkpoint_wrapper": (CheckpointImpl,),
           "tensor": (_placements.Partial, _placements.Placement, _placements.Replicate, _placements.Shard),
           "tensor.placement_types": tuple(vars(_placements)[name] for name in _placements.__all__)}
_PARENT = __package__


def _module(path: str) -> types.ModuleType:
    """The module of a path, made with its parents if need be."""
    full = f"{_PARENT}.{path}"
    if full not in sys.modules:
        made = types.ModuleType(full, f"Names of PyTorch's distributed.{path}, which needs several processes.")
        made.__path__ = []
        sys.modules[full] = made
        parent, _, name = path.rpartition(".")
        setattr(_module(parent) if parent else sys.modules[_PARENT], name, made)
    return sys.modules[full]


def make_all() -> None:
    """Makes every path."""
    known: dict[str, type] = {}  # one class for a name in several rooms
    for path, (classes, functions) in _ROOMS.items():
        members: dict = {}
        for name in classes.split():
            members[name] = known.setdefault(name, missing_class(f"distributed.{path}.{name}", _WHY))
        members.update({name: missing_function(f"distributed.{path}.{name}", _WHY) for name in functions.split()})
        members.update({kind.__name__: kind for kind in _VALUES.get(path, ())})
        vars(_module(path)).update(members, __all__=sorted(members))
    fsdp = known["FullyShardedDataParallel"]
    for name in ("state_dict_type", "summon_full_params", "optim_state_dict", "optim_state_dict_to_load", "full_optim_state_dict",
                 "scatter_full_optim_state_dict", "rekey_optim_state_dict", "fsdp_modules", "set_state_dict_type"):
        setattr(fsdp, name, staticmethod(missing_function(f"distributed.fsdp.FullyShardedDataParallel.{name}", _WHY)))
    for name in ("from_local", "to_local", "full_tensor", "redistribute"):
        setattr(known["DTensor"], name, missing_function(f"distributed.tensor.DTensor.{name}", _WHY))
    from . import device_mesh
    from .algorithms.ddp_comm_hooks import default_hooks

    for name in ("DeviceMesh", "init_device_mesh"):
        setattr(_module("tensor"), name, getattr(device_mesh, name))
    for path, same in _ALSO.items():
        source = default_hooks if same is None else _module(same)
        vars(_module(path)).update({name: getattr(source, name) for name in source.__all__})
    _module("_tensor").device_mesh = device_mesh
    sys.modules[f"{_PARENT}._tensor.device_mesh"] = device_mesh
