"""Published weights: an enumeration for each network (`ResNet18_Weights.IMAGENET1K_V1`), fetched by `hub` when a network asks for them.

The files are PyTorch's; the end of a name is the beginning of the file's SHA-256 sum, which is checked.
"""

import enum
from dataclasses import dataclass, field
from functools import partial

from ...hub import load_state_dict_from_url
from ..transforms._presets import ImageClassification, SemanticSegmentation
from ..transforms.functional import InterpolationMode

__all__ = ["Weights", "WeightsEnum", "enumerations", "get_weight"]


@dataclass(frozen=True)
class Weights:
    """Where a file is, how its images are prepared, and plain facts about it."""

    url: str
    transforms: object = field(compare=False)
    meta: dict = field(compare=False, hash=False)


class WeightsEnum(enum.Enum):
    """Base of the enumerations."""

    @classmethod
    def verify(cls, obj):
        """The member, given as such or by its name; None stays."""
        if obj is None or isinstance(obj, cls):
            return obj
        if isinstance(obj, str):
            return cls[obj.replace(f"{cls.__name__}.", "")]
        raise TypeError(f"Invalid Weight class provided; expected {cls.__name__} but received {type(obj).__name__}.")

    def get_state_dict(self, *args, **kwargs):
        """The tensors, downloaded unless they are in the folder of downloads."""
        return load_state_dict_from_url(self.url, *args, **kwargs)

    @property
    def url(self) -> str:
        """Where the file is."""
        return self.value.url

    @property
    def transforms(self):
        """A function that makes what prepares the images."""
        return self.value.transforms

    @property
    def meta(self) -> dict:
        """Plain facts."""
        return self.value.meta

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self._name_}"


_BASE = "https://download.pytorch.org/models/"
_V1 = {"crop_size": 224}
_V2 = {"crop_size": 224, "resize_size": 232}
_CUBIC = InterpolationMode.BICUBIC


def _b(crop: int, resize: int, interpolation=_CUBIC) -> dict:
    return {"crop_size": crop, "resize_size": resize, "interpolation": interpolation}


