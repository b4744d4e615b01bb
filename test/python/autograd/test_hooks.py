"""Hooks on tensors, leaves and nodes."""

import threading

import pytest
import tapegrad as tg
from autograd.leaves import leaf
from pairs import same_as_torch
from tapegrad.autograd import graph


def test_tensor_hooks_see_the_whole_gradient_once():
    x, seen = leaf(1, 2), []
    y = x * 1
    y.register_hook(lambda g: seen.append(g.tolist()))
    (y * 2 + y * 3).sum().backward()
    assert seen == [[5, 5]]


def test_tensor_hooks_replace_the_gradient_in_order():
    x = leaf(1, 2)
    y = x * 1
    y.register_hook(lambda g: g + 1)
    y.register_hook(lambda g: g * 10)
    y.sum().backward()
    assert x.grad.tolist() == [20, 20]


def test_leaf_hooks_run_before_accumulation():
    x = leaf(1, 2)
    x.register_hook(lambda g: g * 10)
    (x * 2).sum().backward()
    assert x.grad.tolist() == [20, 20]
    assert tg.autograd.grad((x * 2).sum(), x)[0].tolist() == [20, 20]


def test_handles_remove():
    x = leaf(1)
    y = x * 1
    handle = y.register_hook(lambda g: g * 10)
    y.register_hook(lambda g: g * 3)
    handle.remove()
    handle.remove()
    y.backward()
    assert x.grad.tolist() == [3]
    with x.register_hook(lambda g: g * 100):
        pass
    x.grad = None
    (x * 1).backward()
    assert x.grad.tolist() == [1]


def test_hooks_may_remove_themselves_and_add_others():
    x, seen = leaf(1), []
    y = x * 1

    def once(grad):
        seen.append("once")
        handle.remove()
        y.register_hook(lambda g: seen.append("later"))

    handle = y.register_hook(once)
    y.backward(retain_graph=True)
    y.backward()
    assert seen == ["once", "later"]


def test_retained_gradient_is_what_hooks_leave():
    x = leaf(1)
    y = x * 1
    y.retain_grad()
    y.register_hook(lambda g: g * 10)
    y.backward()
    assert y.grad.tolist() == [10]


def test_hooks_of_a_tensor_written_in_place_stay_with_the_old_value():
    x, seen = leaf(1.0), []
    y = x * 1
    y.register_hook(lambda g: seen.append(g.tolist()))
    y.mul_(3)
    y.backward()
    assert seen == [[3]]


def test_wrong_hooks():
    x = leaf(1, 2)
    with pytest.raises(RuntimeError, match="doesn't require grad"):
        tg.ones(1).register_hook(lambda g: g)
    with pytest.raises(TypeError, match="callable"):
        x.register_hook(3)
    y = x * 1
    y.register_hook(lambda g: "text")
    with pytest.raises(TypeError, match="hook"):
        y.sum().backward()
    z = x * 1
    z.register_hook(lambda g: g[:1])
    with pytest.raises(RuntimeError, match="changed the size"):
        z.sum().backward()


def test_post_accumulate_hooks():
    x, seen = leaf(1, 2), []
    handle = x.register_post_accumulate_grad_hook(lambda t: seen.append((t is x, t.grad.tolist())))
    (x * 2).sum().backward()
    (x * 2).sum().backward()
    assert seen == [(True, [2, 2]), (True, [4, 4])]
    handle.remove()
    (x * 2).sum().backward()
    assert len(seen) == 2
    with pytest.raises(RuntimeError, match="non-leaf"):
        (x * 2).register_post_accumulate_grad_hook(print)


def test_optimizer_in_the_hook():
    x = leaf(1, 2)

    def step(t):
        with tg.no_grad():
            t -= 0.5 * t.grad
        t.grad = None

    x.register_post_accumulate_grad_hook(step)
    for _ in range(3):
        (x * x).sum().backward()
    assert x.grad is None and x.tolist() == [0, 0]


def test_node_hooks():
    x, w, seen = leaf(1, 2), leaf(3, 4), []
    y = x * w
    y.grad_fn.register_prehook(lambda grads: (grads[0] * 10,))

    def post(inputs, outputs):
        seen.append((len(inputs), outputs[0].tolist()))
        return inputs[0] + 1, inputs[1]

    y.grad_fn.register_hook(post)
    y.sum().backward()
    assert seen == [(2, [10, 10])]
    assert x.grad.tolist() == [31, 41] and w.grad.tolist() == [10, 20]


