"""Names that files of PyTorch have because they import them, and that programs take from there, as their editors complete them
(`from torch.distributions.kl import Bernoulli`). Served while PyTorch's names stand for tapegrad; compat/names.py has what is those files' own."""

from .kinds import place_of

# Where the names are here, in the order in which they are looked for.
_OWNERS = ("", "nn", "nn.init", "nn.parameter", "nn.utils.rnn", "nn.modules.lazy", "optim", "optim.optimizer", "distributions", "distributions.utils", "overrides",
           "autograd", "autograd.profiler", "profiler", "futures", "utils.data", "utils.data.pipes", "utils.hooks", "utils._pytree", "utils._python_dispatch", "distributed",
           "distributed.fsdp", "nn.parallel.distributed", "nn.functional", "cuda", "_utils", "types", "storage", "utils.data._utils")
_OVERRIDES = "handle_torch_function has_torch_function"
_PYTREE = "tree_flatten tree_unflatten"
NAMES = {path: frozenset(names.split()) for path, names in {
    "_functorch.vmap": f"Tensor TreeSpec tree_map_ {_PYTREE}",
    "_jit_internal": "Future boolean_dispatch",
    "_tensor": f"get_default_nowrap_functions has_torch_function_unary has_torch_function_variadic {_OVERRIDES}",
    "_tensor_str": "inf",
    "autograd": f"ProfilerActivity is_tensor_like {_OVERRIDES}",
    "autograd.graph": "RemovableHandle TorchDispatchMode Variable",
    "autograd.profiler": "Future ProfilerActivity",
    "cuda.graphs": "Tensor",
    "cuda.memory": "is_initialized",
    "cuda.random": "Tensor current_device device_count is_initialized",
    "distributed.checkpoint.state_dict": "FullOptimStateDictConfig FullStateDictConfig ShardedOptimStateDictConfig ShardedStateDictConfig StateDictType tree_map_only",
    "distributed.device_mesh": "ProcessGroup get_backend get_process_group_ranks get_rank get_world_size init_process_group is_available is_initialized new_group",
    "distributed.distributed_c10d": f"reduce_op register_rendezvous_handler rendezvous {_OVERRIDES}",
    "distributed.fsdp.fully_sharded_data_parallel": "DeviceMesh",
    "distributed.rpc": "Store",
    "distributed.utils": "PackedSequence",
    "distributions.kl": "Bernoulli Beta Binomial Categorical Cauchy ContinuousBernoulli Dirichlet Distribution Exponential ExponentialFamily Gamma Geometric Gumbel "
                        "HalfNormal Independent Laplace LowRankMultivariateNormal MultivariateNormal Normal OneHotCategorical Pareto Poisson Tensor "
                        "TransformedDistribution Uniform inf",
    "distributions.transforms": "Distribution Tensor broadcast_all lazy_property pad softplus tril_matrix_to_vec vec_to_tril_matrix",
    "distributions.utils": "SymInt Tensor is_tensor_like",
    "fft": "Tensor",
    "functional": f"Tensor boolean_dispatch has_torch_function_unary has_torch_function_variadic pca_lowrank svd_lowrank {_OVERRIDES}",
    "nn.attention.flex_attention": f"GetAttrKey TreeSpec tree_map_only {_PYTREE}",
    "nn.functional": "Tensor",
    "nn.init": "Tensor",
    "nn.modules.activation": "constant_ xavier_normal_ xavier_uniform_",
    "nn.modules.batchnorm": "LazyModuleMixin UninitializedBuffer UninitializedParameter",
    "nn.modules.conv": "LazyModuleMixin UninitializedParameter",
    "nn.modules.lazy": "is_lazy",
    "nn.modules.linear": "LazyModuleMixin UninitializedParameter",
    "nn.modules.loss": "Linear PairwiseDistance",
    "nn.module": "Buffer device dtype is_traceable_wrapper_subclass",
    "nn.modules.normalization": "Size",
    "nn.modules.rnn": "PackedSequence",
    "nn.modules.transformer": "Dropout LayerNorm Linear ModuleList MultiheadAttention xavier_uniform_",
    "nn.parallel.distributed": "Function ReduceOp Variable tree_flatten tree_unflatten",
    "nn.utils.parametrize": "is_traceable_wrapper_subclass",
    "nn.utils.stateless": "Tensor",
    "optim.adam": "Optimizer ParamsT Tensor",
    "optim.adamw": "Adam ParamsT Tensor",
    "optim.lr_scheduler": "inf",
    "optim.sgd": "Optimizer ParamsT Tensor",
    "optim.swa_utils": "Tensor",
    "profiler": "Optimizer",
    "sparse": "Tensor",
    "special": "Tensor",
    "storage": "Storage",
    "types": "SymBool SymFloat SymInt",
    "utils._foreach_utils": "Tensor no_grad",
    "utils.checkpoint": "TorchDispatchMode tree_map",
    "utils.data._utils": "ExceptionWrapper",
    "utils.data._utils.pin_memory": "ExceptionWrapper",
    "utils.data._utils.worker": "ExceptionWrapper",
    "utils.data.dataloader": "ExceptionWrapper IterDataPipe MapDataPipe",
    "utils.data.dataset": "Generator",
    "utils.data.distributed": "Dataset",
    "utils.flop_counter": f"TorchDispatchMode tree_map {_PYTREE}",
    "utils.weak": "Tensor",
}.items()}

def find(path: str, name: str):
    """What PyTorch's file of a path has by importing it; None where that is not in the table."""
    if name not in NAMES.get(path, ()):
        return None
    for owner in _OWNERS:
        module = place_of(owner)
        try:  # a module's own names: their __getattr__ would ask here again
            return vars(module)[name] if owner else getattr(module, name)
        except (AttributeError, ImportError, KeyError):  # the second where an import asks
            continue
    return None
