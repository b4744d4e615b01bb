"""backward, autograd.grad and what they leave behind."""

import gc
import threading

import numpy as np
import pytest
import tapegrad as tg
from autograd.leaves import leaf
from pairs import same_as_torch
from tapegrad import autograd


@pytest.mark.smoke
def test_backward_accumulates_into_leaves():
    x, c = leaf(1, 2, 3), tg.tensor([1.0, 1.0, 1.0], dtype=tg.float64)
    (x * x + c).sum().backward()
    (3 * x).sum().backward()
    assert x.grad.tolist() == [5, 7, 9]
    assert c.grad is None
    assert x.grad is x.grad


@same_as_torch
def test_tensors_by_an_iterator(t):
    """What is given as model.parameters() is gone over once."""
    model = t.nn.Linear(3, 2)
    y = model(t.ones(4, 3))
    first = [g.tolist() for g in t.autograd.grad(y.sum(), model.parameters())]
    x = t.arange(3.0, requires_grad=True)
    outputs = [x * 2, x * x]
    weights = [t.ones(3), t.full((3,), 2.0)]
    given = t.autograd.grad(iter(outputs), iter([x]), iter(weights), retain_graph=True)
    batched = t.autograd.grad(iter(outputs), iter([x]), (t.stack([w, 2 * w]) for w in weights), is_grads_batched=True, retain_graph=True)
    zeros = t.autograd.grad((o.sum() for o in outputs), (p for p in [x, model.bias]), allow_unused=True, materialize_grads=True, retain_graph=True)
    t.autograd.backward(iter(outputs), iter(weights), inputs=(p for p in [x]))
    total = t.nn.utils.clip_grad_norm_((p for p in [x]), 1.0)
    t.nn.utils.clip_grad_value_(iter([x]), 0.3)
    flat = t.nn.utils.parameters_to_vector(model.parameters())
    t.nn.utils.vector_to_parameters(t.arange(8.0), model.parameters())
    return (first, given[0].tolist(), batched[0].tolist(), [z.tolist() for z in zeros], round(total.item(), 4), x.grad.tolist(), flat.shape[0],
            model.bias.tolist(), len(t.optim.SGD(model.parameters(), lr=0.1).param_groups[0]["params"]))


def test_backward_of_a_vector_needs_weights():
    x = leaf(1, 2)
    with pytest.raises(RuntimeError, match="grad can be implicitly created only for scalar outputs"):
        (x * 2).backward()
    (x * 2).backward(tg.tensor([1.0, 10.0], dtype=tg.float64))
    assert x.grad.tolist() == [2, 20]
    with pytest.raises(RuntimeError, match="shape"):
        (x * 2).backward(tg.ones(3, dtype=tg.float64))


def test_backward_of_something_off_the_tape():
    with pytest.raises(RuntimeError, match="does not require grad and does not have a grad_fn"):
        tg.ones(1).backward()


def test_several_roots_and_several_paths():
    x = leaf(1, 2)
    y = x * x
    autograd.backward([y.sum(), (y * x).sum()], [None, tg.tensor(2.0, dtype=tg.float64)])
    assert x.grad.tolist() == [2 + 6, 4 + 24]


def test_inputs_confine_the_accumulation():
    x, w = leaf(1, 2), leaf(3, 4)
    mid = x * w
    (mid * mid).sum().backward(inputs=[w])
    assert x.grad is None and w.grad.tolist() == [2 * 3, 2 * 4 * 4]
    with pytest.raises(RuntimeError, match="must not be empty"):
        (x * w).sum().backward(inputs=[])


def test_inputs_may_be_inside_the_graph():
    x = leaf(1, 2)
    mid = x * 3
    (mid * mid).sum().backward(inputs=[mid])
    assert mid.grad.tolist() == [6, 12] and x.grad is None


def test_second_backward_names_node_and_line():
    x = leaf(1, 2)
    y = tg.exp(x).sum()  # the line looked for
    y.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time") as caught:
        y.backward()
    line = test_second_backward_names_node_and_line.__code__.co_firstlineno + 2
    assert "ExpBackward0" in str(caught.value) and f"test_backward.py:{line}" in str(caught.value)
    assert "retain_graph=True" in str(caught.value)


def test_retain_graph():
    x = leaf(1, 2)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [4, 8]


def test_what_saved_nothing_can_be_run_again():
    x = leaf(1, 2)
    y = (x + 1).sum()
    y.backward()
    y.backward()
    assert x.grad.tolist() == [2, 2]


