"""What is not in the table of test_optimizers.py: L-BFGS, Muon, recorded steps, complex and small formats, states of PyTorch's."""

import importlib

import numpy as np
import pytest
import tapegrad as tg
from pairs import same_as_torch

torch = pytest.importorskip("torch")

NATIVE = ["SGD", "Adam", "Adagrad", "RMSprop", "Adadelta", "Adamax", "NAdam", "RAdam", "Rprop", "ASGD"]


def close(a, b, rtol=1e-9):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=rtol, atol=rtol)


def rosenbrock(t, dtype, n, **options):
    p = t.nn.Parameter(t.tensor([-1.5, 2.0, 0.5], dtype=getattr(t, dtype)))
    q = t.nn.Parameter(t.tensor(0.3, dtype=getattr(t, dtype)))
    optimizer = t.optim.LBFGS([p, q], **options)
    losses = []

    def closure():
        optimizer.zero_grad()
        loss = 100 * (p[1] - p[0] ** 2) ** 2 + (1 - p[0]) ** 2 + (p[2] - q) ** 2 + q**4
        loss.backward()
        return loss

    for _ in range(n):
        losses.append(float(optimizer.step(closure)))
    state = optimizer.state_dict()
    return losses, p.tolist(), q.item(), (state["state"][0]["func_evals"], state["state"][0]["n_iter"], sorted(state["state"][0]))


@pytest.mark.parametrize("options", [{"lr": 0.01}, {"line_search_fn": "strong_wolfe"}, {"lr": 0.1, "history_size": 3, "max_iter": 7},
                                     {"line_search_fn": "strong_wolfe", "max_iter": 4, "tolerance_grad": 1e-4}])
def test_lbfgs(options):
    mine, theirs = rosenbrock(tg, "float64", 8, **options), rosenbrock(torch, "float64", 8, **options)
    for a, b in zip(mine[:3], theirs[:3], strict=True):
        close(a, b, 1e-6)
    assert mine[3] == theirs[3]
    losses, p, q, _ = rosenbrock(tg, "float32", 30, line_search_fn="strong_wolfe")
    assert losses[-1] < 1e-6
    assert abs(q) < 0.1
    close(p[:2], [1, 1], 1e-2)


def test_lbfgs_continues_from_a_state():
    def run(t, steps, state=None, start=(-1.5, 2.0)):
        p = t.nn.Parameter(t.tensor(start, dtype=t.float64))
        optimizer = t.optim.LBFGS([p], lr=0.01)
        if state is not None:
            optimizer.load_state_dict(state)

        def closure():
            optimizer.zero_grad()
            loss = 100 * (p[1] - p[0] ** 2) ** 2 + (1 - p[0]) ** 2
            loss.backward()
            return loss

        for _ in range(steps):
            optimizer.step(closure)
        return p.tolist(), optimizer.state_dict()

    whole, _ = run(tg, 3)
    half, state = run(tg, 2)
    close(run(tg, 1, state, half)[0], whole, 1e-12)
    p = tg.ones(1, requires_grad=True)
    p.grad = tg.ones(1)
    with pytest.raises(RuntimeError, match="only 'strong_wolfe' is supported"):
        tg.optim.LBFGS([p], line_search_fn="other").step(lambda: p.sum())


def muon(t, **options):
    rng = np.random.default_rng(0)
    params = [t.nn.Parameter(t.tensor(rng.standard_normal(s).astype(np.float32))) for s in ((8, 4), (4, 8), (5, 5))]
    optimizer = t.optim.Muon(params, lr=0.05, **options)
    for step in range(50):
        for i, p in enumerate(params):
            p.grad = t.tensor(np.random.default_rng(7 * step + i).standard_normal(tuple(p.shape)).astype(np.float32))
        optimizer.step()
    return params


@pytest.mark.parametrize("options", [{}, {"nesterov": False, "weight_decay": 0.0}, {"adjust_lr_fn": "match_rms_adamw"},
                                     {"momentum": 0.5, "ns_steps": 3, "ns_coefficients": (2.0, -1.5, 0.5)}])
