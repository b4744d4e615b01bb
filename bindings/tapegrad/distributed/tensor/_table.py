"""The table of operators with rules for sharded tensors, and what the rules share. A rule is called with the operator, its name, its
arguments (each tensor among them a DTensor of one mesh) and keywords; NotImplemented sends the call to the general way (`_dispatch.py`)."""

from ... import Tensor
from ...utils import _pytree
from .._placements import CUTS, Partial, Replicate
from ._dtensor import DTensor, local_of, wrap
from ._moves import add_up_gradients, move
from ._spec import Spec, settled

RULES: dict = {}
# Operators whose results share memory with their argument.
VIEWS = frozenset("view reshape flatten unflatten transpose t T mT H mH adjoint permute movedim moveaxis swapaxes swapdims unsqueeze squeeze expand "
                  "expand_as broadcast_to select narrow unbind split chunk tensor_split view_as detach __getitem__ diagonal unfold ravel "
                  "real imag view_as_real view_as_complex alias".split())


def rule(*names: str):
    """Enters a function for operators of these names."""
    def enter(function):
        for name in names:
            RULES[name] = function
        return function

    return enter


def in_place(name: str) -> bool:
    """Whether an operator of that name changes its first argument."""
    if name.startswith("__"):
        return name.startswith("__i") and name not in ("__index__", "__int__", "__invert__", "__iter__", "__init__") or name == "__setitem__"
    return name.endswith("_")


def leaves_of(args, kwargs) -> list:
    """All DTensors among arguments."""
    found = [x for x in args if isinstance(x, DTensor)]
    for x in args:
        if isinstance(x, (tuple, list, dict)):
            found += [y for y in _pytree.tree_leaves(x) if isinstance(y, DTensor)]
    found += [y for y in _pytree.tree_leaves(kwargs) if isinstance(y, DTensor)] if kwargs else []
    return found


def prepare(t: DTensor, placements, shared=()) -> Tensor:
    """The part of t lying as placements. shared: dimensions of the mesh whose ranks use the same values for different parts of the work."""
    local = local_of(t)
    if tuple(placements) != t._spec.placements:
        local = move(local, t._spec, placements)
    return add_up_gradients(local, t._spec.mesh, shared) if shared else local


def replicated(t: DTensor) -> Tensor:
    """The whole."""
    return prepare(t, [Replicate()] * t._spec.mesh.ndim)


def dims_of(dims, ndim: int) -> set:
    """Dimensions counted from the front; all for None."""
    if dims is None:
        return set(range(ndim))
    dims = dims if isinstance(dims, (tuple, list)) else [dims]
    if not len(dims):
        return set(range(ndim))
    for d in dims:
        if not -max(ndim, 1) <= d < max(ndim, 1):
            raise IndexError(f"Dimension out of range (expected to be in range of [{-max(ndim, 1)}, {max(ndim, 1) - 1}], but got {d})")
    return {d % max(ndim, 1) for d in dims}


def argument(args, kwargs, at: int, *names, default=None):
    """An argument by its place or name."""
    if len(args) > at:
        return args[at]
    return next((kwargs[n] for n in names if n in kwargs), default)


def structured(func, name: str, t: DTensor, touched, place, args, kwargs, linear: bool = False):
    """An operator on one tensor that needs the dimensions `touched` whole and works alike along the others.

    place: dimension of t -> dimension of the result. linear: a sum's parts may stay parts.
    """
    placements = tuple(Replicate() if (isinstance(p, Partial) and not (linear and p.reduce_op in ("sum", "avg")))
                       or (isinstance(p, CUTS) and p.dim in touched) else p for p in t.placements)
    placements = settled(placements, t.device_mesh)
    out = func(prepare(t, placements), *args, **kwargs)
    copied = getattr(t, "_copy_of_view", None) or (name if placements != t.placements and name in VIEWS else None)

    def wrapped(local):
        if not isinstance(local, Tensor):
            return local
        shape, now = list(local.shape), []
        for p in placements:
            if isinstance(p, CUTS):
                d = place(p.dim)
                shape[d] = t.shape[p.dim]
                p = type(p)(d, *p._fields()[1:])
            now.append(p)
        result = wrap(local, Spec(t.device_mesh, now, shape))
        if copied and name in VIEWS:
            result._copy_of_view = copied
        return result

    return each_result(wrapped, out)


def each_result(function, out):
    """The function's values of a result or, in a tuple of any kind, of each of several."""
    if not isinstance(out, (tuple, list)):
        return function(out)
    values = [each_result(function, x) for x in out]
    return type(out)(*values) if hasattr(out, "_make") else type(out)(values)


def mesh_of(tensors, name: str):
    """The one mesh of some DTensors; RuntimeError where there are several."""
    mesh = tensors[0]._spec.mesh
    for t in tensors[1:]:
        if t._spec.mesh is not mesh and t._spec.mesh != mesh:
            raise RuntimeError(f"{name}: all DTensors must lie over one mesh: got {mesh} and {t._spec.mesh}")
    return mesh
