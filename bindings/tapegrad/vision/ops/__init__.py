"""Operations and small modules of vision: boxes, regions of feature maps, losses of detection, blocks of networks."""

from . import boxes, misc
from .boxes import *
from .feature_pyramid_network import FeaturePyramidNetwork
from .losses import *
from .misc import *
from .roi import *
