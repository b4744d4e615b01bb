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
    with pytest.raises(GradcheckError, match="Jacobian mismatch for output 0 with respect to input 0: at output element 0 and input element 0 it is 3.0, finite differences give 2.0"):
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


def test_single_precision_brings_a_warning():
    with pytest.warns(UserWarning, match="Input #0 requires gradient and is not a double precision"):
        assert gradcheck(lambda x: x * 2, leaf(1, 2, dtype=tg.float32), eps=1e-2, atol=1e-2)


def test_inputs_must_require_a_gradient_and_share_no_memory():
    with pytest.raises(ValueError, match="at least one input tensor to require gradient"):
        gradcheck(tg.exp, tg.ones(2, dtype=tg.float64), raise_exception=False)
    with pytest.raises(RuntimeError, match="The 0th input has a dimension with stride 0"):
        gradcheck(tg.exp, leaf(1).expand(2, 2), raise_exception=False)
    with pytest.raises(AssertionError, match="Expected at least one of check_forward_ad or check_backward_ad"):
        gradcheck(tg.exp, leaf(1), check_backward_ad=False)


def test_backward_must_give_the_same_twice():
    class Jitter(Same):
        @staticmethod
        def backward(ctx, grad):
            return grad * (1 + 1e-9 * tg.rand_like(grad))

    with pytest.raises(GradcheckError, match="Backward is not reentrant"):
        gradcheck(Jitter.apply, leaf(1, 2))
    assert gradcheck(Jitter.apply, leaf(1, 2), nondet_tol=1e-6)


def hooked(hook):
    def f(x):
        y = x.clone()
        y.register_hook(hook)
        return y

    return f


def test_backward_must_be_linear():
    with pytest.raises(GradcheckError, match="backward not multiplied by grad_output"):
        gradcheck(hooked(lambda g: g + 1e-2), leaf(1), atol=1e-1)


def test_backward_must_take_absent_gradients():
    class Reads(Same):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            if grad is None:
                raise RuntimeError("no gradient")
            return grad

    class One(Reads):
        @staticmethod
        def backward(ctx, grad):
            return tg.ones(1, dtype=tg.float64) if grad is None else grad

    assert gradcheck(Reads.apply, leaf(1), check_undefined_grad=False)
    for wrong, words in ((Reads, "to handle undefined output grads"), (One, "to be undefined or zero")):
        with pytest.raises(GradcheckError, match=words):
            gradcheck(lambda x, wrong=wrong: (wrong.apply(x), x * 2), leaf(1))


def test_batched_gradients_are_compared_with_a_loop():
    class Peeks(Same):
        """Asks for values, which vmap over backward cannot give."""

        @staticmethod
        def backward(ctx, grad):
            return grad * (grad.sum().item() == grad.sum().item())

    with pytest.raises(GradcheckError, match="failed while testing batched gradient"):
        gradcheck(Peeks.apply, leaf(1, 2), check_batched_grad=True)
    assert gradcheck(lambda x: x.sin() * x, leaf(1, 2), check_batched_grad=True)
    with pytest.raises(AssertionError, match="check_batched_grad=True requires check_backward_ad"):
        gradcheck(tg.exp, leaf(1), check_backward_ad=False, check_forward_ad=True, check_batched_grad=True)


def test_forward_mode():
    z = tg.tensor([1 + 2j, -0.5 + 1j], dtype=tg.complex128, requires_grad=True)
    for f, x in ((lambda x: (x.sin(), x * 2), leaf(1, 2)), (lambda z: z * z, z), (tg.view_as_real, z)):
        assert gradcheck(f, x, check_forward_ad=True, check_batched_forward_grad=True)
        assert gradgradcheck(f, x, check_fwd_over_rev=True)

    class Wrong(Same):
        @staticmethod
        def backward(ctx, grad):
            return grad

        @staticmethod
        def jvp(ctx, tangent):
            return tangent * 3

    assert gradcheck(Wrong.apply, leaf(1, 2))
    with pytest.raises(GradcheckError, match="Jacobian computed with forward mode mismatch for output 0 with respect to input 0"):
        gradcheck(Wrong.apply, leaf(1, 2), check_forward_ad=True)


def test_imaginary_parts_are_named():
    z = tg.tensor([1 + 2j], dtype=tg.complex128, requires_grad=True)
    with pytest.raises(GradcheckError, match="While considering the imaginary part of complex outputs only"):
        gradcheck(hooked(lambda g: g + 1e-2), z)


def test_outputs_keep_their_shape_and_layout():
    with pytest.raises(AssertionError, match="same shape when inputs are perturbed"):
        gradcheck(lambda x: tg.cat([x, x]) if x.item() > 1 else x, leaf(1))
    with pytest.raises(ValueError, match="Sparse output is not supported"):
        gradcheck(lambda x: x.to_sparse(), leaf(1, 2), raise_exception=False)


@pytest.mark.parametrize("layout", [tg.sparse_coo, tg.sparse_csr, tg.sparse_csc])
def test_sparse_inputs(layout):
    x = tg.tensor([[1.0, 0.0], [2.0, 3.0]], dtype=tg.float64).to_sparse(layout=layout).requires_grad_()
    assert gradcheck(lambda s: s.to_dense() ** 2, x) and gradcheck(lambda s: s @ tg.ones(2, 2, dtype=tg.float64), x)
    with pytest.raises(GradcheckError, match="Jacobian mismatch"):
        gradcheck(lambda s: hooked(lambda g: g * 2)(s.to_dense()), x)


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
    with pytest.raises(GradcheckError, match="mismatch"):  # float32 does not see steps of 1e-6
        check(lambda t: t.float() ** 2, (x,))