def test_muon(options):
    for p, q in zip(muon(tg, **options), muon(torch, **options), strict=True):
        # the iteration runs in bfloat16, so 50 steps of 0.05 differ by its resolution
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), atol=0.03)


def after_three_steps(name, options, start, factors, differentiable):
    p = start.clone()
    if differentiable:
        p.retain_grad()  # else the optimizer refuses what is no leaf
    optimizer = getattr(tg.optim, name)([p], **options, differentiable=differentiable)
    for step in range(3):
        p.grad = factors * (step + 1) * tg.tensor([1.0, 2.0, 3.0], dtype=tg.float64) + start
        optimizer.step()
    return (p * tg.tensor([1.0, -2.0, 0.5], dtype=tg.float64)).sum()


@pytest.mark.parametrize(("name", "options"), [(name, {}) for name in NATIVE] + [
    ("SGD", {"momentum": 0.9, "nesterov": True}), ("RMSprop", {"momentum": 0.9, "centered": True}), ("Adam", {"amsgrad": True}),
    ("RAdam", {"betas": (0.5, 0.9)}), ("ASGD", {"t0": 0}), ("NAdam", {"decoupled_weight_decay": True})])
def test_a_gradient_flows_through_steps(name, options):
    """What the tape says of three recorded steps, against differences of three fused ones."""
    options = {"lr": 0.1, **options, **({} if name == "Rprop" else {"weight_decay": 0.1})}
    leaves = [tg.tensor(v, dtype=tg.float64, requires_grad=True) for v in ([0.6, -1.1, 2.0], [1.0, 0.5, -0.3])]
    loss = after_three_steps(name, options, *leaves, True)
    loss.backward()
    values = [leaf.detach() for leaf in leaves]
    close(loss.item(), after_three_steps(name, options, *values, False).item(), 1e-12)
    for leaf, which in zip(leaves, (0, 1), strict=True):
        for i in range(3):
            ends = []
            for change in (1e-6, -1e-6):
                moved = [v.clone() for v in values]
                moved[which][i] += change
                ends.append(after_three_steps(name, options, *moved, False).item())
            slope = 0.0 if leaf.grad is None else leaf.grad[i].item()
            close(slope, (ends[0] - ends[1]) / 2e-6, 1e-5)


NUMBERS = {"NAdam": {"mu_product": 0.4, "beta": 0.7}, "ASGD": {"eta": 0.2, "mu": 0.5, "lr": 0.1}}


@pytest.mark.parametrize(("name", "chosen"), [(name, chosen) for name, numbers in NUMBERS.items() for chosen in numbers])
def test_a_gradient_flows_through_the_numbers_of_state(name, chosen):
    """By what an optimizer keeps beside tensors and by the options that it is made of, against differences of fused steps."""
    given = NUMBERS[name]

    def run(values, differentiable):
        p = tg.tensor([0.6, -1.1], dtype=tg.float64, requires_grad=differentiable).clone()
        if differentiable:
            p.retain_grad()
        options, tensors = {"lr": 0.1, "betas": (values.get("beta"), 0.9)}, ("exp_avg", "exp_avg_sq")
        if name == "ASGD":
            options, tensors = {"lr": values["lr"], "t0": 1, "lambd": 0.2}, ("ax",)
        optimizer = getattr(tg.optim, name)([p], **options, differentiable=differentiable)
        kept = {n: tg.as_tensor(values[n], dtype=tg.float64).clone() for n in values if n not in ("lr", "beta")}
        optimizer.state[p] = {"step": tg.tensor(2.0, dtype=tg.float64), **{n: tg.ones(2, dtype=tg.float64) for n in tensors}, **kept}
        for step in range(3):
            p.grad = tg.tensor([1.0, 2.0], dtype=tg.float64) * (step + 1)
            optimizer.step()
        return (p * tg.tensor([1.0, -2.0], dtype=tg.float64)).sum() + (optimizer.state[p][tensors[0]] * 0.3).sum()

    leaf = tg.tensor(given[chosen], dtype=tg.float64, requires_grad=True)
    loss = run({**given, chosen: leaf}, True)
    loss.backward()
    ends = [run({**given, chosen: given[chosen] + change}, False).item() for change in (1e-6, -1e-6)]
    close(loss.item(), run(given, False).item(), 1e-12)
    close(leaf.grad.item(), (ends[0] - ends[1]) / 2e-6, 1e-5)


