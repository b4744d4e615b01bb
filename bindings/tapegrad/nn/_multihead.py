"""multi_head_attention_forward: attention of several heads with its projections (Vaswani et al., 2017)."""

import math

from .. import _C, Tensor, baddbmm, bmm, cat, promote_types, zeros, zeros_like
from .. import bool as bool_
from .._root.overloads import overridable
from .._warn import warn

_table = _C._functions["nn.functional"]


def _check_shapes(query, key, value, key_padding_mask, attn_mask, num_heads: int) -> bool:
    """Whether the query has a batch dimension, after checking that everything else goes with that."""
    n = query.dim()
    if n not in (2, 3):
        raise AssertionError(f"query should be unbatched 2D or batched 3D tensor but received {n}-D query tensor")
    word = "batched (3-D)" if n == 3 else "unbatched (2-D)"
    if key.dim() != n or value.dim() != n:
        raise AssertionError(f"For {word} `query`, expected `key` and `value` to be {n}-D but found {key.dim()}-D and "
                             f"{value.dim()}-D tensors respectively")
    if key_padding_mask is not None and key_padding_mask.dim() != n - 1:
        raise AssertionError(f"For {word} `query`, expected `key_padding_mask` to be `None` or {n - 1}-D but found "
                             f"{key_padding_mask.dim()}-D tensor instead")
    if attn_mask is not None:
        if attn_mask.dim() not in (2, 3):
            raise AssertionError(f"For {word} `query`, expected `attn_mask` to be `None`, 2-D or 3-D but found "
                                 f"{attn_mask.dim()}-D tensor instead")
        if n == 2 and attn_mask.dim() == 3:
            expected = (num_heads, query.shape[0], key.shape[0])
            if tuple(attn_mask.shape) != expected:
                raise AssertionError(f"Expected `attn_mask` shape to be {expected} but got {tuple(attn_mask.shape)}")
    return n == 3


def canonical_mask(mask, mask_name: str, other_type, other_name: str, target_type, check_other: bool = True):
    """A mask as numbers to be added: a boolean one becomes zeros, and -inf where it is true."""
    if mask is None:
        return None
    if mask.dtype != bool_ and not mask.dtype.is_floating_point:
        raise AssertionError(f"only bool and floating types of {mask_name} are supported")
    if check_other and other_type is not None and mask.dtype != other_type:
        warn(f"Support for mismatched {mask_name} and {other_name} is deprecated. Use same type for both instead.")
    if mask.dtype != bool_:
        return mask
    return zeros_like(mask, dtype=target_type).masked_fill_(mask, -math.inf)


def _project(query, key, value, weight, bias):
    """The three projections by one weight; a single product where they are of the same tensor."""
    linear = _table["linear"]
    if bias is not None and bias.dtype != query.dtype and weight.dtype == query.dtype and promote_types(bias.dtype, query.dtype) == query.dtype:
        bias = bias.to(query.dtype)  # as PyTorch adds it where it cannot take its fast path
    if query is key and key is value:
        return linear(query, weight, bias).chunk(3, -1)
    width = query.size(-1)
    biases = (None, None, None) if bias is None else bias.split(width)
    if key is value:
        q = linear(query, weight[:width], biases[0])
        both = linear(key, weight[width:], None if bias is None else bias[width:])
        return (q, *both.chunk(2, -1))
    return tuple(linear(x, w, b) for x, w, b in zip((query, key, value), weight.split(width), biases, strict=True))


def _heads(t, given, name: str, count: int, width: int):
    """(L, N, E) as (N heads, L, E / heads); or the static tensor in its place."""
    if given is None:
        return t.reshape(t.shape[0], count, width).transpose(0, 1)
    if given.size(0) != count:
        raise AssertionError(f"expecting {name}.size(0) of {count}, but got {given.size(0)}")
    if given.size(2) != width:
        raise AssertionError(f"expecting {name}.size(2) of {width}, but got {given.size(2)}")
    return given


def _checked_mask(attn_mask, shape_2d, shape_3d):
    if attn_mask.dim() not in (2, 3):
        raise RuntimeError(f"attn_mask's dimension {attn_mask.dim()} is not supported")
    expected = shape_2d if attn_mask.dim() == 2 else shape_3d
    if tuple(attn_mask.shape) != expected:
        raise RuntimeError(f"The shape of the {attn_mask.dim()}D attn_mask is {attn_mask.shape}, but should be {expected}.")
    return attn_mask.unsqueeze(0) if attn_mask.dim() == 2 else attn_mask


