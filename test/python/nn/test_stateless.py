"""nn.utils.stateless, parameters of subclasses with constructors of their own, and lazy layers' signatures, against PyTorch."""

import copy
import inspect
import pickle

import pytest
import tapegrad as tg

torch = pytest.importorskip("torch")
BOTH = pytest.mark.parametrize("t", [tg, torch], ids=["tapegrad", "torch"])


@BOTH
def test_a_module_with_other_tensors_for_a_while(t):
    class Counted(t.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = t.nn.Linear(2, 1)
            self.register_buffer("calls", t.zeros(()))

        def forward(self, x):
            self.calls = self.calls + 1
            return self.inner(x)

    module, weight = Counted(), t.ones(1, 2, requires_grad=True)
    own = module.inner.weight
    given = {"inner.weight": weight, "calls": t.tensor(5.0)}
    with t.nn.utils.stateless._reparametrize_module(module, given):
        assert module.inner.weight is weight
        y = module(t.ones(3, 2))
    y.sum().backward()
    # What the module has put there is in the dictionary, and not in the module.
    assert module.inner.weight is own and own.grad is None and weight.grad.tolist() == [[3.0, 3.0]]
    assert given["calls"].item() == 6.0 and module.calls.item() == 0.0 and given["inner.weight"] is weight
    t.func.functional_call(module, given, (t.ones(3, 2),))
    assert given["calls"].item() == 7.0 and module.calls.item() == 0.0
    with pytest.raises(ZeroDivisionError), t.nn.utils.stateless._reparametrize_module(module, given):
        1 / 0  # noqa: B018
    assert module.inner.weight is own
    with pytest.raises(RuntimeError), t.nn.utils.stateless._reparametrize_module(module, {"other": weight}, strict=True):
        pass


class Labelled(tg.nn.Parameter):
    def __new__(cls, data, label, requires_grad=True):
        made = tg.Tensor._make_subclass(cls, data, requires_grad)
        made.label = label
        return made

    def __init__(self, data, label, requires_grad=True):
        assert label is not None


def test_a_parameter_whose_constructor_takes_something_else():
    """It was called with requires_grad in the place of another argument."""
    parameter = Labelled(tg.ones(2), "a", False)
    for again in (copy.copy(parameter), pickle.loads(pickle.dumps(parameter))):
        assert type(again) is Labelled and again.label == "a" and again.tolist() == [1, 1] and not again.requires_grad


@pytest.mark.parametrize("name", [f"Lazy{kind}{d}d" for kind in ("Conv", "ConvTranspose", "BatchNorm", "InstanceNorm") for d in (1, 2, 3)] + ["LazyLinear"])
def test_arguments_of_lazy_layers(name):
    mine, theirs = ([p.name for p in inspect.signature(getattr(t.nn, name)).parameters.values()] for t in (tg, torch))
    assert [p for p in mine if p != "bias" or "Norm" not in name] == [p for p in theirs if p != "bias" or "Norm" not in name]
    if "Conv" in name:
        layers = [getattr(t.nn, name)(3, 2, 1, 1, 0 if "Transpose" in name else 1, 1, False) for t in (tg, torch)]
        assert [repr(layer) for layer in layers][0] == repr(layers[1]) and layers[0].bias is None


def test_pieces_that_may_be_written_to():
    for split in (lambda t: t.unsafe_split(1), lambda t: t.unsafe_split_with_sizes((1, 1, 1)), lambda t: t.unsafe_chunk(3)):
        grads = []
        for t in (tg, torch):
            a = t.arange(9.0).reshape(3, 3).requires_grad_()
            pieces = split(a * 2)
            pieces[0].mul_(3)
            (pieces[0].sum() + pieces[2].square().sum()).backward()
            grads.append((a.grad.tolist(), [p.tolist() for p in pieces]))
        assert grads[0] == grads[1]
    assert [p.shape for p in tg.zeros(0, 2).unsafe_chunk(3)] == [p.shape for p in tg.zeros(0, 2).chunk(3)]
