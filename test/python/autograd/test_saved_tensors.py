"""Hooks on what is saved for backward."""

import numpy as np
import pytest
import tapegrad as tg
from autograd.leaves import Square, leaf
from tapegrad.autograd import graph


def test_pack_and_unpack():
    packed, unpacked = [], []

    def pack(t):
        packed.append(t.tolist())
        return t.numpy().copy() * 2

    def unpack(array):
        unpacked.append(array.tolist())
        assert isinstance(array, np.ndarray)
        return tg.from_numpy(array)

    x = leaf(1, 2)
    with graph.saved_tensors_hooks(pack, unpack):
        y = x * x
    z = y * 3
    z.sum().backward()
    assert packed == [[1, 2], [1, 2]] and unpacked == [[2, 4], [2, 4]]
    assert x.grad.tolist() == [12, 24]


def test_results_are_packed_too_and_freed():
    class Box:
        alive = 0

        def __init__(self, t):
            self.t = t
            Box.alive += 1

        def __del__(self):
            Box.alive -= 1

    x = leaf(1, 2)
    with graph.saved_tensors_hooks(Box, lambda b: b.t):
        y = tg.exp(x)
    assert Box.alive == 1
    y.sum().backward()
    assert Box.alive == 0
    np.testing.assert_allclose(x.grad.numpy(), np.exp([1, 2]))
    with graph.saved_tensors_hooks(Box, lambda b: b.t):
        y = tg.exp(x)
    del y
    assert Box.alive == 0


def test_the_innermost_pair_applies():
    seen = []
    x = leaf(1)
    with graph.saved_tensors_hooks(lambda t: seen.append("outer") or t, lambda t: t):
        with graph.saved_tensors_hooks(lambda t: seen.append("inner") or t, lambda t: t):
            y = tg.exp(x)
        z = tg.exp(y)
    assert seen == ["inner", "outer"]
    z.backward()


def test_gradients_of_gradients_through_hooks():
    x = leaf(1, 2)
    with graph.saved_tensors_hooks(lambda t: t.numpy().copy(), tg.from_numpy):
        y = (x * x * x).sum()
        g, = tg.autograd.grad(y, x, create_graph=True)
    h, = tg.autograd.grad(g.sum(), x)
    assert h.tolist() == [6, 12]


def test_save_on_cpu():
    x = leaf(1, 2)
    with graph.save_on_cpu():
        y = (x * x).sum()
    y.backward()
    assert x.grad.tolist() == [2, 4]


def test_custom_functions_use_them():
    x = leaf(1, 2)
    with graph.saved_tensors_hooks(lambda t: t + 1, lambda t: t):
        y = Square.apply(x)
    y.sum().backward()
    assert x.grad.tolist() == [4, 6]


def test_errors():
    x = leaf(1)
    with pytest.raises(ZeroDivisionError):
        with graph.saved_tensors_hooks(lambda t: 1 / 0, lambda t: t):
            tg.exp(x)
    assert tg.exp(x).requires_grad  # the pair is gone
    with graph.saved_tensors_hooks(lambda t: t, lambda t: "text"):
        y = tg.exp(x)
    with pytest.raises((TypeError, RuntimeError), match="tensor"):
        y.backward()
    with graph.disable_saved_tensors_hooks("not here"):
        with pytest.raises(RuntimeError, match="not here"):
            with graph.saved_tensors_hooks(lambda t: t, lambda t: t):
                pass


def test_writes_are_not_seen_by_a_packed_copy():
    x = leaf(1, 2)
    with graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        y = tg.exp(x)
    y.add_(1)
    y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.exp([1, 2]))


def test_saved_tensors_may_be_written_to_where_that_is_allowed():
    x = tg.ones(3, requires_grad=True)
    with tg.autograd.graph.allow_mutation_on_saved_tensors():
        y = x * 2
        z = y.exp() * y
        y.add_(5)
        z.mul_(1)
    (gradient,) = tg.autograd.grad(z.sum(), x)
    expected = 2 * (tg.tensor(2.0).exp() * 3)
    assert tg.allclose(gradient, expected.expand(3))


