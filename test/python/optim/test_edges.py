"""Every optimizer at gradients and parameters of 0, infinity, NaN, the least and the largest numbers, against PyTorch."""

import itertools
import math

import edges
import numpy as np
import pytest
import tapegrad as tg

torch = pytest.importorskip("torch")

KNOWN = edges.load_known()
SETTINGS = [
    ("SGD", {"momentum": 0.9, "nesterov": True}), ("SGD", {"momentum": 0.9, "dampening": 0.5, "weight_decay": 0.1}), ("SGD", {"weight_decay": 0.0}),
    ("Adam", {}), ("Adam", {"amsgrad": True, "weight_decay": 0.1}), ("Adam", {"eps": 0.0}), ("Adam", {"betas": (0.0, 0.0)}), ("AdamW", {}),
    ("AdamW", {"amsgrad": True, "maximize": True}), ("Adagrad", {}), ("Adagrad", {"eps": 0.0, "lr_decay": 0.1}), ("RMSprop", {}),
    ("RMSprop", {"centered": True, "momentum": 0.9}), ("RMSprop", {"centered": True, "eps": 0.0}), ("Adadelta", {}), ("Adadelta", {"eps": 0.0}),
    ("Adamax", {}), ("Adamax", {"eps": 0.0}), ("NAdam", {}), ("RAdam", {}), ("RAdam", {"eps": 0.0, "betas": (0.5, 0.5)}), ("Rprop", {}), ("ASGD", {}),
    ("ASGD", {"weight_decay": 0.1}), ("Adafactor", {}), ("Adafactor", {"weight_decay": 0.1}), ("Muon", {}), ("LBFGS", {}),
    ("LBFGS", {"line_search_fn": "strong_wolfe", "max_iter": 4}), ("SparseAdam", {}),
]


def start(dtype):
    """Parameters and the gradients of three steps: every pair of edges, a second time with gradients that change."""
    values = edges.few_edges(dtype) + [3.0]
    grid = np.array(list(itertools.product(values, values))).reshape(len(values), -1)
    parameter, gradient = grid[:, ::2].copy(), grid[:, 1::2].copy()
    return parameter, [gradient, gradient[::-1].copy(), np.full_like(gradient, 0.5)]


def walk(t, name, options, dtype, whole):
    """The parameter, or one parameter per pair, after each of three steps."""
    parameter, gradients = start(getattr(tg, dtype))
    if name == "LBFGS":  # one number infinite is all infinite
        parameter, gradients = np.ones((2, 2)), [np.array([[0.0, -0.0], [5e-324, 0.0]]), np.array([[1.0, 0.0], [math.inf, 0.0]]), np.zeros((2, 2))]
    made = [parameter] if whole else [parameter[i] for i in range(len(parameter))] if name != "Muon" else [parameter[i:i + 1] for i in range(len(parameter))]
    made = [t.nn.Parameter(t.tensor(p, dtype=getattr(t, dtype))) for p in made]
    optimizer = getattr(t.optim, name)(made if name != "LBFGS" or whole else made[:1], **{"lr": 0.1, **options})
    found = []
    for gradient in gradients:
        parts = [gradient] if whole else list(gradient) if name != "Muon" else [gradient[i:i + 1] for i in range(len(gradient))]
        for p, g in zip(made, parts):
            p.grad = t.tensor(g, dtype=p.dtype)
            if name == "SparseAdam":
                p.grad = p.grad.to_sparse(1)
        optimizer.step((lambda: (made[0] * 0).sum()) if name == "LBFGS" else None)
        found.append([p.detach().clone() for p in made])
    return found


def differences_of(name):
    found = []
    for (_, options), dtype, whole in itertools.product([s for s in SETTINGS if s[0] == name], ("float32", "float64"), (True, False)):
        what = f"{name}({options}) {'whole' if whole else 'parts'}"
        subject = edges.Callable(f"optim.{name}", lambda: walk(tg, name, options, dtype, whole), lambda: walk(torch, name, options, dtype, whole))
        found += edges.Comparison(subject, edges.Case(what, (), {}), dtype, gradients=False).differences
    return found


@pytest.mark.parametrize("name", dict.fromkeys(name for name, _ in SETTINGS))
def test_optimizer(name):
    edges.check(f"optim.{name}", differences_of(name), KNOWN)