def test_a_gradient_with_respect_to_the_learning_rate():
    def run(t):
        rate = t.tensor(0.1, dtype=t.float64, requires_grad=True)
        decay = t.tensor(0.2, dtype=t.float64, requires_grad=True)
        p = t.tensor([1.0, 2.0], dtype=t.float64, requires_grad=True).clone()
        p.retain_grad()
        optimizer = t.optim.SGD([p], lr=rate, weight_decay=decay, momentum=0.5, differentiable=True)
        for _ in range(3):
            p.grad = t.tensor([0.3, -0.4], dtype=t.float64)
            optimizer.step()
        p.sum().backward()
        return rate.grad.item(), decay.grad.item()

    lr, steps, eps = 0.1, 3, 1e-6

    def value(lr, decay):
        p, b = np.array([1.0, 2.0]), None
        for _ in range(steps):
            g = np.array([0.3, -0.4]) + decay * p
            b = g if b is None else 0.5 * b + g
            p = p - lr * b
        return p.sum()

    rate, decay = run(tg)
    close(rate, (value(lr + eps, 0.2) - value(lr - eps, 0.2)) / (2 * eps), 1e-6)
    close(decay, (value(lr, 0.2 + eps) - value(lr, 0.2 - eps)) / (2 * eps), 1e-6)


def stepped(t, name, start, grad, steps, **options):
    """The parameter and the optimizer after steps with the gradients grad(step)."""
    p = t.nn.Parameter(start)
    optimizer = getattr(t.optim, name)([p], **options)
    for step in range(steps):
        p.grad = grad(step)
        optimizer.step()
    return p.detach(), optimizer


@pytest.mark.parametrize("name", NATIVE)
def test_complex_parameters(name):
    def run(t):
        grad = t.tensor([0.1 - 1j, 2.0 + 0.3j, -1j], dtype=t.complex128)
        return stepped(t, name, t.tensor([1 + 2j, -0.5j, 3.0], dtype=t.complex128), lambda step: grad * (1 + step), 5, lr=0.1)[0].numpy()

    np.testing.assert_allclose(run(tg), run(torch), rtol=1e-9)


def test_the_first_sum_of_complex_adagrad_counts_for_both_parts():
    def run(t):
        p = t.nn.Parameter(t.tensor([1 + 2j, -0.5j, 3.0], dtype=t.complex128))
        optimizer = t.optim.Adagrad([p], lr=0.1, initial_accumulator_value=0.5)
        start = optimizer.state[p]["sum"].tolist()
        for step in range(3):
            p.grad = t.tensor([0.1 - 1j, 2.0 + 0.3j, -1j], dtype=t.complex128) * (1 + step)
            optimizer.step()
        return [start, p.tolist(), optimizer.state[p]["sum"].tolist()]

    np.testing.assert_allclose(run(tg), run(torch), rtol=1e-9)


