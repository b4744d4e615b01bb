"""A recorded step keeps what it has read of its optimizer while nothing changes: whatever is changed between calls is what eager steps see."""

import logging
import threading

import numpy as np
import pytest
import tapegrad as tg
from recorded import assert_same, batches, mlp, replays, training
from tapegrad import nn

OPTIMIZERS = {
    "sgd": lambda p: tg.optim.SGD(p, lr=0.05),
    "momentum": lambda p: tg.optim.SGD(p, lr=0.05, momentum=0.9),
    "adam": lambda p: tg.optim.Adam(p, lr=0.01),
    "nadam": lambda p: tg.optim.NAdam(p, lr=0.01),
    "asgd": lambda p: tg.optim.ASGD(p, lr=0.01),
}


def _group(**options):
    return lambda optimizer, net: optimizer.param_groups[0].update(options)


def _state(change):
    def run(optimizer, net):
        for state in optimizer.state.values():
            change(state)
    return run


def _first_tensor(state):
    return next((k for k, v in state.items() if isinstance(v, tg.Tensor) and v.ndim > 0), None)


def _replaced(state):
    if name := _first_tensor(state):
        state[name] = tg.full_like(state[name], 0.25)


def _written(state):
    if name := _first_tensor(state):
        state[name].fill_(0.5)


def _other_memory(state):
    if name := _first_tensor(state):
        state[name].data = tg.full_like(state[name], 0.125)


def _turned(state):
    if (name := _first_tensor(state)) and state[name].ndim == 2:
        state[name] = state[name].t().contiguous().t()


def _counted(state):
    if "step" in state:
        state["step"].fill_(40.0)


def _count_is_a_number(state):
    if "step" in state:
        state["step"] = 7.0


def _count_is_a_double(state):
    if "step" in state:
        state["step"] = tg.tensor(7.0, dtype=tg.float64)


def _count_has_other_memory(state):
    if "step" in state:
        state["step"].data = tg.tensor(9.0, dtype=tg.float64)


def _move(optimizer, net):
    """A parameter goes into a group of its own."""
    p = optimizer.param_groups[0]["params"].pop()
    optimizer.add_param_group({"params": [p], "lr": 0.2})


def _exchanged_group(optimizer, net):
    optimizer.param_groups[0] = {**optimizer.param_groups[0], "lr": 0.3}


def _loaded(optimizer, net):
    saved = optimizer.state_dict()
    for group in saved["param_groups"]:
        group["lr"] = 0.02
    optimizer.load_state_dict(saved)


def _lr_of(make):
    def run(optimizer, net):
        optimizer.param_groups[0]["lr"] = make()
    return run


def _set(lr, value):
    lr[...] = value