# Enumeration: the network's function and, for each set of weights, (end of the address, how images are prepared).
_TABLE = {
    "AlexNet": ("alexnet", [("alexnet-owt-7be5be79", _V1)]),
    "VGG11": ("vgg11", [("vgg11-8a719046", _V1)]), "VGG11_BN": ("vgg11_bn", [("vgg11_bn-6002323d", _V1)]),
    "VGG13": ("vgg13", [("vgg13-19584684", _V1)]), "VGG13_BN": ("vgg13_bn", [("vgg13_bn-abd245e5", _V1)]),
    "VGG16": ("vgg16", [("vgg16-397923af", _V1)]), "VGG16_BN": ("vgg16_bn", [("vgg16_bn-6c64b313", _V1)]),
    "VGG19": ("vgg19", [("vgg19-dcbb9e9d", _V1)]), "VGG19_BN": ("vgg19_bn", [("vgg19_bn-c79401a0", _V1)]),
    "ResNet18": ("resnet18", [("resnet18-f37072fd", _V1)]), "ResNet34": ("resnet34", [("resnet34-b627a593", _V1)]),
    "ResNet50": ("resnet50", [("resnet50-0676ba61", _V1), ("resnet50-11ad3fa6", _V2)]),
    "ResNet101": ("resnet101", [("resnet101-63fe2227", _V1), ("resnet101-cd907fc2", _V2)]),
    "ResNet152": ("resnet152", [("resnet152-394f9c45", _V1), ("resnet152-f82ba261", _V2)]),
    "ResNeXt50_32X4D": ("resnext50_32x4d", [("resnext50_32x4d-7cdf4587", _V1), ("resnext50_32x4d-1a0047aa", _V2)]),
    "ResNeXt101_32X8D": ("resnext101_32x8d", [("resnext101_32x8d-8ba56ff5", _V1), ("resnext101_32x8d-110c445d", _V2)]),
    "Wide_ResNet50_2": ("wide_resnet50_2", [("wide_resnet50_2-95faca4d", _V1), ("wide_resnet50_2-9ba9bcbe", _V2)]),
    "Wide_ResNet101_2": ("wide_resnet101_2", [("wide_resnet101_2-32ee1156", _V1), ("wide_resnet101_2-d733dc28", _V2)]),
    "SqueezeNet1_0": ("squeezenet1_0", [("squeezenet1_0-b66bff10", _V1)]), "SqueezeNet1_1": ("squeezenet1_1", [("squeezenet1_1-b8a52dc0", _V1)]),
    "DenseNet121": ("densenet121", [("densenet121-a639ec97", _V1)]), "DenseNet161": ("densenet161", [("densenet161-8d451a50", _V1)]),
    "DenseNet169": ("densenet169", [("densenet169-b2777c0a", _V1)]), "DenseNet201": ("densenet201", [("densenet201-c1103571", _V1)]),
    "GoogLeNet": ("googlenet", [("googlenet-1378be20", _V1)]),
    "Inception_V3": ("inception_v3", [("inception_v3_google-0cc3c7bd", {"crop_size": 299, "resize_size": 342})]),
    "MobileNet_V2": ("mobilenet_v2", [("mobilenet_v2-b0353104", _V1), ("mobilenet_v2-7ebf99e0", _V2)]),
    "MobileNet_V3_Large": ("mobilenet_v3_large", [("mobilenet_v3_large-8738ca79", _V1), ("mobilenet_v3_large-5c1a4163", _V2)]),
    "MobileNet_V3_Small": ("mobilenet_v3_small", [("mobilenet_v3_small-047dcff4", _V1)]),
    "ShuffleNet_V2_X0_5": ("shufflenet_v2_x0_5", [("shufflenetv2_x0.5-f707e7126e", _V1)]),
    "ShuffleNet_V2_X1_0": ("shufflenet_v2_x1_0", [("shufflenetv2_x1-5666bf0f80", _V1)]),
    "EfficientNet_B0": ("efficientnet_b0", [("efficientnet_b0_rwightman-7f5810bc", _b(224, 256))]),
    "ViT_B_16": ("vit_b_16", [("vit_b_16-c867db91", _V1)]), "ViT_B_32": ("vit_b_32", [("vit_b_32-d86f8d99", _V1)]),
    "ConvNeXt_Tiny": ("convnext_tiny", [("convnext_tiny-983f1562", {"crop_size": 224, "resize_size": 236})]),
}
_SEGMENTATION = {
    "FCN_ResNet50": ("fcn_resnet50", "fcn_resnet50_coco-1167a1af"), "FCN_ResNet101": ("fcn_resnet101", "fcn_resnet101_coco-7ecb50ca"),
    "DeepLabV3_ResNet50": ("deeplabv3_resnet50", "deeplabv3_resnet50_coco-cd0a2569"),
    "DeepLabV3_ResNet101": ("deeplabv3_resnet101", "deeplabv3_resnet101_coco-586e9e4e"),
}


def _make(title: str, members: dict):
    cls = WeightsEnum(f"{title}_Weights", {**members, "DEFAULT": list(members.values())[-1]}, module=__name__)
    return cls


enumerations: dict[str, type[WeightsEnum]] = {}
_OF_FUNCTION: dict[str, type[WeightsEnum]] = {}
for _title, (_function, _files) in _TABLE.items():
    _members = {f"IMAGENET1K_V{i + 1}": Weights(f"{_BASE}{name}.pth", partial(ImageClassification, **how), {"num_classes": 1000})
                for i, (name, how) in enumerate(_files)}
    _OF_FUNCTION[_function] = enumerations[f"{_title}_Weights"] = _make(_title, _members)
for _title, (_function, _name) in _SEGMENTATION.items():
    _members = {"COCO_WITH_VOC_LABELS_V1": Weights(f"{_BASE}{_name}.pth", partial(SemanticSegmentation, resize_size=520), {"num_classes": 21})}
    _OF_FUNCTION[_function] = enumerations[f"{_title}_Weights"] = _make(_title, _members)
globals().update(enumerations)  # where pickle looks for them


def weights_for(function: str, weights, pretrained=None):
    """The member of a network's enumeration that `weights` (a member, its name, or 'DEFAULT') or the old `pretrained=True` means, or None."""
    if weights is None and not pretrained:
        return None
    cls = _OF_FUNCTION.get(function)
    if cls is None:
        raise ValueError(f"{function}: no published weights are known: got weights={weights!r}\n"
                         "build it with weights=None and load a file: model.load_state_dict(tapegrad.load(path))")
    if weights is None or weights is True:
        return next(iter(cls))
    return cls.verify(weights)


def get_weight(name: str) -> WeightsEnum:
    """The member that a name like 'ResNet50_Weights.IMAGENET1K_V2' means."""
    title, _, member = name.partition(".")
    if title not in enumerations or not member:
        raise ValueError(f"The weight enum '{title}' is not known: {name!r}")
    return enumerations[title][member]