@pytest.mark.parametrize("name", [*NATIVE, "AdamW"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_small_formats(name, dtype):
    def run(t, dtype):
        rng = np.random.default_rng(0)
        p, _ = stepped(t, name, t.tensor(rng.standard_normal(40), dtype=getattr(t, dtype)),
                       lambda step: t.tensor(rng.standard_normal(40), dtype=getattr(t, dtype)), 50, lr=0.05)
        return p.float().numpy(), p.dtype

    values, kept = run(tg, dtype)
    exact, _ = run(torch, "float32")
    theirs, _ = run(torch, dtype)
    assert kept == getattr(tg, dtype)
    # as near to the exact trajectory as PyTorch's, whose every operator rounds
    assert np.abs(values - exact).max() <= max(1.5 * np.abs(theirs - exact).max(), 0.05)


@pytest.mark.parametrize(("name", "options"), [(n, {"lr": 0.05}) for n in [*NATIVE, "AdamW", "Adafactor"]] +
                         [("RMSprop", {"lr": 0.05, "momentum": 0.9, "centered": True}), ("SGD", {"lr": 0.05, "momentum": 0.9})])
def test_states_go_to_pytorch_and_back(name, options):
    def build(t, values):
        p = t.nn.Parameter(t.tensor(values, dtype=t.float64))
        return p, getattr(t.optim, name)([p], **options)

    def step(t, p, optimizer, numbers):
        for n in numbers:
            p.grad = t.tensor(np.random.default_rng(n).standard_normal((4, 3)), dtype=t.float64)
            optimizer.step()

    def translated(to, value):
        if hasattr(value, "detach"):
            return to.tensor(value.detach().numpy())
        if isinstance(value, dict):
            return {k: translated(to, v) for k, v in value.items()}
        return type(value)(translated(to, v) for v in value) if isinstance(value, (list, tuple)) else value

    start = np.random.default_rng(99).standard_normal((4, 3))
    p, optimizer = build(torch, start)
    step(torch, p, optimizer, range(20))
    for first, second in ((torch, tg), (tg, torch)):
        a, one = build(first, start)
        step(first, a, one, range(10))
        b, two = build(second, a.detach().numpy())
        two.load_state_dict(translated(second, one.state_dict()))
        step(second, b, two, range(10, 20))
        # loading, PyTorch rounds ASGD's numbers anew, in the parameter's dtype
        close(b.detach().numpy(), p.detach().numpy(), 1e-6 if name in ("ASGD", "NAdam") else 1e-9)


@pytest.mark.parametrize("name", ["Adam", "RMSprop", "Adadelta", "Adamax", "NAdam", "RAdam", "Rprop", "ASGD", "Adafactor"])
@same_as_torch
def test_sparse_gradients_are_refused_before_anything_is_written(t, name):
    dense, rows = t.nn.Parameter(t.ones(3, 2)), t.nn.Parameter(t.ones(3, 2))
    optimizer = getattr(t.optim, name)([rows, dense])
    rows.grad = t.sparse_coo_tensor(t.tensor([[0]]), t.ones(1, 2), (3, 2))
    dense.grad = t.ones(3, 2)
    with pytest.raises(RuntimeError, match="sparse gradients") as error:
        optimizer.step()
    return str(error.value), dense.tolist(), len(optimizer.state)


@pytest.mark.parametrize(("name", "options"), [("SGD", {"lr": 0.1}), ("Adagrad", {"lr": 0.1, "lr_decay": 0.1}), ("SparseAdam", {"lr": 0.1})])
def test_rows(name, options):
    def run(t):
        def grad(step):
            rng = np.random.default_rng(step)
            at = t.tensor(rng.integers(0, 6, size=(1, 3)))
            return t.sparse_coo_tensor(at, t.tensor(rng.standard_normal((3, 2))), (6, 2))

        return stepped(t, name, t.tensor(np.arange(12.0).reshape(6, 2)), grad, 50, **options)[0].numpy()

    close(run(tg), run(torch))


def _sparse_steps(t, kinds, load=False, **options):
    """Parameter, momentum (dense) and whether it is sparse, after steps with gradients of the kinds that are named: s or d."""
    p = t.nn.Parameter(t.tensor(np.arange(12.0).reshape(6, 2)))
    optimizer = t.optim.SGD([p], lr=0.1, **options)
    for step, kind in enumerate(kinds):
        rng = np.random.default_rng(step)
        at, values = rng.integers(0, 6, size=(1, 3)), rng.standard_normal((3, 2))
        grad = t.sparse_coo_tensor(t.tensor(at), t.tensor(values), (6, 2))
        p.grad = grad if kind == "s" else grad.to_dense()
        optimizer.step()
        if load and step == 10:
            state = optimizer.state_dict()
            optimizer = t.optim.SGD([p], lr=0.1, **options)
            optimizer.load_state_dict(state)
    buffer = optimizer.state[p].get("momentum_buffer")
    sparse = buffer is not None and buffer.is_sparse
    return p.detach().numpy(), None if buffer is None else (buffer.to_dense() if sparse else buffer).numpy(), sparse


@pytest.mark.parametrize("kinds", ["s" * 50, "d" * 3 + "s" * 20], ids=["sparse", "dense first"])
@pytest.mark.parametrize("options", [
    {"momentum": 0.9}, {"momentum": 0.9, "dampening": 0.3}, {"momentum": 0.9, "maximize": True}, {"momentum": 0.9, "foreach": True},
    {"momentum": 0.9, "nesterov": True}, {"momentum": 0.9, "nesterov": True, "maximize": True}], ids=str)
def test_momentum_of_sparse_gradients(kinds, options):
    if options.get("nesterov") and kinds[0] == "d":
        for t in (tg, torch):  # a sparse gradient plus a dense buffer
            with pytest.raises(RuntimeError):
                _sparse_steps(t, kinds, **options)
        return
    for load in (False, True):
        (got, momentum, sparse), (expected, their_momentum, theirs_sparse) = (_sparse_steps(t, kinds, load, **options) for t in (tg, torch))
        close(got, expected)
        close(momentum, their_momentum)
        assert sparse == theirs_sparse == (kinds[0] == "s")


@pytest.mark.parametrize(("kinds", "options", "message"), [
    ("s", {"weight_decay": 0.1}, r"SGD: weight_decay does not go with sparse gradients: got 0\.1"),
    ("s", {"weight_decay": 0.1, "momentum": 0.9}, r"SGD: weight_decay does not go with sparse gradients: got 0\.1"),
    ("s", {"fused": True}, "SGD: `_fused_sgd` does not support sparse gradients: got fused=True"),
    ("s", {"differentiable": True}, "SGD: a differentiable step does not go with sparse gradients: got differentiable=True"),
    ("sd", {"momentum": 0.9}, "optimizer: a dense gradient does not go with the sparse momentum_buffer that sparse gradients left")], ids=str)
def test_what_sgd_refuses_with_sparse_gradients(kinds, options, message):
    with pytest.raises(RuntimeError):
        _sparse_steps(torch, kinds, **options)
    with pytest.raises(RuntimeError, match=f"^{message}$"):
        _sparse_steps(tg, kinds, **options)
    rows, dense = tg.nn.Parameter(tg.ones(3, 2)), tg.nn.Parameter(tg.ones(3, 2))
    optimizer = tg.optim.SGD([dense, rows], lr=0.1, **options)
    dense.grad, rows.grad = tg.ones(3, 2), tg.sparse_coo_tensor(tg.tensor([[0]]), tg.ones(1, 2), (3, 2))
    if kinds == "s":
        with pytest.raises(RuntimeError):
            optimizer.step()
        assert dense.equal(tg.ones(3, 2)) and rows.equal(tg.ones(3, 2))


def test_a_sparse_momentum_is_as_small_as_its_rows():
    p = tg.nn.Parameter(tg.zeros(1000, 4))
    optimizer = tg.optim.SGD([p], lr=0.1, momentum=0.9)
    for step in range(100):
        p.grad = tg.sparse_coo_tensor(tg.tensor([[step % 5, 7, 7]]), tg.ones(3, 4), (1000, 4))
        optimizer.step()
    buffer = optimizer.state[p]["momentum_buffer"]
    assert buffer.is_coalesced() and buffer._nnz() == 6
    assert p.abs().sum(1).nonzero().flatten().tolist() == [0, 1, 2, 3, 4, 7]


@same_as_torch
def test_hooks_of_all_optimizers(t):
    log = []
    p = t.nn.Parameter(t.ones(1))
    early = t.optim.SGD([p], lr=0.1)
    hooks = importlib.import_module(f"{t.__name__}.optim.optimizer")
    pre = hooks.register_optimizer_step_pre_hook(lambda o, a, k: log.append(f"all before {type(o).__name__}"))
    post = hooks.register_optimizer_step_post_hook(lambda o, a, k: log.append("all after"))

    class Own(t.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {})

        def step(self, closure=None):
            log.append("own")

    late = Own([p])
    late.register_step_pre_hook(lambda o, a, k: log.append("before"))
    late.register_step_post_hook(lambda o, a, k: log.append("after"))
    p.grad = t.ones(1)
    early.step()
    late.step()
    pre.remove()
    post.remove()
    early.step()
    return log


def test_swap_in_parameters_and_state():
    p = tg.nn.Parameter(tg.ones(2))
    optimizer = tg.optim.Adam([p], lr=0.1)
    with pytest.raises(RuntimeError, match="initialized optimizer state"), \
            tg.optim.swap_in_optimizer_params_and_state(optimizer, {}, {}):
        pass
    p.grad = tg.ones(2)
    optimizer.step()
    before, state = p.tolist(), optimizer.state_dict()
    other = tg.zeros(2)
    other.grad = tg.ones(2)
    state["state"][0] = {key: value.clone() for key, value in state["state"][0].items()}
    with tg.optim.swap_in_optimizer_params_and_state(optimizer, {"p": other}, state):
        optimizer.step()
    assert p.tolist() == before
    assert other.tolist() != [0.0, 0.0]
    assert state["state"][0]["step"].item() == 2
    assert optimizer.state[p]["step"].item() == 1


def test_required_and_names():
    class Own(tg.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {"lr": tg.optim.optimizer.required})

    with pytest.raises(ValueError, match="didn't specify a value of required optimization parameter lr"):
        Own([tg.ones(1)])
    model = tg.nn.Sequential(tg.nn.Linear(2, 3), tg.nn.Linear(3, 1))
    optimizer = tg.optim.AdamW(model.named_parameters(), lr=0.1)
    assert optimizer.param_groups[0]["param_names"] == [n for n, _ in model.named_parameters()]
    assert optimizer.state_dict()["param_groups"][0]["param_names"][0] == "0.weight"


def test_a_state_finds_its_parameters_in_a_model_of_another_order():
    class Net(tg.nn.Module):
        def __init__(self, order):
            super().__init__()
            for name in order:
                self.add_module(name, tg.nn.Linear(3, 3))

    def step(net, optimizer, seed):
        for n, p in sorted(net.named_parameters()):
            p.grad = tg.tensor(np.random.default_rng([seed, *n.encode()]).standard_normal(tuple(p.shape)).astype(np.float32))
        optimizer.step()

    first, second = Net("abc"), Net("cab")
    one = tg.optim.RAdam([{"params": first.named_parameters()}], lr=0.1)
    for k in range(8):
        step(first, one, k)
    two = tg.optim.RAdam([{"params": second.named_parameters()}], lr=0.5)
    second.load_state_dict(first.state_dict())
    two.load_state_dict(one.state_dict())
    for k in range(8, 12):
        step(first, one, k)
        step(second, two, k)
    for name, p in first.named_parameters():
        assert p.tolist() == second.get_parameter(name).tolist()


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adagrad"])
def test_fused(name):
    def run(t):
        start = t.tensor(np.arange(1.0, 7.0).reshape(2, 3))
        return stepped(t, name, start, lambda step: t.tensor(np.random.default_rng(step).standard_normal((2, 3))), 50,
                       lr=0.05, weight_decay=0.1, fused=True)[0].numpy()

    close(run(tg), run(torch))


def test_differentiable_steps_take_tensors_that_are_no_leaves():
    start = tg.ones(2, dtype=tg.float64, requires_grad=True)
    p = start * 1
    with pytest.raises(ValueError, match="^can't optimize a non-leaf Tensor$"):
        tg.optim.SGD([p], lr=0.5)
    optimizer = tg.optim.SGD([p], lr=0.5, differentiable=True)
    p.grad = (start * 3).detach()
    optimizer.step()
    assert p.tolist() == [-0.5, -0.5]
    p.sum().backward(inputs=[start])
    assert start.grad.tolist() == [1, 1]


@pytest.mark.parametrize("name", [*NATIVE, "AdamW"])
@same_as_torch
def test_loading_a_state_adds_only_the_options_that_pytorch_adds(t, name):
    optimizer = getattr(t.optim, name)([t.nn.Parameter(t.ones(2))], lr=0.1)
    optimizer.load_state_dict(optimizer.state_dict())
    loaded = set(optimizer.param_groups[0])
    group = {"params": optimizer.param_groups[0]["params"]}  # as from a version before there were any options
    optimizer.__setstate__({"state": {}, "param_groups": [group]})
    return loaded, {key: value for key, value in group.items() if key != "params"}
