"""Models of the kinds that public scripts train: from the same weights, tapegrad and PyTorch go through the same losses."""

import importlib.util
import os

import numpy as np
import pytest
import tapegrad as tg

torch = pytest.importorskip("torch")

_spec = importlib.util.spec_from_file_location("compat_models", os.path.join(os.path.dirname(__file__), "models.py"))
models = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(models)

STEPS = 6
OPTIMIZERS = {
    "sgd": lambda lib, params: lib.optim.SGD(params, lr=0.05, momentum=0.9, weight_decay=1e-4, nesterov=True),
    "adam": lambda lib, params: lib.optim.Adam(params, lr=3e-3, betas=(0.5, 0.999)),
    "adamw": lambda lib, params: lib.optim.AdamW(params, lr=3e-3, weight_decay=0.1),
    "rmsprop": lambda lib, params: lib.optim.RMSprop(params, lr=2e-3, alpha=0.9),
}
# What scripts of the kind use.
CHOICE = {"classifier": "sgd", "segmenter": "rmsprop", "gan": "adam", "policy_gradient": "rmsprop", "gpt": "adamw", "bert": "adamw",
          "vision_transformer": "adamw", "detector": "sgd"}


def losses(lib, kind: str, dtype: str, weights: list | None):
    """The losses of each step, and the weights before the first one; given weights are taken over."""
    lib.manual_seed(0)
    modules, loss_of = models.make(kind, lib, dtype)
    modules = [m.to(getattr(lib, dtype)) for m in modules]
    if weights is None:
        weights = [{k: v.detach().numpy().copy() for k, v in m.state_dict().items()} for m in modules]
    else:
        for module, state in zip(modules, weights, strict=True):
            assert list(module.state_dict()) == list(state), kind
            module.load_state_dict({k: lib.tensor(v) for k, v in state.items()})
    params = list({id(p): p for m in modules for p in m.parameters() if p.requires_grad}.values())
    optimizer = OPTIMIZERS[CHOICE.get(kind, "adam")](lib, params)
    schedule = lib.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    seen = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(step)
        loss.backward()
        norm = lib.nn.utils.clip_grad_norm_(params, 5.0)
        optimizer.step()
        schedule.step()
        seen.append((loss.item(), norm.item()))
    return np.array(seen), weights


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", models.KINDS)
def test_same_losses(kind, dtype):
    want, weights = losses(torch, kind, dtype, None)
    got, _ = losses(tg, kind, dtype, weights)
    tolerance = {"float32": 1e-4, "float64": 1e-9}[dtype]
    np.testing.assert_allclose(got[:, 0], want[:, 0], rtol=tolerance, err_msg=f"{kind}: losses")
    np.testing.assert_allclose(got[:, 1], want[:, 1], rtol=10 * tolerance, atol=10 * tolerance, err_msg=f"{kind}: norms of gradients")
    assert len(set(want[:, 0])) == STEPS, "the weights did not move"
