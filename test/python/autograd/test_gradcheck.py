"""gradcheck and gradgradcheck: what passes, and that what is wrong does not."""

import pytest
import tapegrad as tg
from autograd.leaves import Same, Square, leaf
from tapegrad.autograd import Function, GradcheckError, gradcheck, gradgradcheck


class WrongFirst(Function):
    @staticmethod
    def forward(ctx, x):
        return x * x

    @staticmethod
    def backward(ctx, grad):
        return grad * 3


class WrongSecond(Square):
    """The gradient is right; that of the gradient is not."""

    @staticmethod
    def backward(ctx, grad):
        x, = ctx.saved_tensors
        return grad * 2 * x.detach()


@pytest.mark.parametrize("f", [tg.exp, tg.tanh, lambda x: x.sum(0), lambda x: (x.sin(), x.cos()), lambda x: x.view(2, 1) @ x.view(1, 2)])
def test_right_gradients_pass(f):
    assert gradcheck(f, leaf(0.3, -0.7)) is True
    assert gradgradcheck(f, leaf(0.3, -0.7)) is True


def test_several_inputs_and_constants():
    a, b, c = leaf(1, 2), leaf(0.5), tg.ones(2, dtype=tg.float64)
    assert gradcheck(lambda a, b, c, k: a * b + c * k, (a, b, c, 3))
    assert gradgradcheck(lambda a, b, c, k: a * b + c * k, (a, b, c, 3))


def test_inputs_keep_no_gradient():
    x = leaf(1, 2)
    gradcheck(tg.exp, x)
    assert x.grad is None and x.tolist() == [1, 2]


def test_wrong_gradients_fail():
    with pytest.raises(GradcheckError, match="gradcheck: the gradient of output 0 with respect to input 0"):
        gradcheck(WrongFirst.apply, leaf(1, 2))
    assert gradcheck(WrongFirst.apply, leaf(1, 2), raise_exception=False) is False


def test_wrong_second_gradients_fail():
    assert gradcheck(WrongSecond.apply, leaf(1, 2))
    with pytest.raises(GradcheckError):
        gradgradcheck(WrongSecond.apply, leaf(1, 2))
    assert gradgradcheck(WrongSecond.apply, leaf(1, 2), raise_exception=False) is False


def test_a_small_error_in_one_element_fails():
    class Slightly(Same):
        @staticmethod
        def backward(ctx, grad):
            return grad * tg.tensor([1.0, 1.0, 1.01], dtype=tg.float64)

    with pytest.raises(GradcheckError):
        gradcheck(Slightly.apply, leaf(1, 2, 3))


def test_a_missing_gradient_fails():
    class Nothing(Same):
        @staticmethod
        def backward(ctx, grad):
            return None

    with pytest.raises(GradcheckError):
        gradcheck(Nothing.apply, leaf(1, 2))


def test_single_precision_is_refused():
    with pytest.raises(ValueError, match="float64 or complex128.*got float32"):
        gradcheck(lambda x: x * 2, leaf(1, 2, dtype=tg.float32))


def test_given_weights():
    assert gradgradcheck(lambda x: x * x * x, leaf(1, 2), tg.tensor([0.5, 2.0], dtype=tg.float64, requires_grad=True))


def test_errors_of_the_function_pass_through():
    with pytest.raises(ZeroDivisionError):
        gradcheck(lambda x: x * (1 / 0), leaf(1))


def test_complex_inputs():
    z = tg.tensor([1 + 2j, -0.5 + 1j], dtype=tg.complex128, requires_grad=True)
    assert gradcheck(lambda z: z * z, z)
    assert gradgradcheck(lambda z: z * z, z)


@pytest.mark.parametrize("check", [gradcheck, gradgradcheck])
def test_outputs_must_be_double(check):
    x = tg.ones(5, dtype=tg.float64, requires_grad=True)
    with pytest.raises(ValueError, match="needs outputs of float64 or complex128 on the CPU: got float32"):
        check(lambda t: t.float() ** 2, (x,))


def test_outputs_without_gradient_must_not_depend_on_the_input():
    x = tg.rand(2, 3, dtype=tg.float64, requires_grad=True)
    assert gradcheck(lambda x: (x > 5).double(), (x,)) and gradcheck(lambda x: tg.ones(3), (x,))
    for f in (lambda x: x.detach() * 2, lambda x: (x > 5, x.detach() + 1)):
        with pytest.raises(GradcheckError, match="no output requires a gradient"):
            gradcheck(f, (x,))
        assert gradcheck(f, (x,), raise_exception=False) is False
