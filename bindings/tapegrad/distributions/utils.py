"""Helpers of the distributions."""

from functools import update_wrapper
from numbers import Number
from operator import attrgetter

import tapegrad

__all__ = ["broadcast_all", "clamp_probs", "lazy_property", "logits_to_probs", "probs_to_logits", "tril_matrix_to_vec", "vec_to_tril_matrix"]

euler_constant = 0.57721566490153286060


def broadcast_all(*values):
    """The values as tensors of one shape; numbers take dtype and device of the first tensor. ValueError for anything else."""
    if not all(isinstance(v, (tapegrad.Tensor, Number)) for v in values):
        raise ValueError("Input arguments must all be instances of Number, tapegrad.Tensor: got "
                         + ", ".join(type(v).__name__ for v in values))
    like = next((v for v in values if isinstance(v, tapegrad.Tensor)), None)
    options = {"dtype": tapegrad.get_default_dtype()} if like is None else {"dtype": like.dtype, "device": like.device}
    return tuple(tapegrad.broadcast_tensors(*(v if isinstance(v, tapegrad.Tensor) else tapegrad.tensor(v, **options) for v in values)))


def same_as(path: str):
    """A property that is another attribute of the object, such as `loc` or `base_dist.loc`."""
    return property(attrgetter(path), doc=f"The same as `{path}`.")


def _standard_normal(shape, dtype, device):
    return tapegrad.empty(shape, dtype=dtype, device=device).normal_()


def open_uniform(shape, like):
    """Numbers in (0, 1), both ends left out, of the dtype and device of a tensor."""
    return clamp_tiny(tapegrad.rand(shape, dtype=like.dtype, device=like.device))


def clamp_tiny(t):
    """The values, at least the least positive normal number of their dtype."""
    return t.clamp(min=tapegrad.finfo(t.dtype).tiny)


def _softplus(x):
    return tapegrad.nn.functional.softplus(x)  # whose package is loaded when it is needed


def _sum_rightmost(value, dim: int):
    """The sum over the last `dim` dimensions."""
    return value if dim == 0 else value.reshape(value.shape[:-dim] + (-1,)).sum(-1)


def logits_to_probs(logits, is_binary: bool = False):
    """Probabilities of log odds (binary), or of logarithms along the last dimension, normalised or not."""
    return logits.sigmoid() if is_binary else logits.softmax(-1)


def clamp_probs(probs):
    """Probabilities kept off 0 and 1 by the dtype's epsilon."""
    eps = tapegrad.finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def probs_to_logits(probs, is_binary: bool = False):
    """Log odds (binary) or logarithms of probabilities."""
    probs = clamp_probs(probs)
    return probs.log() - (-probs).log1p() if is_binary else probs.log()


class lazy_property:
    """A property that is computed once, with the tape on, and then is an attribute of the object."""

    def __init__(self, wrapped):
        self.wrapped = wrapped
        update_wrapper(self, wrapped)

    def __get__(self, instance, owner=None):
        if instance is None:
            return self
        with tapegrad.enable_grad():
            value = self.wrapped(instance)
        setattr(instance, self.wrapped.__name__, value)
        return value


def tril_matrix_to_vec(mat, diag: int = 0):
    """The entries on and below a diagonal of square matrices, row by row."""
    n = mat.shape[-1]
    if not -n <= diag < n:
        raise ValueError(f"tril_matrix_to_vec: diag ({diag}) is outside [{-n}, {n - 1}]")
    row, column = tapegrad.tril_indices(n, n, diag, device=mat.device)
    return mat[..., row, column]


def vec_to_tril_matrix(vec, diag: int = 0):
    """Square matrices whose entries on and below a diagonal are those of the last dimension, row by row; zero elsewhere."""
    count = vec.shape[-1]
    # count = n (n + 1 + 2 diag) / 2 - diag (diag + 1) / 2 for diag > 0 (a corner is missing), and likewise below.
    n = round((-(1 + 2 * diag) + ((1 + 2 * diag) ** 2 + 8 * count + 4 * abs(diag) * (diag + 1)) ** 0.5) / 2)
    row, column = tapegrad.tril_indices(n, n, diag, device=vec.device)
    if row.numel() != count:
        raise ValueError(f"vec_to_tril_matrix: the last dimension's size {count} is not that of the lower triangle of a square matrix")
    matrix = vec.new_zeros(vec.shape[:-1] + (n * n,))
    at = (row * n + column).expand(vec.shape)
    return matrix.scatter(-1, at, vec).view(vec.shape[:-1] + (n, n))
