"""Derivatives of functions of tensors: products with the Jacobian and the Hessian, and these themselves.

Inputs and outputs are a tensor or a tuple of tensors, results have the same form. `create_graph`: the result can be
differentiated. `strict`: RuntimeError where an output does not depend on an input, in place of zeros.
"""

from .._C import Tensor
from .grad_mode import enable_grad, is_grad_enabled, set_grad_enabled

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]


def _as_tuple(value, what: str, name: str) -> tuple[bool, tuple]:
    """(whether it was a tuple, the tuple)."""
    is_tuple = isinstance(value, tuple)
    values = value if is_tuple else (value,)
    for i, v in enumerate(values):
        if not isinstance(v, Tensor):
            where = f"the value at index {i}" if is_tuple else f"the given {what}"
            raise TypeError(f"The {what} given to {name} must be either a Tensor or a tuple of Tensors but {where} has type {type(v)}.")
    return is_tuple, values


def _recorded(values, create_graph: bool, need: bool = True) -> tuple:
    """Tensors to record from: part of the recording around when that is to be differentiated, else new leaves."""
    return tuple(v.view_as(v) if create_graph and v.requires_grad else v.detach().requires_grad_(need) for v in values)


def _finished(values, create_graph: bool) -> tuple:
    return values if create_graph else tuple(v.detach() for v in values)


def _same_form(values, is_tuple: bool):
    return values if is_tuple else values[0]


def _grads(outputs, inputs, weights=None, create_graph: bool = False, retain_graph=None) -> tuple:
    from . import grad

    weights = (None,) * len(outputs) if weights is None else weights
    pairs = [(y, w) for y, w in zip(outputs, weights, strict=True) if y is not None and y.requires_grad]
    if not pairs:
        return (None,) * len(inputs)
    return grad([y for y, _ in pairs], inputs, [w for _, w in pairs], allow_unused=True, create_graph=create_graph, retain_graph=retain_graph)


def _check_depends(values, problem: str) -> None:
    """Strict mode: every one is there and needs a gradient."""
    for i, v in enumerate(values):
        if v is None:
            raise RuntimeError(f"The output of the user-provided function is independent of input {i}. This is not allowed in strict mode.")
        if not v.requires_grad:
            raise RuntimeError(problem.format(i=i) + " This is not allowed in strict mode.")


_OUTPUT = "Output {i} of the user-provided function does not require gradients: it must be computed differentiably from the input."
_GRADIENT = "The gradient with respect to input {i} is independent of the inputs of the user-provided function."
_JACOBIAN = ("While computing the hessian, found that the jacobian of the user-provided function with respect to input {i} is independent of "
             "the input (as that of a linear function is).")


def _filled(grads, like, strict: bool, create_graph: bool, what: str, by: str) -> tuple:
    """Zeros for what is not there; in strict mode that is an error."""
    from .. import zeros_like

    result = []
    for i, (g, x) in enumerate(zip(grads, like, strict=True)):
        if strict and g is None:
            raise RuntimeError(f"The {what} of the user-provided function is independent of {by} {i}. This is not allowed in strict mode.")
        if strict and create_graph and not g.requires_grad:
            raise RuntimeError(f"The {'jacobian' if what == 'output' else 'hessian'} of the user-provided function is independent of {by} {i}. "
                               "This is not allowed in strict mode when create_graph=True.")
        result.append(zeros_like(x) if g is None else g)
    return tuple(result)


def _vector(v, like, is_tuple: bool, name: str, create_graph: bool):
    """v as a tuple of the shapes of `like`; None only where `like` is one element."""
    if v is None:
        if len(like) != 1 or like[0].nelement() != 1:
            what = "user-provided function returns" if name == "vjp" else "input to the user-provided function is"
            raise RuntimeError(f"{name}: The vector v can only be None if the {what} a single Tensor with a single element.")
        return None
    _, values = _as_tuple(v, "v", name)
    values = _recorded(values, create_graph, False)
    if len(values) != len(like):
        raise RuntimeError(f"v is a tuple of invalid length: should be {len(like)} but got {len(values)}." if is_tuple else
                           "The given v should contain a single Tensor.")
    for i, (a, b) in enumerate(zip(values, like, strict=True)):
        if a.shape != b.shape:
            raise RuntimeError(f"{f'Entry {i} in ' if is_tuple else ''}v has invalid size: should be {b.shape} but got {a.shape}.")
    return values


def _run(func, inputs, name: str, strict: bool) -> tuple[bool, tuple]:
    is_tuple, outputs = _as_tuple(func(*inputs), "outputs of the user-provided function", name)
    if strict:
        _check_depends(outputs, _OUTPUT)
    return is_tuple, outputs


