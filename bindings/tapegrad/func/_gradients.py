"""Gradients of functions. Each call gives its function new tensors to record from, so that calls nest: an inner gradient
is part of what an outer one records. Inside vmap these tensors belong to the tape of the innermost level.
"""

import functools

from .. import _C, autograd
from ..autograd import enable_grad, is_grad_enabled
from ..utils._pytree import tree_flatten, tree_map_only, tree_unflatten

__all__ = ["grad", "grad_and_value", "jvp", "linearize", "vjp"]


def fresh(t, outer: bool):
    """A tensor of the same values to record from: the start of a recording, or part of the one that goes on around it."""
    depth = _C._vmap_depth()
    if outer and t.requires_grad and _C._vmap_level(t) == depth:
        return t.view_as(t)
    return cut(t, depth).requires_grad_()


def cut(t, depth: int | None = None):
    """The tensor off the tape of the innermost level of vmap; those further out still know it."""
    depth = _C._vmap_depth() if depth is None else depth
    if not depth:
        return t.detach()
    return _C._vmap_wrap(*_swap(_C._vmap_unwrap(t, depth), depth))


def _swap(pair, depth: int):
    return pair[0], depth, pair[1]


class Recording:
    """The tensors that a function was given, and whether anything else is recorded around them."""

    def __init__(self, args) -> None:
        self.outer = is_grad_enabled()
        leaves, self.spec = tree_flatten(args)
        for leaf in leaves:
            if not isinstance(leaf, _C.Tensor):
                raise ValueError(f"func: expected tensors to differentiate by: got {type(leaf).__name__}")
        self.inputs = [fresh(leaf, self.outer) for leaf in leaves]

    @property
    def args(self):
        return tree_unflatten(self.inputs, self.spec)

    def is_part(self, tensors) -> bool:
        """Whether gradients through these tensors may matter to a recording around this one."""
        if not self.outer:
            return False
        return _C._vmap_recorded() or _C._reaches_others(tuple(tensors), tuple(self.inputs))

    def finish(self, value):
        """A result without its ties to the tensors that were made for the call."""
        def one(t):
            if not t.requires_grad:
                return t
            depth = _C._vmap_depth()
            if self.outer and _C._reaches_others((t,), tuple(self.inputs)):
                return t
            return cut(t, depth) if _C._vmap_level(t) == depth else t

        return tree_map_only(_C.Tensor, one, value)

    def gradients(self, outputs, weights, retain: bool = False, create: bool = False) -> list:
        """Those of the inputs; zeros where nothing flows."""
        from .. import zeros_like

        pairs = [(y, w) for y, w in zip(outputs, weights, strict=True) if y.requires_grad]
        if not pairs:
            return [zeros_like(x) for x in self.inputs]
        create = create or self.is_part([y for y, _ in pairs])
        found = autograd.grad([y for y, _ in pairs], self.inputs, [w for _, w in pairs], retain_graph=retain or create, create_graph=create,
                              allow_unused=True)
        return [zeros_like(x) if g is None else g for g, x in zip(found, self.inputs, strict=True)]


def _argnum(argnum, count: int) -> int:
    if not isinstance(argnum, int):
        raise RuntimeError(f"argnum must be int, got: {type(argnum)}")
    if not -count <= argnum < count:
        raise RuntimeError(f"Got argnum={argnum}, but only {count} positional inputs")
    return argnum % count


def chosen(args, argnums):
    """The arguments to differentiate by, and a function that puts others in their places."""
    if isinstance(argnums, tuple):
        if not argnums:
            raise RuntimeError("argnums must be non-empty")
        places = tuple(_argnum(n, len(args)) for n in argnums)
        if len(set(places)) != len(places):
            raise RuntimeError(f"argnums elements must be unique, got {argnums}")
    else:
        places = (_argnum(argnums, len(args)),)

    def replaced(values):
        full = list(args)
        for place, value in zip(places, values, strict=True):
            full[place] = value
        return tuple(full)

    return tuple(args[p] for p in places), replaced


