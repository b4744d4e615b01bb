"""Activation checkpointing: gradients, memory, random numbers and errors as without it and as PyTorch's."""

import contextlib
import gc
import warnings

import pytest
import tapegrad as tg
from tapegrad.utils import checkpoint as cp

torch = pytest.importorskip("torch")


def _model(lib=tg):
    lib.manual_seed(1)
    return lib.nn.Sequential(lib.nn.Linear(4, 8), lib.nn.Tanh(), lib.nn.Dropout(0.5), lib.nn.Linear(8, 4), lib.nn.Sigmoid())


def _gradients(run, model, x):
    tg.manual_seed(7)
    x = x.detach().requires_grad_()
    model.zero_grad()
    run(model, x).sum().backward()
    return [x.grad, *[p.grad.clone() for p in model.parameters()]], tg.rand(1).item()


@pytest.mark.parametrize("reentrant", [True, False])
def test_gradients_and_random_numbers_are_as_without(reentrant):
    model, x = _model(), tg.randn(3, 4)
    plain, following = _gradients(lambda m, v: m(v), model, x)
    for run in (lambda m, v: cp.checkpoint(m, v, use_reentrant=reentrant),
                lambda m, v: cp.checkpoint_sequential(m, 2, v, use_reentrant=reentrant),
                lambda m, v: m[1:](cp.checkpoint(m[0], v, use_reentrant=reentrant))):
        again, next_number = _gradients(run, model, x)
        assert next_number == following
        for a, b in zip(plain, again, strict=True):
            assert (a == b).all()


def test_random_numbers_are_not_kept_when_not_asked_for():
    x = tg.ones(50, requires_grad=True)
    tg.manual_seed(0)
    y = cp.checkpoint(lambda v: tg.nn.functional.dropout(v) * v, x, use_reentrant=False, preserve_rng_state=False)
    y.sum().backward()
    assert not ((x.grad == 2 * y.detach()).all())


def test_saved_tensors_are_dropped():
    gc.collect()
    x = tg.randn(1000, 100, requires_grad=True)

    def body(v):
        for _ in range(8):
            v = v.sin()
        return v

    def held(run):
        gc.collect()
        before = tg.cpu.memory_allocated()
        y = run(x)
        return y, tg.cpu.memory_allocated() - before

    y, plain = held(body)
    del y
    y, dropped = held(lambda v: cp.checkpoint(body, v, use_reentrant=False))
    assert plain > 7 * 400_000 and dropped < 2 * 400_000
    y.sum().backward()
    y, nested = held(lambda v: cp.checkpoint(lambda u: cp.checkpoint(body, cp.checkpoint(body, u, use_reentrant=False), use_reentrant=False), v,
                                             use_reentrant=False))
    assert nested < 2 * 400_000
    y.sum().backward()


def test_nested_and_differentiated_twice():
    def inner(v, scale):
        return (v * scale).exp()

    def outer(v, *, scale):
        return cp.checkpoint(inner, v.sin(), scale, use_reentrant=False) * v

    x = tg.randn(5, dtype=tg.float64, requires_grad=True)
    w = tg.tensor(0.7, dtype=tg.float64, requires_grad=True)

    def value(checkpointed):
        y = cp.checkpoint(outer, x, scale=w, use_reentrant=False) if checkpointed else outer(x, scale=w)
        g = tg.autograd.grad(y.sum(), (x, w), create_graph=True)
        return (y, *g, *tg.autograd.grad(sum(v.sum() for v in g), (x, w)))

    for a, b in zip(value(True), value(False), strict=True):
        assert tg.allclose(a, b, rtol=1e-12)
    y = cp.checkpoint(outer, x, scale=w, use_reentrant=False).sum()
    y.backward(retain_graph=True)
    first = x.grad.clone()
    y.backward()
    assert tg.allclose(x.grad, 2 * first)


