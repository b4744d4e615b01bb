"""What an operator does with DTensors: its rule (`_table.py`), or the general way, which is right for every operator whose result follows
from its arguments: all arguments are gathered, each rank does the whole work, the result is whole on each rank."""

from ... import Tensor, default_generator, is_grad_enabled, no_grad
from ...utils import _pytree
from .. import distributed_c10d as c10d
from .._placements import Partial, Replicate
from ._dtensor import DTensor, Switch, raw, wrap
from ._moves import move, move_plainly
from ._spec import Spec
from ._table import RULES, VIEWS, each_result, in_place, leaves_of, mesh_of, replicated

# What has the same answer for a part as for the whole.
_OF_PARTS = frozenset("requires_grad_ is_floating_point is_complex is_signed element_size get_device is_contiguous retain_grad has_names is_neg "
                      "is_conj is_inference _is_view data_ptr register_post_accumulate_grad_hook untyped_storage _storage_id __hash__ "
                      "is_tensor result_type can_cast promote_types is_same_size __reduce_ex__".split())
_PROPERTIES_OF_PARTS = frozenset("requires_grad dtype device layout is_leaf grad_fn _version is_cuda is_cpu is_meta is_sparse is_quantized "
                                 "itemsize output_nr names retains_grad is_mkldnn is_xla is_mps is_nested name _backward_hooks _base "
                                 "_grad _grad_fn is_sparse_csr _is_any_sparse is_xpu is_hpu is_ipu is_vulkan is_maia is_mtia".split())
_REFUSED = {name: "use .to_local() for this rank's part, .full_tensor() for the whole" for name in
            ("numpy storage set_ resize_ resize_as_ share_memory_ __array__ __dlpack__ __dlpack_device__ apply_ map_ map2_ pin_memory storage_offset "
             "as_strided as_strided_ to_sparse to_sparse_csr to_sparse_csc to_sparse_bsr to_sparse_bsc __cuda_array_interface__ __setstate__").split()}
_RANDOM = frozenset("bernoulli bernoulli_ multinomial normal normal_ uniform_ exponential_ geometric_ log_normal_ cauchy_ random_ poisson rand_like "
                    "randn_like randint_like rrelu rrelu_ dropout_ feature_dropout alpha_dropout feature_alpha_dropout dropout1d dropout2d dropout3d "
                    "gumbel_softmax fractional_max_pool2d fractional_max_pool3d trunc_normal_ kaiming_uniform_ kaiming_normal_ xavier_uniform_ "
                    "xavier_normal_ orthogonal_ sparse_ scaled_dot_product_attention multi_head_attention_forward binomial randperm".split())
_replicates = Switch()


def implicit_replication():
    """Inside, plain tensors among DTensors count as whole on each rank."""
    return _replicates.scope()


def _adopted(value, mesh, name: str):
    """A plain tensor among DTensors: numbers are the same on each rank, others must say how they lie."""
    if not isinstance(value, Tensor) or isinstance(value, DTensor):
        return value
    if value.numel() == 1 and value.dim() <= 1 or _replicates.on:
        return wrap(value.view_as(value) if value.requires_grad else value, Spec(mesh, [Replicate()] * mesh.ndim, value.shape))
    raise RuntimeError(f"{name}: got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor before calling distributed "
                       f"operators! Got a plain tensor of shape {list(value.shape)}\nuse DTensor.from_local or distribute_tensor, or "
                       "distributed.tensor.experimental.implicit_replication() where it is the same on each rank")


def _is_plain(value) -> bool:
    return isinstance(value, Tensor) and not isinstance(value, DTensor)


def dispatch(func, args, kwargs):
    """The operator's result."""
    name = getattr(func, "__name__", "?")
    if name in ("__get__", "__set__", "__delete__"):
        return _property(func, name, args, kwargs)
    if name in _OF_PARTS:
        with raw():
            return func(*args, **kwargs)
    if name in _REFUSED:
        raise NotImplementedError(f"{name}: a DTensor's parts lie with several processes\n{_REFUSED[name]}")
    if name in _OF_CLASS:
        return getattr(DTensor, name)(*args, **kwargs)
    if kwargs.get("out") is not None:
        raise NotImplementedError(f"{name}: out= is not supported for DTensors\nuse the result")
    kwargs.pop("out", None)
    if not args and kwargs:  # rules find the first argument by its place
        first = next(iter(kwargs))
        args, kwargs = (kwargs[first],), {k: v for k, v in kwargs.items() if k != first}
    if getattr(func, "__module__", None) in ("tapegrad.nn.init", "torch.nn.init") and is_grad_enabled():
        with no_grad():
            return dispatch(func, args, kwargs)
    found = leaves_of(args, kwargs)
    if not found:
        with raw():
            return func(*args, **kwargs)
    mesh = mesh_of(found, name)
    if mesh.get_coordinate() is None:
        raise RuntimeError(f"{name}: this process is not in the mesh of the DTensors: {mesh}")
    if any(_is_plain(x) for x in _pytree.tree_leaves((args, kwargs))) and name != "backward":
        args, kwargs = _pytree.tree_map(lambda x: _adopted(x, mesh, name), (tuple(args), kwargs))
    changes = in_place(name)
    if changes and isinstance(args[0], DTensor) and getattr(args[0], "_copy_of_view", None):
        raise RuntimeError(f"{name}: the tensor is a copy, since {args[0]._copy_of_view} could not look into the parts: what it was made of would "
                           "stay as it is\nredistribute it to Replicate before")
    entry = RULES.get(name)
    if entry is not None:
        result = entry(func, name, args, kwargs)
        if result is not NotImplemented:
            return result
    return _anyhow(func, name, args, kwargs, mesh, changes)


