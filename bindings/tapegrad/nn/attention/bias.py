"""Causal masks for scaled_dot_product_attention, aligned at the upper left or the lower right corner."""

import enum

from ... import _C, Tensor, ones
from ... import bool as bool_
from ..._warn import warn

__all__ = ["CausalBias", "CausalVariant", "causal_lower_right", "causal_upper_left"]


class CausalVariant(enum.IntEnum):
    """Where the diagonal starts: at the first query and key, or so that it ends at the last ones."""

    UPPER_LEFT = 1
    LOWER_RIGHT = 2


class CausalBias(Tensor):
    """The bool mask (seq_len_q, seq_len_kv) of causal attention. With LOWER_RIGHT and more queries than keys the first queries see
    nothing. Operators give plain tensors."""

    __torch_function__ = _C._disabled_torch_function_impl

    def __new__(cls, variant: CausalVariant, seq_len_q: int, seq_len_kv: int):
        if not isinstance(variant, CausalVariant):
            raise AssertionError(f"variant must be a CausalVariant, got {type(variant).__name__}")
        diagonal = 0 if variant == CausalVariant.UPPER_LEFT else seq_len_kv - seq_len_q
        return Tensor._make_subclass(cls, ones(seq_len_q, seq_len_kv, dtype=bool_).tril(diagonal))

    def __init__(self, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> None:
        self.variant = variant
        self.seq_len_q = seq_len_q
        self.seq_len_kv = seq_len_kv
        if seq_len_q > seq_len_kv and variant == CausalVariant.LOWER_RIGHT:
            warn("Lower right causal bias will produce NaNs in the output when seq_len_q > seq_len_kv!")


def _sizes(name: str, size: tuple) -> tuple[int, int]:
    if len(size) != 2:
        raise AssertionError(f"{name} only supports 2D tensors")
    return size


def causal_upper_left(*size: int) -> CausalBias:
    """The mask of `size` = (queries, keys) in which query i sees the keys up to i."""
    return CausalBias(CausalVariant.UPPER_LEFT, *_sizes("causal_upper_left", size))


def causal_lower_right(*size: int) -> CausalBias:
    """The mask of `size` = (queries, keys) in which the last query sees all keys, the one before all but the last, and so on."""
    return CausalBias(CausalVariant.LOWER_RIGHT, *_sizes("causal_lower_right", size))
