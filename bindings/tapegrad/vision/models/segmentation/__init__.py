"""A class for every pixel: FCN (Long et al., 2014) and DeepLabV3 (Chen et al., 2017) on ResNets."""

from .networks import *
