"""PyTorch's experimental functions of DTensors."""

import functools

from ..._lazy import more_names as _more_names
from ...utils import _pytree
from ._dispatch import implicit_replication
from ._dtensor import DTensor

__all__ = ["context_parallel", "implicit_replication", "local_map"]  # noqa: F822  the first is in compat/names.py
__getattr__, __dir__ = _more_names(__name__)


def local_map(func=None, out_placements=None, in_placements=None, in_grad_placements=None, device_mesh=None, *, redistribute_inputs: bool = False):
    """A function of parts as one of DTensors.

    Args:
        out_placements: how results lie, one tuple of placements for all or one for each result; None for what is no tensor.
        in_placements: how arguments must lie, one for each of the flat arguments; None leaves it as it is.
        in_grad_placements: how gradients of arguments come back; default: as the arguments lie.
        redistribute_inputs: whether to move arguments that lie otherwise; else ValueError.
    """
    if func is None:
        return functools.partial(local_map, out_placements=out_placements, in_placements=in_placements, in_grad_placements=in_grad_placements,
                                 device_mesh=device_mesh, redistribute_inputs=redistribute_inputs)

    @functools.wraps(func)
    def mapped(*args, **kwargs):
        leaves, spec = _pytree.tree_flatten(args)
        mesh = device_mesh or next((x.device_mesh for x in leaves if isinstance(x, DTensor)), None)
        if in_placements is not None and len(in_placements) != len(leaves):
            raise AssertionError(f"in_placements length {len(in_placements)} does not match the number of input args {len(leaves)}!")
        given = []
        for i, x in enumerate(leaves):
            wanted = in_placements[i] if in_placements is not None else None
            if isinstance(x, DTensor):
                if wanted is not None and tuple(wanted) != x.placements:
                    if not redistribute_inputs:
                        raise ValueError(f"in_placements {wanted} of argument {i} differ from how it lies, {x.placements}: use redistribute_inputs=True")
                    x = x.redistribute(placements=wanted)
                x = x.to_local(grad_placements=in_grad_placements[i] if in_grad_placements is not None else None)
            given.append(x)
        out = func(*_pytree.tree_unflatten(given, spec), **kwargs)
        if mesh is None:
            return out
        results, out_spec = _pytree.tree_flatten(out)
        one = out_placements and not isinstance(out_placements[0], (tuple, list, type(None)))
        per = [out_placements] * len(results) if one else list(out_placements)
        if len(per) != len(results):
            raise AssertionError(f"local_map requires one PlacementType for each output value, got {len(per)} for {len(results)}")
        made = [x if p is None else DTensor.from_local(x, mesh, p) for x, p in zip(results, per, strict=True)]
        return _pytree.tree_unflatten(made, out_spec)

    return mapped