def test_outputs_without_gradient_must_not_depend_on_the_input():
    x = tg.rand(2, 3, dtype=tg.float64, requires_grad=True)
    assert gradcheck(lambda x: (x > 5).double(), (x,)) and gradcheck(lambda x: tg.ones(3), (x,))
    for f in (lambda x: x.detach() * 2, lambda x: (x > 5, x.detach() + 1)):
        with pytest.raises(GradcheckError, match="Numerical gradient for function expected to be zero"):
            gradcheck(f, (x,))
        assert gradcheck(f, (x,), raise_exception=False) is False


def test_jacobians():
    from tapegrad.autograd.gradcheck import (
        _get_numerical_jacobian,
        _iter_tensors,
        get_analytical_jacobian,
        get_numerical_jacobian,
    )

    x, y = tg.tensor([1.0, 3.0], dtype=tg.float64, requires_grad=True), tg.ones(2, dtype=tg.float64)

    def f(inputs):
        a, b = inputs
        return a * a.sum() + b

    (numerical,) = get_numerical_jacobian(f, (x, y), eps=1e-6)
    (analytical,), agree, sizes, dtypes = get_analytical_jacobian((x, y), f((x, y)))
    expected = x.detach().sum() * tg.eye(2, dtype=tg.float64) + x.detach().unsqueeze(0).expand(2, 2)
    assert tg.allclose(analytical, expected) and tg.allclose(numerical, expected, atol=1e-6) and agree and sizes and dtypes
    assert analytical.shape == (2, 2) and not tg.allclose(analytical, analytical.T)  # (elements in, elements out)
    (only,) = _get_numerical_jacobian(f, (x, y), target=x, eps=1e-6)
    assert tg.equal(only[0], numerical) and list(_iter_tensors([x, (y, 3)], True)) == [x]
    for function, arguments in ((get_numerical_jacobian, (f, (x, y))), (get_analytical_jacobian, ((x, y), f((x, y))))):
        with pytest.raises(ValueError, match="Expected grad_out to be 1.0"):
            function(*arguments, grad_out=2.0)


@pytest.mark.parametrize("check", [gradcheck, gradgradcheck])
def test_fast_mode_calls_the_function_a_few_times_whatever_the_size(check):
    def calls(size: int, fast: bool) -> int:
        count = 0

        def f(x):
            nonlocal count
            count += 1
            return x.sin() * x

        assert check(f, tg.linspace(-1, 1, size, dtype=tg.float64, requires_grad=True), fast_mode=fast)
        return count

    assert calls(50, True) == calls(2, True) < calls(50, False)


@pytest.mark.parametrize("dtype", [tg.float64, tg.complex128])
def test_fast_mode_names_the_wrong_element(dtype):
    class Slightly(Same):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            assert ctx.saved_tensors[0] is x  # raises where x was written to
            return grad * tg.tensor([1.0, 1.0, 1.01], dtype=dtype)

    x = tg.tensor([1, 2, 3], dtype=dtype, requires_grad=True)
    assert gradcheck(lambda x: x * x.conj(), x, fast_mode=True) and gradgradcheck(lambda x: x * x * x, x, fast_mode=True)
    with pytest.raises(GradcheckError, match="at output element 2 and input element 2 it is 1.01, finite differences give (0.9999|1.0)"):
        gradcheck(Slightly.apply, x, fast_mode=True)
    assert gradcheck(Slightly.apply, x, fast_mode=True, raise_exception=False) is False


@pytest.mark.parametrize("shape", [(), (0,), (2, 0)])
def test_fast_mode_of_numbers_and_of_nothing(shape):
    x = tg.full(shape, 0.5, dtype=tg.float64, requires_grad=True)
    assert gradcheck(lambda x: (x.sin(), x.sum()), x, fast_mode=True, check_forward_ad=True)
    assert gradgradcheck(lambda x: x.sin().sum(), x, fast_mode=True)


def test_fast_mode_sees_errors_that_are_antisymmetric():
    class Turned(Same):
        @staticmethod
        def backward(ctx, grad):
            return grad @ tg.tensor([[1.0, 0.5], [-0.5, 1.0]], dtype=tg.float64)

    with pytest.raises(GradcheckError, match="Jacobian mismatch"):
        gradcheck(Turned.apply, leaf(1, 2), fast_mode=True)


def test_fast_mode_in_forward_mode():
    class Wrong(Same):
        @staticmethod
        def jvp(ctx, tangent):
            return tangent * tg.tensor([1.0, 2.0], dtype=tg.float64)

    assert gradcheck(lambda x, y: (x * y, y.exp()), (leaf(1, 2), leaf(3, 4)), fast_mode=True, check_forward_ad=True)
    with pytest.raises(GradcheckError, match="computed with forward mode mismatch for output 0 with respect to input 0: at output element 1 and input element 1"):
        gradcheck(Wrong.apply, leaf(1, 2), fast_mode=True, check_forward_ad=True, check_backward_ad=False)


def test_fast_mode_of_constants_and_sparse_inputs():
    with pytest.raises(GradcheckError, match="Numerical gradient for function expected to be zero"):
        gradcheck(lambda x: x.detach() * 2, leaf(1, 2), fast_mode=True)
    assert gradcheck(lambda s: s.to_dense() * 2, tg.eye(2, dtype=tg.float64).to_sparse().requires_grad_(), fast_mode=True)
