"""In-place writes: histories of views and bases, what is refused, and errors that name both lines."""

import inspect
import re

import numpy as np
import pytest
import tapegrad as tg
from autograd.leaves import leaf
from pairs import same_as_torch


def here():
    return inspect.currentframe().f_back.f_lineno


def test_history_of_a_written_tensor():
    x = leaf(1, 2)
    y = x * 1
    y.mul_(3).add_(x)
    y *= 2
    y.sum().backward()
    assert x.grad.tolist() == [8, 8]


def test_writes_through_a_view_are_history_of_the_base():
    x = leaf(1, 2, 3)
    y = x * 1
    y[1:].mul_(x[:2])
    y.sum().backward()
    assert x.grad.tolist() == [1 + 2, 1 + 3, 2]


def test_writes_to_the_base_are_history_of_its_views():
    x = leaf(1, 2, 3)
    y = x * 1
    view = y[1:]
    y.mul_(10)
    assert view.grad_fn.name() == "AsStridedBackward0"
    view.sum().backward()
    assert x.grad.tolist() == [0, 10, 10]


def test_writes_through_one_view_are_history_of_another():
    x = leaf(1, 2, 3, 4)
    y = x * 1
    a, b = y.view(2, 2), y[1:3]
    b.mul_(5)
    (a * a).sum().backward()
    assert x.grad.tolist() == [2, 2 * 2 * 25, 2 * 3 * 25, 8]


def test_views_of_views():
    x = leaf(1, 2, 3, 4)
    y = x * 1
    inner = y.view(2, 2).t()[0]
    inner.mul_(3)
    y.sum().backward()
    assert x.grad.tolist() == [3, 1, 3, 1]


def test_a_constant_base_becomes_part_of_the_graph():
    x, buffer = leaf(1, 2), tg.zeros(4, dtype=tg.float64)
    buffer[1:3] = x * 3
    assert buffer.requires_grad and buffer.grad_fn.name() == "CopySlices"
    (buffer * tg.arange(4, dtype=tg.float64)).sum().backward()
    assert x.grad.tolist() == [3, 6]


def test_setitem_with_numbers_masks_and_indices():
    x = leaf(1, 2, 3, 4)
    y = x * 1
    y[0] = 0
    y[y > 3] = 7
    y[tg.tensor([1])] = x[:1] * 2
    assert y.tolist() == [0, 2, 3, 7]
    y.sum().backward()
    assert x.grad.tolist() == [2, 0, 1, 0]


def test_second_derivative_through_a_written_view():
    x = leaf(1, 2)

    def f(x):
        y = x * x
        y[0].mul_(x[1])
        return (y * y).sum()

    assert tg.autograd.gradcheck(f, x)
    assert tg.autograd.gradgradcheck(f, x)


def test_leaves_are_protected():
    x = leaf(1, 2)
    for write in (lambda: x.add_(1), lambda: x.mul_(x), lambda: x.zero_()):
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
            write()
    with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
        x[0].add_(1)
    with pytest.raises(RuntimeError, match="a leaf|view of a leaf"):
        x[0] = 1
    assert x.tolist() == [1, 2] and x._version == 0


def test_multi_output_views_are_protected():
    y = leaf(1, 2, 3, 4) * 1
    a, _ = y.split(2)
    with pytest.raises(RuntimeError, match="multiple views"):
        a.add_(1)
    b = y.unbind(0)[0]
    with pytest.raises(RuntimeError, match="multiple views"):
        b.mul_(2)


def test_views_made_in_no_grad_are_protected():
    y = leaf(1, 2) * 1
    with tg.no_grad():
        view = y[0]
    with pytest.raises(RuntimeError, match="no_grad"):
        view.mul_(leaf(3)[0])
    with tg.no_grad():
        view.mul_(2)
    assert y.tolist() == [2, 2]


