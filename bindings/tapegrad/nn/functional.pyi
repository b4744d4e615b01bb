"""Types of functions of layers and losses: those of the op table, and what this module adds."""

from typing import Any

from .._C import Tensor
from .._stubs.nn_functional import *
from ._extra_functional import ScalingType as ScalingType
from ._extra_functional import SwizzleType as SwizzleType
from ._extra_functional import linear_cross_entropy as linear_cross_entropy
from ._extra_functional import scaled_grouped_mm as scaled_grouped_mm
from ._extra_functional import scaled_mm as scaled_mm
from ._extra_functional import triplet_margin_with_distance_loss as triplet_margin_with_distance_loss
from ._multihead import multi_head_attention_forward as multi_head_attention_forward

GRID_SAMPLE_INTERPOLATION_MODES: dict[str, int]
GRID_SAMPLE_PADDING_MODES: dict[str, int]

def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """Samples of the Gumbel-Softmax distribution: softmax((logits + Gumbel noise) / tau) along dim."""
def grouped_mm(mat_a: Tensor, mat_b: Tensor, *, offs: Tensor | None = None, bias: Tensor | None = None, out_dtype: Any = None) -> Tensor:
    """Matrix products of groups: mat_a (G, M, K) or (M, K), mat_b (G, K, N) or (K, N)."""
def boolean_dispatch(arg_name: str, arg_index: int, default: bool, if_true: Any, if_false: Any, module_name: str, func_name: str) -> Any: ...
def assert_int_or_pair(arg: Any, arg_name: str, message: str) -> None: ...
