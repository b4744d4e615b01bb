"""Models of the kinds that public scripts train, with and without compile(): the same losses and weights after each step."""

import importlib.util
from pathlib import Path

import pytest
import tapegrad as tg

_spec = importlib.util.spec_from_file_location("compat_models", Path(__file__).parents[1] / "compat" / "models.py")
models = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(models)

STEPS = 12


def run(kind, change):
    """Losses and weights of each step, and what was replayed."""
    tg.manual_seed(0)
    modules, loss_of = models.make(kind, tg, "float32")
    change(modules)
    params = list({id(p): p for m in modules for p in m.parameters() if p.requires_grad}.values())
    optimizer = tg.optim.AdamW(params, lr=1e-3)
    seen = []
    for step in range(STEPS):
        tg.manual_seed(step)
        optimizer.zero_grad()
        loss = loss_of(step % 3)
        loss.backward()
        tg.nn.utils.clip_grad_norm_(params, 5.0)
        optimizer.step()
        seen.append([loss.detach().clone(), *(p.detach().clone() for p in params)])
    return seen, loss_of


def forwards(modules):
    return [m.forward for top in modules for m in top.modules() if isinstance(m.forward, tg.record.RecordedStep)]


def compile_whole(modules):
    for m in modules:
        tg.compile(m)


def compile_parts(modules):
    """As programs do that compile the blocks of a network."""
    for m in modules:
        for child in m.children():
            tg.compile(child)


COUNTS: dict = {}


@pytest.mark.parametrize("change", [compile_whole, compile_parts])
@pytest.mark.parametrize("kind", models.KINDS)
def test_same_losses_and_weights(kind, change):
    wanted, _ = run(kind, lambda modules: None)
    kept = []
    got, _ = run(kind, lambda modules: (change(modules), kept.extend(forwards(modules))))
    for step, (a, b) in enumerate(zip(wanted, got, strict=True)):
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            assert tg.equal(x, y), f"step {step}, {'loss' if i == 0 else f'parameter {i}'}: " + "\n".join(f.summary() for f in kept)
    if change is compile_whole:
        COUNTS[kind] = sum(f._replays.count for f in kept)


def test_most_models_are_replayed():
    """Runs last: where the models above ran in this process."""
    if len(COUNTS) < 6:
        pytest.skip("only some of the models ran here")
    assert sum(n > 0 for n in COUNTS.values()) >= len(COUNTS) // 2, COUNTS