@same_as_torch
def test_views_in_place_write_no_element(t):
    """So that elements may share memory, as those of an expanded tensor do."""
    x = t.arange(6.0, requires_grad=True)
    results = []
    for make in (lambda y: y[:3].expand(2, 3), lambda y: y.view(2, 3), lambda y: y.clone().view(1, 2, 3)[0], lambda y: y.clone().reshape(2, 3)):
        for change in (lambda v: v.unsqueeze_(0), lambda v: v.squeeze_(0), lambda v: v.squeeze_(), lambda v: v.t_(), lambda v: v.transpose_(0, 1),
                       lambda v: v.swapaxes_(0, 1), lambda v: v.as_strided_((2,), (1,)), lambda v: v.unsqueeze_(1).squeeze_((0, 1))):
            for source in (x.detach(), x * 2):
                view = change(make(source))
                if view.requires_grad:
                    (view * t.arange(float(view.numel())).reshape(view.shape)).sum().backward()
                results.append((tuple(view.shape), view.stride(), view.tolist()))
    base = x * 2  # written to afterwards, and through a view that was turned
    view = base.view(2, 3)
    view.t_()
    base[1:].mul_(3)
    view[0].mul_(5)
    ((view * t.arange(6.0).reshape(3, 2)).sum() + (base * t.arange(6.0)).sum()).backward()
    return results, x.grad.tolist()


def test_overlapping_memory_is_protected():
    y = tg.zeros(1).expand(3)
    with pytest.raises(RuntimeError, match="single memory location"):
        y.add_(1)


def test_out_with_gradients_is_refused():
    x, out = leaf(1, 2), tg.empty(2, dtype=tg.float64)
    with pytest.raises(RuntimeError, match="out="):
        tg.mul(x, x, out=out)
    with tg.no_grad():
        tg.mul(x, x, out=out)
    assert out.tolist() == [1, 4]


def test_versions():
    x = tg.zeros(4)
    view = x[1:]
    assert x._version == view._version == 0
    view.add_(1)
    assert x._version == view._version == 1
    x[0] = 3
    assert view._version == 2
    assert x.clone()._version == 0 and x.detach()._version == 2


def message_of(call):
    with pytest.raises(RuntimeError) as caught:
        call()
    return str(caught.value)


def names(message, reader, reader_line, writer, writer_line):
    """Both operators and both lines of this file are in the message."""
    first = message.split("\n")[0]
    pattern = rf"{reader}.*test_inplace\.py:{reader_line}\b.*{writer}.*test_inplace\.py:{writer_line}\b"
    return re.search(pattern, first) is not None


def test_overwritten_result_names_both_lines():
    x = leaf(1, 2)
    y = tg.exp(x)
    reader = here() - 1
    y.add_(1)
    writer = here() - 1
    message = message_of(y.sum().backward)
    assert names(message, "exp", reader, "add_", writer), message
    assert "modified by an inplace operation" in message


def test_overwritten_input_names_both_lines():
    x, w = leaf(1, 2), tg.ones(2, dtype=tg.float64)
    y = x * w
    reader = here() - 1
    w[0] = 5
    writer = here() - 1
    message = message_of(y.sum().backward)
    assert re.search(rf"mul.*:{reader}\b.*:{writer}\b", message.split("\n")[0]), message


def test_overwritten_through_a_view_and_through_detach():
    x = leaf(1, 2)
    y = x * 1
    z = y * y
    reader = here() - 1
    y.view(2, 1)[0].mul_(3)
    writer = here() - 1
    assert names(message_of(z.sum().backward), "mul", reader, "mul_", writer)
    y = tg.sigmoid(x)
    reader = here() - 1
    y.detach().zero_()
    writer = here() - 1
    assert names(message_of(y.sum().backward), "sigmoid", reader, "fill_", writer)


def test_the_line_of_the_caller_counts_not_the_library():
    module = tg.nn.Tanh()
    x = leaf(1, 2)
    y = module(x)
    reader = here() - 1
    y.detach().zero_()
    writer = here() - 1
    message = message_of(y.sum().backward)
    assert names(message, "tanh", reader, "fill_", writer), message