def test_grad():
    x, w = leaf(1, 2), leaf(3, 4)
    y = x * w
    gx, gw = autograd.grad(y.sum(), (x, w), retain_graph=True)
    assert gx.tolist() == [3, 4] and gw.tolist() == [1, 2]
    assert x.grad is None and w.grad is None
    assert autograd.grad(y, x, tg.tensor([2.0, 0.5], dtype=tg.float64))[0].tolist() == [6, 2]


def test_grad_of_intermediates_and_of_the_root():
    x = leaf(1, 2)
    y = x * x
    z = y.sum()
    gy, gz = autograd.grad(z, [y, z])
    assert gy.tolist() == [1, 1] and gz.item() == 1


def test_grad_of_what_was_not_used():
    x, w = leaf(1, 2), leaf(3, 4)
    y = (x * x).sum()
    with pytest.raises(RuntimeError, match="not have been used in the graph"):
        autograd.grad(y, [x, w], retain_graph=True)
    gx, gw = autograd.grad(y, [x, w], allow_unused=True, retain_graph=True)
    assert gx.tolist() == [2, 4] and gw is None
    _, gw = autograd.grad(y, [x, w], materialize_grads=True)
    assert gw.tolist() == [0, 0]
    with pytest.raises(RuntimeError, match="does not require grad"):
        autograd.grad((x * x).sum(), tg.ones(2))


def test_batched_grad():
    x = leaf(1, 2, 3)
    y = x * x
    rows, = autograd.grad(y, x, tg.eye(3, dtype=tg.float64), is_grads_batched=True)
    assert rows.tolist() == [[2, 0, 0], [0, 4, 0], [0, 0, 6]]


def test_create_graph_to_the_third_order():
    x = leaf(0.5)
    g = tg.sin(x).sum()
    expected = [np.cos(0.5), -np.sin(0.5), -np.cos(0.5), np.sin(0.5)]
    for value in expected:
        g, = autograd.grad(g, x, create_graph=True)
        assert g.item() == pytest.approx(value)
        assert g.requires_grad


def test_create_graph_with_backward():
    x = leaf(1, 2)
    (x ** 3).sum().backward(create_graph=True)
    g = x.grad
    assert g.requires_grad
    x.grad = None
    g.sum().backward()
    assert x.grad.tolist() == [6, 12]


def test_retain_grad():
    x = leaf(1, 2)
    y = x * 2
    y.retain_grad()
    y.retain_grad()
    assert y.retains_grad and not y.is_leaf
    (y * y).sum().backward()
    assert y.grad.tolist() == [4, 8] and x.grad.tolist() == [8, 16]
    x.retain_grad()  # of a leaf: nothing to do
    with pytest.raises(RuntimeError):
        tg.ones(1).retain_grad()


def test_grad_of_a_non_leaf_is_none():
    x = leaf(1)
    y = x * 2
    y.backward()
    assert y.grad is None


def test_assigning_grad():
    x = leaf(1, 2)
    x.grad = tg.tensor([3.0, 4.0], dtype=tg.float64)
    (x * 1).sum().backward()
    assert x.grad.tolist() == [4, 5]
    with pytest.raises(RuntimeError, match="shape"):
        x.grad = tg.ones(3, dtype=tg.float64)
    with pytest.raises(RuntimeError, match="float32"):
        x.grad = tg.ones(2)
    with pytest.raises((TypeError, RuntimeError)):
        x.grad = 3
    del x.grad
    assert x.grad is None


def test_gradients_do_not_share_memory():
    x, w = leaf(1, 2), leaf(3, 4)
    (x + w).sum().backward()
    x.grad.add_(1)
    assert x.grad.tolist() == [2, 2] and w.grad.tolist() == [1, 1]
    weight = tg.ones(2, dtype=tg.float64)
    y = leaf(1, 1)
    y.view(2).backward(weight)
    y.grad.add_(5)
    assert weight.tolist() == [1, 1]


def test_gradients_have_the_layout_of_the_leaf():
    x = tg.rand(3, 4, dtype=tg.float64).t().requires_grad_()
    (x * 2).sum().backward()
    assert x.grad.stride() == x.stride()


