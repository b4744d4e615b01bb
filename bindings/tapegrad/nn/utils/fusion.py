"""Batch normalisation in evaluation, folded into the layer before it."""

import copy

from ... import ones_like, rsqrt, zeros_like
from ..parameter import Parameter

__all__ = ["fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights"]


def _folded(weight, bias, mean, variance, eps, scale, shift, channel: int):
    """Weight and bias of the layer with the normalisation in it; `channel` is the weight's dimension of outputs."""
    bias = zeros_like(mean) if bias is None else bias
    scale = ones_like(mean) if scale is None else scale
    shift = zeros_like(mean) if shift is None else shift
    factor = scale * rsqrt(variance + eps)
    shape = [-1 if d == channel else 1 for d in range(weight.dim())]
    new_weight = (weight * factor.reshape(shape)).to(weight.dtype)
    new_bias = ((bias - mean) * factor + shift).to(bias.dtype)
    return Parameter(new_weight.detach(), weight.requires_grad), Parameter(new_bias.detach(), bias.requires_grad)


def _fused(layer, bn, channel: int):
    if layer.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("bn.running_mean and bn.running_var must not be None")
    fused = copy.deepcopy(layer)
    fused.weight, fused.bias = _folded(fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, channel)
    return fused


def fuse_conv_bn_weights(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, transpose: bool = False):
    """Weight and bias of a convolution with the batch normalisation behind it."""
    return _folded(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, 1 if transpose else 0)


def fuse_linear_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b):
    """Weight and bias of a linear layer with the batch normalisation behind it."""
    return _folded(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, 0)


def fuse_conv_bn_eval(conv, bn, transpose: bool = False):
    """A convolution that computes what the two do in evaluation."""
    return _fused(conv, bn, 1 if transpose else 0)


def fuse_linear_bn_eval(linear, bn):
    """A linear layer that computes what the two do in evaluation."""
    if linear.out_features != bn.num_features and bn.num_features != 1:
        raise AssertionError("To fuse, linear.out_features == bn.num_features or bn.num_features == 1")
    return _fused(linear, bn, 0)