def test_node_hooks_must_return_as_many():
    x = leaf(1)
    y = x * 2
    y.grad_fn.register_hook(lambda i, o: (None,) * 5)
    with pytest.raises(RuntimeError, match="incorrect number of values"):
        y.backward()


def test_hooks_of_accumulators():
    x, seen = leaf(1), []
    y = x * 2
    accumulator = y.grad_fn.next_functions[0][0]
    accumulator.register_hook(lambda i, o: seen.append(o[0].item()))
    y.backward()
    assert seen == [2]


def test_accumulators_begin_anew_with_each_graph():
    x, seen = leaf(1, 2), []

    def graph_of_x():
        y = x * 2
        return y, y.grad_fn.next_functions[0][0]

    y, accumulator = graph_of_x()
    handle = accumulator.register_hook(lambda i, o: seen.append("kept"))
    accumulator.metadata["key"] = 1
    del y, accumulator
    y, accumulator = graph_of_x()  # the handle knows the old one
    accumulator.register_hook(lambda i, o: seen.append("dropped"))
    accumulator.metadata["key"] = 2
    del y, accumulator, handle
    y, accumulator = graph_of_x()
    assert accumulator.metadata == {} and accumulator.variable is x
    y.sum().backward()
    assert seen == [] and x.grad.tolist() == [2, 2]
    del y, accumulator
    x.grad, x.data = None, tg.tensor([1.0, 2.0, 3.0])  # neither sizes nor dtype are those of the leaf as it was
    (x * 3).sum().backward()
    assert x.grad.tolist() == [3, 3, 3]
    x.grad, x.data = None, tg.tensor([1.0, 2.0], dtype=tg.float64)
    (x * 4).sum().backward()
    assert x.grad.tolist() == [4, 4] and x.grad.dtype == tg.float64


def test_hooks_are_recorded_for_gradients_of_gradients():
    x = leaf(2)
    y = x * x
    y.register_hook(lambda g: g * x)
    g, = tg.autograd.grad(y, x, create_graph=True)
    assert g.item() == 8 and g.requires_grad
    assert tg.autograd.grad(g, x)[0].item() == 8  # d(2 x * x)/dx


def test_multi_grad_hooks():
    a, b, seen = leaf(1), leaf(2), []
    handle = graph.register_multi_grad_hook([a, b], lambda grads: seen.append([None if g is None else g.item() for g in grads]))
    (a * b).backward()
    assert seen == [[2, 1]]
    (a * 3).backward()
    assert seen == [[2, 1], [3, None]]
    handle.remove()
    (a * b).backward()
    assert len(seen) == 2


def test_gradient_edges():
    x = leaf(1, 2)
    y = x * 2
    edge = graph.get_gradient_edge(y)
    assert edge.node is y.grad_fn and edge.output_nr == 0
    assert tg.autograd.grad(y.sum(), [graph.get_gradient_edge(x)])[0].tolist() == [2, 2]


def test_edges_are_places_of_the_graph():
    x = leaf(1, 2)
    y = x * 2
    edge, made = graph.get_gradient_edge(y), graph.GradientEdge(y.grad_fn, 0)
    y *= 3
    old, by_hand, new = tg.autograd.grad(y.sum(), (edge, made, y))
    assert old.tolist() == by_hand.tolist() == [3, 3] and new.tolist() == [1, 1]
    tg.autograd.backward(x.exp().sum(), inputs=(graph.get_gradient_edge(x), edge))
    assert x.grad.tolist() == x.exp().tolist()
    with pytest.raises(RuntimeError, match="materialize_grads cannot be used when the given input is a GradientEdge"):
        tg.autograd.grad(x.sum(), edge, allow_unused=True, materialize_grads=True)
    for broken in (graph.GradientEdge(y.grad_fn, 1), graph.GradientEdge(y, 0)):
        with pytest.raises((IndexError, TypeError), match="GradientEdge: "):
            tg.autograd.grad(y.sum(), broken)