def test_broadcast_gradients_and_dtypes():
    x = tg.ones(3, 1, requires_grad=True)
    y = tg.ones(4, dtype=tg.float64, requires_grad=True)
    (x * y).sum().backward()
    assert x.grad.shape == (3, 1) and x.grad.dtype == tg.float32 and x.grad.tolist() == [[4]] * 3
    assert y.grad.dtype == tg.float64 and y.grad.tolist() == [3] * 4


def test_leaves():
    x = leaf(1)
    assert x.is_leaf and x.grad_fn is None and (x * 2).grad_fn is not None
    with pytest.raises(RuntimeError, match="leaf"):
        (x * 2).requires_grad_(False)
    with pytest.raises(RuntimeError, match="floating point"):
        tg.ones(1, dtype=tg.int64).requires_grad_()
    assert not (x * 2).detach().requires_grad
    x.requires_grad = False
    assert not (x * 2).requires_grad


def test_detach_shares_memory_and_version():
    x = leaf(1, 2)
    y = tg.exp(x)
    y.detach().add_(1)
    with pytest.raises(RuntimeError, match="inplace operation"):
        y.sum().backward()


def test_integers_stay_off_the_tape():
    x = leaf(3, 1, 2)
    value, index = x.max(0)
    assert value.requires_grad and not index.requires_grad
    assert not (x > 1).requires_grad
    value.backward()
    assert x.grad.tolist() == [1, 0, 0]


def test_nodes_show_the_graph():
    x = leaf(1, 2)
    y = (x * x).sum()
    assert type(y.grad_fn).__name__ == "SumBackward0" and y.grad_fn.name() == "SumBackward0"
    (mul, number), = y.grad_fn.next_functions
    assert mul.name() == "MulBackward0" and number == 0
    accumulate = mul.next_functions[0][0]
    assert accumulate.name() == "AccumulateGrad" and accumulate.variable is x
    assert mul is y.grad_fn.next_functions[0][0]
    assert mul._saved_self.tolist() == [1, 2]
    mul.metadata["key"] = 1
    assert mul.metadata == {"key": 1}


@pytest.mark.parametrize("length, step", [
    pytest.param(1_000_000, lambda y, x: y + 1, id="add"), pytest.param(1_000_000, lambda y, x: y * x, id="mul"),
    pytest.param(200_000, lambda y, x: y.view(1), id="view"), pytest.param(200_000, lambda y, x: y.mul_(x), id="inplace"),
    pytest.param(100_000, lambda y, x: y[0:1].mul_(x), id="inplace_view")])
def test_a_chain_of_a_million_nodes(length, step):
    x = leaf(1)
    y = x * 1
    for _ in range(length):
        y = step(y, x)
    y.backward()
    assert x.grad is not None and x.grad.isfinite().all()
    y = x * 1
    for _ in range(length):
        y = step(y, x)
    del y
    gc.collect()


def test_a_long_chain_of_python_objects_is_freed():
    x = leaf(1)
    y, kept = x * 1, []
    for _ in range(100_000):
        y = y * x
        kept.append(y)
    kept.reverse()
    kept.clear()
    del y
    assert x.grad is None


def test_backward_inside_backward():
    x = leaf(1, 2)

    def hook(grad):
        inner = leaf(3)
        with tg.enable_grad():  # backward runs unrecorded
            (inner * inner).sum().backward()
        return grad * inner.grad

    y = x * 2
    y.register_hook(hook)
    y.sum().backward()
    assert x.grad.tolist() == [12, 12]


def test_errors_in_hooks_reach_the_caller_and_leave_the_tape_usable():
    x = leaf(1)
    y = x * 2

    def hook(grad):
        raise KeyError("from a hook")

    handle = y.register_hook(hook)
    with pytest.raises(KeyError, match="from a hook"):
        y.backward(retain_graph=True)
    handle.remove()
    y.backward()
    assert x.grad.tolist() == [2]


def test_warnings_of_gradients_that_will_not_be_there(recwarn):
    x = tg.ones(2, requires_grad=True)
    y = x * x
    assert x.grad is None and y.detach().grad is None and not recwarn.list
    with pytest.warns(UserWarning, match="not a leaf Tensor is being accessed"):
        assert y.grad is None
    y.retain_grad()
    with pytest.warns(UserWarning, match=r"Using backward\(\) with create_graph=True"):
        y.sum().backward(create_graph=True)
    assert y.grad.tolist() == [1, 1]
    recwarn.clear()
    tg.autograd.grad((x * x).sum(), x, create_graph=True)
    assert not recwarn.list