def test_a_write_can_be_counted_by_hand():
    x = tg.ones(2, requires_grad=True)
    y = x * 1
    z = y.exp() * y
    before = y._version
    tg.autograd.graph.increment_version([y])
    assert y._version == before + 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_hooks_that_are_open_cannot_be_disabled():
    graph = tg.autograd.graph
    enabled = tg._C._autograd._saved_tensors_hooks_is_enabled
    with graph.saved_tensors_hooks(lambda t: t, lambda t: t), pytest.raises(RuntimeError, match="not here"):
        with graph.disable_saved_tensors_hooks("not here"):
            pass
    assert enabled()
    with graph.disable_saved_tensors_hooks("outer"):
        with graph.disable_saved_tensors_hooks("inner"):
            assert not enabled()
        with pytest.raises(RuntimeError, match="outer"), graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            pass
    assert enabled()


def test_hooks_of_one_saved_tensor():
    x = leaf(1.0, 2.0)
    y = x * x
    saved = y.grad_fn._raw_saved_self
    assert isinstance(saved, tg.autograd.graph.SavedTensor) and type(saved) is tg._C._autograd.SavedTensor
    saved.register_hooks(lambda t: 2 * t, lambda t: t)
    assert y.grad_fn._saved_self.tolist() == [2, 4] and y.grad_fn._saved_other.tolist() == [1, 2]
    y.sum().backward()
    assert x.grad.tolist() == [3, 6]


def test_hooks_of_a_saved_result():
    x, packed = leaf(0.5), []
    y = x.exp()
    y.grad_fn._raw_saved_result.register_hooks(lambda t: packed.append(t) or 7, lambda kept: packed[0] if kept == 7 else None)
    assert len(packed) == 1 and y.grad_fn._saved_result.grad_fn is y.grad_fn
    y.backward()
    assert x.grad.equal(y.detach())


def test_hooks_of_what_a_function_saved():
    class Keeps(tg.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x, None)
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.saved_tensors[0]

    x = leaf(1.0)
    y = Keeps.apply(x)
    first, second = y.grad_fn._raw_saved_tensors
    with pytest.raises(RuntimeError, match="None is forbidden"):
        second.register_hooks(len, len)
    for wrong in ((len,), (1, 1), ()):
        with pytest.raises(TypeError, match="incompatible function arguments"):
            first.register_hooks(*wrong)
    first.register_hooks(lambda t: t, lambda t: t * 5)
    with pytest.raises(RuntimeError, match="have already been set"):
        first.register_hooks(len, len)
    y.backward()
    assert x.grad.item() == 5
    with pytest.raises(RuntimeError, match="already been freed"):
        _ = y.grad_fn._raw_saved_tensors


def test_saved_tensors_are_made_by_nodes_alone():
    with pytest.raises(RuntimeError, match="from Python is forbidden"):
        tg.autograd.graph.SavedTensor()


def test_pack_hooks_leave_their_argument_alone():
    def doubled(t):
        return t.mul_(2)

    x = leaf(1.0)
    with tg.autograd.graph.saved_tensors_hooks(doubled, lambda t: t):
        with pytest.raises(RuntimeError, match="A saved tensor pack hook is modifying its input in place"):
            (x * 1).exp()
    y = (x * 1).exp()
    with pytest.raises(RuntimeError, match="A saved tensor pack hook is modifying its input in place"):
        y.grad_fn._raw_saved_result.register_hooks(doubled, lambda t: t)
    z = x * x
    z.grad_fn._raw_saved_self.register_hooks(lambda t: t, lambda t: 1)
    with pytest.raises(TypeError, match="Output of saved tensor unpack_hook expected to be a Tensor"):
        _ = z.grad_fn._saved_self
