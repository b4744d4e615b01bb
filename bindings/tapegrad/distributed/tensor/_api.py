"""Tensors and modules laid over a mesh, and new tensors that lie over one."""

import inspect

from ... import empty as _empty
from ... import full as _full
from ... import no_grad
from ... import ones as _ones
from ... import rand as _rand
from ... import randn as _randn
from ... import zeros as _zeros
from ...nn import Parameter
from .. import distributed_c10d as c10d
from .._placements import Partial, Replicate
from ._dtensor import DTensor, _mesh_of, wrap
from ._moves import move_plainly
from ._spec import Spec, local_shape_and_offset, normalized

__all__ = ["distribute_module", "distribute_tensor", "empty", "full", "ones", "rand", "randn", "zeros"]


def distribute_tensor(tensor, device_mesh=None, placements=None, *, src_data_rank: int | None = 0) -> DTensor:
    """A leaf tensor laid over a mesh: each rank keeps its part of what the first rank of each dimension of the mesh has.

    Args:
        tensor: of one shape and dtype on all ranks.
        device_mesh: the mesh; the one whose `with` block this is in.
        placements: default: whole on each rank.
        src_data_rank: the rank along each dimension whose values count; None: each rank's own, nothing is sent.

    A Parameter gives a Parameter. Raises RuntimeError for tensors that are not leaves, ValueError for placements that do not fit and for
    a DTensor that lies otherwise.
    """
    mesh = _mesh_of(device_mesh)
    if not tensor.is_leaf:
        raise RuntimeError("`distribute_tensor` should be used to distribute leaf tensors! but found non-leaf tensor!")
    placements = normalized(placements, mesh, tensor.ndim, "distribute_tensor")
    if isinstance(tensor, DTensor):
        if tensor.device_mesh != mesh:
            raise ValueError(f"Cannot distribute a DTensor with device mesh {tensor.device_mesh} to a different device mesh {mesh}.")
        if tensor.placements != placements:
            raise ValueError(f"Cannot distribute a DTensor with placements {tensor.placements} to a different placements {placements}. "
                             "do you want to call `redistribute` instead?")
        return tensor
    spec = Spec(mesh, placements, tensor.shape)
    with no_grad():
        local = tensor.detach()
        if local.device.type != mesh.device_type and not local.is_meta:
            local = local.to(mesh.device_type)
        if mesh.get_coordinate() is None:
            local = local.new_empty((0,))
        else:
            if src_data_rank is not None and not local.is_meta:
                local = local.clone().contiguous()
                for i in range(mesh.ndim):
                    group = mesh.get_group(i)
                    if group.size() > 1:
                        c10d.broadcast(local, group=group, group_src=src_data_rank)
            local = move_plainly(local, spec.with_placements([Replicate()] * mesh.ndim), placements)
            if local.shape == tensor.shape and local._shares_storage(tensor):
                local = local.clone()
    made = wrap(local, spec)
    if isinstance(tensor, Parameter):
        return made._as_parameter(tensor.requires_grad)
    return made.requires_grad_(tensor.requires_grad)


def distribute_module(module, device_mesh=None, partition_fn=None, input_fn=None, output_fn=None):
    """Lays a module's parameters over a mesh, and what goes in and comes out.

    Args:
        partition_fn(name, submodule, mesh): replaces parameters; those that stay plain become whole on each rank.
        input_fn(module, inputs, mesh): the inputs before each forward pass.
        output_fn(module, outputs, mesh): the outputs after it.

    Raises RuntimeError for a module that is laid over a mesh already, ValueError for functions of other numbers of arguments.
    """
    mesh = _mesh_of(device_mesh)
    if getattr(module, "_distribute_module_applied", False):
        raise RuntimeError("distribute_module should only be called once on a module, but it has already been called on this module!")
    for name, function in (("input_fn", input_fn), ("output_fn", output_fn)):
        if function is not None and len(inspect.signature(function).parameters) not in (2, 3):
            raise ValueError(f"{name} should take in 3 arguments, but got {len(inspect.signature(function).parameters)} arguments!")
    for name, sub in module.named_modules():
        if partition_fn is not None:
            partition_fn(name, sub, mesh)
        _replicate_rest(sub, mesh)
    if input_fn is not None:
        module.register_forward_pre_hook(lambda m, inputs: input_fn(m, inputs, mesh) if len(inspect.signature(input_fn).parameters) == 3
                                         else input_fn(inputs, mesh))
    if output_fn is not None:
        module.register_forward_hook(lambda m, inputs, outputs: output_fn(m, outputs, mesh) if len(inspect.signature(output_fn).parameters) == 3
                                     else output_fn(outputs, mesh))
    module._distribute_module_applied = True
    return module


