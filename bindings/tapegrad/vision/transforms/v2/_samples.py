"""The transforms of `transforms`, applied to every image of a sample."""

import random

from .... import Tensor, float32, get_rng_state, set_rng_state
from ....nn import Module
from ... import tv_tensors
from ..._pillow import is_pil_image
from .. import autoaugment as _augment
from .. import functional as F
from .. import transforms as _single
from ..functional import InterpolationMode

# What changes where pixels are, and therefore masks, too.
_GEOMETRY = ["CenterCrop", "ElasticTransform", "FiveCrop", "Pad", "RandomAffine", "RandomCrop", "RandomHorizontalFlip", "RandomPerspective",
             "RandomResizedCrop", "RandomRotation", "RandomVerticalFlip", "Resize", "TenCrop"]
_VALUES = ["ColorJitter", "GaussianBlur", "Grayscale", "LinearTransformation", "Normalize", "RandomAdjustSharpness", "RandomAutocontrast",
           "RandomEqualize", "RandomErasing", "RandomGrayscale", "RandomInvert", "RandomPosterize", "RandomSolarize"]
_AUGMENTS = ["AutoAugment", "RandAugment", "TrivialAugmentWide"]

__all__ = [*_GEOMETRY, *_VALUES, *_AUGMENTS, "Compose", "ConvertImageDtype", "Identity", "Lambda", "PILToTensor",
           "RandomApply", "RandomChoice", "RandomOrder", "ToDtype", "ToImage", "ToPILImage", "ToPureTensor", "ToTensor", "Transform"]


def _map(value, function):
    """function of each leaf of nested tuples, lists and dictionaries."""
    if isinstance(value, dict):
        return type(value)((key, _map(v, function)) for key, v in value.items())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_map(v, function) for v in value))
    if isinstance(value, (tuple, list)):
        return type(value)(_map(v, function) for v in value)
    return function(value)


def _is_plain(value) -> bool:
    return isinstance(value, Tensor) and not isinstance(value, tv_tensors.TVTensor)


class Transform(Module):
    """Base: `transform(value, params)` is called with every image, video and mask of a sample, `make_params(images)` once before."""

    def make_params(self, flat_inputs):
        """What all images of a sample share; to be overridden."""
        return {}

    def transform(self, inpt, params):
        """What becomes of one of them; to be overridden."""
        raise NotImplementedError

    def forward(self, *inputs):
        sample = inputs if len(inputs) > 1 else inputs[0]
        leaves: list = []
        _map(sample, leaves.append)
        known = any(isinstance(v, (tv_tensors.Image, tv_tensors.Video)) or is_pil_image(v) for v in leaves)
        first = None if known else next((v for v in leaves if _is_plain(v)), None)
        chosen = [v for v in leaves if isinstance(v, tv_tensors.TVTensor) or is_pil_image(v) or (first is not None and v is first)]
        params = self.make_params(chosen)
        ids = {id(v) for v in chosen}
        return _map(sample, lambda v: self.transform(v, params) if id(v) in ids else v)


class _Wrapped(Transform):
    """A transform of single images; each image of a sample sees the same random numbers."""

    _touches_masks = False

    def __init__(self, *args, **kwargs) -> None:
        super().__init__()
        self._transform = self._single(*args, **kwargs)
        for name, value in vars(self._transform).items():
            if not name.startswith("_") and name != "training":
                setattr(self, name, value)

    def make_params(self, flat_inputs):
        # The numbers that the first image draws are drawn again for the others; behind the sample the generators are where one draw leaves them.
        return {"start": (get_rng_state(), random.getstate())}

    def transform(self, inpt, params):
        if isinstance(inpt, tv_tensors.Mask):
            if not self._touches_masks:
                return inpt
            return self._of_mask(inpt, params)
        set_rng_state(params["start"][0])
        random.setstate(params["start"][1])
        return _again(self._transform(inpt), inpt)

    def _of_mask(self, mask, params):
        set_rng_state(params["start"][0])
        random.setstate(params["start"][1])
        transform = self._transform
        plain = mask.as_subclass(Tensor)
        added = plain.ndim == 2
        saved = {name: getattr(transform, name) for name in ("interpolation", "fill") if hasattr(transform, name)}
        try:
            if "interpolation" in saved:
                transform.interpolation = InterpolationMode.NEAREST
            if "fill" in saved:
                transform.fill = 0
            out = transform(plain.unsqueeze(0) if added else plain)
        finally:
            for name, value in saved.items():
                setattr(transform, name, value)
        drop = (lambda t: t.squeeze(0)) if added else (lambda t: t)
        return tuple(_again(drop(t), mask) for t in out) if isinstance(out, tuple) else _again(drop(out), mask)

    def __repr__(self) -> str:
        return repr(self._transform)


def _again(result, like):
    if isinstance(result, tuple):
        return tuple(_again(r, like) for r in result)
    return tv_tensors.wrap(result, like=like) if isinstance(result, Tensor) else result


def _wrap(name: str, module, masks: bool):
    single = getattr(module, name)
    return type(name, (_Wrapped,), {"_single": single, "_touches_masks": masks, "__doc__": single.__doc__, "__module__": __name__,
                                    **{k: staticmethod(v.__func__) for k, v in vars(single).items() if k == "get_params"}})