def test_overwritten_in_no_grad_is_found():
    x = leaf(1, 2)
    y = tg.tanh(x)
    with tg.no_grad():
        y += 1
        writer = here() - 1
    assert f"test_inplace.py:{writer}" in message_of(y.sum().backward)


def test_optimizer_steps_between_forward_and_backward_are_found():
    x = leaf(1.0, 2.0)
    loss = (x * x).sum()
    x.grad = tg.ones(2, dtype=tg.float64)
    tg.optim.SGD([x], lr=0.1).step()
    assert "modified by an inplace operation" in message_of(loss.backward)


def test_writes_of_what_is_not_needed_do_no_harm():
    x = leaf(1, 2)
    y = x + 1
    y.add_(1)
    z = tg.relu(y)
    z.sum().backward()
    assert x.grad.tolist() == [1, 1]


def test_retained_gradient_follows_in_place_writes():
    x = leaf(1.0)
    y = x * 2
    y.retain_grad()
    y.mul_(3)
    y.backward()
    assert y.grad.tolist() == [1] and x.grad.tolist() == [6]


def test_numpy_sees_writes():
    x = tg.zeros(3)
    array = x.numpy()
    x.add_(1)
    assert np.array_equal(array, [1, 1, 1])


@pytest.mark.parametrize("program", ["base", "view", "other"])
@pytest.mark.parametrize("leaf_is", ["base", "view"])
@pytest.mark.parametrize("recorded", [False, True, None], ids=["number", "recorded", "no_grad"])
@pytest.mark.parametrize("early", [False, True])
@same_as_torch
def test_a_view_or_a_base_that_becomes_a_leaf_and_a_write_to_the_other(t, program, leaf_is, recorded, early):
    base = t.ones(4)
    if early:
        base.requires_grad_(leaf_is == "base")
    view, other = base[:2], base[1:]
    chosen = base if leaf_is == "base" else view
    if not early:
        chosen.requires_grad = True
    elif leaf_is == "view":
        view.requires_grad_()
    target = {"base": base, "view": view, "other": other}[program]
    factor = t.full((1,), 2.0, requires_grad=True) if recorded else 2.0
    try:
        with t.set_grad_enabled(recorded is not None):
            target.mul_(factor)
    except RuntimeError as error:
        return "refused", "leaf" in str(error)
    try:
        (chosen * 3).sum().backward()
    except RuntimeError:
        return "no backward"
    return [v.tolist() for v in (base, view, other)], chosen.is_leaf, None if chosen.grad is None else chosen.grad.tolist()


@same_as_torch
def test_every_change_of_sizes_in_place_is_a_version(t):
    x = t.ones(2, 2)
    seen = [x._version]
    for change in (lambda: x.resize_(2), lambda: x.resize_(2), lambda: x.resize_(3, 3), lambda: x.resize_as_(t.ones(2, 2)),
                   lambda: x.resize_as_(t.ones(2, 2)), lambda: x.t_(), lambda: x.squeeze_(), lambda: x.unsqueeze_(0),
                   lambda: x.transpose_(0, 1), lambda: x.as_strided_((2,), (1,)), lambda: x.swapaxes_(0, 0)):
        change()
        seen.append(x._version)
    return seen


def test_resized_after_it_was_saved_names_both_lines():
    w, x = leaf(1, 2), tg.ones(2, dtype=tg.float64)
    y = x * w
    reader = here() - 1
    x.resize_(1)
    writer = here() - 1
    assert names(message_of(y.sum().backward), "mul", reader, "resize_", writer)
    y = (x := tg.ones(2, dtype=tg.float64)) * w
    reader = here() - 1
    x.set_(tg.zeros(2, dtype=tg.float64))
    writer = here() - 1
    assert names(message_of(y.sum().backward), "mul", reader, "set_", writer)
