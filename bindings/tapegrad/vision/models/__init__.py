"""Networks with torchvision's names, arguments, initialisation and state_dict keys."""

from . import segmentation
from ._registry import get_model, get_model_builder, list_models, register_model
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