for _name in _GEOMETRY:
    globals()[_name] = _wrap(_name, _single, True)
for _name in _VALUES:
    globals()[_name] = _wrap(_name, _single, False)
for _name in _AUGMENTS:
    globals()[_name] = _wrap(_name, _augment, False)


class _Container(Transform):
    def __init__(self, transforms) -> None:
        super().__init__()
        self.transforms = transforms

    def __repr__(self) -> str:
        return f"{type(self).__name__}(" + "".join(f"\n      {t}" for t in self.transforms) + "\n)"


class Compose(_Container):
    """Several transforms one after the other."""

    def forward(self, *inputs):
        several = len(inputs) > 1
        for t in self.transforms:
            outputs = t(*inputs)
            inputs = outputs if several else (outputs,)
        return outputs


class RandomApply(_Container):
    """All transforms with probability p, or none."""

    def __init__(self, transforms, p: float = 0.5) -> None:
        super().__init__(transforms)
        if not 0.0 <= p <= 1.0:
            raise ValueError("`p` should be a floating point value in the interval [0.0, 1.0].")
        self.p = p

    def forward(self, *inputs):
        from .... import rand

        if rand(()).item() >= self.p:
            return inputs if len(inputs) > 1 else inputs[0]
        return Compose(self.transforms)(*inputs)


class RandomChoice(_Container):
    """One of the transforms, drawn with the weights p."""

    def __init__(self, transforms, p=None) -> None:
        super().__init__(transforms)
        if p is not None and len(p) != len(transforms):
            raise ValueError(f"Length of p doesn't match the number of transforms: {len(p)} != {len(transforms)}")
        self.p = p

    def forward(self, *inputs):
        return random.choices(self.transforms, weights=self.p)[0](*inputs)


class RandomOrder(_Container):
    """All transforms in a random order."""

    def forward(self, *inputs):
        return Compose(random.sample(list(self.transforms), len(self.transforms)))(*inputs)


class Identity(Transform):
    """Nothing."""

    def transform(self, inpt, params):
        return inpt


class Lambda(Transform):
    """A user-defined function, for values of the given types."""

    def __init__(self, lambd, *types) -> None:
        super().__init__()
        self.lambd, self.types = lambd, types or (object,)

    def forward(self, *inputs):
        return _map(inputs if len(inputs) > 1 else inputs[0], lambda v: self.lambd(v) if isinstance(v, self.types) else v)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({getattr(self.lambd, '__name__', self.lambd)}, types={[t.__name__ for t in self.types]})"


class ToImage(Transform):
    """Pillow's images, arrays (H, W, C) and plain tensors as `tv_tensors.Image`, with the same numbers."""

    def forward(self, *inputs):
        return _map(inputs if len(inputs) > 1 else inputs[0], self._convert)

    @staticmethod
    def _convert(value):
        import numpy as np

        if isinstance(value, np.ndarray):
            value = np.ascontiguousarray(np.atleast_3d(value).transpose(2, 0, 1))
        elif not is_pil_image(value) and not _is_plain(value):
            return value
        return tv_tensors.Image(value)


class PILToTensor(Transform):
    """Pillow's images as plain tensors of the same numbers."""

    def transform(self, inpt, params):
        return F.pil_to_tensor(inpt) if is_pil_image(inpt) else inpt


class ToTensor(Transform):
    """Pillow's images as plain float tensors from 0 to 1."""

    def transform(self, inpt, params):
        return F.to_tensor(inpt) if is_pil_image(inpt) else inpt


class ToPILImage(Transform):
    """Images as Pillow's."""

    def __init__(self, mode=None) -> None:
        super().__init__()
        self.mode = mode

    def transform(self, inpt, params):
        return inpt if isinstance(inpt, tv_tensors.Mask) or is_pil_image(inpt) else F.to_pil_image(inpt.as_subclass(Tensor), self.mode)


class ToPureTensor(Transform):
    """All kinds as plain tensors."""

    def transform(self, inpt, params):
        return inpt.as_subclass(Tensor) if isinstance(inpt, Tensor) else inpt


class ToDtype(Transform):
    """Images and videos in another dtype, with scale their values scaled to its range; dtype may be a dictionary from kinds to dtypes."""

    def __init__(self, dtype, scale: bool = False) -> None:
        super().__init__()
        self.dtype, self.scale = dtype, scale

    def transform(self, inpt, params):
        dtype = self.dtype
        if isinstance(dtype, dict):
            dtype = dtype.get(type(inpt), dtype.get("others"))
        elif isinstance(inpt, tv_tensors.Mask):
            return inpt
        if dtype is None or is_pil_image(inpt):
            return inpt
        plain = inpt.as_subclass(Tensor)
        scaled = self.scale and not isinstance(inpt, tv_tensors.Mask)
        return tv_tensors.wrap(F.convert_image_dtype(plain, dtype) if scaled else plain.to(dtype), like=inpt)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(dtype={self.dtype}, scale={self.scale})"


class ConvertImageDtype(ToDtype):
    """ToDtype with scale."""

    def __init__(self, dtype=float32) -> None:
        super().__init__(dtype, scale=True)
