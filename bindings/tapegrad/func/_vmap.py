"""vmap: a function of one sample becomes one of many. How operators take samples is in aten/batch; here are the levels."""

import functools

from .. import _C
from ..utils._pytree import broadcast_prefix, tree_flatten, tree_map_only, tree_unflatten

__all__ = ["debug_unwrap", "functionalize", "vmap"]

_RANDOMNESS = ("error", "different", "same")


def _name(func) -> str:
    return getattr(func, "__name__", None) or repr(func)


def _checked_dim(name: str, arg, dim):
    """An in_dim counted from the front."""
    if dim is None:
        return None
    if not isinstance(dim, int) or isinstance(dim, bool):
        raise ValueError(f"vmap({name}, in_dims=...): Got in_dim={dim} for an input: expected an int or None")
    if not isinstance(arg, _C.Tensor):
        raise ValueError(f"vmap({name}, in_dims=...): Got in_dim={dim} for an input but the input is of type {type(arg).__name__}\n"
                         "only tensors are mapped over: use None as in_dim for anything else")
    if not -arg.dim() <= dim < arg.dim():
        raise ValueError(f"vmap({name}, in_dims=...): Got in_dim={dim} for some input, but that input is a Tensor of dimensionality "
                         f"{arg.dim()} so expected in_dim to satisfy -{arg.dim()} <= in_dim < {arg.dim()}.")
    return dim % arg.dim()


def _inputs(name: str, in_dims, args):
    """(leaves, their dims, spec, number of samples)."""
    if not isinstance(in_dims, (int, tuple)) or isinstance(in_dims, bool):
        raise ValueError(f"vmap({name}, in_dims={in_dims}, ...): expected `in_dims` to be int or a (potentially nested) tuple matching "
                         f"the structure of inputs, got: {type(in_dims)}.")
    if not args:
        raise ValueError(f"vmap({name})(<inputs>): got no inputs: expected at least one")
    leaves, spec = tree_flatten(args)
    dims = broadcast_prefix(in_dims, spec)
    if dims is None:
        raise ValueError(f"vmap({name}, in_dims={in_dims}, ...)(<inputs>): in_dims is not compatible with the structure of inputs. "
                         f"in_dims has structure {tree_flatten(in_dims)[1]} but inputs has structure {spec}.")
    dims = [_checked_dim(name, leaf, dim) for leaf, dim in zip(leaves, dims, strict=True)]
    return leaves, dims, spec


def _number_of_samples(name: str, leaves, dims) -> int:
    sizes = [leaf.shape[dim] for leaf, dim in zip(leaves, dims, strict=True) if dim is not None]
    if not sizes:
        raise ValueError(f"vmap({name}): got no Tensors to map over: at least one in_dim must not be None")
    if any(size != sizes[0] for size in sizes):
        raise ValueError(f"vmap: Expected all tensors to have the same size in the mapped dimension, got sizes {sizes} for the mapped "
                         "dimension")
    return sizes[0]


def _to_level(leaf, dim, level: int):
    if dim is None:
        return leaf
    if hasattr(leaf, "_plain_data"):
        raise NotImplementedError("vmap: the parts of a DTensor lie with several processes\nmap over .to_local() or .full_tensor()")
    return _C._vmap_wrap(leaf if dim == 0 else leaf.movedim(dim, 0), level, True)


