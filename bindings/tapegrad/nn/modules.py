"""Layers under the paths that PyTorch's source gives them: nn.modules.batchnorm._BatchNorm and the like.

Each path is a module object made here and entered into sys.modules, so that imports of it work.
"""

import sys
import types

from . import (
    _bases,
    _layers,
    _state,
    _tuples,
    _upsampling,
    container,
    functional,
    handwritten_layers,
    init,
    lazy,
    module,
    recurrent,
    transformer,
)
from .parameter import Parameter
from .transformer import _activation

__path__: list = []  # so that `import tapegrad.nn.modules.conv` asks for children

_HAND_WRITTEN = (_upsampling, lazy, handwritten_layers, recurrent, transformer)
_ALL = {name: value for source in (container, _layers, *_HAND_WRITTEN) for name, value in vars(source).items()
        if isinstance(value, type) and issubclass(value, module.Module)}
_ALL.update({name: getattr(_bases, name) for name in _bases.__all__ if isinstance(getattr(_bases, name), type)})
globals().update(_ALL)
LinearCrossEntropyOptions = handwritten_layers.LinearCrossEntropyOptions
LazyModuleMixin = lazy.LazyModuleMixin
Module = module.Module
_EVERYWHERE = {"F": functional, "Module": Module, "Parameter": Parameter, "Tensor": _tuples.Tensor, "init": init}

_PLACES = {
    "linear": ("Linear", "Bilinear", "Identity", "LazyLinear", "NonDynamically"),
    "conv": ("_ConvNd", "_ConvTranspose", "Conv", "LazyConv"),
    "batchnorm": ("_NormBase", "_BatchNorm", "BatchNorm", "SyncBatchNorm", "LazyBatchNorm"),
    "instancenorm": ("_InstanceNorm", "InstanceNorm", "LazyInstanceNorm"),
    "normalization": ("LayerNorm", "GroupNorm", "LocalResponseNorm", "CrossMapLRN2d", "RMSNorm"),
    "adaptive": ("AdaptiveLogSoftmax",),
    "fold": ("Fold", "Unfold"),
    "transformer": ("Transformer",),
    "lazy": ("LazyModuleMixin",),
    "sparse": ("Embedding", "EmbeddingBag"),
    "dropout": ("_DropoutNd", "Dropout", "AlphaDropout", "FeatureAlphaDropout"),
    "pooling": ("_MaxPool", "_MaxUnpool", "_AvgPool", "_LPPool", "_Adaptive", "MaxPool", "AvgPool", "LPPool", "AdaptiveA", "AdaptiveM", "MaxUnpool", "FractionalMaxPool"),
    "padding": ("ZeroPad", "ConstantPad", "ReflectionPad", "ReplicationPad", "CircularPad"),
    "flatten": ("Flatten", "Unflatten"),
    "upsampling": ("Upsampl",),
    "pixelshuffle": ("PixelShuffle", "PixelUnshuffle"),
    "channelshuffle": ("ChannelShuffle",),
    "distance": ("CosineSimilarity", "PairwiseDistance"),
    "loss": ("_Loss", "_WeightedLoss"),
    "rnn": ("RNN", "GRU", "LSTM"),
}


def apply_permutation(tensor, permutation, dim: int = 1):
    """tensor.index_select(dim, permutation), under the name that it has in nn.modules.rnn."""
    return tensor.index_select(dim, permutation)


def _make(name: str, members: dict) -> None:
    made = types.ModuleType(f"{__name__}.{name}", f"The classes of nn that PyTorch keeps in nn/modules/{name}.py.")
    vars(made).update({**_EVERYWHERE, **members})
    sys.modules[made.__name__] = made
    globals()[name] = made


def _make_all() -> None:
    placed = set()
    for name, starts in _PLACES.items():
        members = {k: v for k, v in _ALL.items() if k.startswith(starts) and (not k.endswith("Loss") or name in ("adaptive", "loss"))}
        placed |= set(members)
        _make(name, members)
    vars(globals()["loss"]).update({k: v for k, v in _ALL.items() if k.endswith(("Loss", "Loss2d"))})
    layers = ({*_layers.__all__, "MultiheadAttention"}) - placed
    _make("activation", {k: _ALL[k] for k in layers if not k.endswith("Loss")})
    vars(globals()["lazy"])["LazyModuleMixin"] = LazyModuleMixin
    vars(globals()["rnn"])["apply_permutation"] = apply_permutation
    vars(globals()["transformer"])["_get_activation_fn"] = _activation
    module._IncompatibleKeys, module._EXTRA_STATE_KEY_SUFFIX = _state._IncompatibleKeys, "_extra_state"
    _make("linear_cross_entropy_options", {"LinearCrossEntropyOptions": LinearCrossEntropyOptions})
    container.Container = handwritten_layers.Container
    for name, real in (("container", container), ("module", module), ("utils", _tuples)):
        sys.modules[f"{__name__}.{name}"] = real
        globals()[name] = real


_make_all()
