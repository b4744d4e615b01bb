"""Custom Functions: both forms, what ctx can do, and what is refused."""

import re

import pytest
import tapegrad as tg
from autograd.leaves import InPlace, Same, Square, leaf
from pairs import same_as_torch
from tapegrad.autograd import Function, gradcheck, gradgradcheck, graph
from tapegrad.autograd.function import once_differentiable


class Cube(Function):
    @staticmethod
    def forward(ctx, x, factor):
        assert not tg.is_grad_enabled()
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x * x * x * factor

    @staticmethod
    def backward(ctx, grad):
        x, = ctx.saved_tensors
        return 3 * x * x * ctx.factor * grad, None


class Exponential(Function):
    @staticmethod
    def forward(ctx, x):
        y = tg.exp(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        y, = ctx.saved_tensors
        return grad * y


class Product(Function):
    """The form with setup_context."""

    @staticmethod
    def forward(a, b):
        return a * b

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        return (grad * b if ctx.needs_input_grad[0] else None, grad * a if ctx.needs_input_grad[1] else None)


@pytest.mark.smoke
def test_forward_and_backward():
    x = leaf(1, 2)
    y = Cube.apply(x, 2)
    assert y.grad_fn.name() == "CubeBackward" and type(y.grad_fn).__name__ == "CubeBackward"
    assert y.grad_fn.factor == 2 and y.grad_fn.saved_tensors[0].tolist() == [1, 2]
    y.sum().backward()
    assert x.grad.tolist() == [6, 24]
    with pytest.raises(RuntimeError, match="a second time"):
        y.sum().backward()


@pytest.mark.parametrize("f", [lambda x: Cube.apply(x, 2.0), Exponential.apply, lambda x: Product.apply(x, x)])
def test_first_and_second_derivatives(f):
    assert gradcheck(f, leaf(0.5, -1.5))
    assert gradgradcheck(f, leaf(0.5, -1.5))


def test_needs_input_grad():
    seen = []

    class Look(Product):
        @staticmethod
        def backward(ctx, grad):
            seen.append(ctx.needs_input_grad)
            return Product.backward(ctx, grad)

    a, b = leaf(1), tg.ones(1, dtype=tg.float64)
    Look.apply(a, b).backward()
    assert seen == [(True, False)] and b.grad is None


def test_unrecorded_when_nothing_needs_it():
    assert Cube.apply(tg.ones(2), 1).grad_fn is None
    with tg.no_grad():
        assert not Cube.apply(leaf(1), 1).requires_grad


def test_several_outputs_and_absent_gradients():
    seen = []

    class Split(Function):
        @staticmethod
        def forward(ctx, x, materialize):
            ctx.set_materialize_grads(materialize)
            index = x.argmax()
            constant = x * 0
            ctx.mark_non_differentiable(constant)
            return x * 2, x * 3, index, constant, "text"

        @staticmethod
        def backward(ctx, a, b, index, constant, text):
            seen.append((b if b is None else b.tolist(), text))
            return a * 2 if b is None else a * 2 + b * 3, None

    x = leaf(1, 2)
    a, b, index, constant, text = Split.apply(x, True)
    assert text == "text" and not index.requires_grad and not constant.requires_grad and b.output_nr == 1
    a.sum().backward()
    assert x.grad.tolist() == [2, 2]
    Split.apply(x, False)[0].sum().backward()
    assert seen == [([0, 0], None), (None, None)]


def test_mark_dirty():
    class Double(InPlace):
        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    x = leaf(1, 2)
    y = x * 1
    z = Double.apply(y)
    assert z is y and y.grad_fn.name() == "DoubleBackward"
    (y * 3).sum().backward()
    assert x.grad.tolist() == [6, 6]
    x.grad = None
    y = x * 1
    Double.apply(y[1:])
    y.sum().backward()
    assert x.grad.tolist() == [1, 2]
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        Double.apply(leaf(1))
    constant = tg.ones(2, dtype=tg.float64)
    assert Double.apply(constant) is constant and constant.tolist() == [2, 2]


def test_returning_an_input():
    class Same(Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, grad):
            return -grad

    x = leaf(1, 2)
    y = Same.apply(x)
    assert y is not x and y.grad_fn.name() == "SameBackward" and x.grad_fn is None
    y.sum().backward()
    assert x.grad.tolist() == [-1, -1]
    with pytest.raises(RuntimeError, match="custom Function"):
        Same.apply(x * 1).mul_(2)


def test_saved_tensors_are_version_checked():
    x = leaf(1, 2)
    y = x * 1
    z = Cube.apply(y, 1)
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation") as caught:
        z.sum().backward()
    assert "test_function.py" in str(caught.value) and "add_" in str(caught.value)


def test_saving_none_and_other_things():
    class Keep(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(None, x)
            assert ctx.saved_tensors[0] is None
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            none, x = ctx.saved_tensors
            assert none is None and x.tolist() == [1]
            return grad

    Keep.apply(leaf(1)).backward()

    class Wrong(Keep):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(3)

    with pytest.raises(TypeError, match="only tensors and None"):
        Wrong.apply(leaf(1))


def returning(result):
    class Returning(Function):
        @staticmethod
        def forward(ctx, x, y):
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            return result(grad)

    return Returning


def test_wrong_results_of_backward():
    x, y = leaf(1, 2), leaf(3, 4)
    with pytest.raises(RuntimeError, match="incorrect number of gradients"):
        returning(lambda g: g).apply(x, y).sum().backward()
    with pytest.raises((TypeError, RuntimeError), match="tensors or None"):
        returning(lambda g: (g, 3.0)).apply(x, y).sum().backward()
    with pytest.raises(RuntimeError, match="not a tensor"):
        returning(lambda g: (g, g)).apply(x, 3).sum().backward()
    with pytest.raises(RuntimeError, match="invalid gradient at index 0"):
        returning(lambda g: (tg.ones(3, dtype=tg.float64), None)).apply(x, y).sum().backward()
    returning(lambda g: (g, None, None, None)).apply(x, y).sum().backward()  # surplus None is fine
    assert x.grad.tolist() == [1, 1] and y.grad is None


def test_gradients_are_brought_to_shape_and_dtype():
    x = tg.ones(2, 1, requires_grad=True)
    returning(lambda g: (g.expand(2, 3).double(), None)).apply(x, None).sum().backward()
    assert x.grad.shape == (2, 1) and x.grad.dtype == tg.float32 and x.grad.tolist() == [[3], [3]]


SHAPES = [(), (1,), (3,), (3, 3), (1, 3), (3, 1), (2, 3, 3), (0,), (1, 0), (0, 3)]


@pytest.mark.parametrize("given", SHAPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@same_as_torch
def test_a_gradient_is_summed_to_the_shape_of_its_input_and_never_stretched(t, shape, given):
    class Wrong(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return t.ones(given)

    x = t.ones(shape, requires_grad=True)
    y = Wrong.apply(x)
    try:
        y.sum().backward()
    except RuntimeError as error:
        text = str(error).split("\n")[0]
        return text.removeprefix("Wrong: ")
    return tuple(x.grad.shape), x.grad.tolist()


@pytest.mark.parametrize("given", [(), (1,), (3,), (1, 2)], ids=str)
def test_the_gradient_of_a_view_that_was_written_to_has_its_shape_too(given):
    """PyTorch stretches it in this one place, without a word."""
    class Double(InPlace):
        @staticmethod
        def backward(ctx, grad):
            return tg.ones(given, dtype=tg.float64)

    x = leaf(1, 2, 3, 4)
    y = x * 1
    Double.apply(y[1:3])
    if given == (1, 2):
        y.sum().backward()
        assert x.grad.tolist() == [1, 1, 1, 1]
        return
    message = re.escape(f"Double: Function DoubleBackward returned an invalid gradient at index 0 - got {list(given)} but expected shape "
                        "compatible with [2]")
    with pytest.raises(RuntimeError, match=message):
        y.sum().backward()


def test_a_hook_of_a_node_cannot_stretch_a_gradient_either():
    x = leaf(1, 2)
    y = x.exp()
    y.grad_fn.register_hook(lambda inputs, outputs: (inputs[0][:1],))
    with pytest.raises(RuntimeError, match=r"exp: Function ExpBackward0 returned an invalid gradient at index 0 - got \[1\]"):
        y.sum().backward()


def test_exceptions_pass_through():
    class Fails(Function):
        @staticmethod
        def forward(ctx, x, where):
            if where == "forward":
                raise LookupError("in forward")
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            raise LookupError("in backward")

    with pytest.raises(LookupError, match="in forward"):
        Fails.apply(leaf(1), "forward")
    assert tg.is_grad_enabled()
    with pytest.raises(LookupError, match="in backward"):
        Fails.apply(leaf(1), "backward").backward()
    with pytest.raises(NotImplementedError, match="forward"):
        type("Empty", (Function,), {}).apply(leaf(1))


def test_once_differentiable():
    class Numeric(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @once_differentiable
        def backward(ctx, grad):
            assert not tg.is_grad_enabled()
            return tg.from_numpy(2 * ctx.saved_tensors[0].detach().numpy()) * grad

    x = leaf(1, 2)
    Numeric.apply(x).sum().backward()
    assert x.grad.tolist() == [2, 4]
    g, = tg.autograd.grad((Numeric.apply(x) * x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        g.sum().backward()


def test_functions_inside_functions():
    class Outer(Function):
        @staticmethod
        def forward(ctx, x):
            with tg.enable_grad():
                ctx.x = x.detach().requires_grad_()
                ctx.y = Cube.apply(ctx.x, 1.0).sum()
            return ctx.y.detach()

        @staticmethod
        def backward(ctx, grad):
            g, = tg.autograd.grad(ctx.y, ctx.x)
            return grad * g

    x = leaf(1, 2)
    Outer.apply(x).backward()
    assert x.grad.tolist() == [3, 12]


def test_keyword_arguments_are_refused():
    with pytest.raises(TypeError, match="keyword"):
        Cube.apply(leaf(1), factor=2)


def test_subclasses_and_non_tensor_arguments():
    class Scaled(Cube):
        @staticmethod
        def forward(ctx, x, options):
            return Cube.forward(ctx, x, options["factor"])

    x = leaf(1)
    y = Scaled.apply(x, {"factor": 4})
    y.backward()
    assert y.grad_fn.name() == "ScaledBackward" and x.grad.tolist() == [12]


def test_a_forward_that_returns_a_view_of_its_input():
    class Head(Function):
        @staticmethod
        def forward(ctx, x):
            return x[:1]

        @staticmethod
        def backward(ctx, grad):
            return tg.cat([grad, grad * 0])

    x = leaf(1, 2)
    Head.apply(x).sum().backward()
    assert x.grad.tolist() == [1, 0]


def test_a_result_twice_is_one_tensor():
    class Twice(Same):
        @staticmethod
        def forward(ctx, x):
            y = x * 2
            return y, y

        @staticmethod
        def backward(ctx, a, b):
            return 2 * (a + b)

    x = leaf(1, 2)
    a, b = Twice.apply(x)
    assert a is b
    (a + 3 * b).sum().backward()
    assert x.grad.tolist() == [8, 8]
    assert tg.autograd.gradcheck(lambda t: sum(Twice.apply(t)), x) and tg.autograd.gradgradcheck(lambda t: sum(Twice.apply(t)), x)


def test_what_is_marked_dirty_and_no_input_is_left_alone():
    class Marks(Same):
        @staticmethod
        def forward(ctx, x):
            y = x * 3
            ctx.mark_dirty(y)
            return y

        @staticmethod
        def backward(ctx, grad):
            return grad * 3

    x = leaf(1)
    with pytest.warns(UserWarning, match="Only input Tensors should be given to ctx.mark_dirty"):
        y = Marks.apply(x)
    y.backward()
    assert x.grad.tolist() == [3] and y._version == 0


def test_views_that_a_function_makes_of_what_needs_no_gradient():
    class View(Same):
        @staticmethod
        def forward(ctx, x):
            return x[:]

    with pytest.raises(RuntimeError, match="This view was created inside a custom Function"):
        View.apply(tg.ones(2, dtype=tg.float64)).add_(leaf(1, 2))
    with tg.no_grad():
        seen = View.apply(leaf(1, 2))
    with pytest.raises(RuntimeError, match="A view was created in no_grad mode and is being modified inplace"):
        seen.zero_()


def test_former_ways():
    class Old(Square):
        @staticmethod
        def backward(ctx, grad):
            with pytest.warns(DeprecationWarning, match="saved_tensors"):
                (x,) = ctx.saved_variables
            return grad * 2 * x

    x = leaf(3)
    Old.apply(x).backward()
    assert x.grad.tolist() == [6]
    with pytest.raises(RuntimeError, match="Legacy autograd function with non-static forward"):
        Old()(x)


def test_several_views_of_a_function():
    class Views(Same):
        @staticmethod
        def forward(ctx, x):
            return x[:1], x[1:]

    with pytest.raises(RuntimeError, match="Output 1 of Views is a view and is being modified inplace. This view is the output of a function that returns multiple views"):
        Views.apply(leaf(1, 2) * 1)[1].add_(1)


def test_a_context_that_is_kept_has_what_was_saved_after_its_node_has_gone():
    kept = []

    class Keeps(Function):
        @staticmethod
        def forward(ctx, x, save_output):
            kept.append(ctx)
            y = x * 2
            ctx.save_for_backward(y if save_output else x)
            return y

        @staticmethod
        def backward(ctx, grad):
            return grad * 2, None

    x = leaf(1, 2)
    Keeps.apply(x, False)
    assert kept[0].saved_tensors[0] is x
    Keeps.apply(x, True)
    with pytest.raises(RuntimeError, match="the node of this context has been freed"):  # it saved an output, which is the node's own
        kept[1].saved_tensors  # noqa: B018
    y = Keeps.apply(x, False)
    y.sum().backward()
    with pytest.raises(RuntimeError):
        kept[2].saved_tensors  # noqa: B018  backward has released it
    del y
    with pytest.raises(RuntimeError):
        kept[2].saved_tensors  # noqa: B018


def test_nodes_have_the_class_of_their_context():
    seen = []

    class Named(Function):
        @staticmethod
        def forward(ctx, x):
            seen.append(isinstance(ctx, graph.Node))
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad

    node = Named.apply(leaf(1)).grad_fn
    assert node.__class__ is Named._backward_cls and isinstance(node, Named._backward_cls)
    exp = leaf(1).exp().grad_fn
    for each in (node, exp, exp.next_functions[0][0]):
        assert isinstance(each, graph.Node) and issubclass(type(each), graph.Node) and graph.Node not in type(each).mro()
    assert seen == [True] and issubclass(graph.Node, graph.Node) and issubclass(tg.autograd.function.BackwardCFunction, graph.Node)
    assert not isinstance(None, graph.Node) and not isinstance(graph.Node, graph.Node) and not issubclass(int, graph.Node)


def test_an_argument_that_comes_back_as_it_is_keeps_its_type():
    class Own(tg.Tensor):
        pass

    class Fn(Function):
        @staticmethod
        def forward(ctx, x):
            return x, x * 2

        @staticmethod
        def backward(ctx, grad, _):
            return grad

    x = tg.ones(2).as_subclass(Own)
    same, _ = Fn.apply(x)
    assert type(same) is Own and same is not x and same._shares_storage(x) and not same.requires_grad
