"""Transforms as objects: called with an image, they give the changed one. Names and arguments are torchvision's.

Random numbers come from tapegrad's generator (`RandomChoice` and `RandomOrder` use Python's), so that the loader's keys for each
sample make them independent of the number of workers.
"""

from ._base import (
    Compose,
    ConvertImageDtype,
    Lambda,
    LinearTransformation,
    Normalize,
    PILToTensor,
    RandomApply,
    RandomChoice,
    RandomOrder,
    RandomTransforms,
    ToPILImage,
    ToTensor,
)
from ._colour import (
    ColorJitter,
    GaussianBlur,
    Grayscale,
    RandomAdjustSharpness,
    RandomAutocontrast,
    RandomEqualize,
    RandomErasing,
    RandomGrayscale,
    RandomInvert,
    RandomPosterize,
    RandomSolarize,
)
from ._geometry import (
    CenterCrop,
    ElasticTransform,
    FiveCrop,
    Pad,
    RandomAffine,
    RandomCrop,
    RandomHorizontalFlip,
    RandomPerspective,
    RandomResizedCrop,
    RandomRotation,
    RandomVerticalFlip,
    Resize,
    TenCrop,
)
from .functional import InterpolationMode

__all__ = [
    "CenterCrop", "ColorJitter", "Compose", "ConvertImageDtype", "ElasticTransform", "FiveCrop", "GaussianBlur", "Grayscale",
    "InterpolationMode", "Lambda", "LinearTransformation", "Normalize", "PILToTensor", "Pad", "RandomAdjustSharpness", "RandomAffine",
    "RandomApply", "RandomAutocontrast", "RandomChoice", "RandomCrop", "RandomEqualize", "RandomErasing", "RandomGrayscale",
    "RandomHorizontalFlip", "RandomInvert", "RandomOrder", "RandomPerspective", "RandomPosterize", "RandomResizedCrop",
    "RandomRotation", "RandomSolarize", "RandomTransforms", "RandomVerticalFlip", "Resize", "TenCrop", "ToPILImage", "ToTensor",
]