def test_stops_early_unless_told_otherwise():
    counts = []

    def body(v):
        v = v.exp()
        counts.append("exp")
        v = v + 1
        counts.append("add")
        return v

    x = tg.ones(2, requires_grad=True)
    for stop, expected in ((True, 2), (False, 4)):
        counts.clear()
        cp.checkpoint(body, x, use_reentrant=False, early_stop=stop).sum().backward()
        assert len(counts) >= expected and (stop or len(counts) == 4)
    counts.clear()
    with cp.set_checkpoint_early_stop(False):
        y = cp.checkpoint(body, x, use_reentrant=False)
    y.sum().backward()
    assert len(counts) == 4


def test_another_second_run_is_noticed():
    calls = []

    def fickle(v):
        calls.append(1)
        return v.exp().sin() if len(calls) == 1 else v.sin() * 2

    x = tg.ones(2, requires_grad=True)
    with pytest.raises(cp.CheckpointError, match="A different number of tensors was saved"):
        cp.checkpoint(fickle, x, use_reentrant=False, early_stop=False).sum().backward()
    shapes = iter([2, 3])

    def growing(v):
        return tg.ones(next(shapes), 2).mul(v).sum(0)

    with pytest.raises(cp.CheckpointError, match="different metadata"):
        cp.checkpoint(growing, x, use_reentrant=False).sum().backward()
    with pytest.raises(ValueError, match="determinism_check should be one of"):
        cp.checkpoint(fickle, x, use_reentrant=False, determinism_check="maybe")


def test_contexts_and_autocast_are_there_both_times():
    entered = []

    @contextlib.contextmanager
    def noting(name):
        entered.append(name)
        yield

    x = tg.ones(2, requires_grad=True)
    cp.checkpoint(lambda v: v.exp() * v, x, use_reentrant=False, context_fn=lambda: (noting("first"), noting("again"))).sum().backward()
    assert entered == ["first", "again"]
    w = tg.ones(2, 2, requires_grad=True)
    dtypes = []

    def product(v):
        y = v @ w
        dtypes.append(y.dtype)
        return y.exp() * y

    for reentrant in (True, False):
        with tg.autocast("cpu"):
            y = cp.checkpoint(product, tg.ones(2, 2, requires_grad=True), use_reentrant=reentrant)
        y.float().sum().backward()
    assert dtypes == [tg.bfloat16] * 4


def test_arguments_as_torch_has_them():
    def problem(lib, **kwargs):
        x = lib.ones(2, requires_grad=True)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                lib.utils.checkpoint.checkpoint(lambda v, scale=1: v * scale, x, **kwargs)
            except Exception as error:
                return type(error).__name__
        return None

    for kwargs in ({}, {"use_reentrant": True, "scale": 2}, {"use_reentrant": False, "scale": 2}, {"use_reentrant": True, "debug": True},
                   {"use_reentrant": False, "nonsense": 2}):
        assert problem(tg, **kwargs) == problem(torch, **kwargs), kwargs


def test_helpers():
    x, y = cp.detach_variable((tg.ones(1, requires_grad=True) * 2, 3))
    assert x.is_leaf and x.requires_grad and y == 3
    with pytest.raises(RuntimeError, match="Only tuple of tensors is supported"):
        cp.detach_variable([x])
    with pytest.warns(UserWarning, match="None of the inputs have requires_grad=True"):
        cp.check_backward_validity((tg.ones(1), 2))
    assert cp.get_device_states(x) == ([], [])
    cp.set_device_states([], [])
    with tg.no_grad():
        assert not cp.checkpoint(lambda v: v * 2, x, use_reentrant=False).requires_grad
    x = tg.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="incompatible with autograd.grad"):
        tg.autograd.grad(cp.checkpoint(lambda v: v * 2, x, use_reentrant=True).sum(), x)
    with pytest.warns(UserWarning, match="None of the inputs"):
        cp.checkpoint(lambda v: v * 2, tg.ones(1), use_reentrant=True)


def test_what_needs_no_gradient_is_given_back_itself():
    seen = []

    class Keeps(tg.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(y)
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            seen.extend(ctx.saved_tensors)
            return grad, None

    a, b = tg.tensor(1.0, requires_grad=True), tg.tensor(1.0)
    cp.checkpoint(Keeps.apply, a, b, use_reentrant=False).backward()
    assert seen[0] is b
