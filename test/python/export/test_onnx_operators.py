"""Operators one by one: what is written is run by onnx's reference and gives the numbers of the operator here."""

import re
from pathlib import Path

import numpy as np
import pytest
import tapegrad as tg
from onnx_runs import runs
from tapegrad.nn import functional as F

pytest.importorskip("onnx", reason="the package onnx writes the files")


def signed(*shape):
    return tg.randn(*shape) * 2


def positive(*shape):
    return tg.rand(*shape) + 0.3


def whole(*shape):
    return tg.randint(-5, 6, shape)


SPECIAL = tg.tensor([0.0, -0.0, 1.5, -2.5, 0.5, float("inf"), -float("inf"), float("nan")])

UNARY = ("abs sign neg exp sin cos tan atan sinh cosh tanh asinh erf erfc sigmoid floor ceil round trunc frac square exp2 expm1 relu deg2rad rad2deg isnan isinf "
         "isfinite isposinf isneginf nan_to_num positive clone").split()
UNARY_POSITIVE = "sqrt rsqrt log log2 log10 log1p reciprocal".split()
ACTIVATIONS = {"relu6": {}, "silu": {}, "mish": {}, "softplus": {"beta": 2.0}, "hardsigmoid": {}, "hardswish": {}, "logsigmoid": {}, "softsign": {}, "softshrink": {},
               "hardshrink": {}, "tanhshrink": {}, "leaky_relu": {"negative_slope": 0.2}, "elu": {"alpha": 0.7}, "selu": {}, "celu": {"alpha": 0.5},
               "gelu": {"approximate": "tanh"}, "hardtanh": {"min_val": -0.5, "max_val": 0.7}, "threshold": {"threshold": 0.1, "value": 3.0}}
BINARY = "add sub mul div maximum minimum remainder fmod floor_divide eq ne lt le gt ge hypot".split()

