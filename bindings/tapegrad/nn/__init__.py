"""Neural networks: modules, layers, losses, initialisation. The layers come from the rows of nn/modules.toml."""

from . import functional, init, parameter, utils  # noqa: I001  modules comes last
from ._layers import *  # noqa: F403
from ._layers import __all__ as _layer_names
from ._upsampling import UpsamplingBilinear2d, UpsamplingNearest2d
from .container import ModuleDict, ModuleList, ParameterDict, ParameterList, Sequential
from .module import Module
from .parameter import Buffer, Parameter
from . import modules  # after the layers: it sorts them into PyTorch's paths

__all__ = [*_layer_names, "Buffer", "Module", "ModuleDict", "ModuleList", "Parameter", "ParameterDict", "ParameterList",
           "Sequential", "UpsamplingBilinear2d", "UpsamplingNearest2d", "functional", "init", "modules", "parameter",
           "utils"]