_OF_CLASS = frozenset("size dim ndimension numel nelement stride __len__ __repr__ __deepcopy__ __format__".split())


def _property(func, name: str, args, kwargs):
    which = getattr(getattr(func, "__self__", None), "__name__", "?")
    if which in DTensor.__dict__ and isinstance(args[0], DTensor):
        return getattr(DTensor.__dict__[which], name)(*args, **kwargs)
    if name != "__get__" or which in _PROPERTIES_OF_PARTS:
        with raw():
            return func(*args, **kwargs)
    if which == "nbytes":
        return args[0].numel() * args[0].itemsize
    entry = RULES.get(which)
    if entry is not None:
        return entry(lambda x, *_: getattr(x, which), which, args[:1], {})
    return _anyhow(lambda x: getattr(x, which), which, args[:1], {}, args[0].device_mesh, False)


def _anyhow(func, name: str, args, kwargs, mesh, changes: bool):
    """The general way."""
    if name in _RANDOM:
        same_random_numbers(mesh)
    target = args[0] if changes and isinstance(args[0], DTensor) else None
    if target is not None and any(isinstance(p, Partial) for p in target.placements):
        raise RuntimeError(f"{name}: in-place operations that require placement changes are not supported: the tensor lies as {target.placements}\n"
                           "redistribute it to Replicate before, or use the operator that gives a new tensor")
    moved = target is not None and any(p != Replicate() for p in target.placements)
    if moved and target.requires_grad and is_grad_enabled():
        raise NotImplementedError(f"{name}: in place on a DTensor that requires grad and lies as {target.placements}\nuse the operator that gives "
                                  "a new tensor, or redistribute it to Replicate before")
    gathered = any(isinstance(x, DTensor) and any(p != Replicate() for p in x.placements) for x in args)
    local_args, local_kwargs = _pytree.tree_map(lambda x: replicated(x) if isinstance(x, DTensor) else x, (tuple(args), kwargs))
    if target is not None and not moved:
        with raw():
            func(target, *local_args[1:], **local_kwargs)
        return target
    out = func(*local_args, **local_kwargs)
    if moved:
        whole = Spec(mesh, [Replicate()] * mesh.ndim, target.shape)
        with raw(), no_grad():
            Tensor.copy_(target, move_plainly(local_args[0], whole, target.placements))
        return target
    copied = name if gathered and name in VIEWS else next((x._copy_of_view for x in args if isinstance(x, DTensor) and name in VIEWS
                                                           and getattr(x, "_copy_of_view", None)), None)

    def wrapped(x):
        if not isinstance(x, Tensor):
            return x
        result = wrap(x, Spec(mesh, [Replicate()] * mesh.ndim, x.shape))
        if name.endswith("_like") and isinstance(args[0], DTensor):
            result = wrap(move(x, result._spec, args[0].placements), args[0]._spec) if not leaves_partial(args[0]) else result
        if copied:
            result._copy_of_view = copied
        return result

    return each_result(wrapped, out)


def leaves_partial(t) -> bool:
    """Whether a DTensor is still to be reduced."""
    return any(isinstance(p, Partial) for p in t.placements)


def same_random_numbers(mesh) -> None:
    """Lets all ranks of a mesh draw the same random numbers next: those of the first one's generator."""
    if mesh.size() == 1:
        return
    state = default_generator.get_state()
    for i in range(mesh.ndim):
        group = mesh.get_group(i)
        if group.size() > 1:
            mine = state.clone()
            c10d.broadcast(mine, group=group, group_src=0)
            state = mine
    if not bool((state == default_generator.get_state()).all()):
        default_generator.set_state(state)


from . import _rules_elementwise, _rules_matrix, _rules_nn, _rules_shape  # noqa: E402, F401  they fill the table