CASES = {
    "gelu": lambda: (F.gelu, signed(3, 4)), "glu": lambda: (F.glu, signed(3, 4)), "prelu": lambda: (F.prelu, signed(2, 3, 4), tg.rand(3)),
    "asin": lambda: (lambda x: (x.asin(), x.acos(), x.atanh()), tg.rand(5) * 0.9), "acosh": lambda: (tg.acosh, positive(5) + 1),
    "pow": lambda: (lambda x: (x ** 2, x ** 0.5, 2 ** x, x ** x, x ** 3), positive(5)), "rsub": lambda: (lambda x: (1 - x, tg.add(x, x, alpha=3)), signed(4)),
    "whole": lambda: (lambda x: (x + 1.5, x / 2, x // 2, x % 3, x * 2, -x, x > 1, x == 2, tg.div(x, -2, rounding_mode="trunc")), whole(20)),
    "bools": lambda: (lambda x: (x & ~x, x | (x > 2), x ^ x, tg.logical_not(x), tg.logical_and(x, x)), whole(6) > 0), "bits": lambda: (lambda x: (x & 3, x | 1, x ^ 5, ~x), whole(6)),
    "promotion": lambda: (lambda x, y, z: (x + y, x * z, y - z, tg.where(x > 0, x, y)), signed(3), whole(3), tg.tensor(2.5, dtype=tg.float64)),
    "clamp": lambda: (lambda x: (x.clamp(-1, 1), x.clamp(min=0.5), x.clamp(max=x.flip(0)), x.clamp_min(0.1)), signed(6)),
    "where": lambda: (lambda x, y: (tg.where(x > y, x, 0.0), x.masked_fill(x > 0, float("-inf"))), signed(3, 4), signed(4)),
    "lerp": lambda: (lambda x, y: (tg.lerp(x, y, 0.3), tg.addcmul(x, x, y, value=2), tg.addcdiv(x, y, y, value=0.5)), signed(4), positive(4)),
    "logic": lambda: (lambda x, y: (tg.logaddexp(x, y), tg.xlogy(y - 0.3, y), tg.logit(tg.sigmoid(x))), signed(4), positive(4)),
    "casts": lambda: (lambda x: (x.long(), x.double(), x.bool(), x.to(tg.int32), x.half().float()), signed(5)),
    "one_hot": lambda: (lambda x: F.one_hot(x % 4, 4), whole(2, 3)),
    "no_dimension": lambda: (lambda x: (x.softmax(0), x + 1, x.expand(2), x.reshape(1), x.sum(), x.unsqueeze(0)), tg.tensor(2.0)),
    "no_element": lambda: (lambda x: (x + 1, x.sum(0), x.reshape(0, 8), tg.cat([x, x]), x.mean(1), x[:, 1]), tg.randn(0, 4)),
    # reductions
    "sum": lambda: (lambda x: (x.sum(), x.sum(1), x.sum((0, 2), keepdim=True), x.mean(-1), x.prod(0), x.amax(1), x.amin((0, 1)), x.max(), x.min()), signed(2, 3, 4)),
    "sum_int": lambda: (lambda x: (x.sum(), x.sum(0), x.bool().sum(1), x.float().mean()), whole(3, 4)),
    "any": lambda: (lambda x: ((x > 1).any(), (x > 1).all(1), x.count_nonzero(), x.bool().any(0, True)), whole(3, 4)),
    "var": lambda: (lambda x: (x.var(), x.std(1), x.var(0, correction=0), x.std((0, 1), keepdim=True), *tg.var_mean(x, 1)), signed(3, 4)),
    "norms": lambda: (lambda x: (x.norm(), x.norm(1, 1), tg.linalg.norm(x), tg.linalg.norm(x, 1, 1), tg.linalg.vector_norm(x, float("inf")), F.normalize(x, dim=1), tg.linalg.vector_norm(x, 2, 0)), signed(3, 4)),
    "logsumexp": lambda: (lambda x: (x.logsumexp(1), x.logsumexp((0, 1), True)), signed(3, 4)),
    "argmax": lambda: (lambda x: (x.argmax(), x.argmin(1), x.argmax(0, True), *x.max(1), *x.min(0)), signed(3, 4)),
    "cumsum": lambda: (lambda x: (x.cumsum(1), x.long().cumsum(0)), signed(3, 4)),
    "sort": lambda: (lambda x: (*x.sort(1), *x.sort(0, descending=True), x.argsort(-1), *x.topk(2), *x.topk(2, 0, largest=False)), signed(3, 4)),
    "softmax": lambda: (lambda x: (x.softmax(-1), F.log_softmax(x, 0), F.softmin(x, 1), x.softmax(1, dtype=tg.float64)), signed(3, 4)),
    # products
    "matmul": lambda: (lambda x, y: (x @ y, x[0] @ y[0], x[0, 0] @ y[0], x[0] @ y[0, :, 0], tg.bmm(x, y)), signed(2, 3, 4), signed(2, 4, 5)),
    "linear": lambda: (lambda x, w, b: (F.linear(x, w, b), F.linear(x[0], w, b), F.linear(x[0], w), F.linear(x[0, 0], w, b)), signed(2, 3, 4), signed(5, 4), signed(5)),
    "addmm": lambda: (lambda x, a, b: (tg.addmm(x, a, b, beta=0.5, alpha=2), tg.baddbmm(x[None], a[None], b[None]), tg.addmv(x[:, 0], a, b[:, 0]), tg.mv(a, b[:, 0]), tg.dot(a[0], b[:, 0]), tg.outer(x[0], a[0]), tg.einsum("ij,jk->ki", a, b)), signed(2, 3), signed(2, 4), signed(4, 3)),
    # views and indices
    "views": lambda: (lambda x: (x.view(6, 4), x.reshape(-1), x.flatten(1), x.transpose(0, -1), x.permute(2, 0, 1), x.unsqueeze(-1), x[:, :1].squeeze(1), x.mT, x.movedim(0, 2),
                                x.unflatten(2, (2, 2)), x.expand(5, 2, 3, 4), x[0].t(), x.view(2, 1, 12).squeeze()), signed(2, 3, 4)),
    "subscripts": lambda: (lambda x: (x[1], x[:, 1:], x[..., -1], x[:, ::2, 1:3], x[0, :, 2], x[None, 1, ..., None], x[-1, -1, -1], x[1:, 1, 3:], x.mT[0, 1], x[:, 2:1:1]), signed(3, 4, 5)),
    "places": lambda: (lambda x: (x.diagonal(), x.diagonal(1, 0, 2), x.unfold(1, 2, 1), *tg.meshgrid(x[0, 0], x[1, :, 0], indexing="xy"), *tg.meshgrid(x[0, 0], x[1, :, 0], indexing="ij")), signed(3, 4, 5)),
    "rounds": lambda: (lambda x: (x.round(decimals=1), (x * 100).round(decimals=-1), x.conj(), x.long().round()), signed(9)),
    "narrow": lambda: (lambda x: (x.narrow(1, 1, 2), x.select(1, -1), *x.split(2, 1), *x.chunk(3, 0), *x.unbind(2), *x.split([1, 2], 1), *x.tensor_split(2, 2)), signed(3, 3, 4)),
    "joins": lambda: (lambda x, y: (tg.cat([x, y], 1), tg.stack([x, x], -1), tg.cat([x, y.long()], 0), tg.stack([x, y])), signed(3, 3), signed(3, 3)),
    "repeat": lambda: (lambda x: (x.repeat(2, 1, 3), x.tile((2,)), x.repeat_interleave(2, 1), x.flip(0, 1), x.roll(1, 0), x.roll(-2), x.tril(), x.triu(1)), signed(3, 4)),
    "index": lambda: (lambda x, i: (x[i], x[:, i], x[i, i], x[:, i, i], x[i[:, None], i], x[i, :, i], x.index_select(1, i), x.take(i)), signed(4, 4, 4), tg.tensor([0, 2, -1]) % 4),
    "gather": lambda: (lambda x, i: (x.gather(1, i), x.scatter(1, i, x), x.scatter(0, i, 5.0), x.scatter_add(1, i, x), x.scatter_reduce(1, i, x, "amax")), signed(3, 3), tg.tensor([[0, 1, 2], [2, 0, 1], [1, 1, 0]])),
    "index_add": lambda: (lambda x, i, y: (x.index_add(0, i, y), x.index_copy(0, i, y), x.index_fill(1, i, 2.0), x.index_add(0, i, y, alpha=2)), signed(3, 4), tg.tensor([2, 0]), signed(2, 4)),
    "index_put": lambda: (lambda x, i, y: (x.index_put((i,), y), x.index_put((i, i), y[:, 0]), x.index_put((i,), y, accumulate=True)), signed(3, 4), tg.tensor([2, 0]), signed(2, 4)),
    "embedding": lambda: (lambda i, w: (F.embedding(i, w), F.embedding_bag(i, w), F.embedding_bag(i, w, mode="max")), tg.randint(0, 5, (2, 3)), signed(5, 4)),
    "likes": lambda: (lambda x: (tg.zeros_like(x), tg.ones_like(x) + x, tg.full_like(x, 3), x.new_zeros(2), x.new_full((2, 2), 7.0), tg.arange(4) + x.long()[0, 0]), signed(2, 3)),
    # layers
    "conv1d": lambda: (lambda x, w, b: (F.conv1d(x, w, b, 2, 1, 2), F.conv1d(x, w, padding="same"), F.conv1d(x[0], w)), signed(2, 4, 12), signed(6, 4, 3), signed(6)),
    "conv2d": lambda: (lambda x, w, b: (F.conv2d(x, w, b, (2, 1), (1, 0)), F.conv2d(x, w[:4, :1], groups=4), F.conv2d(x, w, padding="same", dilation=2), F.conv2d(x, w, padding="valid")),
                       signed(2, 4, 9, 8), signed(6, 4, 3, 2), signed(6)),
    "conv_odd": lambda: (lambda x, w: (F.conv1d(x, w, padding="same"), F.conv_transpose1d(x, w, stride=2, padding=1, output_padding=1)), signed(1, 4, 7), signed(4, 4, 2)),
    "conv3d": lambda: (lambda x, w: F.conv3d(x, w, padding=1), signed(1, 2, 4, 4, 4), signed(3, 2, 3, 3, 3)),
    "conv_transpose": lambda: (lambda x, w, b: (F.conv_transpose2d(x, w, b, 2, 1, 1), F.conv_transpose2d(x, w, stride=2), F.conv_transpose1d(x[:, :, 0], w[:, :, 0], b)), signed(2, 4, 5, 5), signed(4, 3, 3, 3), signed(3)),
    "max_pool": lambda: (lambda x: (F.max_pool2d(x, 2), F.max_pool2d(x, 3, 2, 1), F.max_pool2d(x, 2, ceil_mode=True), F.max_pool2d(x, 3, 2, ceil_mode=True), F.max_pool1d(x[:, 0], 2), F.max_pool2d(x, 2, dilation=2)), signed(2, 3, 7, 9)),
    "max_pool_indices": lambda: (lambda x: F.max_pool2d(x, 2, return_indices=True), signed(2, 3, 6, 8)),
    "avg_pool": lambda: (lambda x: (F.avg_pool2d(x, 2), F.avg_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), F.avg_pool2d(x, 2, ceil_mode=True), F.avg_pool1d(x[0], 3),
                                  F.avg_pool2d(x, 2, divisor_override=3), F.avg_pool3d(x[None], 2)), signed(2, 3, 7, 9)),
    "adaptive": lambda: (lambda x: (F.adaptive_avg_pool2d(x, 1), F.adaptive_avg_pool2d(x, (3, 2)), F.adaptive_max_pool2d(x, 1), F.adaptive_avg_pool2d(x, (None, 4)), F.adaptive_avg_pool1d(x[0], 1),
                                  F.adaptive_avg_pool2d(x, (4, 7)), F.adaptive_avg_pool1d(x[0], 11), F.adaptive_avg_pool2d(x, 9)), signed(2, 3, 6, 8)),
    "batch_norm": lambda: (lambda x, w, b, v: (F.batch_norm(x, b, v, w, b), F.batch_norm(x, b, v), F.batch_norm(x[:, :, 0, 0], b, v, w, b)), signed(2, 3, 4, 5), signed(3), signed(3), positive(3)),
    "norm_layers": lambda: (lambda x, w, b: (F.layer_norm(x, (6,), w, b), F.layer_norm(x, (4, 6)), F.group_norm(x, 2, w[:4], b[:4]), F.group_norm(x, 2), F.instance_norm(x), F.rms_norm(x, (6,), w),
                                             F.rms_norm(x, (6,), eps=0.1)), signed(2, 4, 6), signed(6), signed(6)),
    "response": lambda: (lambda x: F.local_response_norm(x, 3), signed(6, 6, 4, 3)), "cosine": lambda: (lambda x, y: F.cosine_similarity(x, y), signed(3, 4), signed(3, 4)),
    "pad": lambda: (lambda x: (F.pad(x, (1, 2)), F.pad(x, (1, 2, 0, 1), value=3.0), F.pad(x, (1, 2), "reflect"), F.pad(x, (2, 1), "replicate"), F.pad(x, (1, 2), "circular"), F.pad(x, (-1, 2))), signed(2, 3, 5)),
    "interpolate": lambda: (lambda x: (F.interpolate(x, scale_factor=2), F.interpolate(x, size=(7, 9)), F.interpolate(x, scale_factor=2.0, mode="bilinear"), F.interpolate(x, size=(8, 5), mode="bilinear"),
                                        F.interpolate(x, size=(8, 7), mode="bilinear", align_corners=True), F.interpolate(x[:, :, 0], scale_factor=2, mode="linear")), signed(2, 3, 4, 5)),
    "bicubic": lambda: (lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"), signed(1, 2, 6, 6)),
    "pixels": lambda: (lambda x: (F.pixel_shuffle(x, 2), F.pixel_unshuffle(x, 2), F.channel_shuffle(x, 2)), signed(2, 8, 4, 6)),
    "attention": lambda: (lambda q, k, m: (F.scaled_dot_product_attention(q, k, k), F.scaled_dot_product_attention(q, k, k, attn_mask=m > 0), F.scaled_dot_product_attention(q, k, k, attn_mask=(m > 0.5) & (tg.arange(3) > 0)[:, None]),
                                            F.scaled_dot_product_attention(q, k, k, attn_mask=m, scale=0.3),
                                            F.scaled_dot_product_attention(q, q, q, is_causal=True), F.scaled_dot_product_attention(q, k[:, :2], k[:, :2], enable_gqa=True)),
                           signed(2, 4, 3, 8), signed(2, 4, 5, 8), tg.rand(3, 5)),
    "losses": lambda: (lambda x, y: (F.mse_loss(x, y), F.l1_loss(x, y, reduction="sum"), F.smooth_l1_loss(x, y, reduction="none"), F.huber_loss(x, y, delta=0.5),
                                      F.binary_cross_entropy_with_logits(x, y.sigmoid()), F.binary_cross_entropy_with_logits(x, y.sigmoid(), weight=y.exp(), pos_weight=tg.tensor([1.0, 2, 3, 0.5])), F.kl_div(x, y.softmax(1), reduction="batchmean")), signed(3, 4), signed(3, 4)),
    "classes": lambda: (lambda x, t: (F.cross_entropy(x, t), F.nll_loss(F.log_softmax(x, 1), t), F.cross_entropy(x, t, reduction="none"), F.cross_entropy(x, t, ignore_index=1)), signed(5, 4), tg.tensor([0, 1, 2, 3, 1])),
    "dropout": lambda: (lambda x: (F.dropout(x, 0.5, False), tg.nn.Identity()(x) + 0), signed(4)),
    "cells": lambda: (lambda x, h, w, r, b: (*tg.lstm_cell(x, (h, h), w, r, b, b), tg.gru_cell(x, h, w[:9], r[:9], b[:9], b[:9]), tg.rnn_tanh_cell(x, h, w[:3], r[:3])), signed(2, 4), signed(2, 3), signed(12, 4), signed(12, 3), signed(12)),
}


@pytest.mark.parametrize("name", CASES)
def test_an_operator_gives_its_numbers(name):
    tg.manual_seed(3)
    runs(*CASES[name]())


def test_grid_sample():
    """By the names of modes that operators of version 20 have: the reference knows no others."""
    runs(lambda x, y: (F.grid_sample(x, y, align_corners=False), F.grid_sample(x, y, padding_mode="border", align_corners=True)),
         signed(1, 2, 5, 5), tg.rand(1, 3, 4, 2) * 1.6 - 0.8, opset_version=20)


def test_the_document_lists_what_is_translated():
    """And each name in it is one of a function of an operator."""
    from tapegrad.onnx import _convert

    text = (Path(__file__).parents[3] / "docs" / "onnx.md").read_text()
    listed = set(re.findall(r"[a-z_0-9]+", text.split("```text")[1].split("```")[0]))
    assert listed == {name for name in _convert.HANDLERS if not name.startswith("_")}


@pytest.mark.parametrize("name", UNARY + UNARY_POSITIVE)
def test_a_function_of_one_operand(name):
    runs(getattr(tg, name), positive(3, 4) if name in UNARY_POSITIVE else signed(3, 4))
    if name in ("abs", "sign", "neg", "sqrt", "relu", "isnan", "isinf", "isfinite", "isposinf", "isneginf", "nan_to_num", "floor", "ceil", "exp", "tanh"):
        with np.errstate(all="ignore"):
            runs(getattr(tg, name), SPECIAL)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation(name):
    runs(lambda x: getattr(F, name)(x, **ACTIVATIONS[name]), signed(3, 4))


@pytest.mark.parametrize("name", BINARY)
def test_a_function_of_two_operands(name):
    function = getattr(tg, name)
    runs(lambda x, y: function(x, y), signed(3, 4), positive(4))
    if name != "hypot":
        runs(lambda x: (function(x, x.flip(0)), function(x, tg.tensor(2))), whole(9).abs() + 1)
    if name not in ("hypot", "maximum", "minimum"):
        runs(lambda x: (function(x, 2), function(x.float(), 0.5)), whole(9))