def vjp(func, inputs, v=None, create_graph=False, strict=False):
    """(outputs, v^T J): the product of `v`, like the outputs, with the Jacobian. v may be None for one output of one element."""
    with enable_grad():
        inputs_tuple, inputs = _as_tuple(inputs, "inputs", "vjp")
        inputs = _recorded(inputs, create_graph)
        outputs_tuple, outputs = _run(func, inputs, "vjp", strict)
        v = _vector(v, outputs, outputs_tuple, "vjp", create_graph)
    with set_grad_enabled(create_graph or is_grad_enabled()):
        result = _filled(_grads(outputs, inputs, v, create_graph), inputs, strict, create_graph, "output", "input")
    return _same_form(_finished(outputs, create_graph), outputs_tuple), _same_form(_finished(result, create_graph), inputs_tuple)


def jvp(func, inputs, v=None, create_graph=False, strict=False):
    """(outputs, J v): the product of the Jacobian with `v`, like the inputs: the gradient of u -> u^T J, which is linear."""
    from .. import zeros_like

    with enable_grad():
        inputs_tuple, inputs = _as_tuple(inputs, "inputs", "jvp")
        inputs = _recorded(inputs, create_graph)
        v = _vector(v, inputs, inputs_tuple, "jvp", create_graph)
        outputs_tuple, outputs = _run(func, inputs, "jvp", strict)
        weights = tuple(zeros_like(y, requires_grad=True) for y in outputs)
        products = _grads(outputs, inputs, weights, create_graph=True)
        if strict:
            _check_depends(products, _GRADIENT)
    with set_grad_enabled(create_graph or is_grad_enabled()):
        result = _filled(_grads(products, weights, v, create_graph), outputs, strict, create_graph, "output", "input")
    return _same_form(_finished(outputs, create_graph), outputs_tuple), _same_form(_finished(result, create_graph), outputs_tuple)


def _forward_jacobian(func, inputs, create_graph: bool, strict: bool, vectorize: bool):
    if create_graph:
        raise NotImplementedError("jacobian: `create_graph=True` and `strategy=\"forward-mode\"` are not supported together (yet).")
    if strict:
        raise RuntimeError("jacobian: `strict=True` and `strategy=\"forward-mode\"` are not supported together (yet).")
    if not vectorize:
        raise NotImplementedError("Computing Jacobian using forward-AD or forward-over-reverse Hessian is only implemented for `vectorize=True`.")
    from ..func import jacfwd

    inputs_tuple, inputs = _as_tuple(inputs, "inputs", "jacobian")
    form: list = []

    def checked(*args):
        is_tuple, outputs = _as_tuple(func(*args), "outputs of the user-provided function", "jacobian")
        form.append(is_tuple)
        return outputs

    rows = jacfwd(checked, argnums=tuple(range(len(inputs))))(*inputs)
    return _nested(rows, form[0], inputs_tuple)


def _nested(rows, outputs_tuple: bool, inputs_tuple: bool):
    rows = tuple(_same_form(tuple(row), inputs_tuple) for row in rows)
    return _same_form(rows, outputs_tuple)


def jacobian(func, inputs, create_graph=False, strict=False, vectorize=False, strategy="reverse-mode"):
    """The Jacobian: for each output and input a tensor of their shapes, one after the other.

    `vectorize`: all rows in one run under vmap, not with strict. `strategy`: "reverse-mode" or "forward-mode" (by
    columns; with vectorize only).
    """
    if strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError(f'Expected strategy to be either "forward-mode" or "reverse-mode": got {strategy!r}')
    if strategy == "forward-mode":
        return _forward_jacobian(func, inputs, create_graph, strict, vectorize)
    from .. import stack, zeros_like

    with enable_grad():
        inputs_tuple, inputs = _as_tuple(inputs, "inputs", "jacobian")
        inputs = _recorded(inputs, create_graph)
        outputs_tuple, outputs = _run(func, inputs, "jacobian", strict)
        if vectorize:
            if strict:
                raise RuntimeError("jacobian: `strict=True` and `vectorized=True` are not supported together.")
            rows = _vectorized(outputs, inputs, create_graph)
        else:
            rows = []
            for i, y in enumerate(outputs):
                columns: list[list] = [[] for _ in inputs]
                flat = y.reshape(-1)
                for j in range(y.nelement()):
                    for k, (g, x) in enumerate(zip(_grads((flat[j],), inputs, None, create_graph, True), inputs, strict=True)):
                        if strict and (g is None or (create_graph and not g.requires_grad)):
                            raise RuntimeError((f"Output {i} of the user-provided function is independent of input {k}." if g is None else
                                                f"The jacobian of the user-provided function is independent of input {i}.")
                                               + " This is not allowed in strict mode" + ("." if g is None else " when create_graph=True."))
                        columns[k].append(zeros_like(x) if g is None else g)
                rows.append(tuple((stack(c) if c else zeros_like(x).new_zeros(0)).reshape((*y.shape, *x.shape))
                                  for c, x in zip(columns, inputs, strict=True)))
        rows = [_finished(row, create_graph) for row in rows]
    return _nested(rows, outputs_tuple, inputs_tuple)


