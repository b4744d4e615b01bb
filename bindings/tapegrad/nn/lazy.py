"""Layers that infer the number of input features from the first batch."""

# ruff: noqa: F822  most of __all__ is made in the loop at the end
from .. import int64, no_grad, tensor
from . import _layers
from .module import Module
from .parameter import UninitializedBuffer, UninitializedParameter, is_lazy

__all__ = ["LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d", "LazyConv1d", "LazyConv2d", "LazyConv3d",
           "LazyConvTranspose1d", "LazyConvTranspose2d", "LazyConvTranspose3d", "LazyInstanceNorm1d", "LazyInstanceNorm2d",
           "LazyInstanceNorm3d", "LazyLinear"]


class LazyModuleMixin:
    """Gives a layer parameters without a shape; the first forward calls initialize_parameters with its arguments, after which the
    layer is one of the class cls_to_become."""

    cls_to_become: type[Module] | None = None

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self._load_hook = self._register_load_state_dict_pre_hook(self._lazy_load_hook)
        self._initialize_hook = self.register_forward_pre_hook(self._infer_parameters, with_kwargs=True)

    def _tensors(self):
        return [(name, t) for name, t in [*self._parameters.items(), *self._buffers.items()] if t is not None]

    def _save_to_state_dict(self, destination, prefix, keep_vars) -> None:
        for name, t in self._tensors():
            if name not in self._non_persistent_buffers_set:
                destination[prefix + name] = t if is_lazy(t) or keep_vars else t.detach()

    def _lazy_load_hook(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs) -> None:
        for name, t in self._tensors():
            given = state_dict.get(prefix + name)
            if given is not None and is_lazy(t) and not is_lazy(given):
                with no_grad():
                    self._materialize(name, given.shape)

    def _materialize(self, name: str, shape) -> None:
        getattr(self, name).materialize(tuple(shape))

    def initialize_parameters(self, *args, **kwargs) -> None:
        raise NotImplementedError(f"initialize_parameters is not implemented for {type(self).__name__}")

    def has_uninitialized_params(self) -> bool:
        return any(is_lazy(t) for _, t in self._tensors())

    def _infer_parameters(self, module, args, kwargs=None) -> None:
        module.initialize_parameters(*args, **(kwargs or {}))
        if module.has_uninitialized_params():
            raise RuntimeError(f"module {self._get_name()} has not been fully initialized")
        module._initialize_hook.remove()
        module._load_hook.remove()
        del module._initialize_hook, module._load_hook
        if module.cls_to_become is not None:
            module.__class__ = module.cls_to_become


class _LazyLayer(LazyModuleMixin):
    """What the layers share: their number of inputs, `_inputs`, is 0 until it is known."""

    _inputs = "in_channels"

    def _declare(self, bias: bool, device, dtype) -> None:
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        if not self.has_uninitialized_params() and getattr(self, self._inputs) != 0:
            super().reset_parameters()


class LazyLinear(_LazyLayer, _layers.Linear):
    """Linear, with in_features from the first input."""

    cls_to_become = _layers.Linear
    _inputs = "in_features"

    def __init__(self, out_features: int, bias: bool = True, device=None, dtype=None) -> None:
        super().__init__(0, 0, False)
        self.out_features = out_features
        self._declare(bias, device, dtype)

    def initialize_parameters(self, input) -> None:
        features = input.shape[-1]
        if self.has_uninitialized_params():
            with no_grad():
                self.in_features = features
                self._materialize("weight", (self.out_features, features))
                if self.bias is not None:
                    self._materialize("bias", (self.out_features,))
                self.reset_parameters()
        elif self.in_features == 0:  # the weight was loaded
            if features != self.weight.shape[-1]:
                raise AssertionError(f"The in_features inferred from input: {features} is not equal to in_features from "
                                     f"self.weight: {self.weight.shape[-1]}")
            self.in_features = features


class _LazyConv(_LazyLayer):
    """What the lazy convolutions share."""

    _dimensions = 1

    def __init__(self, out_channels: int, kernel_size, stride=1, padding=0, dilation=1, groups: int = 1, bias: bool = True,
                 padding_mode: str = "zeros", device=None, dtype=None) -> None:
        super().__init__(0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode, device, dtype)
        self.out_channels = out_channels
        self._declare(bias, device, dtype)

    def initialize_parameters(self, input, *args, **kwargs) -> None:
        if not self.has_uninitialized_params():
            return
        n = self._dimensions
        if input.dim() not in (n + 1, n + 2):
            raise RuntimeError(f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input to {type(self).__name__}, but got input "
                               f"of size: {input.shape}")
        self.in_channels = input.shape[1] if input.dim() == n + 2 else input.shape[0]
        if self.in_channels % self.groups != 0:
            raise ValueError("in_channels must be divisible by groups")
        first, second = self.out_channels, self.in_channels
        if self._is_transposed:
            first, second = second, first
        self._materialize("weight", (first, second // self.groups, *self.kernel_size))
        if self.bias is not None:
            self._materialize("bias", (self.out_channels,))
        self.reset_parameters()


class _LazyConvTranspose(_LazyConv):
    """What the lazy transposed convolutions share."""

    def __init__(self, out_channels: int, kernel_size, stride=1, padding=0, output_padding=0, groups: int = 1, bias: bool = True, dilation=1,
                 padding_mode: str = "zeros", device=None, dtype=None) -> None:
        LazyModuleMixin.__init__(self, 0, 0, kernel_size, stride, padding, output_padding, groups, False, dilation, padding_mode, device, dtype)
        self.out_channels = out_channels
        self._declare(bias, device, dtype)


class _LazyNorm(_LazyLayer):
    """What the lazy normalisations share."""

    _inputs = "num_features"

    def __init__(self, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True, track_running_stats: bool = True,
                 device=None, dtype=None, *, bias: bool = True) -> None:
        super().__init__(0, eps, momentum, False, False, device=device, dtype=dtype, bias=False)
        self.affine = affine
        self.track_running_stats = track_running_stats
        if self.affine:
            self._declare(bias, device, dtype)
        if self.track_running_stats:
            self.running_mean = UninitializedBuffer(device=device, dtype=dtype)
            self.running_var = UninitializedBuffer(device=device, dtype=dtype)
            self.num_batches_tracked = tensor(0, dtype=int64, device=device)

    def initialize_parameters(self, input) -> None:
        if not self.has_uninitialized_params():
            return
        self.num_features = input.shape[1]
        for name in ("weight", "bias", "running_mean", "running_var"):
            if getattr(self, name) is not None:
                self._materialize(name, (self.num_features,))
        self.reset_parameters()


def _make(kind: str, base: type, **attributes):
    real = getattr(_layers, kind)
    made = type("Lazy" + kind, (base, real), {
        "__doc__": f"{kind}, with the number of channels from the first input.", "cls_to_become": real, "__module__": __name__,
        **attributes})
    globals()[made.__name__] = made


for _d in (1, 2, 3):
    _make(f"Conv{_d}d", _LazyConv, _dimensions=_d, _is_transposed=False)
    _make(f"ConvTranspose{_d}d", _LazyConvTranspose, _dimensions=_d, _is_transposed=True)
    _make(f"BatchNorm{_d}d", _LazyNorm)
    _make(f"InstanceNorm{_d}d", _LazyNorm)