def _from_level(name: str, leaf, dim, level: int, samples: int):
    if not isinstance(leaf, _C.Tensor):
        if dim is None:
            return leaf
        raise ValueError(f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(leaf)}. Did you mean to set out_dims= to "
                         "None for output?")
    below, has_dim = _C._vmap_unwrap(leaf, level)
    if dim is None:
        if has_dim:
            raise ValueError(f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is None")
        return below
    if not has_dim:
        below = below.expand(samples, *below.shape)
    if not -below.dim() <= dim < below.dim():
        raise IndexError(f"vmap({name}, ..., out_dims=...): Dimension out of range (expected to be in range of [-{below.dim()}, "
                         f"{below.dim() - 1}], but got {dim})")
    return below if dim == 0 else below.movedim(0, dim)


def _out_dims(name: str, out_dims, spec) -> list:
    def bad() -> ValueError:
        return ValueError(f"vmap({name}, ..., out_dims={out_dims}): out_dims is not compatible with the structure of outputs. out_dims has "
                          f"structure {tree_flatten(out_dims)[1]} but outputs has structure {spec}.")

    dims = broadcast_prefix(out_dims, spec)
    if dims is None and spec.is_leaf() and isinstance(out_dims, tuple) and len(out_dims) == 1:
        dims = list(out_dims)
    if dims is None:
        raise bad()
    for dim in dims:
        if dim is not None and (not isinstance(dim, int) or isinstance(dim, bool)):
            raise ValueError(f"vmap({name}, ..., out_dims={out_dims}): `out_dims` must be an int, None or a python collection of ints "
                             "representing where in the outputs the vmapped dimension should appear.")
    return dims


def _mapped(func, leaves, dims, spec, out_dims, randomness: str, kwargs):
    """One run over all samples of the leaves."""
    name = _name(func)
    samples = _number_of_samples(name, leaves, dims)
    level = _C._vmap_enter(samples, randomness)
    try:
        args = tree_unflatten([_to_level(leaf, dim, level) for leaf, dim in zip(leaves, dims, strict=True)], spec)
        results, out_spec = tree_flatten(func(*args, **kwargs))
        dims = _out_dims(name, out_dims, out_spec)
        return tree_unflatten([_from_level(name, leaf, dim, level, samples) for leaf, dim in zip(results, dims, strict=True)], out_spec)
    finally:
        _C._vmap_leave(level)


def _in_chunks(func, leaves, dims, spec, out_dims, randomness: str, kwargs, chunk_size: int):
    from .. import cat

    if randomness == "same":
        raise NotImplementedError("vmap: randomness='same' together with chunk_size is not available\nuse one of them")
    samples = _number_of_samples(_name(func), leaves, dims)
    columns: list = []
    out_spec = None
    for start in range(0, max(samples, 1), chunk_size):
        length = min(chunk_size, samples - start)
        part = [leaf if dim is None else leaf.narrow(dim, start, length) for leaf, dim in zip(leaves, dims, strict=True)]
        values, out_spec = tree_flatten(_mapped(func, part, dims, spec, out_dims, randomness, kwargs))
        columns.append(values)
    places = _out_dims(_name(func), out_dims, out_spec)
    joined = [column[0] if dim is None else cat(column, dim) for column, dim in zip(zip(*columns, strict=True), places, strict=True)]
    return tree_unflatten(joined, out_spec)


def vmap(func, in_dims=0, out_dims=0, randomness: str = "error", *, chunk_size: int | None = None):
    """func, which takes one sample, as a function of tensors that hold many.

    `in_dims` says for each argument (an int for all, or a nesting of ints and None like the arguments) along which
    dimension the samples lie; None: the argument is the same for all, as keyword arguments are. `out_dims` says where they
    go in the results. `randomness`: "error" (random operators raise), "different" or "same" for
    all samples. `chunk_size`: that many samples at a time. Inside, values cannot be read (`item`, `if tensor:`).
    Raises ValueError for dimensions and structures that do not fit.
    """
    if randomness not in _RANDOMNESS:
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @functools.wraps(func, updated=())
    def mapped(*args, **kwargs):
        leaves, dims, spec = _inputs(_name(func), in_dims, args)
        if chunk_size is not None:
            return _in_chunks(func, leaves, dims, spec, out_dims, randomness, kwargs, chunk_size)
        return _mapped(func, leaves, dims, spec, out_dims, randomness, kwargs)

    return mapped


def functionalize(func, *, remove: str = "mutations"):
    """The function itself: writes to tensors need not be taken out of it to be differentiated or mapped here."""
    if remove not in ("mutations", "mutations_and_views"):
        raise RuntimeError(f"functionalize: expected remove='mutations' or 'mutations_and_views': got {remove!r}")

    @functools.wraps(func, updated=())
    def same(*args, **kwargs):
        return func(*args, **kwargs)

    return same


def debug_unwrap(tensor, *, recurse: bool = True):
    """What a tensor inside vmap stands for: with the samples along its first dimension."""

    def below(t):
        while _C._vmap_level(t):
            t = _C._vmap_physical(t)
            if not recurse:
                break
        return t

    return tree_map_only(_C.Tensor, below, tensor)
