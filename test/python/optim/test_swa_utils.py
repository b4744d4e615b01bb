"""Averages of weights against PyTorch."""

import importlib
import warnings

import numpy as np
import pytest
import tapegrad as tg

torch = pytest.importorskip("torch")


def swa(t):
    return importlib.import_module(f"{t.__name__}.optim.swa_utils")


AVERAGES = {
    "equal": lambda u: {}, "equal-multi": lambda u: {"multi_avg_fn": u.get_swa_multi_avg_fn()},
    "equal-buffers": lambda u: {"use_buffers": True}, "ema": lambda u: {"avg_fn": u.get_ema_avg_fn(0.9)},
    "ema-multi": lambda u: {"multi_avg_fn": u.get_ema_multi_avg_fn(0.9), "use_buffers": True},
    "own": lambda u: {"avg_fn": lambda mean, p, n: 0.1 * mean + 0.9 * p + n},
}


def averaged(t, kind):
    rng = np.random.default_rng(0)
    model = t.nn.Sequential(t.nn.Linear(3, 4), t.nn.BatchNorm1d(4), t.nn.Linear(4, 2)).double()
    average = swa(t).AveragedModel(model, **AVERAGES[kind](swa(t)))
    for _ in range(5):
        with t.no_grad():
            for p in model.parameters():
                p.copy_(t.tensor(rng.standard_normal(tuple(p.shape))))
        model(t.tensor(rng.standard_normal((8, 3))))
        average.update_parameters(model)
    batches = [t.tensor(rng.standard_normal((8, 3))) for _ in range(3)]
    before = {k: v.tolist() for k, v in average.state_dict().items()}
    swa(t).update_bn([(b, 1) for b in batches], average)
    average.eval()
    return before, {k: v.tolist() for k, v in average.state_dict().items()}, average(batches[0]).tolist()


@pytest.mark.parametrize("kind", AVERAGES)
def test_averages(kind):
    mine, theirs = averaged(tg, kind), averaged(torch, kind)
    for a, b in zip(mine[:2], theirs[:2], strict=True):
        assert list(a) == list(b)
        for key in a:
            np.testing.assert_allclose(a[key], b[key], rtol=1e-6, atol=1e-9, err_msg=key)
    np.testing.assert_allclose(mine[2], theirs[2], rtol=1e-6)


def test_wrong_arguments():
    for t in (tg, torch):
        u = swa(t)
        with pytest.raises(ValueError, match=r"Invalid decay value 1.5 provided"):
            u.get_ema_avg_fn(1.5)
        with pytest.raises(AssertionError, match="Only one of avg_fn and multi_avg_fn"):
            u.AveragedModel(t.nn.Linear(1, 1), avg_fn=u.get_swa_avg_fn(), multi_avg_fn=u.get_swa_multi_avg_fn())


@pytest.mark.parametrize("options", [{}, {"anneal_epochs": 3, "anneal_strategy": "linear"}, {"anneal_epochs": 0}])
def test_swalr(options):
    def run(t):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            optimizer = t.optim.SGD([{"params": t.nn.Parameter(t.ones(1))}, {"params": t.nn.Parameter(t.ones(1)), "lr": 0.5}], lr=1.0)
            schedule = swa(t).SWALR(optimizer, [0.05, 0.1], **options)
            log = []
            for i in range(15):
                optimizer.step()
                schedule.step()
                log += schedule.get_last_lr()
                if i == 4:
                    state = schedule.state_dict()
                    schedule = swa(t).SWALR(optimizer, [0.05, 0.1], **options)
                    schedule.load_state_dict(state)
        return log

    assert run(tg) == pytest.approx(run(torch))
