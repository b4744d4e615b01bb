"""Operators of tapegrad.library under the tape: a gradient is never lost in silence."""

import warnings

import pytest
import tapegrad as tg
from tapegrad import library


@pytest.fixture
def space(request):
    """A namespace of a test's own."""
    name = request.node.name.replace("[", "_").replace("]", "")
    yield library.Library(name, "DEF")
    library.Library(name, "FRAGMENT")._destroy()


def test_backward_through_an_operator_without_a_formula_raises(space):
    op = library.custom_op(f"{space.ns}::double", lambda x: x * 2, mutates_args=())
    x = tg.ones(2, requires_grad=True)
    y = op(x) + x  # whose gradient would be that of the sum alone
    assert y.requires_grad
    with pytest.raises(RuntimeError, match=rf"^{space.ns}::double: Trying to backward through an operator without a formula for its gradient\nhint: "):
        y.sum().backward()
    assert x.grad is None
    op.register_autograd(lambda ctx, grad: grad * 2)
    (op(x) + x).sum().backward()
    assert x.grad.tolist() == [3, 3]


def test_results_that_have_no_gradient(space):
    x = tg.ones(2, requires_grad=True)
    flags = library.custom_op(f"{space.ns}::flags", lambda x: x > 0, mutates_args=())
    count = library.custom_op(f"{space.ns}::count", lambda x: x.numel(), mutates_args=())
    fill = library.custom_op(f"{space.ns}::fill", lambda x, out: out.copy_(x) and None, mutates_args=("out",))
    out = tg.zeros(1)
    assert not flags(x).requires_grad and count(x) == 2 and fill(x[:1], out) is None
    assert out.tolist() == [1] and not out.requires_grad


def test_lists_are_recorded(space):
    op = library.custom_op(f"{space.ns}::both", lambda x: [x * 2, x * 3], mutates_args=())
    op.register_autograd(lambda ctx, grads: grads[0] * 2 + grads[1] * 3)
    x = tg.ones(2, requires_grad=True)
    first, second = result = op(x)
    assert type(result) is list and first.requires_grad and second.requires_grad
    (first + second).sum().backward()
    assert x.grad.tolist() == [5, 5]


def test_a_composite_function_has_the_gradients_of_what_it_calls(space):
    space.define("square(Tensor x) -> Tensor")
    space.impl("square", lambda x: x * x, "CompositeImplicitAutograd")
    x = tg.ones(2, requires_grad=True)
    getattr(tg.ops, space.ns).square(x).sum().backward()
    assert x.grad.tolist() == [2, 2]


def test_a_function_for_the_key_of_autograd_is_called_where_a_gradient_is_wanted(space):
    called = []

    class Five(tg.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return op(x)

        @staticmethod
        def backward(ctx, grad):
            return grad * 5

    space.define("five(Tensor x) -> Tensor")
    space.impl("five", lambda x: called.append(1) or x * 5, "CPU")
    space.impl("five", Five.apply, "Autograd")
    op = getattr(tg.ops, space.ns).five
    x = tg.ones(2, requires_grad=True)
    op(x).sum().backward()
    assert x.grad.tolist() == [5, 5]
    assert op(tg.ones(1)).tolist() == [5] and len(called) == 2


def test_a_function_in_the_place_of_another_is_warned_of(space):
    space.define("f(Tensor x) -> Tensor")
    space.impl("f", lambda x: x * 1, "CPU")
    with pytest.warns(UserWarning, match="takes the place of one that was registered for CPU before") as said:
        space.impl("f", lambda x: x * 2, "CPU")
    assert said[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        space.impl("f", lambda x: x * 3, "CPU", allow_override=True)
    assert getattr(tg.ops, space.ns).f(tg.ones(1)).tolist() == [3]
