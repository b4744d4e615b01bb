"""Functions of layers and losses: rows of the operator table, and names that PyTorch keeps here, too."""

from __future__ import annotations

import functools as _functools
import warnings as _warnings

from .._C import _functions
from .._overloads import overridable as _overridable
from ._extra_functional import linear_cross_entropy, triplet_margin_with_distance_loss  # noqa: F401
from ._multihead import multi_head_attention_forward  # noqa: F401

_table = _functions["nn.functional"]
_unfold = _functions["_C._ops"]["_unfold_image"]
globals().update(_table)

# Rows of the root module that are also found here.
_ALSO_HERE = ("tanh", "sigmoid", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "conv_tbc", "cosine_similarity",
              "pairwise_distance", "celu_", "selu_", "rrelu", "rrelu_", "pdist")
globals().update((name, _functions[""][name]) for name in _ALSO_HERE if name in _functions[""] and name not in _table)

# Losses whose old arguments size_average and reduce still appear in scripts.
_LOSSES = ("binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_embedding_loss", "cross_entropy", "ctc_loss",
           "hinge_embedding_loss", "kl_div", "l1_loss", "margin_ranking_loss", "mse_loss", "multi_margin_loss",
           "multilabel_margin_loss", "multilabel_soft_margin_loss", "nll_loss", "poisson_nll_loss", "smooth_l1_loss",
           "soft_margin_loss", "triplet_margin_loss")


def _reduction_of(size_average, reduce) -> str:
    """The reduction that the two old flags stand for."""
    average = True if size_average is None else size_average
    reduce = True if reduce is None else reduce
    return ("mean" if average else "sum") if reduce else "none"


def _with_old_flags(name: str, function):
    @_functools.wraps(function, assigned=("__name__", "__doc__"))
    def loss(*args, size_average=None, reduce=None, **kwargs):
        if size_average is not None or reduce is not None:
            kwargs["reduction"] = _reduction_of(size_average, reduce)
            _warnings.warn(f"{name}: size_average and reduce are old: use reduction={kwargs['reduction']!r}", stacklevel=3)
        return function(*args, **kwargs)

    loss.__module__ = __name__
    return loss


globals().update((name, _with_old_flags(name, _table[name])) for name in _LOSSES if name in _table)


def _with_indices(name: str, plain, both):
    """PyTorch's form of a pooling: return_indices chooses between two rows of the table."""
    def pool(*args, return_indices=False, **kwargs):
        return (both if return_indices else plain)(*args, **kwargs)

    pool.__name__ = pool.__qualname__ = name
    pool.__module__ = __name__
    pool.__doc__ = plain.__doc__
    return pool


def _adaptive(name: str, plain, both):
    """Adaptive pooling: None in output_size stands for the input's size, which the table writes as -1."""
    ndim = int(name.partition("pool")[2][0])

    def sizes(input, output_size):
        given = output_size if isinstance(output_size, (tuple, list)) else [output_size] * ndim
        if input.dim() <= ndim:
            raise ValueError(f"{name}: input must have {ndim + 1} or {ndim + 2} dimensions: got shape {list(input.shape)}")
        if len(given) != ndim or any(size is not None and size < 0 for size in given):
            raise RuntimeError(f"{name}: output_size must be {ndim} numbers that are not negative: got {output_size}")
        return [-1 if size is None else size for size in given]

    if both:
        def pool(input, output_size, return_indices=False):
            return (both if return_indices else plain)(input, sizes(input, output_size))
    else:
        def pool(input, output_size):
            return plain(input, sizes(input, output_size))

    pool.__name__ = pool.__qualname__ = name
    pool.__module__ = __name__
    pool.__doc__ = plain.__doc__
    return pool


for _name in [n for n in _table if n.endswith("_with_indices") and not n.startswith("fractional")]:
    _plain = _name.removesuffix("_with_indices")
    _make = _adaptive if _plain.startswith("adaptive") else _with_indices
    globals()[_plain] = _make(_plain, _table[_plain], _table[_name])
for _name in [n for n in _table if n.startswith("adaptive") and (n.endswith("_with_indices") or "avg" in n)]:
    globals()[_name] = _adaptive(_name, _table[_name], None)


def _fractional(name: str, both):
    """Fractional pooling: return_indices chooses what is given back."""
    def pool(input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None):
        if isinstance(output_ratio, float):
            output_ratio = [output_ratio]
        values, indices = both(input, kernel_size, output_size, output_ratio, _random_samples=_random_samples)
        return (values, indices) if return_indices else values

    pool.__name__ = pool.__qualname__ = name
    pool.__module__ = __name__
    pool.__doc__ = both.__doc__
    return pool


for _name in ("fractional_max_pool2d", "fractional_max_pool3d"):
    globals()[_name] = _fractional(_name, _table[_name + "_with_indices"])