def test_weights_of_another_shape():
    x = tg.ones(2, 3, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"Mismatch in shape: grad_output\[0\] has a shape of"):
        tg.autograd.grad(x.exp(), x, tg.ones(3))
    with pytest.raises(RuntimeError, match="If `is_grads_batched=True`, we interpret the first dimension"):
        tg.autograd.grad(x.exp(), x, tg.ones(2, 3), is_grads_batched=True)
    with pytest.raises(TypeError, match="assigned grad expected to be a Tensor or None but got grad of type int"):
        x.grad = 1


def test_a_complex_power_of_a_negative_number():
    z = tg.tensor([0.3 + 0.2j, 1 - 1j], dtype=tg.complex128, requires_grad=True)
    assert tg.autograd.gradcheck(lambda t: tg.pow(-tg.ones(2, dtype=tg.float64), t), z)
    assert tg.autograd.gradcheck(lambda t: tg.pow(-1, t), z)


def test_jacobians_of_numbers():
    x = tg.tensor(3.0, dtype=tg.float64)
    for vectorize in (False, True):
        assert tg.autograd.functional.jacobian(lambda t: t * t, x, vectorize=vectorize).item() == 6
        assert tg.autograd.functional.hessian(lambda t: t**3, x, vectorize=vectorize).item() == 18


def test_versions_can_be_kept_and_counted():
    x = tg.ones(2, requires_grad=True).clone()
    x.add_(1)
    with tg.autograd._unsafe_preserve_version_counter(x):
        x.mul_(2)
    assert x._version == 1
    tg.autograd.graph.increment_version(x)
    assert x._version == 2
    tg._C._autograd._unsafe_set_version_counter((x,), (0,))
    assert x._version == 0
    with pytest.raises(RuntimeError, match="Cannot set"):
        tg._C._autograd._unsafe_set_version_counter((x,), (-1,))


@same_as_torch
def test_gradients_that_are_not_asked_for_are_not_computed(lib):
    """autograd.grad and backward(inputs=) for some inputs: hooks of nodes see what a formula gave."""
    found = []

    def watched(y):
        y.grad_fn.register_hook(lambda given, arrived: found.append([g is not None for g in given]))
        return y

    x, w = (lib.ones(3, 3, requires_grad=True) for _ in range(2))
    image, kernel, bias = (lib.ones(*shape, requires_grad=True) for shape in ((1, 2, 5, 5), (3, 2, 3, 3), (3,)))
    lib.autograd.grad(watched(x @ w).sum(), x)
    lib.autograd.grad(watched(x @ w).sum(), w)
    watched(x @ w).sum().backward(inputs=[w])
    lib.autograd.grad(watched(lib.nn.functional.conv2d(image, kernel, bias)).sum(), image)
    lib.autograd.grad(watched(x.exp() * w).sum(), x)
    hidden = x * 2
    lib.autograd.grad(watched(hidden * w).sum(), hidden)  # a tensor in the middle
    (first,) = lib.autograd.grad(watched(x * x * w).sum(), x, create_graph=True)
    found.append([g is not None for g in lib.autograd.grad(first.sum(), (x, w))])  # what the gradient was computed from is on its tape
    watched(x @ w).sum().backward()  # all of them
    found.append([x.grad is not None, w.grad is not None])
    return found


def test_a_pass_in_a_pass_for_some_asks_for_all_that_it_wants():
    class Inner(tg.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            with tg.enable_grad():
                a, b = tg.ones(2, requires_grad=True), tg.ones(2, requires_grad=True)
                (a * b).sum().backward()
            assert a.grad is not None and b.grad is not None
            return grad * 2

    x, w = tg.ones(2, requires_grad=True), tg.ones(2, requires_grad=True)
    (grad,) = tg.autograd.grad((Inner.apply(x) * w).sum(), x)
    assert grad.tolist() == [2, 2] and w.grad is None


def test_gradients_for_some_of_two_threads_are_their_own():
    x, w = tg.randn(20, 20, requires_grad=True), tg.randn(20, 20, requires_grad=True)
    y = (x @ w).tanh().sum()
    wanted = tg.autograd.grad(y, (x, w), retain_graph=True)
    failures = []

    def ask(which):
        for _ in range(200):
            (g,) = tg.autograd.grad(y, (x, w)[which], retain_graph=True)
            if not tg.equal(g, wanted[which]):
                failures.append(which)

    threads = [threading.Thread(target=ask, args=(i % 2,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
