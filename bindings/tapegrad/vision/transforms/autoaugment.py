"""Chains of random changes: AutoAugment's learnt policies (Cubuk et al., 2018, tables 7, 8 and 9), RandAugment (Cubuk et al., 2019),
TrivialAugment (Müller and Hutter, 2021)."""

import enum
import math

from ... import is_tensor, rand, randint
from ...nn import Module
from . import functional as F
from ._base import fill_for, shown
from .functional import InterpolationMode

__all__ = ["AutoAugment", "AutoAugmentPolicy", "RandAugment", "TrivialAugmentWide"]


class AutoAugmentPolicy(enum.Enum):
    """The sets of pictures that the policies were learnt on."""

    IMAGENET = "imagenet"
    CIFAR10 = "cifar10"
    SVHN = "svhn"


# Each line: two changes, with the tenths of their probability and their magnitude from 0 to 9 (none: it has no strength).
_POLICIES = {
    AutoAugmentPolicy.IMAGENET: """
        Posterize 4 8, Rotate 6 9; Solarize 6 5, AutoContrast 6; Equalize 8, Equalize 6; Posterize 6 7, Posterize 6 6;
        Equalize 4, Solarize 2 4; Equalize 4, Rotate 8 8; Solarize 6 3, Equalize 6; Posterize 8 5, Equalize 10;
        Rotate 2 3, Solarize 6 8; Equalize 6, Posterize 4 6; Rotate 8 8, Color 4 0; Rotate 4 9, Equalize 6;
        Equalize 0, Equalize 8; Invert 6, Equalize 10; Color 6 4, Contrast 10 8; Rotate 8 8, Color 10 2;
        Color 8 8, Solarize 8 7; Sharpness 4 7, Invert 6; ShearX 6 5, Equalize 10; Color 4 0, Equalize 6;
        Equalize 4, Solarize 2 4; Solarize 6 5, AutoContrast 6; Invert 6, Equalize 10; Color 6 4, Contrast 10 8;
        Equalize 8, Equalize 6""",
    AutoAugmentPolicy.CIFAR10: """
        Invert 1, Contrast 2 6; Rotate 7 2, TranslateX 3 9; Sharpness 8 1, Sharpness 9 3; ShearY 5 8, TranslateY 7 9;
        AutoContrast 5, Equalize 9; ShearY 2 7, Posterize 3 7; Color 4 3, Brightness 6 7; Sharpness 3 9, Brightness 7 9;
        Equalize 6, Equalize 5; Contrast 6 7, Sharpness 6 5; Color 7 7, TranslateX 5 8; Equalize 3, AutoContrast 4;
        TranslateY 4 3, Sharpness 2 6; Brightness 9 6, Color 2 8; Solarize 5 2, Invert 0; Equalize 2, AutoContrast 6;
        Equalize 2, Equalize 6; Color 9 9, Equalize 6; AutoContrast 8, Solarize 2 8; Brightness 1 3, Color 7 0;
        Solarize 4 5, AutoContrast 9; TranslateY 9 9, TranslateY 7 9; AutoContrast 9, Solarize 8 3; Equalize 8, Invert 1;
        TranslateY 7 9, AutoContrast 9""",
    AutoAugmentPolicy.SVHN: """
        ShearX 9 4, Invert 2; ShearY 9 8, Invert 7; Equalize 6, Solarize 6 6; Invert 9, Equalize 6; Equalize 6, Rotate 9 3;
        ShearX 9 4, AutoContrast 8; ShearY 9 8, Invert 4; ShearY 9 5, Solarize 2 6; Invert 9, AutoContrast 8;
        Equalize 6, Rotate 9 3; ShearX 9 4, Solarize 3 3; ShearY 8 8, Invert 7; Equalize 9, TranslateY 6 6;
        Invert 9, Equalize 6; Contrast 3 3, Rotate 8 4; Invert 8, TranslateY 0 2; ShearY 7 6, Solarize 4 8;
        Invert 6, Rotate 8 4; ShearY 3 7, TranslateX 9 3; ShearX 1 6, Invert 6; Solarize 7 2, TranslateY 6 7;
        ShearY 8 4, Invert 8; ShearX 7 9, TranslateY 8 3; ShearY 8 5, AutoContrast 7; ShearX 7 2, Invert 1""",
}

_WITHOUT_STRENGTH = {"Identity": lambda img: img, "AutoContrast": F.autocontrast, "Equalize": F.equalize, "Invert": F.invert}
_FACTORS = {"Brightness": F.adjust_brightness, "Color": F.adjust_saturation, "Contrast": F.adjust_contrast, "Sharpness": F.adjust_sharpness}
_SIGNED = {"ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", *_FACTORS}


def _apply(img, name: str, magnitude: float, interpolation, fill):
    """The change `name` of the given strength."""
    if name in _WITHOUT_STRENGTH:
        return _WITHOUT_STRENGTH[name](img)
    if name in _FACTORS:
        return _FACTORS[name](img, 1.0 + magnitude)
    if name == "Rotate":
        return F.rotate(img, magnitude, interpolation=interpolation, fill=fill)
    if name == "Posterize":
        return F.posterize(img, int(magnitude))
    if name == "Solarize":
        return F.solarize(img, magnitude)
    across = name.endswith("X")
    if name.startswith("Shear"):  # the papers shear by the tangent, about the corner
        angle = math.degrees(math.atan(magnitude))
        return F.affine(img, 0.0, [0, 0], 1.0, [angle, 0.0] if across else [0.0, angle], interpolation, fill, center=[0, 0])
    shift = int(magnitude)
    return F.affine(img, 0.0, [shift, 0] if across else [0, shift], 1.0, [0.0, 0.0], interpolation, fill)


