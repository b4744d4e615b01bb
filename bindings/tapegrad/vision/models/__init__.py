"""Networks with torchvision's names, arguments, initialisation and state_dict keys."""

from . import segmentation
from ._registry import get_model, get_model_builder, get_model_weights, list_models, register_model
from .alexnet import *
from .convnext import *
from .densenet import *
from .efficientnet import *
from .googlenet import *
from .inception import *
from .mobilenet import *
from .resnet import *
from .shufflenetv2 import *
from .squeezenet import *
from .vgg import *
from .vision_transformer import *


def __getattr__(name: str):
    if name == "get_weight" or name.endswith("_Weights"):  # built when first asked for
        from . import _weights

        if name in _weights.enumerations or name == "get_weight":
            return getattr(_weights, name)
    if name in ("feature_extraction", "_utils", "_api"):
        import importlib

        return importlib.import_module(f"{__name__}.{'_weights' if name == '_api' else name}")
    from ..._hints import no_attribute

    raise no_attribute(__name__, name, globals())
