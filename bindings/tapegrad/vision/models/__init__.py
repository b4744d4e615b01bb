"""Networks with torchvision's names, arguments, initialisation and state_dict keys."""

from ._registry import get_model, get_model_builder, list_models, register_model
from .resnet import *