def unfold(input, kernel_size, dilation=1, padding=0, stride=1):
    """The patches of images (N, C, H, W) or (C, H, W) as columns: (N, C kernel, L) or (C kernel, L)."""
    return _unfold(input, kernel_size, dilation, padding, stride)


def _default_dim(name: str, ndim: int) -> int:
    _warnings.warn(f"{name}: the implicit choice of dim is old: give dim", stacklevel=4)
    return 0 if ndim in (0, 1, 3) else 1


def softmax(input, dim=None, _stacklevel=3, dtype=None):
    """exp(x) / sum(exp(x)) along `dim`; without it, dimension 0 of 0-, 1- and 3-dimensional tensors and 1 of others."""
    return input.softmax(_default_dim("softmax", input.dim()) if dim is None else dim, dtype=dtype)


def log_softmax(input, dim=None, _stacklevel=3, dtype=None):
    """log(softmax(x)) along `dim`, computed without overflow; without `dim`, as softmax chooses it."""
    return input.log_softmax(_default_dim("log_softmax", input.dim()) if dim is None else dim, dtype=dtype)


def softmin(input, dim=None, _stacklevel=3, dtype=None):
    """softmax of -x along `dim`."""
    return (-input).softmax(_default_dim("softmin", input.dim()) if dim is None else dim, dtype=dtype)


native_channel_shuffle = _functions[""].get("channel_shuffle")


def gumbel_softmax(logits, tau=1, hard=False, eps=1e-10, dim=-1):
    """Samples of the Gumbel-Softmax distribution: softmax((logits + Gumbel noise) / tau) along `dim`.

    `hard`: one-hot in forward, with the gradient of the soft sample. Source: Jang, Gu, Poole, "Categorical
    reparameterization with Gumbel-Softmax", 2017, equation 2.
    """
    from .. import empty_like, zeros_like

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


def grouped_mm(mat_a, mat_b, *, offs=None, bias=None, out_dtype=None):
    """Matrix products of groups: mat_a (G, M, K) or (M, K), mat_b (G, K, N) or (K, N).

    Where an operand has two dimensions its groups lie side by side and `offs` (G,) says where each ends: rows of mat_a, columns of
    mat_b or, if both have two dimensions, parts of K, and the result is (G, M, N). Rows or columns behind the last end are zeros.
    """
    from .. import bmm, cat, stack

    if not (2 <= mat_a.dim() <= 3 and 2 <= mat_b.dim() <= 3):
        raise ValueError(f"grouped_mm: expected operands with two or three dimensions: got {mat_a.dim()} and {mat_b.dim()}")
    if bias is not None:
        raise RuntimeError("grouped_mm: bias is not supported yet")
    if mat_a.dim() == 3 and mat_b.dim() == 3:
        if offs is not None:
            raise ValueError("grouped_mm: offs goes with an operand of two dimensions only")
        result = bmm(mat_a, mat_b)
        return result if out_dtype is None else result.to(out_dtype)
    if offs is None:
        raise ValueError("grouped_mm: an operand of two dimensions needs offs")
    ends = offs.tolist()
    spans = list(zip([0, *ends[:-1]], ends, strict=True))
    whole = mat_a.size(0) if mat_b.dim() == 3 else mat_b.size(1) if mat_a.dim() == 3 else mat_a.size(1)
    groups = mat_b.size(0) if mat_b.dim() == 3 else mat_a.size(0) if mat_a.dim() == 3 else len(spans)
    if groups != len(spans) or any(not 0 <= a <= b <= whole for a, b in spans):
        raise ValueError(f"grouped_mm: expected {groups} ascending ends up to {whole} in offs: got {ends}")
    if mat_a.dim() == 2 and mat_b.dim() == 2:
        result = stack([mat_a[:, a:b] @ mat_b[a:b] for a, b in spans])
    elif mat_a.dim() == 2:
        parts = [mat_a[a:b] @ mat_b[g] for g, (a, b) in enumerate(spans)]
        result = cat([*parts, mat_a.new_zeros(whole - ends[-1], mat_b.size(2))])
    else:
        parts = [mat_a[g] @ mat_b[:, a:b] for g, (a, b) in enumerate(spans)]
        result = cat([*parts, mat_b.new_zeros(mat_a.size(1), whole - ends[-1])], dim=1)
    return result if out_dtype is None else result.to(out_dtype)


for _name, _function in list(globals().items()):
    if isinstance(_function, type(_reduction_of)) and not _name.startswith("_") and _name not in ("boolean_dispatch", "assert_int_or_pair"):
        globals()[_name] = _overridable(_function)


def __getattr__(name: str):
    if name in _FROM_OTHERS:
        import importlib

        return getattr(importlib.import_module(_FROM_OTHERS[name], __name__.rpartition(".nn.")[0]), name)
    from .._hints import no_attribute

    raise no_attribute(__name__, name, __dir__())


def __dir__():
    return sorted(name for name in globals() if not name.startswith("_"))
