"""functorch's functions of modules, against PyTorch's."""

import importlib

from pairs import same_as_torch


def functorch(lib):
    return importlib.import_module("functorch" if lib.__name__ == "torch" else "tapegrad.func._stateless")


def network(lib, kind):
    model = lib.nn.Sequential(lib.nn.Linear(3, 4), getattr(lib.nn, kind)(*([4] if "Norm" in kind else [])), lib.nn.Linear(4, 2))
    with lib.no_grad():
        for i, p in enumerate(model.parameters()):
            p.copy_(lib.arange(p.numel()).reshape(p.shape) / 10 + i)
    return model


@same_as_torch
def test_make_functional(lib):
    f, params = functorch(lib).make_functional(model := network(lib, "ReLU"))
    x = lib.ones(5, 3)
    first = lib.autograd.grad(f(params, x).pow(2).mean(), params, create_graph=True)
    changed = [p - 0.01 * g for p, g in zip(params, first)]  # a step of MAML
    second = lib.autograd.grad(f(changed, x).pow(2).mean(), params)
    assert all(p.grad is None for p in model.parameters()) and params[0] is not model[0].weight
    return type(f).__name__, [p.requires_grad for p in params], [round(g.sum().item(), 2) for g in (*first, *second)]


@same_as_torch
def test_buffers_and_ensembles(lib):
    library, found = functorch(lib), []
    try:
        library.make_functional(network(lib, "BatchNorm1d"))
    except RuntimeError as error:
        found.append(str(error))
    f, params, buffers = library.make_functional_with_buffers(network(lib, "BatchNorm1d"), disable_autograd_tracking=True)
    found += [[p.requires_grad for p in params], len(buffers), tuple(f(params, buffers, lib.ones(5, 3)).shape)]
    f, params, buffers = library.combine_state_for_ensemble([lib.nn.Linear(3, 2) for _ in range(4)])
    return [*found, [(tuple(p.shape), p.requires_grad) for p in params], tuple(lib.vmap(f, in_dims=(0, 0, None))(params, buffers, lib.ones(5, 3)).shape)]
