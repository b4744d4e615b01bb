"""Functions of nn.functional that take more than tensors and numbers, and are therefore no rows of the operator table."""

import math
from enum import IntEnum as _IntEnum

from .. import _C, Tensor, clamp_min, minimum, pairwise_distance
from .._root.overloads import overridable

_table = _C._functions["nn.functional"]


@overridable
def linear_cross_entropy(input: Tensor, linear_weight: Tensor, target: Tensor, *, linear_bias=None, weight=None,
                         reduction: str = "mean", ignore_index: int | None = None, label_smoothing: float = 0.0, options=None):
    """cross_entropy of linear(input, linear_weight, linear_bias): input (N, I) or (I), weight (C, ..., I), with further
    dimensions of the loss in the middle. `options` chooses PyTorch's ways of saving memory and has no effect."""
    if not 1 <= input.dim() <= 2:
        raise RuntimeError(f"expected input with dimensionality 1 or 2, got {input.dim()}")
    if linear_weight.dim() < 2:
        raise RuntimeError(f"expected linear_weight with dimensionality at least 2, got {linear_weight.dim()}")
    batch, features = tuple(input.shape[:-1]), input.shape[-1]
    if features != linear_weight.shape[-1]:
        raise RuntimeError("expected equal input and linear_weight last dimensions (in_features), got "
                           f"{features} and {linear_weight.shape[-1]}, respectively")
    outputs = tuple(linear_weight.shape[:-1])
    if linear_bias is not None and tuple(linear_bias.shape) != outputs:
        raise RuntimeError(f"expected linear_bias shape {outputs}, got {tuple(linear_bias.shape)}")
    if len(outputs) > 1 and not batch:
        raise RuntimeError(f"K-dimensional loss defined by linear_weight shape {tuple(linear_weight.shape)} requires batched input, "
                           f"(N, {features}), got unbatched input with shape {tuple(input.shape)}")
    if tuple(target.shape) == (*batch, *outputs) and ignore_index is not None:
        raise RuntimeError("ignore_index cannot be specified when target contains probabilities")
    if len(outputs) > 1:
        linear_weight = linear_weight.reshape(math.prod(outputs), features)
        linear_bias = None if linear_bias is None else linear_bias.reshape(math.prod(outputs))
    if batch and target.dim() > 0 and target.shape[0] != batch[0]:
        raise ValueError(f"expected input batch_size ({batch[0]}) to match target batch_size ({target.shape[0]})")
    logits = _table["linear"](input, linear_weight, linear_bias).reshape(*batch, *outputs)
    return _table["cross_entropy"](logits, target, weight=weight, reduction=reduction, label_smoothing=label_smoothing,
                                   ignore_index=-100 if ignore_index is None else ignore_index)


@overridable
def triplet_margin_with_distance_loss(anchor: Tensor, positive: Tensor, negative: Tensor, *, distance_function=None,
                                      margin: float = 1.0, swap: bool = False, reduction: str = "mean"):
    """max(0, margin + d(anchor, positive) - d(anchor, negative)) for any distance d (pairwise_distance where None)."""
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    dims = [t.dim() for t in (anchor, positive, negative)]
    if len(set(dims)) > 1:
        raise RuntimeError("The anchor, positive, and negative tensors are expected to have the same number of dimensions, but got: "
                           f"anchor {dims[0]}D, positive {dims[1]}D, and negative {dims[2]}D inputs")
    distance = distance_function if distance_function is not None else pairwise_distance
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = minimum(far, distance(positive, negative))
    loss = clamp_min(margin + near - far, 0)
    return loss if reduction == "none" else loss.sum() if reduction == "sum" else loss.mean()


ScalingType = _IntEnum("ScalingType", "TensorWise RowWise BlockWise1x16 BlockWise1x32 BlockWise1x128 BlockWise128x128", start=0, module=__name__)
ScalingType.__doc__ = "How an operand of `scaled_mm` is scaled."
SwizzleType = _IntEnum("SwizzleType", "NO_SWIZZLE SWIZZLE_32_4_4", start=0, module=__name__)
SwizzleType.__doc__ = "In which order scales of blocks lie."


def scaled_mm(mat_a, mat_b, scale_a, scale_recipe_a, scale_b, scale_recipe_b, swizzle_a=None, swizzle_b=None, bias=None, output_dtype=None,
              contraction_dim=(), use_fast_accum=False):
    """(mat_a scale_a) @ (mat_b scale_b) + bias of matrices of float8, in output_dtype (bfloat16). Scales are float32: one number (TensorWise), or one
    per row of mat_a, (M, 1), and one per column of mat_b, (1, N) (RowWise). Scales of blocks raise NotImplementedError.

    The factors are exact in float32, in which products are made and added up, on every device; `use_fast_accum` changes nothing. No gradient."""
    from .. import bfloat16, float32, no_grad

    given = []
    for name, m, scale, recipe, swizzle, whole in (("a", mat_a, scale_a, scale_recipe_a, swizzle_a, (mat_a.shape[0], 1)),
                                                   ("b", mat_b, scale_b, scale_recipe_b, swizzle_b, (1, mat_b.shape[-1]))):
        (scale,), (recipe,) = (x if isinstance(x, (list, tuple)) else [x] for x in (scale, recipe))
        if recipe not in (ScalingType.TensorWise, ScalingType.RowWise) or swizzle not in (None, [], SwizzleType.NO_SWIZZLE, [SwizzleType.NO_SWIZZLE]):
            raise NotImplementedError(f"scaled_mm: scale_recipe_{name} is TensorWise or RowWise: scales of blocks are not supported: got {ScalingType(recipe).name}")
        sizes = "one number" if recipe == ScalingType.TensorWise else str(list(whole))
        if m.dim() != 2 or m.itemsize != 1 or not m.is_floating_point():
            raise ValueError(f"scaled_mm: mat_{name} must be a matrix of float8: got {m.dtype} of shape {list(m.shape)}")
        if scale.dtype != float32 or (scale.numel() != 1 if recipe == ScalingType.TensorWise else tuple(scale.shape) != whole):
            raise ValueError(f"scaled_mm: scale_{name} of {ScalingType(recipe).name} must be float32, {sizes}: got {scale.dtype} of shape {list(scale.shape)}")
        given.append((m, scale))
    if contraction_dim not in ((), [], (1, 0), [1, 0]):
        raise NotImplementedError(f"scaled_mm: contraction_dim is that of a matrix product: got {contraction_dim}")
    if mat_a.shape[1] != mat_b.shape[0]:
        raise RuntimeError(f"scaled_mm: mat_a and mat_b cannot be multiplied: got {list(mat_a.shape)} and {list(mat_b.shape)}")
    with no_grad():
        (a, scale_a), (b, scale_b) = given
        made = (a.to(float32) @ b.to(float32)) * scale_a * scale_b
        if bias is not None:
            made = made + bias
        return made.to(bfloat16 if output_dtype is None else output_dtype)
