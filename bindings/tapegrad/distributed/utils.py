"""What libraries use of PyTorch's helpers for distributed modules: all ranks get one rank's parameters and buffers; inputs are cast."""

from .. import Tensor
from ..utils._pytree import tree_map


def _sync_module_states(module, process_group, broadcast_bucket_size: int, src: int, params_and_buffers_to_ignore,
                        broadcast_buffers: bool = True) -> None:
    """Parameters and, if wanted, buffers of the group's rank `src` go to all its ranks. Shapes must be equal on all."""
    ignored = set(params_and_buffers_to_ignore)
    states = [p.detach() for name, p in module.named_parameters() if name not in ignored]
    if broadcast_buffers:
        states += [b.detach() for name, b in module.named_buffers() if name not in ignored]
    _sync_params_and_buffers(process_group, states, broadcast_bucket_size, src)


def _sync_params_and_buffers(process_group, module_states, broadcast_bucket_size: int, src: int) -> None:
    """The tensors of the group's rank `src` go to all its ranks. They travel as one message, whatever the size of buckets."""
    if module_states:
        from ..nn.parallel._agreement import broadcast_from

        broadcast_from(list(module_states), src, process_group)


def _verify_param_shape_across_processes(process_group, tensors, logger=None) -> None:
    """Raises RuntimeError on all ranks, and says which tensor, where shapes or dtypes differ."""
    from ..nn.parallel._agreement import check_same_model

    check_same_model([(f"tensor {i}", t) for i, t in enumerate(tensors)], process_group)


def _cast_floats(dtype, value):
    """The value with its floating tensors, also those in lists and dictionaries, in another dtype; None: as it is."""
    if dtype is None:
        return value
    return tree_map(lambda x: x.to(dtype) if isinstance(x, Tensor) and x.is_floating_point() else x, value)


def _cast_forward_inputs(dtype, *args, **kwargs) -> tuple:
    """Arguments and keywords with their floating tensors in another dtype; None: as they are."""
    return _cast_floats(dtype, args), _cast_floats(dtype, kwargs)