def split_aux(name: str, output, has_aux: bool):
    """(output, aux) of a function that returns both."""
    if not has_aux:
        return output, None
    if not (isinstance(output, tuple) and len(output) == 2):
        raise RuntimeError(f"{name}: output of function f should be a tuple: (output, aux) if has_aux is True")
    return output


def grad_and_value(func, argnums=0, has_aux: bool = False):
    """A function that gives the gradient of func, and its value, a tensor without dimensions (with has_aux: (value, aux)).

    `argnums`: the argument (or a tuple of them) to differentiate by, each a tensor or a nesting of tensors. Raises
    RuntimeError where func returns anything else.
    """

    @functools.wraps(func, updated=())
    def wrapper(*args, **kwargs):
        wanted, replaced = chosen(args, argnums)
        recording = Recording(wanted)
        with enable_grad():
            output, aux = split_aux("grad_and_value(f)(*args)", func(*replaced(recording.args), **kwargs), has_aux)
            if not isinstance(output, _C.Tensor):
                raise RuntimeError("grad_and_value(f)(*args): Expected f(*args) to return a single tensor, got "
                                   f"{type(output).__name__}")
            if output.dim() != 0:
                raise RuntimeError(f"Expected f(*args) to return a scalar tensor. Got a tensor with {output.dim()} dims. Maybe you wanted "
                                   "to use the vjp or jacrev APIs instead?")
            gradients = recording.gradients([output], [None])
        gradients = tree_unflatten([recording.finish(g) for g in gradients], recording.spec)
        result = gradients if isinstance(argnums, tuple) else gradients[0]
        value = recording.finish(output)
        return (result, (value, recording.finish(aux))) if has_aux else (result, value)

    return wrapper


def grad(func, argnums=0, has_aux: bool = False):
    """A function that gives the gradient of func, as grad_and_value does; with has_aux, (gradient, aux)."""
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func, updated=())
    def wrapper(*args, **kwargs):
        result, value = both(*args, **kwargs)
        return (result, value[1]) if has_aux else result

    return wrapper


def _outputs(name: str, output):
    leaves, spec = tree_flatten(output)
    if not leaves or not all(isinstance(leaf, _C.Tensor) for leaf in leaves):
        raise RuntimeError(f"{name}: Expected f to be a function that has non-empty output (a tensor or a nesting of tensors): got "
                           f"{[type(leaf).__name__ for leaf in leaves]}")
    return leaves, spec


def vjp(func, *primals, has_aux: bool = False):
    """(output, vjp_fn), or (output, vjp_fn, aux): vjp_fn(cotangents, like output) gives the products with the Jacobian, a
    tuple with one per primal. It may be called again and again, also under vmap."""
    recording = Recording(primals)
    with enable_grad():
        output, aux = split_aux("vjp(f, *primals)", func(*recording.args), has_aux)
    leaves, spec = _outputs("vjp(f, *primals)", output)

    def vjp_fn(cotangents, retain_graph: bool = True, create_graph: bool | None = None):
        weights, weight_spec = tree_flatten(cotangents)
        if weight_spec != spec:
            raise RuntimeError(f"Expected pytree structure of cotangents to be the same as pytree structure of outputs to the function. "
                               f"cotangents: {weight_spec}, primal output: {spec}")
        need = create_graph if create_graph is not None else is_grad_enabled() and any(w.requires_grad for w in weights)
        return tree_unflatten(recording.gradients(leaves, weights, retain_graph, need), recording.spec)

    result = tree_unflatten([recording.finish(leaf) for leaf in leaves], spec)
    return (result, vjp_fn, recording.finish(aux)) if has_aux else (result, vjp_fn)