@overridable
def multi_head_attention_forward(
        query: Tensor, key: Tensor, value: Tensor, embed_dim_to_check: int, num_heads: int, in_proj_weight, in_proj_bias,
        bias_k, bias_v, add_zero_attn: bool, dropout_p: float, out_proj_weight, out_proj_bias, training: bool = True,
        key_padding_mask=None, need_weights: bool = True, attn_mask=None, use_separate_proj_weight: bool = False,
        q_proj_weight=None, k_proj_weight=None, v_proj_weight=None, static_k=None, static_v=None,
        average_attn_weights: bool = True, is_causal: bool = False):
    """Attention of num_heads heads over query (L, N, E), key and value (S, N, E), or without N; returns the projected result and
    the weights (None unless need_weights).

    Masks: key_padding_mask (N, S), attn_mask (L, S) or (N num_heads, L, S); true, or -inf, means not to be looked at. is_causal
    is a hint that attn_mask is the causal mask. Without need_weights the attention works in tiles.
    """
    batched = _check_shapes(query, key, value, key_padding_mask, attn_mask, num_heads)
    if not batched:
        same_key, same_value = key is query, value is key
        query = query.unsqueeze(1)
        key = query if same_key else key.unsqueeze(1)
        value = key if same_value else value.unsqueeze(1)
        if key_padding_mask is not None:
            key_padding_mask = key_padding_mask.unsqueeze(0)
    length, n, width = query.shape
    key_padding_mask = canonical_mask(key_padding_mask, "key_padding_mask", None if attn_mask is None else attn_mask.dtype,
                                      "attn_mask", query.dtype)
    if is_causal and attn_mask is None:
        raise RuntimeError("Need attn_mask if specifying the is_causal hint. You may use the Transformer module method "
                           "`generate_square_subsequent_mask` to create this mask.")
    if is_causal and key_padding_mask is None and not need_weights:
        attn_mask = None  # the kernel knows this mask
    else:
        attn_mask = canonical_mask(attn_mask, "attn_mask", None, "", query.dtype, check_other=False)
        is_causal = is_causal and key_padding_mask is None
    if width != embed_dim_to_check:
        raise AssertionError(f"was expecting embedding dimension of {embed_dim_to_check}, but got {width}")
    head = width // num_heads
    if head * num_heads != width:
        raise AssertionError(f"embed_dim {width} not divisible by num_heads {num_heads}")
    linear = _table["linear"]
    if not use_separate_proj_weight:
        if key.shape != value.shape:
            raise AssertionError(f"key shape {key.shape} does not match value shape {value.shape}")
        if in_proj_weight is None:
            raise AssertionError("use_separate_proj_weight is False but in_proj_weight is None")
        q, k, v = _project(query, key, value, in_proj_weight, in_proj_bias)
    else:
        if key.shape[:2] != value.shape[:2]:
            raise AssertionError(f"key's sequence and batch dims {key.shape[:2]} do not match value's {value.shape[:2]}")
        for name, weight in (("q", q_proj_weight), ("k", k_proj_weight), ("v", v_proj_weight)):
            if weight is None:
                raise AssertionError(f"use_separate_proj_weight is True but {name}_proj_weight is None")
        biases = (None, None, None) if in_proj_bias is None else in_proj_bias.chunk(3)
        q, k, v = (linear(x, w, b) for x, w, b in zip((query, key, value), (q_proj_weight, k_proj_weight, v_proj_weight),
                                                      biases, strict=True))
    if attn_mask is not None:
        attn_mask = _checked_mask(attn_mask, (length, key.shape[0]), (n * num_heads, length, key.shape[0]))
    pad = _table["pad"]

    def widened(mask):
        return None if mask is None else pad(mask, (0, 1))

    if (bias_k is None) != (bias_v is None):
        raise AssertionError("bias_k is set but bias_v is None" if bias_v is None else "bias_v is set but bias_k is None")
    if bias_k is not None:
        if static_k is not None or static_v is not None:
            raise AssertionError(f"bias cannot be added to static {'key' if static_k is not None else 'value'}.")
        k, v = cat([k, bias_k.repeat(1, n, 1)]), cat([v, bias_v.repeat(1, n, 1)])
        attn_mask, key_padding_mask = widened(attn_mask), widened(key_padding_mask)
    count = n * num_heads
    q = _heads(q, None, "", count, head)
    k, v = _heads(k, static_k, "static_k", count, head), _heads(v, static_v, "static_v", count, head)
    if add_zero_attn:
        zero = zeros(count, 1, head, dtype=k.dtype, device=k.device)
        k, v = cat([k, zero], 1), cat([v, zero], 1)
        attn_mask, key_padding_mask = widened(attn_mask), widened(key_padding_mask)
    seen = k.size(1)
    if key_padding_mask is not None:
        for d, size in enumerate((n, seen)):
            if key_padding_mask.shape[d] != size:
                raise AssertionError(f"Expected key_padded_mask.shape[{d}] to be {size}, but got {key_padding_mask.shape[d]}")
        key_padding_mask = key_padding_mask.reshape(n, 1, 1, seen).expand(-1, num_heads, -1, -1).reshape(count, 1, seen)
        attn_mask = key_padding_mask if attn_mask is None else attn_mask + key_padding_mask
    if not training:
        dropout_p = 0.0

    def projected(t):
        out = linear(t, out_proj_weight, out_proj_bias)
        return out if batched else out.squeeze(1)

    if not need_weights:
        if attn_mask is not None:
            if attn_mask.size(0) == 1:
                attn_mask = attn_mask.unsqueeze(0)
            else:
                attn_mask = attn_mask.reshape(n, num_heads, attn_mask.size(1), seen)
        q, k, v = (t.reshape(n, num_heads, t.size(1), head) for t in (q, k, v))
        out = _table["scaled_dot_product_attention"](q, k, v, attn_mask, dropout_p, is_causal)
        return projected(out.permute(2, 0, 1, 3).reshape(length, n, width)), None
    scaled = q * math.sqrt(1.0 / head)
    weights = bmm(scaled, k.transpose(-2, -1)) if attn_mask is None else baddbmm(attn_mask, scaled, k.transpose(-2, -1))
    weights = weights.softmax(-1)
    if dropout_p > 0.0:
        weights = _table["dropout"](weights, dropout_p)
    out = projected(bmm(weights, v).transpose(0, 1).reshape(length, n, width))
    weights = weights.reshape(n, num_heads, length, seen)
    if average_attn_weights:
        weights = weights.mean(1)
    return out, weights if batched else weights.squeeze(0)
