"""Linear layers with weights of int8 and inputs that are rounded in each call: what PyTorch's quantize_dynamic makes of a model.

There are no quantised tensors here, so what PyTorch calls packed parameters is a module with the int8 weight, its scale and the bias as buffers.
"""

import copy
from typing import NamedTuple

from .. import _C, float32, int8, no_grad, ones, zeros
from .._root import deferred
from . import _layers, recurrent
from .module import Module
from .utils.parametrize import type_before_parametrizations

_linear = _C._functions["_C._ops"]["_dynamic_quantized_linear"]
_RECURRENT = (recurrent.LSTM, recurrent.GRU, _layers.LSTMCell, _layers.GRUCell, _layers.RNNCell)
_HOOKS = ("_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called")
_LEAST_SCALE = 2.0**-23  # of PyTorch's observers


class DynamicQConfig(NamedTuple):
    """How the weight of a layer is rounded: with one scale, or with one for each of its rows."""

    qscheme: object
    dtype: object = deferred.qint8


default_dynamic_qconfig = DynamicQConfig(deferred.per_tensor_affine)
per_channel_dynamic_qconfig = DynamicQConfig(deferred.per_channel_affine)


def _check_dtype(op: str, dtype) -> None:
    if dtype is not deferred.qint8:
        raise NotImplementedError(f"{op}: the only dtype is qint8: got {dtype}\nmodel.half() and model.bfloat16() have weights of 16 bits")


class LinearPackedParams(Module):
    """weight (int8), scale (float32; one, or one for each row of the weight) and bias (float32, or None)."""

    def __init__(self, dtype=deferred.qint8):
        super().__init__()
        _check_dtype("LinearPackedParams", dtype)
        self.dtype = dtype
        self.set_weight_bias(zeros((1, 1), dtype=int8), ones(1), None)

    def set_weight_bias(self, weight, scale, bias):
        """Takes the tensors as they are."""
        for name, tensor in (("weight", weight), ("scale", scale), ("bias", bias)):
            self.register_buffer(name, tensor)

    def forward(self, x):
        """The input."""
        return x

    def _apply(self, fn, recurse=True):
        # half() and the like are for layers that compute in these dtypes: only devices change here.
        super()._apply(lambda t: t.to(fn(t).device) if t.is_floating_point() else fn(t), recurse)
        return self

    def _load_from_state_dict(self, state_dict, prefix, *args):
        given = state_dict.get(prefix + "scale")
        if given is not None and given.shape in ((1,), self.weight.shape[:1]):
            self.scale = ones(given.shape, device=self.scale.device)
        super()._load_from_state_dict(state_dict, prefix, *args)


class Linear(Module):
    """A linear layer whose weight is int8. In each call the input is rounded to 7 bits between its least and greatest number.

    Sums are exact; forward only: there is no gradient. bias_: whether there is a bias.
    """

    def __init__(self, in_features, out_features, bias_=True, dtype=deferred.qint8):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self._packed_params = LinearPackedParams(dtype)
        self._packed_params.set_weight_bias(zeros((out_features, in_features), dtype=int8), ones(1), zeros(out_features, dtype=float32) if bias_ else None)

    def forward(self, x):
        """x @ weight.T + bias."""
        packed = self._packed_params
        return _linear(x, packed.weight, packed.scale, packed.bias)

    def weight(self):
        """The numbers that the int8 weight stands for, as float32."""
        return self._packed_params.weight * self._packed_params.scale.unsqueeze(1)

    def bias(self):
        """The bias, or None."""
        return self._packed_params.bias

    def _get_name(self):
        return "DynamicQuantizedLinear"

    def __repr__(self):
        return f"{self._get_name()}({self.extra_repr()})"

    def extra_repr(self):
        scheme = deferred.per_tensor_affine if self._packed_params.scale.numel() == 1 else deferred.per_channel_affine
        return f"in_features={self.in_features}, out_features={self.out_features}, dtype={self._packed_params.dtype}, qscheme={scheme}"

    @classmethod
    @no_grad()
    def from_float(cls, mod, use_precomputed_fake_quant=False):
        """The layer for a linear layer of floats. Its `qconfig`, if any, says how the weight is rounded."""
        if type_before_parametrizations(mod) is not _layers.Linear:
            raise AssertionError(f"nn.quantized.dynamic.Linear.from_float: expected nn.Linear: got {type(mod).__name__}")
        return cls._rounded(mod, getattr(mod, "qconfig", None) or default_dynamic_qconfig)

    @classmethod
    def _rounded(cls, mod, config):
        made = cls(mod.in_features, mod.out_features, mod.bias is not None, config.dtype)
        weight = mod.weight.detach().float()
        rows = weight if config.qscheme is deferred.per_channel_affine else weight.reshape(1, -1)
        scale = (rows.abs().amax(1) / 127.5).clamp(min=_LEAST_SCALE) if weight.numel() else ones(1, device=weight.device)
        rounded = (weight * scale.reciprocal().unsqueeze(1)).round().clamp(-128, 127).to(int8)
        made._packed_params.set_weight_bias(rounded, scale, None if mod.bias is None else mod.bias.detach().float().clone())
        return made


def _swapped(module, config, prefix, configs, mapping, done):
    """What stands for a module: itself, with its children swapped, or what `mapping` has for its type."""
    if id(module) in done:
        return done[id(module)][1]
    kind = type_before_parametrizations(module)
    config = getattr(module, "qconfig", configs.get(prefix, configs.get(kind, config)))
    new = module
    for name, child in list(module._modules.items()):
        if child is not None:
            module._modules[name] = _swapped(child, config, f"{prefix}.{name}" if prefix else name, configs, mapping, done)
    if prefix and config is not None:  # the model itself stays, as in PyTorch
        if kind in _RECURRENT and kind not in mapping:
            raise NotImplementedError(f"quantize_dynamic: recurrent layers are not supported: got {kind.__name__} at '{prefix}'\nname the types: quantize_dynamic(model, {{nn.Linear}})")
        if kind in mapping:
            new = mapping[kind]._rounded(module, config) if mapping[kind] is Linear else mapping[kind].from_float(module)
            for hooks in _HOOKS:
                getattr(new, hooks).update(getattr(module, hooks))
            new.train(module.training)
    done[id(module)] = module, new  # a module in several places stays one
    return new


@no_grad()
def quantize_dynamic(model, qconfig_spec=None, dtype=deferred.qint8, mapping=None, inplace=False):
    """A copy of the model in which linear layers have int8 weights (nn.quantized.dynamic.Linear), for inference.

    qconfig_spec: a set of types and names of submodules, or a table of these with default_dynamic_qconfig, per_channel_dynamic_qconfig or None
    (left alone); without it all linear layers. mapping: classes by the type that they replace, with a `from_float`.
    """
    if not isinstance(qconfig_spec, dict):
        _check_dtype("quantize_dynamic", dtype)
        qconfig_spec = dict.fromkeys({_layers.Linear, *_RECURRENT} if qconfig_spec is None else qconfig_spec, default_dynamic_qconfig)
    for config in qconfig_spec.values():
        if config is not None and not isinstance(config, DynamicQConfig):
            raise TypeError(f"quantize_dynamic: expected default_dynamic_qconfig, per_channel_dynamic_qconfig or None: got {config!r}")
    if not inplace:
        model = copy.deepcopy(model)
    model.eval()
    _swapped(model, None, "", qconfig_spec, {_layers.Linear: Linear} if mapping is None else mapping, {})
    return model
