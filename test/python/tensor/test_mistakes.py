"""Common mistakes: the class of the exception, the values in the message, and what to do instead."""

import pytest
import tapegrad as tg

F = tg.float32


def mistake(function, kind, *words):
    with pytest.raises(kind) as caught:
        function()
    text = str(caught.value)
    for word in words:
        assert word in text, f"{word!r} is not in {text!r}"
    return text


def test_shapes_that_do_not_fit():
    mistake(lambda: tg.zeros(2, 3) + tg.zeros(2, 4), RuntimeError, "add", "[2, 3]", "[2, 4]")
    mistake(lambda: tg.zeros(2, 3) @ tg.zeros(2, 3), RuntimeError, "[2, 3]", "cannot be multiplied")
    mistake(lambda: tg.zeros(2, 3).view(4), RuntimeError, "view", "[4]", "6")
    mistake(lambda: tg.zeros(2, 3).reshape(5, -1), RuntimeError, "reshape")
    mistake(lambda: tg.zeros(2, 3).t().view(6), RuntimeError, "view", "reshape")
    mistake(lambda: tg.cat([tg.zeros(2, 3), tg.zeros(3, 4)]), RuntimeError, "cat")
    mistake(lambda: tg.stack([tg.zeros(2), tg.zeros(3)]), RuntimeError, "stack", "[2]", "[3]")
    mistake(lambda: tg.zeros(3).expand(2), RuntimeError, "expand")
    mistake(lambda: tg.zeros(2, 3).permute(0), RuntimeError, "permute")
    mistake(lambda: tg.nn.functional.linear(tg.zeros(2, 3), tg.zeros(4, 5)), RuntimeError, "[2, 3]", "[4, 5]")


def test_dimensions():
    mistake(lambda: tg.zeros(2).sum(3), IndexError, "sum", "3")
    mistake(lambda: tg.zeros(2, 2).transpose(0, 5), IndexError, "transpose", "5")
    mistake(lambda: tg.zeros(2).squeeze(-4), IndexError, "squeeze", "-4")
    mistake(lambda: tg.zeros(2).sum((0, 0)), RuntimeError, "sum")
    mistake(lambda: tg.zeros(2)[5], IndexError, "5", "2")
    mistake(lambda: tg.zeros(0).max(), (RuntimeError, IndexError), "max")
    mistake(lambda: tg.zeros(0).argmax(), (RuntimeError, IndexError), "argmax")


def test_backward():
    mistake(lambda: tg.ones(2).sum().backward(), RuntimeError, "does not require grad", "requires_grad")
    mistake(lambda: (tg.ones(2, requires_grad=True) * 2).backward(), RuntimeError, "scalar")
    x = tg.ones(2, requires_grad=True)
    y = (x * x).sum()
    y.backward()
    mistake(lambda: y.backward(), RuntimeError, "second time", "retain_graph=True")
    mistake(lambda: x.add_(1), RuntimeError, "leaf", "no_grad")
    mistake(lambda: tg.ones(2, dtype=tg.int64, requires_grad=True), RuntimeError, "int64")
    mistake(lambda: (x * 2).requires_grad_(False), RuntimeError, "leaf", "detach")
    mistake(lambda: x.numpy(), RuntimeError, "detach")


def test_a_value_that_was_overwritten():
    x = tg.ones(2, requires_grad=True)
    w = x.exp()
    w.add_(1)
    mistake(lambda: w.sum().backward(), RuntimeError, "exp")


def test_dtypes():
    mistake(lambda: tg.zeros(2, dtype=tg.int64).mean(), RuntimeError, "mean", "int64")
    mistake(lambda: tg.zeros(2, 2) @ tg.zeros(2, 2, dtype=tg.float64), RuntimeError, "float32", "float64")
    a = tg.zeros(2, dtype=tg.int64)
    mistake(lambda: a.add_(1.5), RuntimeError, "int64")
    mistake(lambda: tg.nn.functional.cross_entropy(tg.zeros(2, 3), tg.zeros(2)), (RuntimeError, TypeError, ValueError))
    mistake(lambda: tg.zeros(3)[tg.tensor([0.0])], IndexError)
    mistake(lambda: tg.nn.functional.embedding(tg.tensor([0.5]), tg.zeros(3, 2)), (RuntimeError, TypeError))
    mistake(lambda: tg.zeros(2, dtype="float32"), TypeError, "dtype", "str")
    mistake(lambda: tg.zeros(2).exp_(out=3), TypeError)


def test_values_out_of_range():
    mistake(lambda: tg.nn.functional.cross_entropy(tg.zeros(2, 3), tg.tensor([0, 7])), (IndexError, RuntimeError), "7")
    mistake(lambda: tg.nn.functional.embedding(tg.tensor([5]), tg.zeros(3, 2)), (IndexError, RuntimeError), "5")
    mistake(lambda: tg.zeros(3).gather(0, tg.tensor([4])), (IndexError, RuntimeError), "4")
    mistake(lambda: tg.zeros(-1), RuntimeError, "-1")
    mistake(lambda: tg.zeros(2**40, 2**40), (RuntimeError, tg.OutOfMemoryError))
    mistake(lambda: tg.zeros(2**45), (tg.OutOfMemoryError, RuntimeError))
    mistake(lambda: tg.arange(0, 10, -1), RuntimeError, "arange")
    mistake(lambda: tg.arange(0, 1, 0), RuntimeError, "arange")
    mistake(lambda: tg.randint(5, 2, (2,)), RuntimeError, "5", "2")