def _tangents(name: str, primals, tangents) -> list:
    (leaves, spec), (others, other_spec) = tree_flatten(primals), tree_flatten(tangents)
    if spec != other_spec:
        raise RuntimeError(f"{name}: Expected primals and tangents to have the same python structure. For example, if primals is a tuple "
                           f"of 3 tensors, tangents also must be. Got primals with structure {spec} and tangents with structure {other_spec}")
    for p, t in zip(leaves, others, strict=True):
        if p.shape != t.shape:
            raise RuntimeError(f"{name}: a primal of shape {tuple(p.shape)} has a tangent of shape {tuple(t.shape)}")
    return others


class Linear:
    """The derivative of recorded outputs as a linear function of tangents: the gradient of u -> vjp(u), which is linear in
    u, so that this is exact."""

    def __init__(self, recording: Recording, leaves) -> None:
        from .. import zeros_like

        self.recording, self.leaves = recording, leaves
        self.live = [i for i, y in enumerate(leaves) if y.requires_grad]
        with enable_grad():
            self.weights = [fresh(zeros_like(leaves[i]), False) for i in self.live]
            if self.live:
                self.products = autograd.grad([leaves[i] for i in self.live], recording.inputs, self.weights, create_graph=True,
                                              allow_unused=True)

    def __call__(self, tangents, last: bool = False) -> list:
        """The tangents of all outputs."""
        from .. import zeros_like

        results = [zeros_like(y) for y in self.leaves]
        pairs = [(g, t) for g, t in zip(self.products, tangents, strict=True) if g is not None and g.requires_grad] if self.live else []
        if not pairs:
            return results
        create = is_grad_enabled() and (any(t.requires_grad for t in tangents)
                                        or self.recording.is_part([self.leaves[i] for i in self.live]))
        found = autograd.grad([g for g, _ in pairs], self.weights, [t for _, t in pairs], retain_graph=not last or create,
                              create_graph=create, allow_unused=True)
        for i, value in zip(self.live, found, strict=True):
            if value is not None:
                results[i] = value
        return results


def jvp(func, primals, tangents, *, strict: bool = False, has_aux: bool = False):
    """(output, its derivative along the tangents), or (output, derivative, aux). primals and tangents are tuples.

    With strict, raises RuntimeError where an output does not depend on the primals.
    """
    if not isinstance(primals, tuple) or not primals:
        raise RuntimeError(f"jvp(f, primals, tangents): Expected primals to be a non-empty tuple: got {type(primals).__name__}")
    if not isinstance(tangents, tuple):
        raise RuntimeError(f"jvp(f, primals, tangents): Expected tangents to be a tuple: got {type(tangents).__name__}")
    flat = _tangents("jvp(f, primals, tangents)", primals, tangents)
    recording = Recording(primals)
    with enable_grad():
        output, aux = split_aux("jvp(f, primals, tangents)", func(*recording.args), has_aux)
    leaves, spec = _outputs("jvp(f, primals, tangents)", output)
    if strict and not all(y.requires_grad for y in leaves):
        raise RuntimeError("jvp(f, primals, tangents, strict=True): The output of f is independent of the inputs. This is not allowed with "
                           "strict=True.")
    derivative = tree_unflatten(Linear(recording, leaves)(flat, last=True), spec)
    value = tree_unflatten([recording.finish(leaf) for leaf in leaves], spec)
    return (value, derivative, recording.finish(aux)) if has_aux else (value, derivative)


def linearize(func, *primals):
    """(output, jvp_fn): jvp_fn(*tangents) gives derivatives along tangents without running func again."""
    if not primals:
        raise RuntimeError("linearize: expected at least one primal")
    recording = Recording(primals)
    with enable_grad():
        leaves, spec = _outputs("linearize(f, *primals)", func(*recording.args))
    derivative = Linear(recording, leaves)

    def jvp_fn(*tangents):
        flat = _tangents("jvp_fn(*tangents)", primals, tangents)
        return tree_unflatten(derivative(flat), spec)

    return tree_unflatten([recording.finish(leaf) for leaf in leaves], spec), jvp_fn
