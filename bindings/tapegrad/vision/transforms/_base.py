"""Containers of transforms, those between kinds of images, and what random ones share."""

import numbers
import random
from collections.abc import Sequence

from ... import is_tensor, rand, randint
from ...nn import Module
from . import functional as F


# Small tools that several transforms share.
def size_pair_of_numbers(value, name: str):
    """The same number twice, or the two given ones."""
    if isinstance(value, numbers.Number):
        return value, value
    if not isinstance(value, Sequence):
        raise TypeError(f"{name} should be a number or a sequence of numbers. Got {type(value)}")
    if len(value) not in (1, 2):
        raise ValueError(f"If {name} is a sequence its length should be 1 or 2. Got {len(value)}")
    return value[0], value[-1]


def uniform(low: float, high: float) -> float:
    """A random number between low and high."""
    return low + (high - low) * rand(()).item()


def whole(low: int, high: int) -> int:
    """A random integer from low to high - 1."""
    return int(randint(low, high, ()).item())


def size_pair(size, message="Please provide only two dimensions (h, w) for size."):
    """(height, width) of one number or a sequence of one or two."""
    if isinstance(size, numbers.Number):
        return int(size), int(size)
    if isinstance(size, Sequence) and len(size) == 1:
        return size[0], size[0]
    if len(size) != 2:
        raise ValueError(message)
    return size


def interval(value, name: str, lengths=(2,)) -> list[float]:
    """The interval -value to value of one number, or the interval itself."""
    if isinstance(value, numbers.Number):
        if value < 0:
            raise ValueError(f"If {name} is a single number, it must be positive.")
        return [-float(value), float(value)]
    if not isinstance(value, Sequence):
        raise TypeError(f"{name} should be a sequence of length {' or '.join(map(str, lengths))}.")
    if len(value) not in lengths:
        raise ValueError(f"{name} should be sequence of length {' or '.join(map(str, lengths))}.")
    return [float(v) for v in value]


def fill_for(img, fill):
    """A fill of random geometry: for a tensor one number for each channel."""
    if not is_tensor(img):
        return fill
    channels = F.get_dimensions(img)[0]
    return [float(fill)] * channels if isinstance(fill, (int, float)) else [float(v) for v in fill]


def check_fill(fill):
    if fill is None:
        return 0
    if not isinstance(fill, (Sequence, numbers.Number)):
        raise TypeError("Fill should be either a sequence or a number.")
    return fill


def shown(*names: str, separator: str = ", "):
    """A __repr__: the class and its attributes of these names."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({separator.join(f'{name}={getattr(self, name)}' for name in names)})"

    return __repr__


class RandomChange(Module):
    """Base of what happens with probability p."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.p = p

    def forward(self, img):
        return self._change(img) if rand(()).item() < self.p else img

    __repr__ = shown("p")


# Containers.
class Compose:
    """Several transforms one after the other."""

    def __init__(self, transforms) -> None:
        self.transforms = transforms

    def __call__(self, img):
        for t in self.transforms:
            img = t(img)
        return img

    def __repr__(self) -> str:
        return f"{type(self).__name__}(" + "".join(f"\n    {t}" for t in self.transforms) + "\n)"


class Lambda:
    """A user-defined function."""

    def __init__(self, lambd) -> None:
        if not callable(lambd):
            raise TypeError(f"Argument lambd should be callable, got {type(lambd).__name__!r}")
        self.lambd = lambd

    def __call__(self, img):
        return self.lambd(img)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class RandomTransforms:
    """Base of RandomOrder and RandomChoice."""

    def __init__(self, transforms) -> None:
        if not isinstance(transforms, Sequence):
            raise TypeError("Argument transforms should be a sequence")
        self.transforms = transforms

    __repr__ = Compose.__repr__


class RandomApply(Module):
    """All transforms with probability p, or none."""

    def __init__(self, transforms, p: float = 0.5) -> None:
        super().__init__()
        self.transforms = transforms
        self.p = p

    def forward(self, img):
        if self.p < rand(()).item():
            return img
        for t in self.transforms:
            img = t(img)
        return img

    def __repr__(self) -> str:
        return f"{type(self).__name__}(\n    p={self.p}" + "".join(f"\n    {t}" for t in self.transforms) + "\n)"


class RandomOrder(RandomTransforms):
    """All transforms in a random order."""

    def __call__(self, img):
        order = list(range(len(self.transforms)))
        random.shuffle(order)
        for i in order:
            img = self.transforms[i](img)
        return img


class RandomChoice(RandomTransforms):
    """One of the transforms, drawn with the weights p."""

    def __init__(self, transforms, p=None) -> None:
        super().__init__(transforms)
        if p is not None and not isinstance(p, Sequence):
            raise TypeError("Argument p should be a sequence")
        self.p = p

    def __call__(self, *args):
        return random.choices(self.transforms, weights=self.p)[0](*args)

    def __repr__(self) -> str:
        return f"{super().__repr__()}(p={self.p})"


# Between kinds of images.
class ToTensor:
    """A Pillow image or an array (H, W, C) as a float tensor (C, H, W) with values from 0 to 1."""

    def __call__(self, pic):
        return F.to_tensor(pic)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class PILToTensor:
    """A Pillow image as a tensor (C, H, W) of the same numbers."""

    def __call__(self, pic):
        return F.pil_to_tensor(pic)

    __repr__ = ToTensor.__repr__


class ToPILImage:
    """A tensor (C, H, W) or an array (H, W, C) as a Pillow image."""

    def __init__(self, mode=None) -> None:
        self.mode = mode

    def __call__(self, pic):
        return F.to_pil_image(pic, self.mode)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'' if self.mode is None else f'mode={self.mode}'})"


class ConvertImageDtype(Module):
    """The image in another dtype, its values scaled to the new dtype's range."""

    def __init__(self, dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, image):
        return F.convert_image_dtype(image, self.dtype)


class Normalize(Module):
    """(value - mean) / std for each channel of a float image."""

    def __init__(self, mean, std, inplace: bool = False) -> None:
        super().__init__()
        self.mean, self.std, self.inplace = mean, std, inplace

    def forward(self, tensor):
        return F.normalize(tensor, self.mean, self.std, self.inplace)

    __repr__ = shown("mean", "std")


class LinearTransformation(Module):
    """The flattened image minus mean_vector, times a square matrix: whitening."""

    def __init__(self, transformation_matrix, mean_vector) -> None:
        super().__init__()
        n = transformation_matrix.size(0)
        if n != transformation_matrix.size(1):
            raise ValueError(f"transformation_matrix should be square. Got {list(transformation_matrix.size())} rectangular matrix.")
        if mean_vector.size(0) != n:
            raise ValueError(f"mean_vector should have the same length {mean_vector.size(0)} as any one of the dimensions of the "
                             f"transformation_matrix {list(transformation_matrix.size())}")
        self.transformation_matrix, self.mean_vector = transformation_matrix, mean_vector

    def forward(self, tensor):
        shape = tensor.shape
        n = shape[-3] * shape[-2] * shape[-1]
        if n != self.transformation_matrix.shape[0]:
            raise ValueError(f"Input tensor and transformation matrix have incompatible shape.{list(shape)} != {self.transformation_matrix.shape[0]}")
        return ((tensor.reshape(-1, n) - self.mean_vector) @ self.transformation_matrix).reshape(shape)