def _replicate_rest(module, mesh) -> None:
    whole = [Replicate()] * mesh.ndim
    for key, parameter in list(module._parameters.items()):
        if parameter is not None and not isinstance(parameter, DTensor):
            module.register_parameter(key, distribute_tensor(parameter, mesh, whole))
    for key, buffer in list(module._buffers.items()):
        if buffer is not None and not isinstance(buffer, DTensor):
            module._buffers[key] = distribute_tensor(buffer, mesh, whole)


def _shape(size) -> tuple:
    return tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else tuple(size)


def _made(who: str, make, size, device_mesh, placements, requires_grad: bool, options: dict) -> DTensor:
    mesh, shape = _mesh_of(device_mesh), _shape(size)
    placements = normalized(placements, mesh, len(shape), who)
    if any(isinstance(p, Partial) for p in placements) and make in (_ones, _full, _rand, _randn):
        raise ValueError(f"{who}: parts of a sum are not made: got {placements}")
    layout = options.pop("layout", None)
    if layout is not None and str(layout).rpartition(".")[2] != "strided":
        raise ValueError(f"{who}: expected the layout strided: got {layout}")
    options.setdefault("device", mesh.device_type)
    spec = Spec(mesh, placements, shape)
    if make in (_rand, _randn) and mesh.get_coordinate() is not None:
        from ._dispatch import same_random_numbers

        same_random_numbers(mesh)
        local = move_plainly(make(shape, **options), spec.with_placements([Replicate()] * mesh.ndim), placements)
    else:
        local = make(local_shape_and_offset(shape, mesh, placements)[0], **options)
    return wrap(local, spec).requires_grad_(requires_grad)


def ones(*size, dtype=None, layout=None, requires_grad: bool = False, device_mesh=None, placements=None) -> DTensor:
    """Ones of the shape `size` that lie over a mesh."""
    return _made("ones", _ones, size, device_mesh, placements, requires_grad, {"dtype": dtype, "layout": layout})


def empty(*size, dtype=None, layout=None, requires_grad: bool = False, device_mesh=None, placements=None) -> DTensor:
    """A tensor of the shape `size`, without values, that lies over a mesh."""
    return _made("empty", _empty, size, device_mesh, placements, requires_grad, {"dtype": dtype, "layout": layout})


def full(size, fill_value, *, dtype=None, layout=None, requires_grad: bool = False, device_mesh=None, placements=None) -> DTensor:
    """A tensor of the shape `size`, filled with a number, that lies over a mesh."""
    def make(shape, **options):
        return _full(shape, fill_value, **options)

    if any(isinstance(p, Partial) for p in placements or ()):
        raise ValueError(f"full: parts of a sum are not made: got {placements}")
    return _made("full", make, (tuple(size),), device_mesh, placements, requires_grad, {"dtype": dtype, "layout": layout})


def rand(*size, requires_grad: bool = False, dtype=None, layout=None, device_mesh=None, placements=None) -> DTensor:
    """Random numbers from 0 to 1, as one process draws them: each rank draws the whole and keeps its part."""
    return _made("rand", _rand, size, device_mesh, placements, requires_grad, {"dtype": dtype, "layout": layout})


def randn(*size, dtype=None, layout=None, requires_grad: bool = False, device_mesh=None, placements=None) -> DTensor:
    """Normal random numbers, as one process draws them: each rank draws the whole and keeps its part."""
    return _made("randn", _randn, size, device_mesh, placements, requires_grad, {"dtype": dtype, "layout": layout})


def zeros(*size, requires_grad: bool = False, dtype=None, layout=None, device_mesh=None, placements=None) -> DTensor:
    """Zeros of the shape `size` that lie over a mesh."""
    return _made("zeros", _zeros, size, device_mesh, placements, requires_grad, {"dtype": dtype, "layout": layout})