def test_numbers_too_large_to_compute_with():
    mistake(lambda: tg.pixel_shuffle(tg.zeros(1, 4, 2, 2), 2**62), RuntimeError, "upscale_factor")
    mistake(lambda: tg.pixel_unshuffle(tg.zeros(1, 4, 2, 2), 2**62), RuntimeError)
    mistake(lambda: tg.ones(2).round(decimals=-(2**63)), RuntimeError, "decimals")


def test_calls():
    mistake(lambda: tg.add(tg.zeros(2)), TypeError, "add", "other")
    mistake(lambda: tg.add(tg.zeros(2), 1, colour=3), TypeError, "colour")
    mistake(lambda: tg.add([1, 2], 1), TypeError, "Tensor", "list")
    mistake(lambda: tg.exp(1.0), TypeError, "Tensor", "float")
    mistake(lambda: tg.zeros(2).sum(dim="a"), TypeError, "sum")
    mistake(lambda: tg.zeros("a"), TypeError, "zeros")
    mistake(lambda: tg.zeros(2).foo, AttributeError, "foo")
    mistake(lambda: tg.foo, AttributeError, "foo")
    mistake(lambda: tg.cat(tg.zeros(2)), TypeError, "cat", "tuple of Tensors")
    mistake(lambda: tg.cat([tg.zeros(2), 3]), TypeError, "cat", "int")
    mistake(lambda: tg.cat([]), (RuntimeError, ValueError), "cat")
    mistake(lambda: tg.zeros(2).exp(1, 2), TypeError, "exp")
    mistake(lambda: tg.zeros(2).add(1, other=2), TypeError, "other")
    mistake(lambda: tg.zeros(2, device="gpu"), RuntimeError, "gpu", "cpu")
    mistake(lambda: tg.zeros(2).cuda(), RuntimeError, "cuda: this device is not available")


def test_truth_and_items():
    mistake(lambda: bool(tg.zeros(2)), RuntimeError, "any()", "all()")
    mistake(lambda: tg.zeros(2).item(), RuntimeError, "[2]")
    mistake(lambda: float(tg.zeros(2)), ValueError, "[2]")
    mistake(lambda: float(tg.tensor(1j)), RuntimeError, "complex")
    mistake(lambda: len(tg.tensor(1)), TypeError, "0-d")


def test_layers():
    nn = tg.nn
    mistake(lambda: nn.Linear(3, 4)(tg.zeros(2, 5)), RuntimeError, "5")
    mistake(lambda: nn.Conv2d(3, 4, 3)(tg.zeros(1, 2, 8, 8)), RuntimeError, "2", "3")
    mistake(lambda: nn.Conv2d(3, 4, 9)(tg.zeros(1, 3, 8, 8)), RuntimeError)
    mistake(lambda: nn.BatchNorm1d(3)(tg.zeros(2, 4)), (RuntimeError, ValueError), "4", "3")
    mistake(lambda: nn.BatchNorm1d(3)(tg.zeros(1, 3)), ValueError, "Expected more than 1 value per channel when training", "[1, 3]")
    mistake(lambda: nn.Linear(3, 4).load_state_dict({"weight": tg.zeros(4, 4)}), RuntimeError, "weight", "bias")
    mistake(lambda: tg.optim.SGD([], lr=0.1), ValueError, "empty")
    mistake(lambda: tg.optim.SGD([tg.zeros(2)], lr=-1), ValueError, "-1")


def test_nothing_is_written_before_an_error():
    x = tg.zeros(3)
    with pytest.raises((RuntimeError, IndexError)):
        x.index_add_(0, tg.tensor([0, 9]), tg.ones(2))
    assert x.tolist() == [0, 0, 0]
    with pytest.raises((RuntimeError, IndexError)):
        x[tg.tensor([0, 9])] = 1
    assert x.tolist() == [0, 0, 0]
    with pytest.raises((RuntimeError, IndexError)):
        x.scatter_(0, tg.tensor([0, 9]), 1.0)
    assert x.tolist() == [0, 0, 0]


@pytest.mark.parametrize("d", [0, -1])
def test_a_number_has_no_size_of_a_dimension(d):
    for ask in (lambda: tg.tensor(1.0).size(d), lambda: tg.tensor(1.0).size(dim=d)):
        with pytest.raises(IndexError, match=f"^size: a tensor without dimensions has no sizes: got dimension {d}$"):
            ask()
    with pytest.raises(IndexError, match="^size: "):
        tg.nn.utils.rnn.pad_sequence([tg.tensor(1.0)])