def test_exchanged_data_of_another_dtype_gets_gradients_of_that_dtype():
    x = tg.ones(2, requires_grad=True)
    kept = x * 2  # its graph keeps what the tape knew of x
    x.data = x.data.double()
    (x * 3).sum().backward()
    assert x.grad.dtype == tg.float64 and x.grad.tolist() == [3.0, 3.0] and kept.dtype == tg.float32


def test_a_retained_gradient_is_what_arrives_at_the_node_before_its_prehooks():
    torch = pytest.importorskip("torch")

    def run(t, before, hook, wanted):
        x = t.tensor([1.0], requires_grad=True)
        y = x * 2
        if before:
            y.retain_grad()
        y.grad_fn.register_prehook(lambda grads: (grads[0] * 3,))
        if hook:
            y.register_hook(lambda g: g * 7)
        if not before:
            y.retain_grad()
        z = (y * 10).sum()
        got = t.autograd.grad(z, {"x": x, "y": y}[wanted]) if wanted else z.backward()
        return [g if g is None else g.tolist() for g in (y.grad, x.grad if x.grad is not None else None, *(got or ()))]

    for before in (True, False):
        for hook in (True, False):
            for wanted in (None, "x", "y"):
                assert run(tg, before, hook, wanted) == run(torch, before, hook, wanted), (before, hook, wanted)


def test_hooks_are_told_that_no_gradient_came():
    x, seen = leaf(1, 2, 3), []
    first, second, _ = x.unbind()
    first.register_hook(seen.append)
    second.backward()
    assert seen == [None] and x.grad.tolist() == [0, 1, 0]

    y = x * 1
    y.register_hook(lambda g: tg.ones(3, dtype=tg.float64) if g is None else None)
    with pytest.raises(RuntimeError, match="can't replace a None gradient with a non-None value"):
        tg.autograd.grad(tg.autograd.function.UndefinedGrad.apply(y).sum(), x)


def test_node_hooks_run_without_a_gradient():
    x, seen = leaf(1, 2), []
    y = x * 1
    y.grad_fn.register_prehook(lambda grads: seen.append(grads))
    y.grad_fn.register_hook(lambda inputs, outputs: seen.append((inputs, outputs)))
    tg.autograd.grad(tg.autograd.function.UndefinedGrad.apply(y).sum(), x, allow_unused=True)
    assert seen[0] == (None,) and seen[1][1] == (None,) and set(seen[1][0]) == {None}


@pytest.mark.parametrize(("mode", "expected"), [("all", [[True, False]] * 6), ("any", [True] * 6)])
def test_hooks_of_several_tensors_run_once_in_each_thread_and_after_errors(mode, expected):
    x, y, seen, fail = leaf(1), leaf(2), [], [False]
    graph.register_multi_grad_hook((x, y), lambda g: seen.append([t is not None for t in g] if mode == "all" else g is not None), mode=mode)
    z = x * 1

    def hook(grad):
        if fail[0]:
            raise ValueError("wanted")

    x.register_hook(hook)  # after the other
    threads = [threading.Thread(target=lambda: z.backward(inputs=(x,), retain_graph=True)) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    fail[0] = True
    before = len(seen)
    with pytest.raises(ValueError, match="wanted"):
        z.backward(retain_graph=True)
    del seen[before:]
    fail[0] = False
    z.backward()
    assert seen == expected
    assert tg._C._autograd._current_graph_task_id() == -1


def test_hooks_that_are_marked_as_not_for_files():
    @tg.utils.hooks.unserializable_hook
    def double(grad):
        return grad * 2

    x = leaf(1, 2)
    x.register_hook(double)
    x.sum().backward()
    assert x.grad.tolist() == [2, 2] and double.__torch_unserializable__


@same_as_torch
def test_hooks_are_listed(t):
    leaf = t.ones(2, requires_grad=True)
    result, found = leaf * 2, [leaf._backward_hooks, t.nn.Parameter(t.ones(1))._backward_hooks, t.ones(2)._backward_hooks]
    first, second = (lambda g: g), (lambda g: g * 2)
    handle = leaf.register_hook(first)
    leaf.register_hook(second)
    result.register_hook(second)
    found += [list(x._backward_hooks.values()) == hooks for x, hooks in ((leaf, [first, second]), (result, [second]))]
    handle.remove()
    return [*found, list(leaf._backward_hooks.values()) == [second]]
