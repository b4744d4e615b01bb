"""The tape: backward, gradients, custom functions, grad modes, hooks, checks."""

import threading as _threading
from collections.abc import Iterator as _Iterator

from .. import _C
from .._C import Tensor as _Tensor
from .._C import _autograd
from .._lazy import more_names as _more_names
from .._warn import warn as _warn
from . import anomaly_mode, function, grad_mode, graph
from .anomaly_mode import detect_anomaly, set_detect_anomaly
from .function import Function
from .grad_mode import (
    _unsafe_preserve_version_counter,  # noqa: F401, of PyTorch's name
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from .gradcheck import GradcheckError, gradcheck, gradgradcheck
from .variable import Variable

__all__ = [
    "Function", "GradcheckError", "Variable", "anomaly_mode", "backward", "detect_anomaly", "enable_grad",
    "function", "grad", "grad_mode", "gradcheck", "gradgradcheck", "graph", "inference_mode", "is_grad_enabled",
    "is_inference_mode_enabled", "no_grad", "set_detect_anomaly", "set_grad_enabled",
]

__getattr__, __dir__ = _more_names(__name__, ("forward_ad", "functional", "profiler"))


def _profiler_enabled() -> bool:
    """Whether operators are being recorded by a profiler."""
    return _C._profiler_running()


class _Runs(_threading.local):
    """How many runs of this thread ask for the gradients of chosen tensors only."""

    partial = 0


_runs = _Runs()


def _is_checkpoint_valid() -> bool:
    """Whether a run inside this backward would reach all leaves, as the reentrant form of checkpointing needs."""
    return _runs.partial == 0


def _values_of(t: _Tensor) -> _Tensor:
    """What of a tensor the tape knows: of a sparse one its values."""
    return t if t.layout is _C.strided else t._values() if t.is_sparse else t.values()


def _like(t, g):
    """A gradient of the values of a sparse tensor in its layout."""
    if g is None or not isinstance(t, _Tensor) or t.layout is _C.strided:
        return g
    return _C._sparse_with_values(t, g)


def _entries_at(weight: _Tensor, root) -> _Tensor:
    """The values of a sparse weight at the entries of a sparse root."""
    if weight.layout is _C.strided or not isinstance(root, _Tensor) or root.layout is _C.strided:
        return weight
    return _C._sparse_values(_C._sparse_mask(weight.to_dense(), root.detach()))


def _tensor_of(item, where: str) -> _Tensor:
    if isinstance(item, _Tensor):
        return _values_of(item)
    if isinstance(item, graph.GradientEdge):
        return _autograd.tensor_of_edge(item.node, item.output_nr)
    raise TypeError(f"{where}: expected a Tensor or a sequence of them: got {type(item).__name__}")


def _tensors(value, where: str) -> tuple:
    return tuple(_tensor_of(item, where) for item in _listed(value))


def _listed(value) -> tuple:
    return (value,) if isinstance(value, (_Tensor, graph.GradientEdge)) else tuple(_item(item) for item in value)


def _kept(value):
    """What can be gone over more than once, which an iterator such as model.parameters() cannot."""
    return _listed(value) if isinstance(value, _Iterator) else value


def _item(item):
    """One of a sequence, which is read no further where it is no tensor: objects may be sequences without an end."""
    if item is None or isinstance(item, (_Tensor, graph.GradientEdge)):
        return item
    raise TypeError(f"autograd: expected a Tensor or a sequence of them: got {type(item).__name__}")


def _weights(value, outputs, roots: tuple, where: str) -> tuple:
    """One gradient per root; None stands for ones, which only a root with one element may have."""
    if value is None:
        return (None,) * len(roots)
    weights = _listed(value)
    if len(weights) != len(roots):
        raise RuntimeError(f"{where}: expected one gradient per tensor: got {len(weights)} for {len(roots)}")
    weights = tuple(w if w is None or w.layout is _C.strided else _entries_at(w, output) for w, output in zip(weights, _listed(outputs), strict=True))
    # A DTensor's parts may lie otherwise than those of the tensor that it is a gradient of.
    return tuple(w._as_gradient_of(root) if hasattr(type(w), "_as_gradient_of") else w for w, root in zip(weights, roots, strict=True))


def backward(tensors, grad_tensors=None, retain_graph=None, create_graph=False, grad_variables=None, inputs=None) -> None:
    """Adds the gradient of the sum of `tensors`, weighted with `grad_tensors`, to `.grad` of the leaves (or of `inputs`).

    Raises RuntimeError for a tensor that needs no gradient, for a root with more than one element and no weight, and
    when the graph has been freed by an earlier backward.
    """
    if grad_variables is not None:
        if grad_tensors is not None:
            raise RuntimeError("backward: give grad_tensors or grad_variables (its old name), not both")
        _warn("`grad_variables` is deprecated. Use `grad_tensors` instead.", FutureWarning)
        grad_tensors = grad_variables
    tensors = _kept(tensors)
    roots = _tensors(tensors, "backward")
    if inputs is not None:
        inputs = _tensors(inputs, "backward: inputs")
        if not inputs:
            raise RuntimeError("backward: argument 'inputs' cannot be empty")
    keep = create_graph if retain_graph is None else retain_graph
    _runs.partial += inputs is not None
    try:
        _autograd.run_backward(roots, _weights(grad_tensors, tensors, roots, "backward"), inputs or (), keep, create_graph)
    finally:
        _runs.partial -= inputs is not None


def grad(outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False, only_inputs=True, allow_unused=None,
         is_grads_batched=False, materialize_grads=False) -> tuple:
    """The gradients of the sum of `outputs`, weighted with `grad_outputs`, with respect to `inputs`: a tuple.

    An input that outputs do not depend on raises RuntimeError, is None with `allow_unused`, and zeros with
    `materialize_grads`. `is_grads_batched` takes weights with a first dimension over which vmap maps.
    """
    if not only_inputs:
        raise ValueError("grad: only_inputs=False is not supported\nuse backward() to accumulate into the leaves")
    if materialize_grads and allow_unused is False:
        raise ValueError("grad: Expected allow_unused to be True or not passed when materialize_grads=True: got allow_unused=False")
    allow = materialize_grads if allow_unused is None else allow_unused
    keep = create_graph if retain_graph is None else retain_graph
    outputs, inputs = _kept(outputs), _kept(inputs)
    roots, wanted = _tensors(outputs, "grad"), _tensors(inputs, "grad: inputs")
    if _C._has_torch_function_variadic(*roots, *wanted):
        return _C._handle_torch_function(grad, (*roots, *wanted), outputs, inputs, grad_outputs=grad_outputs, retain_graph=retain_graph,
                                         create_graph=create_graph, allow_unused=allow_unused, is_grads_batched=is_grads_batched,
                                         materialize_grads=materialize_grads)
    weights = _weights(grad_outputs, outputs, roots, "grad")
    if is_grads_batched:
        return _batched(roots, wanted, weights, keep, create_graph, allow, materialize_grads)
    _runs.partial += 1
    try:
        found = _autograd.grad(roots, wanted, weights, keep, create_graph, allow)
    finally:
        _runs.partial -= 1
    places = _listed(inputs)
    found = tuple(map(_like, places, found))
    if materialize_grads and any(g is None and isinstance(x, graph.GradientEdge) for g, x in zip(found, places)):
        raise RuntimeError("grad: materialize_grads cannot be used when the given input is a GradientEdge")
    return _zeros_for_none(found, wanted, materialize_grads)


def _zeros_for_none(grads: tuple, wanted: tuple, materialize: bool) -> tuple:
    if not materialize:
        return grads
    from .. import zeros_like

    return tuple(zeros_like(x, requires_grad=True) if g is None else g for g, x in zip(grads, wanted, strict=True))


def _batched(roots, wanted, weights, keep, create_graph, allow, materialize) -> tuple:
    from ..func import vmap

    sizes = {w.shape[0] for w in weights if w is not None}
    if len(sizes) != 1:
        raise ValueError(f"grad: is_grads_batched needs weights with one first dimension in common: got {sorted(sizes)}")

    def one(*row):
        given = iter(row)
        row = tuple(None if w is None else next(given) for w in weights)
        return _zeros_for_none(_autograd.grad(roots, wanted, row, keep, create_graph, allow), wanted, materialize)

    for i, (w, root) in enumerate(zip(weights, roots, strict=True)):
        if w is not None and w.shape[1:] != root.shape:
            raise RuntimeError("grad: If `is_grads_batched=True`, we interpret the first dimension of each grad_output as the batch dimension. The sizes "
                               "of the remaining dimensions are expected to match the shape of corresponding output, but a mismatch was detected: "
                               f"grad_output[{i}] has a shape of {w.shape[1:]} and output[{i}] has a shape of {root.shape}")
    found: list = []

    def present(*row):
        grads = one(*row)
        found[:] = [g is not None for g in grads]
        return tuple(g for g in grads if g is not None)

    values = iter(vmap(present)(*[w for w in weights if w is not None]))
    return tuple(next(values) if there else None for there in found)
