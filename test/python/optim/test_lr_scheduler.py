"""Schedules of the learning rate against PyTorch: the rates of 40 steps, resuming, messages."""

import copy
import random
import warnings

import pytest
import tapegrad as tg
from pairs import same_as_torch

torch = pytest.importorskip("torch")

MAKERS = {
    "step": lambda s, o: s.StepLR(o, 7, gamma=0.3),
    "multistep": lambda s, o: s.MultiStepLR(o, [3, 8, 8, 20], gamma=0.5),
    "constant": lambda s, o: s.ConstantLR(o, factor=0.25, total_iters=6),
    "linear": lambda s, o: s.LinearLR(o, start_factor=0.1, end_factor=0.7, total_iters=9),
    "exponential": lambda s, o: s.ExponentialLR(o, 0.9),
    "polynomial": lambda s, o: s.PolynomialLR(o, total_iters=12, power=2.0),
    "cosine": lambda s, o: s.CosineAnnealingLR(o, T_max=10, eta_min=0.001),
    "restarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, T_0=4, T_mult=2, eta_min=0.001),
    "lambda": lambda s, o: s.LambdaLR(o, [lambda e: 0.9**e, lambda e: 1 / (e + 1)]),
    "multiplicative": lambda s, o: s.MultiplicativeLR(o, lambda e: 0.95),
    "onecycle": lambda s, o: s.OneCycleLR(o, max_lr=[0.5, 0.7], total_steps=41),
    "onecycle3": lambda s, o: s.OneCycleLR(o, max_lr=0.5, epochs=5, steps_per_epoch=9, three_phase=True,
                                           anneal_strategy="linear", pct_start=0.25),
    "cyclic": lambda s, o: s.CyclicLR(o, [0.1, 0.2], 0.9, step_size_up=5, step_size_down=3),
    "cyclic2": lambda s, o: s.CyclicLR(o, 0.1, 0.9, step_size_up=4, mode="triangular2", base_momentum=0.6, max_momentum=0.8),
    "cyclicexp": lambda s, o: s.CyclicLR(o, 0.1, 0.9, step_size_up=4, mode="exp_range", gamma=0.95),
    "cyclicown": lambda s, o: s.CyclicLR(o, 0.1, 0.9, step_size_up=4, scale_fn=lambda x: 1 / x, cycle_momentum=False),
    "sequential": lambda s, o: s.SequentialLR(o, [s.ConstantLR(o, 0.1, 4), s.ExponentialLR(o, 0.9), s.StepLR(o, 5)], [4, 15]),
    "chained": lambda s, o: s.ChainedScheduler([s.ConstantLR(o, 0.1, 4), s.ExponentialLR(o, 0.9)]),
}


def build(t, kind="SGD"):
    params = [t.nn.Parameter(t.ones(1)) for _ in range(2)]
    options = {"lr": 0.4, "momentum": 0.9} if kind == "SGD" else {"lr": 0.4}
    return getattr(t.optim, kind)([{"params": params[0]}, {"params": params[1], "lr": 0.2}], **options)


def rates(t, name, kind="SGD", steps=40, resume_at=None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optimizer = build(t, kind)
        scheduler = MAKERS[name](t.optim.lr_scheduler, optimizer)
        log = []
        for i in range(steps):
            groups = optimizer.param_groups
            log.append([g["lr"] for g in groups] + [g.get("momentum", g.get("betas")) for g in groups])
            optimizer.step()
            scheduler.step()
            assert scheduler.get_last_lr() == [g["lr"] for g in optimizer.param_groups]
            if i == resume_at:
                state, o_state = copy.deepcopy(scheduler.state_dict()), copy.deepcopy(optimizer.state_dict())
                optimizer = build(t, kind)
                scheduler = MAKERS[name](t.optim.lr_scheduler, optimizer)
                scheduler.load_state_dict(state)
                optimizer.load_state_dict(o_state)
        return log


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_rates(name, kind):
    mine, theirs = rates(tg, name, kind), rates(torch, name, kind)
    for i, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        for x, y in zip(a, b, strict=True):
            assert x == pytest.approx(y, rel=1e-12), f"step {i}"


@pytest.mark.parametrize("name", MAKERS)
def test_resume(name):
    assert rates(tg, name, resume_at=11) == rates(tg, name)


@pytest.mark.parametrize("options", [
    {}, {"mode": "max", "patience": 2}, {"threshold_mode": "abs", "threshold": 0.3, "patience": 1},
    {"cooldown": 2, "patience": 1, "min_lr": [0.05, 0.001]}, {"mode": "max", "threshold_mode": "abs"}])
@same_as_torch
def test_plateau(t, options):
    rng = random.Random(3)
    optimizer = build(t)
    scheduler = t.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **options)
    log = []
    for _ in range(60):
        scheduler.step(rng.random())
        log.append([g["lr"] for g in optimizer.param_groups])
    state = scheduler.state_dict()
    return log, {k: state[k] for k in ("best", "num_bad_epochs", "last_epoch", "cooldown_counter")}


def outcome(function):
    try:
        return type(function()).__name__
    except Exception as error:
        return (type(error).__name__, str(error).replace("\\n", "\n").split("\n")[0].strip("'\""))


def test_errors():
    def run(t):
        s = t.optim.lr_scheduler
        o = build(t)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return [outcome(f) for f in (
                lambda: s.StepLR(3, 1), lambda: s.LambdaLR(o, [abs]), lambda: s.ConstantLR(o, 2.0), lambda: s.LinearLR(o, 0.0),
                lambda: s.LinearLR(o, 0.5, 2.0), lambda: s.OneCycleLR(o, 0.1), lambda: s.OneCycleLR(o, 0.1, total_steps=-1),
                lambda: s.OneCycleLR(o, 0.1, 10, pct_start=2.0), lambda: s.OneCycleLR(o, 0.1, 10, anneal_strategy="x"),
                lambda: s.CosineAnnealingWarmRestarts(o, 0), lambda: s.ReduceLROnPlateau(o, mode="x"),
                lambda: s.ReduceLROnPlateau(o, factor=2.0), lambda: s.SequentialLR(o, [], []),
                lambda: s.SequentialLR(o, [s.ExponentialLR(o, 0.9)], [1]), lambda: s.OneCycleLR(o, [0.1], 10),
                lambda: s.StepLR(build(t), 2, last_epoch=3))]

    mine, theirs = run(tg), run(torch)
    for a, b in zip(mine, theirs, strict=True):
        assert a == b


def test_wrong_order_is_told_once():
    optimizer = build(tg)
    scheduler = tg.optim.lr_scheduler.StepLR(optimizer, 2)
    with pytest.warns(UserWarning, match="before `optimizer.step"):
        scheduler.step()
    optimizer = build(tg)
    scheduler = tg.optim.lr_scheduler.StepLR(optimizer, 2)
    optimizer.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scheduler.step()
        scheduler.step()
    assert "step" not in vars(optimizer)  # nothing is left in the way of later steps


def test_training_loop_with_a_schedule():
    p = tg.nn.Parameter(tg.ones(1))
    optimizer = tg.optim.SGD([p], lr=1.0)
    scheduler = tg.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    for _ in range(3):
        p.grad = tg.ones(1)
        optimizer.step()
        scheduler.step()
    assert p.item() == pytest.approx(1 - 1.75)
