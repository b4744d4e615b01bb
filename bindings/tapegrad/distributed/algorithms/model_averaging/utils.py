"""Averages of parameters over ranks."""

from .... import cat, no_grad
from ....nn import Parameter

__all__ = ["average_parameters", "average_parameters_or_parameter_groups", "get_params_to_average"]


def average_parameters(params, process_group) -> None:
    """Each parameter becomes its mean over the ranks, in place; one call for all of a dtype. Nothing outside of the group."""
    from ... import GroupMember, all_reduce, group

    over = process_group if process_group is not None else group.WORLD
    if over is None or over == GroupMember.NON_GROUP_MEMBER:
        return
    kinds: dict = {}
    for p in params:
        kinds.setdefault((p.dtype, p.device), []).append(p)
    with no_grad():
        for same in kinds.values():
            flat = cat([p.detach().reshape(-1) for p in same]).div_(over.size())
            all_reduce(flat, group=over)
            for p, mean in zip(same, flat.split([p.numel() for p in same]), strict=True):
                p.copy_(mean.view(p.shape))


def get_params_to_average(params) -> list:
    """Those with a gradient, of parameters or of an optimizer's groups."""
    found = []
    for entry in params:
        if isinstance(entry, dict):
            found += [p for p in entry["params"] if p.grad is not None]
        elif isinstance(entry, Parameter):
            found += [entry] if entry.grad is not None else []
        else:
            raise NotImplementedError(f"Parameter input of type {type(entry)} is not supported")
    return found


def average_parameters_or_parameter_groups(params, process_group) -> None:
    """average_parameters of those that have a gradient."""
    average_parameters(get_params_to_average(params), process_group)