CHANGES = {
    "lr": [_group(lr=0.2), _group(lr=0.01)],
    "lr of the same value": [_group(lr=float("0.05"))],
    "lr is an integer": [_group(lr=1)],
    "lr of NumPy": [_lr_of(lambda: np.float64(0.2))],
    "lr is a tensor that is written to": [_lr_of(lambda: tg.tensor(0.2)), lambda o, n: o.param_groups[0]["lr"].fill_(0.01)],
    "weight decay": [_group(weight_decay=0.1), _group(weight_decay=0)],
    "a switch": [_group(maximize=True), _group(maximize=False)],
    "a switch that is a list": [_group(maximize=[]), lambda o, n: o.param_groups[0]["maximize"].append(1)],
    "capturable": [_group(capturable=True), _group(lr=0.2)],
    "momentum begins and ends": [_group(momentum=0.5, nesterov=True), _group(momentum=0, nesterov=False)],
    "amsgrad": [_group(amsgrad=True), _group(lr=0.1)],
    "betas": [_group(betas=(0.5, 0.9))],
    "betas in a list": [_group(betas=[0.5, 0.9]), lambda o, n: o.param_groups[0]["betas"].__setitem__(0, 0.8)],
    "betas are tensors": [lambda o, n: o.param_groups[0].update(betas=(tg.tensor(0.5), tg.tensor(0.9))),
                          lambda o, n: o.param_groups[0]["betas"][0].fill_(0.8)],
    "a parameter less": [lambda o, n: o.param_groups[0]["params"].pop()],
    "parameters in another order": [lambda o, n: o.param_groups[0]["params"].reverse()],
    "another group": [_move, lambda o, n: o.param_groups[1].update(lr=0.01)],
    "another dictionary as group": [_exchanged_group],
    "no group, and back": [lambda o, n: setattr(o, "kept", list(o.param_groups)) or o.param_groups.clear(), lambda o, n: o.param_groups.extend(o.kept)],
    "loaded state": [_loaded, _loaded],
    "no state": [lambda o, n: o.state.clear()],
    "no state of one": [lambda o, n: o.state.pop(o.param_groups[0]["params"][0], None)],
    "another tensor of state": [_state(_replaced), _state(_replaced)],
    "state that is written to": [_state(_written)],
    "other memory of state": [_state(_other_memory)],
    "state in another order": [_state(_turned)],
    "count": [_state(_counted), _state(lambda s: s.get("step", tg.tensor(0.0)).zero_())],
    "the count is a number": [_state(_count_is_a_number)],
    "the count is a double": [_state(_count_is_a_double)],
    "the count has other memory": [_state(_count_has_other_memory)],
    "ages differ": [lambda o, n: o.state.get(o.param_groups[0]["params"][1], {}).get("step", tg.tensor(0.0)).fill_(90.0)],
    "a dictionary of state is exchanged": [lambda o, n: [o.state.__setitem__(p, dict(s)) for p, s in list(o.state.items())], _state(_replaced)],
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("change", CHANGES)
def test_what_is_changed_between_calls(change, optimizer):
    """Each change before call 6, the next one before call 9, and after it as without a record."""
    def made():
        net = mlp()
        return net, OPTIMIZERS[optimizer](net.parameters())

    (mine, own), (other, twin) = made(), made()
    step, eager = tg.record(training(mine, own)), training(other, twin)
    changes = iter(CHANGES[change])
    for i, (x, y) in enumerate(batches(14)):
        if i in (6, 9) and (do := next(changes, None)):
            do(own, mine)
            do(twin, other)
        assert tg.equal(step(x, y), eager(x, y)), (i, step.summary())
        assert_same(mine, other, f"{change}, step {i}")
        for (_, s), (_, t) in zip(own.state.items(), twin.state.items(), strict=True):
            assert s.keys() == t.keys()
            for name, value in s.items():
                assert tg.equal(tg.as_tensor(value), tg.as_tensor(t[name])) and type(value) is type(t[name]), (i, name)
    assert replays(step) > 0, step.summary()


def test_a_scheduler():
    def build(net, optimizer):
        scheduler = tg.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
        inner = training(net, optimizer)
        build.schedulers.append(scheduler)
        return inner

    build.schedulers = []
    net, other = mlp(), mlp()
    step = tg.record(build(net, tg.optim.Adam(net.parameters(), lr=0.05)))
    eager = build(other, tg.optim.Adam(other.parameters(), lr=0.05))
    for i, (x, y) in enumerate(batches(14)):
        assert tg.equal(step(x, y), eager(x, y)), i
        assert_same(net, other, i)
        for scheduler in build.schedulers:
            scheduler.step()
    assert replays(step) > 6, step.summary()


def test_an_error_of_an_option_is_that_of_an_eager_step():
    net, other = mlp(), mlp()
    own, twin = (tg.optim.Adam(n.parameters(), lr=0.1) for n in (net, other))
    step, eager = tg.record(training(net, own)), training(other, twin)
    data = batches(12)
    for x, y in data[:5]:
        step(x, y), eager(x, y)
    for broken in ({"lr": "fast"}, {"betas": (0.9,)}, {"betas": 3}):
        kept = {name: own.param_groups[0][name] for name in broken}
        said = []
        for optimizer, run in ((own, step), (twin, eager)):
            optimizer.param_groups[0].update(broken)
            with pytest.raises((TypeError, ValueError, IndexError)) as error:
                run(*data[5])
            said.append((type(error.value), str(error.value)))
            optimizer.param_groups[0].update(kept)
        assert said[0] == said[1]
    for group in (own.param_groups[0], twin.param_groups[0]):
        del group["eps"]
    for run in (step, eager):
        with pytest.raises(KeyError, match="eps"):
            run(*data[5])
    for group in (own.param_groups[0], twin.param_groups[0]):
        group["eps"] = 1e-8
    for x, y in data[6:]:
        assert tg.equal(step(x, y), eager(x, y))
        assert_same(net, other, "after errors")


def test_state_of_another_size_is_refused_as_eagerly():
    net = mlp()
    optimizer = tg.optim.Adam(net.parameters(), lr=0.1)
    step = tg.record(training(net, optimizer))
    data = batches(8)
    for x, y in data[:5]:
        step(x, y)
    state = optimizer.state[net[0].weight]
    shape, count = state["exp_avg"].shape, state["step"].item()
    before = net[0].weight.detach().clone()
    state["exp_avg"].resize_(3)
    with pytest.raises(RuntimeError, match="the exp_avg has another shape than its parameter"):
        step(*data[5])
    assert state["step"].item() == count and tg.equal(net[0].weight, before)
    assert net[0].weight.grad is not None
    state["exp_avg"].resize_(shape).zero_()
    step(*data[6])
    assert state["step"].item() == count + 1


def test_gradients_come_and_go():
    """Those of parameters that the step does not reach are steps of its optimizer, too."""
    def made():
        net, apart = mlp(), nn.Embedding(4, 3, sparse=True)
        return net, apart, tg.optim.SGD([*net.parameters(), *apart.parameters()], lr=0.1)

    (a, own, first), (b, other, second) = made(), made()

    def build(net, optimizer):
        def step(x, y):
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            net.zero_grad()
            return loss
        return step

    step, eager = tg.record(build(a, first)), build(b, second)
    for i, (x, y) in enumerate(batches(12)):
        for apart in (own, other):
            apart.weight.grad = None
            if i in (5, 6):
                apart.weight.grad = tg.full((4, 3), 0.5)
            elif i == 8:
                apart(tg.tensor([1, 1, 2])).sum().backward()
        assert tg.equal(step(x, y), eager(x, y))
        assert_same(a, b, i)
        assert tg.equal(own.weight, other.weight), i
    assert replays(step) > 4, step.summary()


def test_hooks_of_the_step(caplog):
    """A hook that changes an option changes the step that follows; the recorded function sees to it."""
    def made():
        net = mlp()
        optimizer = tg.optim.Adam(net.parameters(), lr=0.1)
        return net, optimizer

    (a, own), (b, twin) = made(), made()
    step, eager = tg.record(training(a, own)), training(b, twin)
    with caplog.at_level(logging.ERROR):
        for i, (x, y) in enumerate(batches(12)):
            if i == 5:
                for optimizer in (own, twin):
                    optimizer.register_step_pre_hook(lambda o, args, kwargs: o.param_groups[0].update(lr=o.param_groups[0]["lr"] * 0.5))
            assert tg.equal(step(x, y), eager(x, y)), i
            assert_same(a, b, i)
            assert own.param_groups[0]["lr"] == twin.param_groups[0]["lr"]


def test_updates_that_come_early_see_changed_options():
    """With a memory budget a step is taken in parts, by the same reading."""
    def made():
        tg.manual_seed(0)
        net = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 3))
        return net, tg.optim.Adam(net.parameters(), lr=0.01, betas=[0.9, 0.999])

    (a, own), (b, twin) = made(), made()
    step, eager = tg.record(training(a, own, zero="after"), memory=0.5), training(b, twin, zero="after")
    for i, (x, y) in enumerate(batches(14)):
        for optimizer in (own, twin):
            group = optimizer.param_groups[0]
            if i == 6:
                group["betas"][0] = 0.5
            elif i == 8:
                group["lr"] = 0.1
            elif i == 10:
                _state(_replaced)(optimizer, None)
        assert tg.equal(step(x, y), eager(x, y)), i
        assert_same(a, b, i)
    assert "weights updated early" in step.summary() and replays(step) > 6, step.summary()


