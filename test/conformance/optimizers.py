"""The checks of one optimizer: parameters after each of some steps, with every setting that the database names."""

import functools

import torch
from torch.testing._internal import common_optimizers

from .compare import Skip, compare, expect_error, outcome
from .translate import Copier, convert, lookup

STEPS = 6
LOCAL = ("foreach", "fused", "capturable", "differentiable")


@functools.cache
def database() -> dict:
    return {info.name: info for info in common_optimizers.optim_db}


class Optimizer:
    def __init__(self, name: str):
        self.name = name
        self.info = database()[name]
        self.ours = lookup(f"optim.{name}")

    def checks(self, limit=None):
        for dtype in (torch.float32, torch.float64):
            for n, given in enumerate(self.info.optim_inputs_func("cpu")):
                name = f"{str(dtype).removeprefix('torch.')}/{n}/{given.desc.replace(' ', '-')}"
                yield name, functools.partial(self.steps, dtype, given.kwargs)
                for flag in ("foreach", "fused"):
                    if flag in self.info.supported_impls and dtype == torch.float32 and flag not in given.kwargs:
                        yield f"{name}/{flag}", functools.partial(self.steps, dtype, {**given.kwargs, flag: True})
        if self.info.optim_error_inputs_func is not None:
            for n, error in enumerate(self.info.optim_error_inputs_func("cpu", torch.float32)):
                yield f"error/{n}", functools.partial(self.error, error)

    def parameters(self, dtype):
        generator = torch.Generator().manual_seed(0)
        return [torch.randn(shape, generator=generator, dtype=dtype) for shape in ((5, 3), (7,), ())]

    def run(self, cls, dtype, kwargs, give):
        if self.info.only_supports_sparse_grads:
            return self.run_sparse(cls, dtype, kwargs, give)
        params = [give(p).requires_grad_(True) for p in self.parameters(dtype)]
        optimizer = cls(params, **give(kwargs))
        generator = torch.Generator().manual_seed(1)
        history = []
        for _ in range(STEPS):
            for p in params:
                p.grad = give(torch.randn(tuple(p.shape), generator=generator, dtype=dtype))
            optimizer.step((lambda: params[0].sum()) if self.info.step_requires_closure else None)
            history.append([p.detach().clone() for p in params])
        return history

    def run_sparse(self, cls, dtype, kwargs, give):
        param = give(self.parameters(dtype)[0]).requires_grad_(True)
        optimizer = cls([param], **give(kwargs))
        generator = torch.Generator().manual_seed(1)
        history = []
        for _ in range(STEPS):
            values = torch.randn((2, 3), generator=generator, dtype=dtype)
            param.grad = give(torch.sparse_coo_tensor(torch.tensor([[0, 3]]), values, (5, 3)))
            optimizer.step()
            history.append([param.detach().clone()])
        return history

    def steps(self, dtype, kwargs):
        expected = outcome(lambda: self.run(self.info.optim_cls, dtype, kwargs, Copier()))
        if isinstance(expected, Exception):
            raise Skip(f"torch: {expected}")
        compare(self.run(self.ours, dtype, kwargs, convert), expected)

    def error(self, error):
        given = error.optimizer_error_input
        at_construction = error.error_on == common_optimizers.OptimizerErrorEnum.CONSTRUCTION_ERROR

        def run(cls, give):
            params = [torch.zeros(2, 3, requires_grad=True)] if given.params is None else given.params
            optimizer = cls(give(params), **give(given.kwargs))
            if not at_construction:
                optimizer.step()

        expected = outcome(lambda: run(self.info.optim_cls, Copier()))
        if not isinstance(expected, Exception):
            raise Skip("torch does not raise")
        expect_error(outcome(lambda: run(self.ours, convert)), expected)
