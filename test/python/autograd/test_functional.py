"""autograd.functional: values, forms, graphs and errors as PyTorch's."""

import pytest
import tapegrad as tg

torch = pytest.importorskip("torch")

NUMBERS = [[0.3, -0.7], [1.1, 0.4]]


def _tensors(lib):
    return lib.tensor(NUMBERS, dtype=lib.float64), lib.tensor([0.5, -1.5], dtype=lib.float64)


FUNCTIONS = {
    "one": (lambda lib: lambda x: x.sin() * x, 1),
    "two": (lambda lib: lambda x, y: (x @ y, (x * x).sum(0) * y), 2),
    "linear": (lambda lib: lambda x, y: x @ y, 2),
    "independent": (lambda lib: lambda x, y: y * 2, 2),
    "constant": (lambda lib: lambda x: lib.ones(2, dtype=lib.float64), 1),
}
SCALARS = {
    "scalar": (lambda lib: lambda x: (x**3).sum(), 1),
    "scalars": (lambda lib: lambda x, y: ((x @ y) ** 2 * y.exp()).sum(), 2),
    "one element": (lambda lib: lambda x: (x**3).sum().reshape(1), 1),
    "linear": (lambda lib: lambda x, y: (x @ y).sum(), 2),
    "vector": (lambda lib: lambda x: x.sum(0), 1),
    "pair": (lambda lib: lambda x: (x.sum(), x.sum()), 1),
}


def _lists(value):
    if isinstance(value, (tuple, list)):
        return [_lists(v) for v in value]
    return value.detach().tolist(), value.requires_grad


def _close(a, b):
    if isinstance(b, (list, tuple)):
        assert isinstance(a, (list, tuple)) and len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            _close(x, y)
    elif isinstance(b, float):
        assert a == pytest.approx(b, rel=1e-10, abs=1e-12)
    else:
        assert a == b


def _outcome(lib, name, function, count, **kwargs):
    x, y = _tensors(lib)
    inputs = (x, y)[:count] if count > 1 else x
    if kwargs.pop("need", False):
        x.requires_grad_(), y.requires_grad_()
    v = kwargs.pop("v", None)
    if v == "inputs":
        kwargs["v"] = tuple(t.detach() * 2 + 1 for t in (x, y)[:count]) if count > 1 else x.detach() * 2 + 1
    elif v == "outputs":
        out = function(lib)(*((x, y)[:count]))
        kwargs["v"] = tuple(o.detach() + 1 for o in out) if isinstance(out, tuple) else out.detach() + 1
    try:
        return _lists(getattr(lib.autograd.functional, name)(function(lib), inputs, **kwargs))
    except (RuntimeError, TypeError, NotImplementedError, AssertionError) as error:
        return type(error).__name__


OPTIONS = [{}, {"create_graph": True}, {"create_graph": True, "need": True}, {"strict": True}, {"strict": True, "create_graph": True}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("which", FUNCTIONS)
def test_products_and_jacobians_equal_torch(which, options):
    function, count = FUNCTIONS[which]
    for name, extra in (("vjp", {"v": "outputs"}), ("jvp", {"v": "inputs"}), ("vjp", {}), ("jvp", {}), ("jacobian", {}),
                        ("jacobian", {"vectorize": True}), ("jacobian", {"vectorize": True, "strategy": "forward-mode"})):
        mine = _outcome(tg, name, function, count, **options, **extra)
        theirs = _outcome(torch, name, function, count, **options, **extra)
        _close(mine, theirs)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("which", SCALARS)
def test_hessians_equal_torch(which, options):
    function, count = SCALARS[which]
    for name, extra in (("hessian", {}), ("hessian", {"vectorize": True}), ("vhp", {"v": "inputs"}), ("hvp", {"v": "inputs"}), ("hvp", {})):
        mine = _outcome(tg, name, function, count, **options, **extra)
        theirs = _outcome(torch, name, function, count, **options, **extra)
        _close(mine, theirs)


def test_forward_over_reverse():
    x, _ = _tensors(tg)
    function = SCALARS["scalar"][0](tg)
    a = tg.autograd.functional.hessian(function, x)
    b = tg.autograd.functional.hessian(function, x, vectorize=True, outer_jacobian_strategy="forward-mode")
    assert tg.allclose(a, b)


def test_wrong_arguments():
    f = tg.autograd.functional
    x, y = _tensors(tg)
    with pytest.raises(TypeError, match="must be either a Tensor or a tuple of Tensors but the given inputs has type <class 'int'>"):
        f.jacobian(tg.sin, 3)
    with pytest.raises(TypeError, match="the value at index 1 has type"):
        f.vjp(lambda a: (a, 2), x)
    with pytest.raises(RuntimeError, match="v has invalid size: should be"):
        f.jvp(tg.sin, x, y)
    with pytest.raises(RuntimeError, match="v is a tuple of invalid length: should be 2 but got 1"):
        f.jvp(lambda a, b: a @ b, (x, y), x)


def test_gradients_of_many_weights_at_once():
    x = tg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = x**2
    rows = tg.autograd.grad(y, x, tg.eye(3), is_grads_batched=True)[0]
    assert rows.tolist() == [[2.0, 0.0, 0.0], [0.0, 4.0, 0.0], [0.0, 0.0, 6.0]]


def test_vectors_that_may_not_be_left_out():
    from tapegrad.autograd.functional import jvp, vjp

    x = tg.ones(2)
    with pytest.raises(RuntimeError, match="^vjp: The vector v can only be None if the user-provided function returns a single Tensor with a single element"):
        vjp(lambda t: t * 2, x)
    with pytest.raises(RuntimeError, match="^jvp: The vector v can only be None if the input to the user-provided function is a single Tensor"):
        jvp(lambda t: t.sum(), x)
    with pytest.raises(RuntimeError, match="^The jacobian of the user-provided function is independent of input 0"):
        jvp(lambda t: t * 2, x, tg.ones(2), create_graph=True, strict=True)
    with pytest.raises(ValueError, match="Expected allow_unused to be True or not passed when materialize_grads=True"):
        tg.autograd.grad(tg.ones(1, requires_grad=True).sum(), x, allow_unused=False, materialize_grads=True)
    with pytest.raises(ValueError, match="Expects mode to be one of"):
        tg.autograd.graph.register_multi_grad_hook((tg.ones(1, requires_grad=True),), print, mode="foo")
    with pytest.raises(RuntimeError, match="'inputs' cannot be empty"):
        tg.autograd.backward(tg.ones((), requires_grad=True), inputs=[])
