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
from .more_layers import *  # noqa: F403
from .more_layers import __all__ as _more_names
from .parallel import DataParallel
from .parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter
from .recurrent import GRU, LSTM, RNN, RNNBase
from .transformer import (MultiheadAttention, Transformer, TransformerDecoder, TransformerDecoderLayer, TransformerEncoder,
                          TransformerEncoderLayer)
from . import modules  # after the layers: it sorts them into PyTorch's paths


def __getattr__(name: str):
    from .._hints import no_attribute

    raise no_attribute(__name__, name, __all__)


__all__ = [*_layer_names, *_lazy_names, *_more_names, "Buffer", "DataParallel", "GRU", "LSTM", "Module", "ModuleDict", "ModuleList",
           "MultiheadAttention", "Parameter", "ParameterDict", "ParameterList", "RNN", "RNNBase", "RNNCellBase", "Sequential",
           "Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder", "TransformerEncoderLayer",
           "UninitializedBuffer", "UninitializedParameter", "UpsamplingBilinear2d", "UpsamplingNearest2d", "attention",
           "functional", "init", "modules", "parallel", "parameter", "utils"]
