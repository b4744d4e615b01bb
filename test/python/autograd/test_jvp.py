"""Custom Functions in forward mode: their jvp, and what it must give."""

import pytest
import tapegrad as tg
from tapegrad.autograd import Function, forward_ad


def tangent_of(function, *args, tangents=(1.0,)):
    """The tangents of function's results, where the first arguments carry these."""
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(a, tg.full_like(a, t)) for a, t in zip(args, tangents)]
        results = function.apply(*duals, *args[len(duals):])
        return [forward_ad.unpack_dual(r).tangent for r in (results if isinstance(results, tuple) else (results,))]


class Scaled(Function):
    @staticmethod
    def forward(ctx, x, y, factor):
        ctx.factor = factor
        ctx.save_for_forward(x, y)
        return x * y * factor

    @staticmethod
    def backward(ctx, grad):
        return grad * 1000, None, None  # not what jvp says: who asks whom is seen

    @staticmethod
    def jvp(ctx, x_t, y_t, factor_t):
        assert factor_t is None
        x, y = ctx.saved_tensors
        return (x_t * y + x * y_t) * ctx.factor


def test_tangents_come_from_jvp():
    assert [t.item() for t in tangent_of(Scaled, tg.tensor(3.0), tg.tensor(5.0), 2)] == [10]  # the other tangent is zero
    assert [t.item() for t in tangent_of(Scaled, tg.tensor(3.0), tg.tensor(5.0), 2, tangents=(1.0, 1.0))] == [16]


def test_derivatives_go_on_behind_a_function():
    x = tg.tensor(3.0, requires_grad=True)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, tg.tensor(1.0))
        y = forward_ad.unpack_dual(Scaled.apply(dual, tg.tensor(5.0), 2) ** 2 + dual)
    assert y.primal.item() == 903 and y.tangent.item() == 2 * 30 * 10 + 1  # the way past the function once, that through it once


def test_outputs_without_a_tangent():
    class Marked(Function):
        @staticmethod
        def forward(ctx, x):
            other = x.clone()
            ctx.mark_non_differentiable(other)
            return x.clone(), other, 7

        @staticmethod
        def jvp(ctx, x_t):
            return x_t, None, None

    class Wrong(Marked):
        @staticmethod
        def jvp(ctx, x_t):
            return x_t, x_t.clone(), None

    class Short(Marked):
        @staticmethod
        def jvp(ctx, x_t):
            return x_t

    with forward_ad.dual_level():
        dual = forward_ad.make_dual(tg.ones(2), tg.ones(2))
        first, other, number = Marked.apply(dual)
        assert forward_ad.unpack_dual(first).tangent.tolist() == [1, 1] and forward_ad.unpack_dual(other).tangent is None and number == 7
        with pytest.raises(RuntimeError, match="You should return None at that position instead"):
            Wrong.apply(dual)
        with pytest.raises(RuntimeError, match="as many tangents as forward returns outputs: 3: got 1"):
            Short.apply(dual)


@pytest.mark.parametrize("rule, words", [(lambda t: t.mul_(2), None), (lambda t: t, "not modifying the forward mode gradients inplace"),
                                         (lambda t: t * 2, "not modifying the forward mode gradients inplace")])
