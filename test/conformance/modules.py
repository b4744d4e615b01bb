"""The checks of one module: its constructor, state, forward pass, gradients and buffers in training and evaluation."""

import functools

import tapegrad
import torch
from torch.testing._internal import common_modules

from .compare import Failure, Skip, compare, expect_error, outcome
from .operators import _leaves, _weights
from .translate import Converter, Copier, Missing, convert, first_by_name, lookup, tensors_of

DTYPES = [torch.float32, torch.float64, torch.complex64, torch.bfloat16]
RANDOM = ("Dropout", "RReLU", "FractionalMaxPool")


@functools.cache
def database() -> dict:
    return first_by_name((info.name, info) for info in common_modules.module_db)


class Module:
    def __init__(self, name: str):
        self.name = name
        self.info = database()[name]
        path = name.removeprefix("torch.")
        self.ours = lookup(path if path.startswith("nn.") else f"nn.{path}")

    def checks(self, limit=None):
        dtypes = [d for d in DTYPES if d in self.info.dtypes]
        for dtype in dtypes[:1] if limit else dtypes:
            name = str(dtype).removeprefix("torch.")
            for training in (True, False) if self.info.train_and_eval_differ else (True,):
                torch.manual_seed(0)
                inputs = self.info.module_inputs_func(self.info, "cpu", dtype, dtype == torch.float64, training)
                for n, sample in enumerate(inputs):
                    if limit and n >= limit:
                        break
                    case = Case(self, sample, dtype, training)
                    which = f"{name}/{n}/{'train' if training else 'eval'}"
                    yield f"{which}/forward", case.forward
                    if dtype == torch.float64:
                        yield f"{which}/gradient", functools.partial(case.forward, gradients=True)
        if self.info.module_error_inputs_func is not None:
            for training in (True, False):
                errors = self.info.module_error_inputs_func(self.info, "cpu", torch.float32, False, training)
                for n, error in enumerate(errors):
                    yield f"error/{n}/{'train' if training else 'eval'}", functools.partial(self.error, error)

    def error(self, error):
        sample = error.module_error_input
        construct, forward = sample.constructor_input, sample.forward_input
        at_forward = error.error_on == common_modules.ModuleErrorEnum.FORWARD_ERROR

        def run(cls, give):
            module = cls(*give(list(construct.args)), **give(construct.kwargs))
            return module(*give(list(forward.args)), **give(forward.kwargs)) if at_forward else module

        expected = outcome(lambda: run(self.info.module_cls, Copier()))
        if not isinstance(expected, Exception):
            raise Skip("torch does not raise")
        expect_error(outcome(lambda: run(self.ours, convert)), expected)


class Case:
    def __init__(self, module: Module, sample, dtype, training: bool):
        self.module, self.sample, self.dtype, self.training = module, sample, dtype, training

    def build(self):
        construct = self.sample.constructor_input
        torch.manual_seed(0)
        theirs = self.module.info.module_cls(*construct.args, **construct.kwargs, **self.placement())
        theirs.train(self.training)
        mine = self.module.ours(*convert(list(construct.args)), **convert(construct.kwargs), **convert(self.placement()))
        mine.train(self.training)
        if self.module.info.is_lazy:
            return theirs, mine
        self.copy_state(theirs, mine)
        return theirs, mine

    def placement(self):
        has = self.sample.constructor_input.kwargs
        return {} if "dtype" in has else {"dtype": self.dtype} if self.takes_dtype() else {}

    def takes_dtype(self) -> bool:
        import inspect

        cls = self.module.info.module_cls
        return "dtype" in inspect.signature(cls.__init__).parameters or issubclass(cls, torch.nn.RNNBase)

    def copy_state(self, theirs, mine):
        expected, got = theirs.state_dict(), mine.state_dict()
        if list(expected) != list(got):
            raise Failure(f"state {list(got)}, torch {list(expected)}")
        for key, value in expected.items():
            if tuple(got[key].shape) != tuple(value.shape):
                raise Failure(f"{key} has shape {tuple(got[key].shape)}, torch {tuple(value.shape)}")
        mine.load_state_dict({k: convert(v.detach().clone()) for k, v in expected.items()})

    def forward(self, gradients=False):
        arguments = self.sample.forward_input
        try:
            theirs, mine = self.build()
        except Missing as error:
            raise Skip(str(error)) from error
        if self.module.info.is_lazy:
            theirs(*Copier()(list(arguments.args)), **Copier()(arguments.kwargs))
            mine(*convert(list(arguments.args)), **convert(arguments.kwargs))
            self.copy_state(theirs, mine)
        their_inputs = Copier()([list(arguments.args), arguments.kwargs])
        my_inputs = Converter()([list(arguments.args), arguments.kwargs])
        torch.manual_seed(0)
        expected = outcome(lambda: theirs(*their_inputs[0], **their_inputs[1]))
        if isinstance(expected, Exception):
            raise Skip(f"torch: {expected}")
        got = mine(*my_inputs[0], **my_inputs[1])
        random = any(w in self.module.name for w in RANDOM) and self.training
        dropout = getattr(theirs, "dropout", 0)
        random |= self.training and (isinstance(dropout, float) and dropout > 0 or "Transformer" in self.module.name)
        compare(got, expected, values=not random)
        if random:
            return
        compare(dict(mine.state_dict()), dict(theirs.state_dict()), "state afterwards: ")
        if gradients:
            self.gradients(theirs, mine, their_inputs, my_inputs, expected, got)

    def gradients(self, theirs, mine, their_inputs, my_inputs, expected, got):
        results = [t for t in tensors_of(expected) if t.requires_grad]
        leaves = _leaves(their_inputs, torch.Tensor) + list(theirs.parameters())
        if not results or not leaves:
            raise Skip("nothing to differentiate")
        weights = [_weights(t, i) for i, t in enumerate(results)]
        wanted = torch.autograd.grad(results, leaves, weights, allow_unused=True)
        my_results = [t for t in tensors_of(got, tapegrad.Tensor) if t.requires_grad]
        my_leaves = _leaves(my_inputs, tapegrad.Tensor) + list(mine.parameters())
        if len(my_results) != len(results):
            raise Failure(f"{len(my_results)} results carry gradients, torch {len(results)}")
        gradients = tapegrad.autograd.grad(my_results, my_leaves, [convert(w) for w in weights], allow_unused=True)
        for i, (g, e, leaf) in enumerate(zip(gradients, wanted, leaves)):
            e = torch.zeros_like(leaf) if e is None else e
            g = tapegrad.zeros(tuple(leaf.shape), dtype=convert(leaf.dtype)) if g is None else g
            compare(g, e, f"gradient {i}: ")
