"""The C++ optimizers with parameter groups and the C++ schedules against the Python ones."""

import pytest
import tapegrad as tg
from cpp_peer import equal, run_cpp
from tapegrad import optim
from tapegrad.optim import lr_scheduler as schedules
from tapegrad.serialization import load_file, save_file

GROUPS = {
    "SGD": ({"lr": 0.1, "momentum": 0.9}, {"lr": 0.01, "weight_decay": 0.1, "momentum": 0}),
    "Adam": ({"lr": 0.1}, {"lr": 0.01, "betas": (0.8, 0.999), "amsgrad": True}),
    "AdamW": ({"lr": 0.1}, {"lr": 0.01, "weight_decay": 0.3}),
    "RMSprop": ({"lr": 0.1, "centered": True}, {"lr": 0.01, "momentum": 0.9, "centered": False}),
    "Adagrad": ({"lr": 0.1}, {"lr": 0.01, "lr_decay": 0.1}),
    "Adadelta": ({"lr": 1}, {"lr": 0.5, "rho": 0.8}),
    "Adamax": ({"lr": 0.1}, {"lr": 0.01, "weight_decay": 0.1}),
    "NAdam": ({"lr": 0.1}, {"lr": 0.01, "decoupled_weight_decay": True}),
    "RAdam": ({"lr": 0.1}, {"lr": 0.01, "weight_decay": 0.1}),
    "Rprop": ({"lr": 0.1}, {"lr": 0.01, "etas": (0.5, 1.5)}),
    "ASGD": ({"lr": 0.1}, {"lr": 0.01, "t0": 3}),
}


def test_trajectories_of_two_groups_are_equal(tmp_path):
    start = {"first": tg.randn(3, 4), "second": tg.randn(5)}
    gradients = {f"{name}.{i}": tg.randn_like(t) for i in range(10) for name, t in start.items()}
    save_file({**start, **gradients}, tmp_path / "trajectory.in")
    run_cpp("optimizers with groups for Python", tmp_path)
    for name, (first, second) in GROUPS.items():
        params = {key: tg.nn.Parameter(t.clone()) for key, t in start.items()}
        optimizer = getattr(optim, name)([params["first"]], **first)
        optimizer.add_param_group({"params": [params["second"]], **second})
        out = load_file(tmp_path / f"{name}.out")
        for i in range(10):
            for key, p in params.items():
                p.grad = gradients[f"{key}.{i}"]
            optimizer.step()
            for key, p in params.items():
                assert equal(out[f"{key}.{i}"], p.detach()), f"{name}: {key} after step {i}"


def _sequential(optimizer):
    parts = [schedules.LinearLR(optimizer, 0.1, 1, 4), schedules.ExponentialLR(optimizer, 0.9)]
    return schedules.SequentialLR(optimizer, parts, [4])


def _chained(optimizer):
    return schedules.ChainedScheduler([schedules.ConstantLR(optimizer, 0.1, 4), schedules.ExponentialLR(optimizer, 0.9)])


SCHEDULES = {
    "lambda": lambda o: schedules.LambdaLR(o, lambda e: 1 / (e + 1)),
    "multiplicative": lambda o: schedules.MultiplicativeLR(o, lambda e: 0.5 if e % 2 else 1.5),
    "step": lambda o: schedules.StepLR(o, 6, 0.5),
    "multi_step": lambda o: schedules.MultiStepLR(o, [9, 3, 3], 0.5),
    "constant": lambda o: schedules.ConstantLR(o, 0.25, 4),
    "linear": lambda o: schedules.LinearLR(o, 0.2, 0.9, 8),
    "exponential": lambda o: schedules.ExponentialLR(o, 0.9),
    "polynomial": lambda o: schedules.PolynomialLR(o, 15, 2),
    "cosine": lambda o: schedules.CosineAnnealingLR(o, 8, 0.1),
    "restarts": lambda o: schedules.CosineAnnealingWarmRestarts(o, 3, 2, 0.01),
    "sequential": _sequential,
    "chained": _chained,
    "cyclic": lambda o: schedules.CyclicLR(o, [0.1, 0.2], 0.9, 4, 3, "triangular2"),
    "cyclic_exp": lambda o: schedules.CyclicLR(o, 0.1, 0.9, 4, mode="exp_range", gamma=0.9),
    "one_cycle": lambda o: schedules.OneCycleLR(o, [0.9, 0.3], 21),
    "one_cycle_three": lambda o: schedules.OneCycleLR(o, 0.9, 21, pct_start=0.4, anneal_strategy="linear", three_phase=True),
}
MEASURES = [1.0, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9]


@pytest.mark.filterwarnings("ignore")  # of schedules without optimizer steps
def test_schedules_are_equal(tmp_path):
    run_cpp("schedules for Python", tmp_path)
    out = load_file(tmp_path / "schedules.out")
    assert set(out) == {*SCHEDULES, "plateau"}
    for name in out:
        optimizer = optim.SGD([tg.ones(1, requires_grad=True)], lr=0.8, momentum=0.5)
        optimizer.add_param_group({"params": [tg.ones(1, requires_grad=True)], "lr": 0.2})
        seen = []

        def note(groups=optimizer.param_groups, seen=seen):
            seen.extend(value for group in groups for value in (group["lr"], group["momentum"]))

        if name == "plateau":
            schedule = schedules.ReduceLROnPlateau(optimizer, factor=0.5, patience=1, cooldown=2, min_lr=0.1)
            for measure in MEASURES:
                schedule.step(measure)
                note()
        else:
            schedule = SCHEDULES[name](optimizer)
            note()
            for _ in range(20):
                schedule.step()
                note()
        assert out[name].tolist() == pytest.approx(seen, rel=1e-9, abs=1e-12), name
