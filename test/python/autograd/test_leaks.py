"""Known cycles are collected, and a thousand of each leave no memory behind."""

import gc
import weakref

import pytest
import tapegrad as tg
from tapegrad.autograd import Function


class Marker:
    """Something in the cycle that can be watched."""


def leaf():
    return tg.ones(16, requires_grad=True)


class Saving(Function):
    @staticmethod
    def forward(ctx, x, marker):
        y = x * 2
        ctx.save_for_backward(y)
        ctx.marker = marker
        return y

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def ctx_and_saved_output(marker):
    return Saving.apply(leaf(), marker)


def ctx_attribute_is_the_output(marker):
    y = Saving.apply(leaf(), marker)
    y.grad_fn.output = y
    return y


def hook_closure_and_tensor(marker):
    y = leaf() * 2
    y.register_hook(lambda g: (y, marker)[0])
    return y


def hook_closure_and_leaf(marker):
    x = leaf()
    x.register_hook(lambda g: (x, marker)[0])
    return x * 2


def post_accumulate_hook_and_leaf(marker):
    x = leaf()
    x.register_post_accumulate_grad_hook(lambda t: (x, marker) and None)
    (x * 2).sum().backward()
    return x


def tensor_attribute_and_graph(marker):
    x = leaf()
    y = x * 2
    x.result = (y, marker)
    return y


def tensor_attribute_itself(marker):
    y = leaf() * 2
    y.me = (y, marker)
    return y


def node_hook_and_node(marker):
    y = leaf() * 2
    node = y.grad_fn
    node.register_hook(lambda i, o: (node, marker) and None)
    return y


def node_metadata_and_tensor(marker):
    y = leaf() * 2
    y.grad_fn.metadata["result"] = (y, marker)
    return y


def gradient_with_graph(marker):
    x = leaf()
    (x * x).sum().backward(create_graph=True)
    x.marker = marker
    return x


def module_and_hook(marker):
    layer = tg.nn.Linear(4, 4)
    layer.weight.register_hook(lambda g: (layer, marker)[1] and None)
    return layer(tg.ones(1, 4))


def saved_by_a_hook_pair(marker):
    with tg.autograd.graph.saved_tensors_hooks(lambda t: [t, marker], lambda p: p[0]):
        y = tg.exp(leaf())
    return y


def pack_object_and_result(marker):
    box = [marker]
    with tg.autograd.graph.saved_tensors_hooks(lambda t: (t, box), lambda p: p[0]):
        y = tg.exp(leaf())
    box.append(y)
    return y


def view_attribute_and_base(marker):
    y = leaf() * 2
    view = y[:3]
    view.base = (y, marker)
    y.view_of_it = view
    return view


def written_view(marker):
    y = leaf() * 2
    y[:3].mul_(Saving.apply(leaf(), marker)[:3])
    y.register_hook(lambda g: y)
    return y


class Keeping(Saving):
    @staticmethod
    def forward(ctx, x, marker):
        ctx.result = Saving.forward(ctx, x, marker)
        return ctx.result


def ctx_keeps_the_output_in_forward(marker):
    return Keeping.apply(leaf(), marker) * 2


def hook_closure_and_later_result(marker):
    y = leaf() * 2
    z = (y * y).sum()
    y.register_hook(lambda g: (z, marker) and None)
    return z


def input_attribute_and_output(marker):
    class SavesInput(Saving):
        @staticmethod
        def forward(ctx, x, marker):
            ctx.save_for_backward(x)
            return x * 2

    y = leaf() * 2
    y.result = (SavesInput.apply(y, marker), marker)
    return y.result[0]


def views_of_each_other(marker):
    y = leaf() * 2
    a, b = y.view(4, 4), y[2:]
    a.other, b.other, b.marker = b, a, marker
    a.mul_(2)
    return b


def a_long_graph_and_its_leaf(marker):
    x = leaf()
    y = x
    for _ in range(20):
        y = (y * x).tanh()
    x.result = (y, marker)
    return y


CYCLES = [ctx_keeps_the_output_in_forward, hook_closure_and_later_result, input_attribute_and_output, views_of_each_other,
          a_long_graph_and_its_leaf, ctx_and_saved_output, ctx_attribute_is_the_output, hook_closure_and_tensor, hook_closure_and_leaf,
          post_accumulate_hook_and_leaf, tensor_attribute_and_graph, tensor_attribute_itself, node_hook_and_node,
          node_metadata_and_tensor, gradient_with_graph, module_and_hook, saved_by_a_hook_pair, pack_object_and_result,
          view_attribute_and_base, written_view]


@pytest.mark.parametrize("make", CYCLES, ids=lambda f: f.__name__)
def test_a_cycle_is_collected(make):
    marker = Marker()
    seen = weakref.ref(marker)
    result = make(marker)
    del marker
    gc.collect()
    assert seen() is not None  # alive while the result is
    del result
    gc.collect()
    assert seen() is None


@pytest.mark.parametrize("make", CYCLES, ids=lambda f: f.__name__)
def test_a_thousand_leave_nothing(make):
    for _ in range(20):
        make(Marker())
    gc.collect()
    memory, objects = tg.cpu.memory_allocated(), len(gc.get_objects())  # in this order: tg.cpu is loaded when it is first named
    for _ in range(1000):
        make(Marker())
    gc.collect()
    assert len(gc.get_objects()) - objects < 50
    assert tg.cpu.memory_allocated() - memory < 4096


def test_the_plain_graph_needs_no_collector():
    marker = Marker()
    seen = weakref.ref(marker)
    gc.disable()
    try:
        y = Saving.apply(leaf(), marker)
        z = (y * 3).sum()
        z.backward()
        del marker, y, z
        assert seen() is None
        memory = tg.cpu.memory_allocated()
        for _ in range(100):
            x = leaf()
            y = tg.exp(x * 2)
            y[:3].mul_(2)
            y.sum()
        del x, y
        assert tg.cpu.memory_allocated() <= memory
    finally:
        gc.enable()


def test_training_steps_leave_nothing():
    model = tg.nn.Sequential(tg.nn.Linear(8, 8), tg.nn.ReLU(), tg.nn.Linear(8, 2))
    optimizer = tg.optim.Adam(model.parameters())

    def step():
        optimizer.zero_grad()
        loss = (model(tg.ones(4, 8)) ** 2).mean()
        loss.backward()
        optimizer.step()

    for _ in range(10):
        step()
    gc.collect()
    memory = tg.cpu.memory_allocated()
    for _ in range(200):
        step()
    assert tg.cpu.memory_allocated() <= memory


def test_the_collector_leaves_alone_what_is_in_use():
    x = leaf()
    seen = []
    y = x * 2
    y.register_hook(lambda g, y=y: seen.append(y.shape))
    z = Saving.apply(y, Marker()).sum()
    del y
    for _ in range(3):
        gc.collect()
    z.backward()
    assert seen == [(16,)] and x.grad.tolist() == [2] * 16


def test_collection_during_backward():
    x = leaf()
    y = x * 2
    y.register_hook(lambda g: [gc.collect()] and None)
    z = Saving.apply(y, Marker())
    z.register_hook(lambda g: [gc.collect()] and None)
    z.sum().backward()
    assert x.grad.tolist() == [2] * 16


def test_hook_handles_keep_nothing_alive():
    marker = Marker()
    seen = weakref.ref(marker)
    y = leaf() * 2
    handle = y.register_hook(lambda g, marker=marker: [marker] and None)
    del marker
    memory = tg.cpu.memory_allocated()
    del y
    assert seen() is None and tg.cpu.memory_allocated() < memory
    handle.remove()
