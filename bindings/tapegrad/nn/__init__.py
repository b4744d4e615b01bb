"""Neural networks: modules, layers, losses, initialisation. Most layers come from the rows of nn/modules.toml."""

from . import attention, functional, init, parallel, parameter, utils  # noqa: I001  modules comes last
from ._layers import *  # noqa: F403
from ._layers import __all__ as _layer_names
from ._bases import RNNCellBase
from ._upsampling import UpsamplingBilinear2d, UpsamplingNearest2d
from .container import ModuleDict, ModuleList, ParameterDict, ParameterList, Sequential
from .lazy import *  # noqa: F403
from .lazy import __all__ as _lazy_names
from .module import Module
from .handwritten_layers import *  # noqa: F403
from .handwritten_layers import __all__ as _handwritten_names
from .parallel import DataParallel
from .parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter
from .recurrent import GRU, LSTM, RNN, RNNBase
from .transformer import (MultiheadAttention, Transformer, TransformerDecoder, TransformerDecoderLayer, TransformerEncoder,
                          TransformerEncoderLayer)
from . import modules  # after the layers: it sorts them into PyTorch's paths

TYPE_CHECKING = False  # known to type checkers by its name
if TYPE_CHECKING:
    from . import common_types, grad


def factory_kwargs(kwargs: dict | None) -> dict:
    """Of the keyword arguments of a constructor those for the functions that make tensors: device, dtype and memory_format, from
    `kwargs` itself or from its entry `factory_kwargs`. Raises TypeError for others."""
    if kwargs is None:
        return {}
    simple = ("device", "dtype", "memory_format")
    unknown = kwargs.keys() - {*simple, "factory_kwargs"}
    if unknown:
        raise TypeError(f"unexpected kwargs {unknown}")
    result = dict(kwargs.get("factory_kwargs", {}))
    for key in simple:
        if key in kwargs:
            if key in result:
                raise TypeError(f"{key} specified twice, in **kwargs and in factory_kwargs")
            result[key] = kwargs[key]
    return result


if not TYPE_CHECKING:  # which would take any name for one that is there
    def __getattr__(name: str):
        if name in ("common_types", "grad", "intrinsic", "qat", "quantizable", "quantized"):
            from .._lazy import load

            return load(f"{__name__}.{name}")
        from .._hints import no_attribute

        raise no_attribute(__name__, name, __all__)


__all__ = [*_layer_names, *_lazy_names, *_handwritten_names, "Buffer", "DataParallel", "GRU", "LSTM", "Module", "ModuleDict", "ModuleList",
           "MultiheadAttention", "Parameter", "ParameterDict", "ParameterList", "RNN", "RNNBase", "RNNCellBase", "Sequential",
           "Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder", "TransformerEncoderLayer",
           "UninitializedBuffer", "UninitializedParameter", "UpsamplingBilinear2d", "UpsamplingNearest2d", "attention",
           "factory_kwargs", "functional", "init", "modules", "parallel", "parameter", "utils"]