def _strength(name: str, step: int, steps: int, ranges: dict) -> float:
    """Magnitude number `step` of `steps`."""
    if name in _WITHOUT_STRENGTH:
        return 0.0
    share = step / (steps - 1)
    if name == "Posterize":
        return 8 - round(share * ranges[name])
    if name == "Solarize":
        return 255.0 * (1 - share)
    return share * ranges[name]


def _ranges(img) -> dict:
    """The largest magnitude of each change, of AutoAugment and RandAugment; translations are 150 of 331 pixels."""
    _, height, width = F.get_dimensions(img)
    return {"ShearX": 0.3, "ShearY": 0.3, "TranslateX": 150.0 / 331.0 * width, "TranslateY": 150.0 / 331.0 * height, "Rotate": 30.0,
            **dict.fromkeys(_FACTORS, 0.9), "Posterize": 4}


class _Augment(Module):
    """What the three have in common."""

    def __init__(self, interpolation, fill) -> None:
        super().__init__()
        self.interpolation = interpolation
        self.fill = fill

    def _change(self, img, name, magnitude):
        fill = self.fill if self.fill is None or not is_tensor(img) else fill_for(img, self.fill)
        return _apply(img, name, magnitude, self.interpolation, fill)


def _draw(n: int) -> int:
    return int(randint(0, n, ()).item())


class AutoAugment(_Augment):
    """One of the 25 pairs of changes of a learnt policy, each with its probability; images of 8 bits."""

    def __init__(self, policy=AutoAugmentPolicy.IMAGENET, interpolation=InterpolationMode.NEAREST, fill=None) -> None:
        super().__init__(interpolation, fill)
        if policy not in _POLICIES:
            raise ValueError(f"The provided policy {policy} is not recognized.")
        self.policy = policy
        self.policies = []
        for pair in _POLICIES[policy].split(";"):
            parts = [change.split() for change in pair.split(",")]
            self.policies.append(tuple((p[0], int(p[1]) / 10, int(p[2]) if len(p) > 2 else None) for p in parts))

    @staticmethod
    def get_params(transform_num: int):
        """(number of the pair, two random numbers, two signs)"""
        return _draw(transform_num), rand((2,)), randint(2, (2,))

    def forward(self, img):
        number, chances, signs = self.get_params(len(self.policies))
        for (name, p, step), chance, sign in zip(self.policies[number], chances.tolist(), signs.tolist(), strict=True):
            if chance <= p:
                magnitude = 0.0 if step is None else _strength(name, step, 10, _ranges(img))
                img = self._change(img, name, -magnitude if name in _SIGNED and sign == 0 else magnitude)
        return img

    __repr__ = shown("policy", "fill")


_RAND_SPACE = ["Identity", "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast", "Sharpness",
               "Posterize", "Solarize", "AutoContrast", "Equalize"]


class RandAugment(_Augment):
    """num_ops random changes, all of the same magnitude (0 to num_magnitude_bins - 1); images of 8 bits."""

    def __init__(self, num_ops: int = 2, magnitude: int = 9, num_magnitude_bins: int = 31, interpolation=InterpolationMode.NEAREST,
                 fill=None) -> None:
        super().__init__(interpolation, fill)
        self.num_ops, self.magnitude, self.num_magnitude_bins = num_ops, magnitude, num_magnitude_bins

    def forward(self, img):
        ranges = _ranges(img)
        for _ in range(self.num_ops):
            name = _RAND_SPACE[_draw(len(_RAND_SPACE))]
            magnitude = _strength(name, self.magnitude, self.num_magnitude_bins, ranges)
            img = self._change(img, name, -magnitude if name in _SIGNED and _draw(2) else magnitude)
        return img

    __repr__ = shown("num_ops", "magnitude", "num_magnitude_bins", "interpolation", "fill")


class TrivialAugmentWide(_Augment):
    """One random change of a random magnitude, from wide ranges; images of 8 bits."""

    _widest = {"ShearX": 0.99, "ShearY": 0.99, "TranslateX": 32.0, "TranslateY": 32.0, "Rotate": 135.0, **dict.fromkeys(_FACTORS, 0.99),
               "Posterize": 6}

    def __init__(self, num_magnitude_bins: int = 31, interpolation=InterpolationMode.NEAREST, fill=None) -> None:
        super().__init__(interpolation, fill)
        self.num_magnitude_bins = num_magnitude_bins

    def forward(self, img):
        name = _RAND_SPACE[_draw(len(_RAND_SPACE))]
        magnitude = _strength(name, _draw(self.num_magnitude_bins), self.num_magnitude_bins, self._widest)
        return self._change(img, name, -magnitude if name in _SIGNED and _draw(2) else magnitude)

    __repr__ = shown("num_magnitude_bins", "interpolation", "fill")
