"""Custom Functions under vmap: their own rule, and the one that maps forward and backward, on the tapes of all levels."""

import pytest
import tapegrad as tg
from tapegrad.autograd import Function, gradcheck
from tapegrad.func import grad, jacrev, vmap


class Square(Function):
    """x * x, whose gradient is 10 times what it should be, so that it shows which backward ran."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        return 20 * ctx.saved_tensors[0] * g


class OldForm(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return x * x

    @staticmethod
    def backward(ctx, g):
        return 20 * ctx.x * g


class Ruled(Square):
    generate_vmap_rule = False
    seen: list = []

    @staticmethod
    def vmap(info, in_dims, x):
        Ruled.seen.append((*info, in_dims, tuple(x.shape)))
        return Ruled.apply(x) + 1, in_dims[0]


@pytest.fixture(autouse=True)
def forget():
    Ruled.seen.clear()


X = tg.tensor([1.0, 2.0, 3.0])


@pytest.mark.parametrize("f", [Square, OldForm])
def test_gradients_around_vmap_are_those_of_backward(f):
    assert grad(lambda x: vmap(f.apply)(x).sum())(X).tolist() == [20, 40, 60]
    w = X.clone().requires_grad_()
    vmap(f.apply)(w).sum().backward()
    assert w.grad.tolist() == [20, 40, 60]
    v = tg.tensor(2.0, requires_grad=True)  # the same for all samples
    vmap(lambda x: x * f.apply(v))(X).sum().backward()
    assert v.grad.item() == 40 * 6
    if f is Square:
        v.grad = None
        vmap(lambda x: f.apply(v * x))(X).sum().backward()
        assert v.grad.item() == 20 * 2 * (1 + 4 + 9)
    with tg.no_grad():
        assert vmap(f.apply)(w).requires_grad is False


@pytest.mark.parametrize("f", [Square, OldForm])
def test_gradients_inside_of_vmap(f):
    assert vmap(grad(f.apply))(X).tolist() == [20, 40, 60]
    assert vmap(vmap(f.apply))(X.reshape(3, 1)).tolist() == [[1], [4], [9]]
    assert grad(lambda x: vmap(vmap(f.apply))(x).sum())(X.reshape(3, 1)).tolist() == [[20], [40], [60]]
    assert jacrev(vmap(f.apply))(X).diagonal().tolist() == [20, 40, 60]


def test_gradients_inside_and_outside():
    """Of 20 (x * x) 2 x: 20 * 3 * 2 x^2, where the inner 20 x is differentiated as it is."""
    mine = grad(lambda x: vmap(grad(lambda v: Square.apply(v * v)))(x).sum())(X)
    assert mine.tolist() == [120 * float(x) ** 2 for x in X]
    with pytest.raises(RuntimeError, match="it must override the setup_context staticmethod"):
        grad(lambda x: vmap(grad(lambda v: OldForm.apply(v * v)))(x).sum())(X)


def test_the_rule_is_called_with_all_samples():
    assert vmap(Ruled.apply)(X).tolist() == [2, 5, 10]
    assert vmap(Ruled.apply, in_dims=1, randomness="same")(tg.ones(2, 3)).tolist() == [[2, 2]] * 3
    assert Ruled.seen == [(3, "error", (0,), (3,)), (3, "same", (0,), (3, 2))]
    assert grad(lambda x: vmap(Ruled.apply)(x).sum())(X).tolist() == [20, 40, 60]
    assert vmap(grad(Ruled.apply))(X).tolist() == [20, 40, 60]
    Ruled.seen.clear()
    assert vmap(vmap(Ruled.apply))(tg.ones(2, 3)).tolist() == [[3, 3, 3]] * 2  # a rule for each level
    assert [(count, shape) for count, _, _, shape in Ruled.seen] == [(3, (3,)), (2, (2, 3))]
    Ruled.seen.clear()
    assert vmap(lambda x: x + Ruled.apply(tg.ones(2)).sum())(X).tolist() == [3, 4, 5] and not Ruled.seen  # no sample has to do with it


def test_dimensions_of_the_rule():
    class Outer(Function):
        @staticmethod
        def forward(x, y, k):
            return tg.outer(x, y) * k, x.sum()

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def vmap(info, in_dims, x, y, k):
            assert in_dims == (0, None, None) and k == 3
            return (tg.einsum("bi,j->ijb", x, y) * k, x.sum()), (2, None)

    x, y = tg.rand(4, 2), tg.rand(3)
    outer, total = vmap(lambda x: Outer.apply(x, y, 3), out_dims=(0, None))(x)
    assert outer.allclose(tg.einsum("bi,j->bij", x, y) * 3) and total.shape == ()


def test_mistakes():
    class Both(Ruled):
        generate_vmap_rule = True

    class One(Ruled):
        @staticmethod
        def vmap(info, in_dims, x):
            return x

    class Unlike(Ruled):
        @staticmethod
        def vmap(info, in_dims, x):
            return x, (0, 0)

    class Fails(Ruled):
        @staticmethod
        def vmap(info, in_dims, x):
            raise KeyboardInterrupt

    for f, error, text in ((Both, RuntimeError, "both generate_vmap_rule=True and an overridden vmap"), (One, RuntimeError, "to have two returns"),
                           (Unlike, ValueError, "do not fit its output"), (Fails, KeyboardInterrupt, None)):
        with pytest.raises(error, match=text):
            vmap(f.apply)(X)
        assert tg._C._vmap_depth() == 0
    assert Both.apply(X).tolist() == [1, 4, 9]


def test_what_a_context_keeps():
    class Keeps(Function):
        """(x * x, y, 2): attributes with tensors, an output without a gradient, no zeros for absent gradients."""

        @staticmethod
        def forward(ctx, x, y, factor):
            ctx.pair, ctx.factor, ctx.wanted = {"x": x, "y": y}, factor, ctx.needs_input_grad
            z = y * 2
            ctx.mark_non_differentiable(z)
            ctx.set_materialize_grads(False)
            out = x * x
            ctx.save_for_backward(out, None, y)
            return out, x * y, z, "label"

        @staticmethod
        def backward(ctx, g, h, _z, _label):
            out, none, y = ctx.saved_tensors
            assert none is None and h is None and _z is None and ctx.wanted == ctx.needs_input_grad == (True, False, False)
            return g * ctx.factor * ctx.pair["x"] + 0 * out * y * ctx.pair["y"], None, None

    x, y = X.clone().requires_grad_(), tg.tensor(5.0)
    labels = []

    def f(x):
        out, _, z, label = Keeps.apply(x, y, 20)
        labels.append(label)
        assert not z.requires_grad
        return out

    vmap(f)(x).sum().backward()
    assert x.grad.tolist() == [20, 40, 60] and labels == ["label"]


def test_writes_in_place():
    class Double(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def backward(ctx, g):
            return 20 * g

    w = X.clone().requires_grad_()

    def f(x):
        y = x * 1
        z = Double.apply(y)
        return z + y

    vmap(f)(w).sum().backward()
    assert w.grad.tolist() == [40, 40, 40]


def test_gradients_of_gradients():
    class Cube(Function):
        @staticmethod
        def forward(x):
            return x ** 3

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            return 3 * ctx.saved_tensors[0] ** 2 * g

    x = X.double().requires_grad_()
    assert gradcheck(vmap(Cube.apply), x) and tg.autograd.gradgradcheck(vmap(Cube.apply), x)
    assert vmap(lambda v: Cube.apply(v), chunk_size=2)(x).tolist() == [1, 8, 27]
    assert tg.func.hessian(lambda x: vmap(Cube.apply)(x).sum())(x).diagonal().tolist() == [6, 12, 18]
