"""Functions of layers and losses: rows of the operator table, and names that PyTorch keeps here, too."""

import functools as _functools

from .._C import _functions
from .._root.overloads import overridable as _overridable
from .._warn import warn as _warn
from ._extra_functional import (  # noqa: F401
    ScalingType,
    SwizzleType,
    linear_cross_entropy,
    scaled_grouped_mm,
    scaled_mm,
    triplet_margin_with_distance_loss,
)
from ._multihead import multi_head_attention_forward  # noqa: F401

globals().update(_functions["nn.functional"])


@_overridable
def gumbel_softmax(logits, tau=1, hard=False, eps=1e-10, dim=-1):
    """Samples of the Gumbel-Softmax distribution: softmax((logits + Gumbel noise) / tau) along `dim`.

    `hard`: one-hot in forward, with the gradient of the soft sample. Source: Jang, Gu, Poole, "Categorical
    reparameterization with Gumbel-Softmax", 2017, equation 2.
    """
    from .. import empty_like, zeros_like

    if eps != 1e-10:
        _warn("`eps` parameter is deprecated and has no effect.")
    gumbels = -empty_like(logits).exponential_().log()
    soft = ((logits + gumbels) / tau).softmax(dim)
    if not hard:
        return soft
    index = soft.max(dim, keepdim=True)[1]
    return zeros_like(logits).scatter_(dim, index, 1.0) - soft.detach() + soft


# Names that PyTorch's module imports and other programs find there.
_FROM_OTHERS = {"conv_tbc": "._root", "handle_torch_function": ".overrides", "has_torch_function": ".overrides",
                "has_torch_function_unary": ".overrides", "has_torch_function_variadic": ".overrides"}
GRID_SAMPLE_INTERPOLATION_MODES = {"bilinear": 0, "nearest": 1, "bicubic": 2}
GRID_SAMPLE_PADDING_MODES = {"zeros": 0, "border": 1, "reflection": 2}


def boolean_dispatch(arg_name, arg_index, default, if_true, if_false, module_name, func_name):
    """A function that calls if_true or if_false by its argument `arg_name`, at place `arg_index` or by name."""
    @_functools.wraps(if_true)
    def fn(*args, **kwargs):
        flag = args[arg_index] if arg_index < len(args) else kwargs.get(arg_name, default)
        return (if_true if flag else if_false)(*args, **kwargs)

    fn.__module__, fn.__name__ = module_name or __name__, func_name or fn.__name__
    return fn


def assert_int_or_pair(arg, arg_name: str, message: str) -> None:
    """Raises AssertionError unless `arg` is a number or has two elements."""
    if not (isinstance(arg, int) or len(arg) == 2):
        raise AssertionError(message.format(arg_name))


@_overridable
def grouped_mm(mat_a, mat_b, *, offs=None, bias=None, out_dtype=None):
    """Matrix products of groups: mat_a (G, M, K) or (M, K), mat_b (G, K, N) or (K, N).

    Where an operand has two dimensions its groups lie side by side and `offs` (G,) says where each ends: rows of mat_a, columns of
    mat_b or, if both have two dimensions, parts of K, and the result is (G, M, N). Rows or columns behind the last end are zeros.
    """
    from .. import _grouped_mm

    return _grouped_mm(mat_a, mat_b, offs, bias, out_dtype)


def __getattr__(name: str):
    if name in _FROM_OTHERS:
        import importlib

        return getattr(importlib.import_module(_FROM_OTHERS[name], __name__.rpartition(".nn.")[0]), name)
    from .._hints import no_attribute

    raise no_attribute(__name__, name, __dir__())


def __dir__():
    return sorted(name for name in globals() if not name.startswith("_"))