def test_what_is_written_in_place_has_a_tangent_that_is(rule, words):
    class Doubled(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def jvp(ctx, x_t):
            return rule(x_t)

    with forward_ad.dual_level():
        tangent = tg.ones(2)
        dual = forward_ad.make_dual(tg.ones(2), tangent)
        if words:
            with pytest.raises(RuntimeError, match=words):
                Doubled.apply(dual)
        else:
            assert Doubled.apply(dual) is dual and forward_ad.unpack_dual(dual).tangent is tangent and tangent.tolist() == [2, 2]


@pytest.mark.parametrize("rule, words", [(lambda t: t[:1], None), (lambda t: t[:1].clone(), "is not returning a view"),
                                         (lambda t: t.clone()[:1], "is not returning a view of the given")])
def test_views_have_tangents_that_are_views(rule, words):
    class First(Function):
        @staticmethod
        def forward(ctx, x):
            return x[:1]

        @staticmethod
        def jvp(ctx, x_t):
            return rule(x_t)

    if words:
        with pytest.raises(RuntimeError, match=words):
            tangent_of(First, tg.ones(2))
    else:
        assert tangent_of(First, tg.ones(2))[0].tolist() == [1]


def test_without_jvp_backward_gives_the_tangent():
    class Cubed(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x ** 3

        @staticmethod
        def backward(ctx, grad):
            return 3 * ctx.saved_tensors[0] ** 2 * grad

    class Nothing(Cubed):
        backward = Function.backward

    assert tangent_of(Cubed, tg.tensor(2.0))[0].item() == 12
    with pytest.raises(NotImplementedError, match="must implement the jvp function"):
        tangent_of(Nothing, tg.tensor(2.0))


def test_backward_and_vjp_are_not_given_both():
    class Both(Scaled):
        @staticmethod
        def backward(ctx, grad):
            return grad, None, None

        @staticmethod
        def vjp(ctx, grad):
            return grad, None, None

    with pytest.raises(RuntimeError, match="Implementing both 'backward' and 'vjp'"):
        Both.apply(tg.ones(1, requires_grad=True), tg.ones(1), 1).backward()


def test_setup_context_is_given_defaults():
    class Power(Function):
        @staticmethod
        def forward(x, y=3):
            return x ** y

        @staticmethod
        def setup_context(ctx, inputs, output):
            x, ctx.y = inputs
            ctx.save_for_backward(x)

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.y * ctx.saved_tensors[0] ** (ctx.y - 1), None

    x = tg.tensor(2.0, requires_grad=True)
    assert [tg.autograd.grad(y, x)[0].item() for y in (Power.apply(x), Power.apply(x, 2), Power.apply(x, y=2))] == [12, 4, 4]
    with pytest.raises(TypeError):
        Power.apply(x, z=2)


def test_absent_gradients_of_outputs_that_are_not_differentiable():
    seen = []

    class Two(Function):
        @staticmethod
        def forward(ctx, x, zeros):
            ctx._materialize_non_diff_grads = zeros
            other = x.clone()
            ctx.mark_non_differentiable(other)
            return x.clone(), other

        @staticmethod
        def backward(ctx, grad, other):
            seen.append(other)
            return grad, None

    for zeros in (True, False):
        Two.apply(tg.ones(1, requires_grad=True), zeros)[0].backward()
    assert seen[0].tolist() == [0] and seen[1] is None


def test_tangents_lie_as_their_tensors_do():
    x, t = tg.rand(5)[:4].detach(), tg.rand(4)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, t)
        kept = t.clone()
        assert forward_ad.unpack_dual(dual).tangent is not t and forward_ad.unpack_dual(dual).tangent.equal(t)
        forward_ad.unpack_dual(dual).tangent.mul_(2)
        assert t.equal(kept) and forward_ad.unpack_dual(dual.as_strided((5,), (1,), 0)).tangent.shape == (5,)
        same = tg.rand(4)
        assert forward_ad.unpack_dual(forward_ad.make_dual(tg.rand(4), same)).tangent is same
        copy = tg.zeros(4)
        copy.copy_(forward_ad.make_dual(tg.rand(4), same))
        assert forward_ad.unpack_dual(copy).tangent is not same and forward_ad.unpack_dual(copy).tangent.equal(same)


def test_tangents_can_be_switched_off():
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(tg.ones(2), tg.ones(2))
        with forward_ad._set_fwd_grad_enabled(False):
            assert not forward_ad._is_fwd_grad_enabled() and forward_ad.unpack_dual(dual).tangent is None
        assert forward_ad._is_fwd_grad_enabled() and forward_ad.unpack_dual(dual).tangent is not None
