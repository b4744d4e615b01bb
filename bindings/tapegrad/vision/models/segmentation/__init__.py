"""Semantic segmentation: FCN (Long et al., 2014) and DeepLabV3 (Chen et al., 2017) on ResNets."""

from .networks import *


def __getattr__(name: str):
    from .. import _weights

    if name in _weights.enumerations:
        return _weights.enumerations[name]
    from ...._hints import no_attribute

    raise no_attribute(__name__, name, globals())
