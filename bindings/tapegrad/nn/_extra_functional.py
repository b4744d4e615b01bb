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


_PARTS = {ScalingType.BlockWise1x32: 32, ScalingType.BlockWise1x128: 128, ScalingType.BlockWise128x128: 128}  # terms that share a scale


def _of_terms(name: str, scale: Tensor, recipe, lines: int, terms: int, swizzled: bool) -> Tensor:
    """Scales of parts of a row (column) as rows by parts, from the layout in which PyTorch takes them: that of the device's library."""
    from .. import float8_e8m0fnu, float32

    part = _PARTS[recipe]
    parts, micro = -(-terms // part), part == 32
    rows, columns = (-(-lines // 128) * 128, -(-parts // 4) * 4) if micro else (-(-parts // 4) * 4, -(-lines // 128)) if recipe == ScalingType.BlockWise128x128 else (lines, parts)
    wanted, dtype = f"{rows * columns} elements" if micro else str([rows, columns]), float8_e8m0fnu if micro else float32
    if scale.dtype != dtype or (scale.numel() != rows * columns if micro else tuple(scale.shape) != (rows, columns)) or swizzled != micro:
        raise ValueError(f"scaled_mm: scale_{name} of {recipe.name} must be {dtype}, {wanted}, {'swizzled' if micro else 'not swizzled'}: got {scale.dtype} of shape {list(scale.shape)}")
    if micro:  # tiles of 128 lines and 4 parts; in each, four lines that are 32 apart lie next to each other
        tiles = scale.reshape(rows // 128, columns // 4, 32, 4, 4)
        return tiles.permute(0, 3, 2, 1, 4).reshape(rows, columns)[:lines, :parts]
    return scale[:parts].t() if recipe == ScalingType.BlockWise128x128 else scale


def scaled_mm(mat_a, mat_b, scale_a, scale_recipe_a, scale_b, scale_recipe_b, swizzle_a=None, swizzle_b=None, bias=None, output_dtype=None,
              contraction_dim=(), use_fast_accum=False):
    """(mat_a scale_a) @ (mat_b scale_b) + bias of matrices of float8, in output_dtype (bfloat16). Scales are float32: one number (TensorWise), or one
    per row of mat_a, (M, 1), and one per column of mat_b, (1, N) (RowWise); or of blocks, in PyTorch's layouts: for 128 terms of each row, (M, ceil(K / 128)),
    and column, (N, ceil(K / 128)) (BlockWise1x128), for 128 terms of 128 of them, (ceil(K / 128) up to a multiple of 4, ceil(M / 128)) (BlockWise128x128), or
    powers of two for 32 terms, swizzled (BlockWise1x32).

    The factors are exact, and sums are float32, but where a device has instructions for float8 and `use_fast_accum` is set. No gradient."""
    from .. import _scaled_mm, bfloat16, float32

    given = []
    for name, m, scale, recipe, swizzle, whole in (("a", mat_a, scale_a, scale_recipe_a, swizzle_a, (mat_a.shape[0], 1)),
                                                   ("b", mat_b, scale_b, scale_recipe_b, swizzle_b, (1, mat_b.shape[-1]))):
        scales, recipes, swizzles = (list(x) if isinstance(x, (list, tuple)) else [x] for x in (scale, recipe, swizzle))
        if len(scales) != 1 or len(recipes) != 1 or (recipe := ScalingType(recipes[0])) == ScalingType.BlockWise1x16:
            raise NotImplementedError(f"scaled_mm: there are no numbers of 4 bits, whose scales have two levels: got {[ScalingType(r).name for r in recipes]} for mat_{name}")
        swizzled = SwizzleType.SWIZZLE_32_4_4 in swizzles
        if m.dim() != 2 or m.itemsize != 1 or not m.is_floating_point():
            raise ValueError(f"scaled_mm: mat_{name} must be a matrix of float8: got {m.dtype} of shape {list(m.shape)}")
        (scale,) = scales
        if recipe in _PARTS:
            scale = _of_terms(name, scale, recipe, m.shape[name == "b"], m.shape[name == "a"], swizzled)
            given.append(scale if name == "a" else scale.t())
            continue
        sizes = "one number" if recipe == ScalingType.TensorWise else str(list(whole))
        if scale.dtype != float32 or swizzled or (scale.numel() != 1 if recipe == ScalingType.TensorWise else tuple(scale.shape) != whole):
            raise ValueError(f"scaled_mm: scale_{name} of {recipe.name} must be float32, {sizes}: got {scale.dtype} of shape {list(scale.shape)}")
        given.append(scale)
    if contraction_dim not in ((), [], (1, 0), [1, 0]):
        raise NotImplementedError(f"scaled_mm: contraction_dim is that of a matrix product: got {contraction_dim}")
    if mat_a.shape[1] != mat_b.shape[0]:
        raise RuntimeError(f"scaled_mm: mat_a and mat_b cannot be multiplied: got {list(mat_a.shape)} and {list(mat_b.shape)}")
    return _scaled_mm(mat_a, mat_b, *given, bias, None, bfloat16 if output_dtype is None else output_dtype, use_fast_accum)


def scaled_grouped_mm(mat_a, mat_b, scale_a, scale_recipe_a, scale_b, scale_recipe_b, swizzle_a=None, swizzle_b=None, bias=None, offs=None,
                      output_dtype=None, contraction_dim=(), use_fast_accum=False):
    """grouped_mm of float8, by scaled_mm of each group. Scales are RowWise: of an operand of three dimensions (G, M) or (G, N), of one whose groups are
    rows (columns) one for each, (M,) or (N,), and where both are cut along K (G * M,) and (G * N,). No gradient."""
    from .. import _grouped_mm, _scaled_mm, bfloat16, float32, zeros

    recipes = [r[0] if isinstance(r, (list, tuple)) else r for r in (scale_recipe_a, scale_recipe_b)]
    scales = [s[0] if isinstance(s, (list, tuple)) else s for s in (scale_a, scale_b)]
    if recipes != [ScalingType.RowWise] * 2 or contraction_dim not in ((), []) or swizzle_a or swizzle_b:
        raise NotImplementedError(f"scaled_grouped_mm: scales are RowWise: got {[ScalingType(r).name for r in recipes]}")
    shape = _grouped_mm(*(m.to("meta").to(bfloat16) for m in (mat_a, mat_b)), None if offs is None else offs.to("meta"), bias).shape
    flat = [m.dim() == 2 for m in (mat_a, mat_b)]
    count = shape[0] if flat[0] == flat[1] else offs.shape[0]
    for name, s, cut, whole in zip("ab", scales, flat, (mat_a.shape[-2], mat_b.shape[-1]), strict=True):
        sizes = (count, whole) if not cut else (count * whole,) if all(flat) else (whole,)
        if s.dtype != float32 or tuple(s.shape) != sizes:
            raise ValueError(f"scaled_grouped_mm: scale_{name} must be float32, {list(sizes)}: got {s.dtype} of shape {list(s.shape)}")
    ends = [0] * count if offs is None else offs.tolist()
    whole = 0 if offs is None else mat_a.shape[1 if flat[1] else 0] if flat[0] else mat_b.shape[1]
    if sorted(ends) != ends or ends and not 0 <= ends[0] <= ends[-1] <= whole:
        raise ValueError(f"scaled_grouped_mm: expected ascending ends up to {whole} in offs: got {ends}")
    made = zeros(shape, dtype=bfloat16 if output_dtype is None else output_dtype, device=mat_a.device)
    if all(flat):
        scales = [s.reshape(count, -1) for s in scales]
    for g, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        cut = slice(start, end)
        a = mat_a[g] if not flat[0] else mat_a[:, cut] if flat[1] else mat_a[cut]
        b = mat_b[g] if not flat[1] else mat_b[cut] if flat[0] else mat_b[:, cut]
        of_a, of_b = (s[g] if s.dim() == 2 else s[cut] for s in scales)
        place = g if flat[0] == flat[1] else cut if flat[0] else (slice(None), cut)
        made[place] = _scaled_mm(a, b, of_a.unsqueeze(1), of_b.unsqueeze(0), None, None, made.dtype, use_fast_accum)
    return made