def _vectorized(outputs, inputs, create_graph: bool) -> list:
    from ..func._jacobians import basis
    from . import grad

    live = [i for i, y in enumerate(outputs) if y.requires_grad]
    parts = basis(outputs)
    columns: tuple = (None,) * len(inputs)
    if live:
        columns = grad([outputs[i] for i in live], inputs, [parts[i] for i in live], allow_unused=True, create_graph=create_graph,
                       is_grads_batched=True)
    total = sum(y.numel() for y in outputs)
    columns = tuple(x.new_zeros(total, *x.shape) if c is None else c for c, x in zip(columns, inputs, strict=True))
    rows, start = [], 0
    for y in outputs:
        rows.append(tuple(c.narrow(0, start, y.numel()).reshape((*y.shape, *x.shape)) for c, x in zip(columns, inputs, strict=True)))
        start += y.numel()
    return rows


def _scalar(func, name: str, strict: bool):
    """The function, whose result must be one tensor of one element."""
    def checked(*inputs):
        is_tuple, outputs = _run(func, inputs, name, strict)
        if is_tuple:
            raise RuntimeError(f"The function given to {name} should return a single Tensor")
        if outputs[0].nelement() != 1:
            raise RuntimeError(f"The Tensor returned by the function given to {name} should contain a single element")
        return outputs[0]

    return checked


def hessian(func, inputs, create_graph=False, strict=False, vectorize=False, outer_jacobian_strategy="reverse-mode"):
    """The Hessian of a function of one element: the Jacobian of its Jacobian, a tensor for each pair of inputs."""
    inputs_tuple, inputs = _as_tuple(inputs, "inputs", "hessian")
    if outer_jacobian_strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError(f'Expected strategy to be either "forward-mode" or "reverse-mode": got {outer_jacobian_strategy!r}')
    single = _scalar(func, "hessian", strict)

    def gradient(*args):
        rows = jacobian(lambda *a: single(*a).squeeze(), args, create_graph=True)
        if strict:
            _check_depends(rows, _JACOBIAN)
        return rows

    rows = jacobian(gradient, inputs, create_graph=create_graph, strict=strict, vectorize=vectorize, strategy=outer_jacobian_strategy)
    return _nested(rows, inputs_tuple, inputs_tuple)


def _first_gradient(func, inputs, v, name: str, create_graph: bool, strict: bool):
    inputs_tuple, inputs = _as_tuple(inputs, "inputs", name)
    inputs = _recorded(inputs, create_graph)
    v = _vector(v, inputs, inputs_tuple, name, create_graph)
    output = _scalar(func, name, strict)(*inputs)
    first = _grads((output,), inputs, None, create_graph=True)
    if strict:
        _check_depends(first, _JACOBIAN)
    return inputs_tuple, inputs, v, output, first


def vhp(func, inputs, v=None, create_graph=False, strict=False):
    """(output, v^T H) of a function of one element; `v` is like the inputs."""
    with enable_grad():
        inputs_tuple, inputs, v, output, first = _first_gradient(func, inputs, v, "vhp", create_graph, strict)
    with set_grad_enabled(create_graph or is_grad_enabled()):
        result = _filled(_grads(first, inputs, v, create_graph), inputs, strict, create_graph, "jacobian", "input")
    return _finished((output,), create_graph)[0], _same_form(_finished(result, create_graph), inputs_tuple)


def hvp(func, inputs, v=None, create_graph=False, strict=False):
    """(output, H v) of a function of one element; `v` is like the inputs."""
    from .. import zeros_like

    with enable_grad():
        inputs_tuple, inputs, v, output, first = _first_gradient(func, inputs, v, "hvp", create_graph, strict)
        weights = tuple(zeros_like(x, requires_grad=True) for x in inputs)
        products = _grads(first, inputs, weights, create_graph=True)
    with set_grad_enabled(create_graph or is_grad_enabled()):
        result = _filled(_grads(products, weights, v, create_graph), inputs, strict, create_graph, "hessian", "entry")
    return _finished((output,), create_graph)[0], _same_form(_finished(result, create_graph), inputs_tuple)


def _construct_standard_basis_for(tensors, tensor_numels) -> tuple:
    """For tensors of these numbers of elements, N together, a matrix of N rows each: joined along dimension 1 they are the identity."""
    from .. import eye

    if len(tensors) != len(tensor_numels) or not tensors:
        raise ValueError(f"expected as many numbers of elements as tensors, and at least one: got {len(tensors)} and {len(tensor_numels)}")
    identity = eye(sum(tensor_numels), dtype=tensors[0].dtype, device=tensors[0].device)
    return tuple(part.to(t.device, t.dtype) for part, t in zip(identity.split(list(tensor_numels), 1), tensors, strict=True))
