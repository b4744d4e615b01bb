"""Gradients of each sample: call_for_per_sample_grads."""

import functools

from ... import Tensor
from ...autograd import Function
from ...func import functional_call, vmap
from ...utils._pytree import tree_leaves
from ..module import Module


class _OneForEachSample(Function):
    """A parameter once for each sample; what comes back becomes its grad_sample, and nothing its grad."""

    @staticmethod
    def forward(ctx, parameter, batch_size, factor):
        ctx.parameter, ctx.factor = parameter, factor
        return parameter.detach().expand(batch_size, *parameter.shape)

    @staticmethod
    def backward(ctx, grad):
        grad = grad * ctx.factor if ctx.factor != 1 else grad
        before = getattr(ctx.parameter, "grad_sample", None)
        ctx.parameter.grad_sample = grad if before is None else before + grad
        return None, None, None


def call_for_per_sample_grads(module, *, batch_size=None, loss_reduction="sum", batch_first=True):
    """A function that calls the module as usual; a backward pass of its result gives each parameter `grad_sample`, of shape (samples, *shape), and no `grad`.

    Each sample goes through the module by itself (func.vmap), so layers that mix samples are an error. batch_size: that of the tensors among the arguments unless given.
    loss_reduction: "mean" where the loss is the mean over the samples: gradients are those of each sample's own loss. batch_first=False: samples lie along dimension 1.
    """
    if loss_reduction not in ("sum", "mean"):
        raise RuntimeError(f"Expected loss_reduction argument to be sum or mean, got {loss_reduction}")
    if not isinstance(module, Module):
        raise RuntimeError(f"Module passed must be nn.Module, got {type(module).__name__}")
    if not (batch_size is None or isinstance(batch_size, int)):
        raise RuntimeError(f"Batch size passed must be None or an integer, got {type(batch_size).__name__}")
    if batch_size is not None and batch_size < 1:
        raise RuntimeError(f"Batch size must be positive, got {batch_size}")
    for name, parameter in module.named_parameters():
        if getattr(parameter, "grad_sample", None) is not None and parameter.requires_grad:
            raise RuntimeError("Current Expanded Weights accumulates the gradients, which will be incorrect for multiple calls without clearing gradients. "
                               f"Please clear out the grad_sample parameter of {name}: set it to None")
    dim = 0 if batch_first else 1

    @functools.wraps(module.forward)
    def call(*args, **kwargs):
        sizes = {leaf.size(dim) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)} if batch_size is None else {batch_size}
        if len(sizes) != 1:
            raise RuntimeError("When computing batch_size, found at least one input with batch size "
                               f"{' and one with '.join(map(str, sorted(sizes)))}: expected one" if sizes else
                               "Unable to find a tensor in the passed args and kwargs. They may not be pytree-able and so ExpandedWeights cannot compute the batch size from the inputs. Please specify it explicitly")  # fmt: skip
        (count,) = sizes
        factor = count if loss_reduction == "mean" else 1
        expanded = {name: _OneForEachSample.apply(p, count, factor) for name, p in module.named_parameters() if p.requires_grad}

        def one(parameters, args, kwargs):
            def batch_of_one(value):
                return _mapped(value, lambda t: t.unsqueeze(dim))

            result = functional_call(module, parameters, batch_of_one(args), batch_of_one(kwargs))
            return _mapped(result, lambda t: t.squeeze(dim))

        return vmap(one, in_dims=(0, _mapped(args, lambda t: dim, None), _mapped(kwargs, lambda t: dim, None)), out_dims=dim, randomness="different")(expanded, args, kwargs)

    return call


def _mapped(value, change, other=_OneForEachSample):
    """Nested containers with `change` of each tensor, and `other`, if given, in place of all else."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: _mapped(part, change, other) for key, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_mapped(part, change, other) for part in value)
    return value if other is _OneForEachSample else other