def test_options_change_while_other_threads_step():
    """Large enough that a step lets other threads run. Each of two networks is that of an eager run with one of the rates in each step: what is
    read is whole, and nothing is lost."""
    stop = threading.Event()
    net = nn.Linear(300, 300)
    optimizer = tg.optim.SGD(net.parameters(), lr=0.5)

    @tg.record
    def step(x):
        optimizer.zero_grad()
        (net(x) * x).sum().backward()
        optimizer.step()
        return net.bias.grad.sum()

    def change():
        n = 0
        while not stop.is_set():
            optimizer.param_groups[0]["lr"] = (0.5, 0.25)[n % 2]
            optimizer.param_groups[0]["params"].reverse()
            n += 1

    x = tg.ones(1, 300)
    thread = threading.Thread(target=change)
    thread.start()
    try:
        before = net.bias.detach().clone()
        for i in range(200):
            step(x)
            moved = before - net.bias.detach()
            quarters = (moved / 0.25).round()
            assert tg.allclose(moved, quarters * 0.25, atol=1e-3) and quarters.min() == quarters.max(), i
            assert (quarters == 1).all() or (quarters == 2).all() or (quarters == 0).all(), i
            before = net.bias.detach().clone()
    finally:
        stop.set()
        thread.join()


def test_one_optimizer_in_two_threads():
    """Steps of one optimizer at the same time, as its user has to answer for: nothing is read that is gone."""
    net = nn.Linear(200, 200)
    optimizer = tg.optim.Adam(net.parameters(), lr=1e-6)
    x = tg.randn(4, 200)

    def made():
        @tg.record
        def step(x):
            optimizer.step()
            return x * 2
        return step

    net(x).sum().backward()
    errors = []

    def work():
        try:
            step = made()
            for i in range(150):
                step(x)
                if i % 10 == 0:
                    optimizer.param_groups[0]["lr"] = 1e-6 * (1 + i)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors
    assert all(p.isfinite().all() for p in net.parameters())
