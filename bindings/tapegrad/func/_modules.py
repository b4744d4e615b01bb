"""Modules as functions of their parameters, and many of one kind as one."""

__all__ = ["functional_call", "replace_all_batch_norm_modules_", "stack_module_state"]


def functional_call(module, parameter_and_buffer_dicts, args=None, kwargs=None, *, tie_weights: bool = True, strict: bool = False):
    """module(*args, **kwargs) with the parameters and buffers of a dictionary, or of several, in place of its own.

    A single argument need not be in a tuple. Raises ValueError for a name in two dictionaries.
    """
    from ..nn.utils import stateless

    if isinstance(parameter_and_buffer_dicts, dict):
        values = parameter_and_buffer_dicts
    else:
        if not all(isinstance(d, dict) for d in parameter_and_buffer_dicts):
            raise ValueError("Expected all elements of parameter_and_buffer_dicts to be dictionaries")
        values = {}
        for part in parameter_and_buffer_dicts:
            for key in part:
                if key in values:
                    raise ValueError(f"{key} appeared in multiple dictionaries; behavior of functional call is ambiguous")
            values.update(part)
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    return stateless.functional_call(module, values, args, kwargs, tie_weights=tie_weights, strict=strict)


def stack_module_state(models) -> tuple[dict, dict]:
    """(parameters, buffers) of modules of one class, each stacked along a new first dimension: for vmap over the modules.

    Raises RuntimeError for none, for modules of different classes, and for some in training and some not.
    """
    models = list(models)
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if not (all(m.training for m in models) or all(not m.training for m in models)):
        raise RuntimeError("stack_module_state: Expected all models to have the same training/eval mode.")
    if not all(type(m) is type(models[0]) for m in models):
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")
    params = {name: _stacked([dict(m.named_parameters())[name] for m in models]) for name, _ in models[0].named_parameters()}
    buffers = {name: _stacked([dict(m.named_buffers())[name] for m in models]) for name, _ in models[0].named_buffers()}
    return params, buffers


def _stacked(tensors):
    from .. import stack

    needs = [t.requires_grad for t in tensors]
    if any(needs) != all(needs):
        raise RuntimeError("Expected all parameters or buffers to have the same .requires_grad value: got some of each")
    joined = stack([t.detach() if t.is_leaf else t for t in tensors])
    return joined.requires_grad_() if needs[0] and all(t.is_leaf for t in tensors) else joined


def replace_all_batch_norm_modules_(root):
    """Turns off the running statistics of every batch norm in the module, which vmap cannot write to; returns it."""
    from ..nn import BatchNorm1d, BatchNorm2d, BatchNorm3d

    for module in root.modules():
        if isinstance(module, (BatchNorm1d, BatchNorm2d, BatchNorm3d)):
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root
