"""Transforms: images of Pillow and tensors give the same pictures; tensors against NumPy's formulas and on PyTorch's operators."""

import colorsys
import pickle

import numpy as np
import pytest
import tapegrad as tg
import vision_twin
from tapegrad.vision import transforms as T
from tapegrad.vision.transforms import functional as F

Image = pytest.importorskip("PIL.Image")
torch = pytest.importorskip("torch")


def smooth_picture(height=40, width=52, seed=0):
    """A colour picture without sharp edges, so that resampling in 8 bits and in floats agree."""
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (5, 6, 3), dtype=np.uint8))
    return small.resize((width, height), Image.Resampling.BICUBIC)


PICTURE = smooth_picture().point(lambda v: 20 + v * 4 // 5)
TENSOR = F.pil_to_tensor(PICTURE)
ARRAY = np.asarray(PICTURE).astype(np.float64)


def as_array(image):
    """(H, W, C) or (C, H, W) as float64 (C, H, W)."""
    return (F.pil_to_tensor(image) if not isinstance(image, tg.Tensor) else image).numpy().astype(np.float64)


def compare(call, most=1.0, share=0.0):
    """Both kinds of image give the same: at most `most` apart, but for a share of the pixels."""
    apart = np.abs(as_array(call(PICTURE)) - as_array(call(TENSOR)))
    assert (apart > most).mean() <= share, f"{(apart > most).mean():.4f} of the pixels differ by more than {most}, at most by {apart.max()}"


# Between kinds.
def test_to_tensor():
    out = T.ToTensor()(PICTURE)
    assert out.dtype is tg.float32
    np.testing.assert_allclose(out.numpy(), ARRAY.transpose(2, 0, 1) / 255, rtol=1e-6)
    gray = PICTURE.convert("L")
    assert T.ToTensor()(gray).shape == (1, 40, 52)
    np.testing.assert_array_equal(T.PILToTensor()(gray)[0].numpy(), np.asarray(gray))
    floats = np.random.default_rng(0).random((4, 5, 2))
    np.testing.assert_array_equal(T.ToTensor()(floats).numpy(), floats.transpose(2, 0, 1))  # no scaling of floats
    assert T.ToTensor()(np.zeros((4, 5), np.uint8)).shape == (1, 4, 5)
    bits = Image.fromarray(np.array([[True, False], [True, True]]))
    assert T.ToTensor()(bits).tolist() == [[[1, 0], [1, 1]]]
    assert F.pil_to_tensor(bits).tolist() == [[[1, 0], [1, 1]]]
    long = Image.fromarray(np.array([[70000, -5]], np.int32))
    assert T.ToTensor()(long).tolist() == [[[70000, -5]]]
    for wrong, error in ((np.zeros(3), ValueError), (3, TypeError), ([1], TypeError)):
        with pytest.raises(error):
            F.to_tensor(wrong)
    with pytest.raises(TypeError, match="pic should be PIL Image"):
        F.pil_to_tensor(np.zeros((2, 2)))


def test_to_pil_image():
    back = T.ToPILImage()(TENSOR)
    assert back.mode == "RGB" and np.array_equal(np.asarray(back), np.asarray(PICTURE))
    assert np.array_equal(np.asarray(F.to_pil_image(T.ToTensor()(PICTURE))), np.asarray(PICTURE))
    for channels, mode in ((1, "L"), (2, "LA"), (4, "RGBA")):
        assert F.to_pil_image(tg.zeros(channels, 3, 4, dtype=tg.uint8)).mode == mode
    assert F.to_pil_image(tg.zeros(3, 3, 4, dtype=tg.uint8), mode="HSV").mode == "HSV"
    assert F.to_pil_image(np.full((2, 3), 7, np.int32)).mode == "I"
    assert F.to_pil_image(tg.full((2, 3), 0.5), mode="F").getpixel((0, 0)) == 0.5
    assert F.to_pil_image(np.full((2, 3, 1), 300, np.int16)).getpixel((0, 0)) == 300
    for wrong, error in ((tg.zeros(5, 2, 2), "4 channels"), (tg.zeros(2), "2/3 dimensional"), (np.zeros((2, 2, 3)), "not supported")):
        with pytest.raises((ValueError, TypeError), match=error):
            F.to_pil_image(wrong)
    with pytest.raises(ValueError, match="Only modes"):
        F.to_pil_image(TENSOR, mode="L")


def test_convert_image_dtype():
    assert F.convert_image_dtype(tg.tensor([0.0, 0.5, 1.0]), tg.uint8).tolist() == [0, 127, 255]
    assert F.convert_image_dtype(tg.tensor([0, 255], dtype=tg.uint8), tg.float32).tolist() == [0, 1]
    assert F.convert_image_dtype(tg.tensor([0, 255], dtype=tg.uint8), tg.int32).tolist() == [0, 255 * 2**23]
    assert F.convert_image_dtype(tg.tensor([2**31 - 1], dtype=tg.int32), tg.uint8).tolist() == [255]
    assert F.convert_image_dtype(tg.arange(256, dtype=tg.uint8)).dtype is tg.float32
    every = tg.arange(256, dtype=tg.uint8)
    assert tg.equal(F.convert_image_dtype(F.convert_image_dtype(every), tg.uint8), every)
    with pytest.raises(RuntimeError, match="cannot be performed safely"):
        F.convert_image_dtype(tg.zeros(2), tg.int32)


def test_normalize():
    x = tg.rand(2, 3, 4, 5)
    mean, std = [0.1, 0.2, 0.3], [0.5, 0.6, 0.7]
    want = (x.numpy() - np.array(mean)[:, None, None]) / np.array(std)[:, None, None]
    np.testing.assert_allclose(T.Normalize(mean, std)(x).numpy(), want, rtol=1e-5, atol=1e-6)
    y = x.clone()
    assert F.normalize(y, mean, std, inplace=True) is y
    np.testing.assert_allclose(y.numpy(), want, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="std evaluated to zero"):
        F.normalize(x, mean, [1, 0, 1])
    with pytest.raises(TypeError, match="float tensor"):
        F.normalize(TENSOR, mean, std)
    with pytest.raises(TypeError, match="Tensor Image"):
        F.normalize(PICTURE, mean, std)
    with pytest.raises(ValueError, match="Expected tensor to be a tensor image"):
        F.normalize(tg.zeros(3, 3), mean, std)


# Sizes and parts.
@pytest.mark.parametrize("size, options", [
    (20, {}), ([20], {}), ((30, 33), {}), (80, {}), (20, {"max_size": 24}), ((25, 70), {"interpolation": T.InterpolationMode.BICUBIC}),
    ((8, 13), {"interpolation": T.InterpolationMode.NEAREST_EXACT}), (None, {"max_size": 26}), (17, {"interpolation": 3})])
def test_resize(size, options):
    compare(lambda image: T.Resize(size, **options)(image), most=2.0, share=0.002)
    shape = {20: (20, 26), 80: (80, 104), 17: (17, 22)}.get(size) if isinstance(size, int) and "max_size" not in options else None
    if shape:
        assert T.Resize(size)(TENSOR).shape == (3, *shape)
    if options.get("max_size") == 24:
        assert T.Resize(size, **options)(TENSOR).shape == (3, 18, 24)


def test_resize_without_antialias_and_errors():
    want = torch.nn.functional.interpolate(torch.from_numpy(TENSOR.float().numpy())[None], size=(9, 13), mode="bilinear")
    np.testing.assert_allclose(F.resize(TENSOR.float(), [9, 13], antialias=False).numpy(), want[0].numpy(), rtol=1e-4)
    assert F.resize(TENSOR, 40) is TENSOR  # nothing to do
    with pytest.raises(TypeError, match="interpolation"):
        F.resize(TENSOR, 10, interpolation="best")
    with pytest.raises(ValueError, match="strictly greater"):
        F.resize(TENSOR, 20, max_size=20)
    with pytest.raises(NotImplementedError, match="lanczos"):
        F.resize(TENSOR, 20, interpolation=T.InterpolationMode.LANCZOS)
    with pytest.raises(TypeError, match="PIL Image or Tensor"):
        F.resize(np.zeros((3, 4, 4)), 2)
    with pytest.raises(ValueError, match="1 or 2 values"):
        T.Resize((1, 2, 3))


def test_crops_and_flips():
    a = ARRAY.transpose(2, 0, 1)
    for image in (PICTURE, TENSOR):
        np.testing.assert_array_equal(as_array(F.crop(image, 3, 5, 10, 12)), a[:, 3:13, 5:17])
        np.testing.assert_array_equal(as_array(F.hflip(image)), a[:, :, ::-1])
        np.testing.assert_array_equal(as_array(F.vflip(image)), a[:, ::-1])
        np.testing.assert_array_equal(as_array(F.center_crop(image, (10, 20))), a[:, 15:25, 16:36])
        wide = as_array(F.center_crop(image, (50, 20)))
        np.testing.assert_array_equal(wide, np.pad(a, ((0, 0), (5, 5), (0, 0)))[:, :, 16:36])
        outside = as_array(F.crop(image, -4, 45, 10, 12))
        np.testing.assert_array_equal(outside, np.pad(a, ((0, 0), (4, 0), (0, 5)))[:, :10, 45:57])
        five = F.five_crop(image, 10)
        np.testing.assert_array_equal(as_array(five[3]), a[:, -10:, -10:])
        np.testing.assert_array_equal(as_array(five[4]), as_array(F.center_crop(image, 10)))
        ten = T.TenCrop((10, 8), vertical_flip=True)(image)
        assert len(ten) == 10
        np.testing.assert_array_equal(as_array(ten[5]), a[:, ::-1][:, :10, :8])
        with pytest.raises(ValueError, match="bigger than input size"):
            F.five_crop(image, 41)
        resized = F.resized_crop(image, 2, 3, 20, 30, (10, 15))
        np.testing.assert_allclose(as_array(resized), as_array(F.resize(F.crop(image, 2, 3, 20, 30), (10, 15))))


@pytest.mark.parametrize("padding", [3, (2,), (1, 4), (1, 2, 3, 4), (-2, 3, -4, 5)])
@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric"])
def test_pad(padding, mode):
    sides = [padding] if isinstance(padding, int) else list(padding)
    left, top, right, bottom = sides * 4 if len(sides) == 1 else sides * 2 if len(sides) == 2 else sides
    a = ARRAY.transpose(2, 0, 1)[:, max(-top, 0):40 + min(bottom, 0), max(-left, 0):52 + min(right, 0)]
    widths = ((0, 0), (max(top, 0), max(bottom, 0)), (max(left, 0), max(right, 0)))
    want = np.pad(a, widths, mode=mode, **({"constant_values": 9} if mode == "constant" else {}))
    for image in (PICTURE, TENSOR):
        np.testing.assert_array_equal(as_array(F.pad(image, padding, fill=9, padding_mode=mode)), want)


def test_pad_colours_and_errors():
    for image in (PICTURE, TENSOR):
        out = as_array(F.pad(image, 2, fill=(10, 20, 30)))
        assert out[:, 0, 0].tolist() == [10, 20, 30] and out[:, 2, 2].tolist() == as_array(image)[:, 0, 0].tolist()
        with pytest.raises(ValueError, match="number of elements in 'fill'"):
            F.pad(image, 2, fill=(1, 2))
        with pytest.raises(ValueError, match="1, 2, or 4 element tuple"):
            F.pad(image, (1, 2, 3))
        with pytest.raises(ValueError, match="constant, edge, reflect or symmetric"):
            F.pad(image, 1, padding_mode="wrap")


# Colours.
@pytest.mark.parametrize("name, factors", [("adjust_brightness", (0, 0.5, 1.7)), ("adjust_contrast", (0, 0.4, 1.6)),
                                           ("adjust_saturation", (0, 0.3, 1.8)), ("adjust_sharpness", (0, 0.5, 2.0)), ("adjust_gamma", (0.5, 1.5))])
def test_adjustments(name, factors):
    for factor in factors:
        compare(lambda image, factor=factor: getattr(F, name)(image, factor), most=2.0)
        floats = getattr(F, name)(TENSOR.float() / 255, factor).numpy() * 255
        assert np.abs(floats - as_array(getattr(F, name)(TENSOR, factor))).max() < 3
    with pytest.raises(ValueError, match="is not non-negative"):
        getattr(F, name)(TENSOR, -1)


def test_hue():
    compare(lambda image: F.adjust_hue(image, 0.2), most=8.0, share=0.02)  # Pillow keeps hues in 8 bits
    x = tg.rand(3, 4, 5)
    got = F.adjust_hue(x, -0.3).numpy()
    for i in range(4):
        for j in range(5):
            h, s, v = colorsys.rgb_to_hsv(*x[:, i, j].tolist())
            np.testing.assert_allclose(got[:, i, j], colorsys.hsv_to_rgb((h - 0.3) % 1, s, v), atol=1e-5)
    gray = tg.full((3, 2, 2), 0.4)
    tg.testing.assert_close(F.adjust_hue(gray, 0.4), gray)
    assert F.adjust_hue(gray[:1], 0.4) is not None
    with pytest.raises(ValueError, match="is not in"):
        F.adjust_hue(x, 0.6)


def test_grayscale_and_levels():
    compare(lambda image: T.Grayscale()(image), most=1.0)
    assert T.Grayscale(3)(PICTURE).mode == "RGB" and T.Grayscale(3)(TENSOR).shape == TENSOR.shape
    assert F.to_grayscale(PICTURE).mode == "L"
    for call in (F.invert, lambda i: F.posterize(i, 3), lambda i: F.solarize(i, 100)):
        compare(call, most=0)
    compare(F.autocontrast, most=1.0)
    compare(F.equalize, most=1.0)
    assert F.invert(tg.tensor([[[0.25]]])).item() == 0.75
    flat = tg.full((3, 4, 4), 77, dtype=tg.uint8)
    assert tg.equal(F.autocontrast(flat), flat) and tg.equal(F.equalize(flat), flat)
    for call in (lambda: F.posterize(TENSOR.float(), 3), lambda: F.equalize(TENSOR.float()), lambda: F.solarize(TENSOR.float() / 255, 100)):
        with pytest.raises(TypeError):
            call()
    with pytest.raises(ValueError, match="between 0 and 8"):
        F.posterize(TENSOR, 9)


# Geometry.
@pytest.mark.parametrize("angle", [0, 90, 180, 33.0, -120.5])
@pytest.mark.parametrize("options", [{}, {"expand": True}, {"center": (10, 12), "fill": 50}, {"interpolation": T.InterpolationMode.BILINEAR}])
def test_rotate(angle, options):
    share = 0.06  # along the border the two round differently
    first, second = F.rotate(PICTURE, angle, **options), F.rotate(TENSOR, angle, **options)
    assert abs(first.width - second.shape[-1]) <= 1 and abs(first.height - second.shape[-2]) <= 1
    h, w = min(first.height, second.shape[-2]), min(first.width, second.shape[-1])
    if (first.height, first.width) == tuple(second.shape[-2:]):
        apart = np.abs(as_array(first) - as_array(second))[:, :h, :w]
        assert (apart > 24).mean() < share
    if angle == 90 and options == {"expand": True}:
        np.testing.assert_array_equal(as_array(second), np.rot90(as_array(TENSOR), axes=(1, 2)))
    if angle == 0:
        np.testing.assert_allclose(as_array(second), as_array(TENSOR), atol=1)


@pytest.mark.parametrize("arguments", [(20, (0, 0), 1.0, 0), (0, (5, -7), 1.0, (0, 0)), (0, (0, 0), 0.7, (0, 0)), (-15, (3, 2), 1.2, (10, 5)), (0, (0, 0), 1, [30])])
def test_affine(arguments):
    for mode in (T.InterpolationMode.NEAREST, T.InterpolationMode.BILINEAR):
        apart = np.abs(as_array(F.affine(PICTURE, *arguments, interpolation=mode, fill=20)) - as_array(F.affine(TENSOR, *arguments, interpolation=mode, fill=20)))
        assert (apart > 24).mean() < 0.05
    moved = F.affine(TENSOR, 0, (5, -7), 1.0, (0, 0))
    np.testing.assert_array_equal(moved[:, :33, 5:].numpy(), TENSOR[:, 7:, :47].numpy())
    assert moved[:, 33:].max().item() == 0


def test_perspective_and_elastic():
    start, end = [[0, 0], [51, 0], [51, 39], [0, 39]], [[4, 3], [48, 6], [45, 38], [2, 33]]
    apart = np.abs(as_array(F.perspective(PICTURE, start, end)) - as_array(F.perspective(TENSOR, start, end)))
    assert (apart > 24).mean() < 0.05
    from tapegrad.vision.transforms.functional import _perspective_coefficients

    a, b, c, d, e, f, g, h = _perspective_coefficients(start, end)
    for (u, v), (x, y) in zip(start, end, strict=True):
        assert ((a * x + b * y + c) / (g * x + h * y + 1), (d * x + e * y + f) / (g * x + h * y + 1)) == pytest.approx((u, v), abs=1e-9)
    same = F.elastic_transform(TENSOR, tg.zeros(1, 40, 52, 2))
    np.testing.assert_allclose(as_array(same), as_array(TENSOR), atol=1)
    one_right = tg.zeros(1, 40, 52, 2)
    one_right[..., 0] = 2 / 52
    np.testing.assert_allclose(as_array(F.elastic_transform(TENSOR, one_right))[:, :, :-1], as_array(TENSOR)[:, :, 1:], atol=1)
    assert F.elastic_transform(PICTURE, one_right).size == PICTURE.size
    with pytest.raises(ValueError, match="displacement shape"):
        F.elastic_transform(TENSOR, tg.zeros(1, 2, 2, 2))
    with pytest.raises(ValueError, match="exactly four corners"):
        F.perspective(TENSOR, start[:3], end[:3])


def test_gaussian_blur():
    x = TENSOR.double()
    got = F.gaussian_blur(x, [5, 3], [1.5, 0.7])

    def kernel(n, s):
        k = np.exp(-0.5 * ((np.arange(n) - n // 2) / s) ** 2)
        return k / k.sum()

    padded = np.pad(as_array(TENSOR), ((0, 0), (1, 1), (2, 2)), mode="reflect")
    weights = kernel(3, 0.7)[:, None] * kernel(5, 1.5)[None, :]
    want = sum(weights[i, j] * padded[:, i:i + 40, j:j + 52] for i in range(3) for j in range(5))
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-9)
    compare(lambda image: F.gaussian_blur(image, 5, 1.0), most=0)
    for wrong, error in ((4, "odd and positive"), ([3, 3, 3], "length should be 2")):
        with pytest.raises(ValueError, match=error):
            F.gaussian_blur(TENSOR, wrong)


def test_tensor_operations_on_pytorchs_operators():
    """Batches of both dtypes, with the same source on both libraries."""
    theirs = vision_twin.vision("transforms._tensor")
    from tapegrad.vision.transforms import _tensor as ours

    rng = np.random.default_rng(0)
    batch = rng.integers(0, 256, (2, 3, 17, 23), dtype=np.uint8)
    matrix = [0.9, -0.3, 2.0, 0.2, 1.1, -1.5]
    calls = [lambda m, x: m.adjust_contrast(x, 1.3), lambda m, x: m.adjust_saturation(x, 0.3), lambda m, x: m.adjust_hue(x, 0.21),
             lambda m, x: m.adjust_sharpness(x, 1.9), lambda m, x: m.autocontrast(x), lambda m, x: m.gaussian_blur(x, [3, 5], [0.8, 1.1]),
             lambda m, x: m.affine(x, matrix, "bilinear", [10.0, 0.5, 0.25]), lambda m, x: m.affine(x, matrix, "nearest", None),
             lambda m, x: m.rotate(x, matrix, "bilinear", True, None), lambda m, x: m.pad(x, 2, 3, 4, 5, 1, "reflect"),
             lambda m, x: m.pad(x, -2, 3, 4, -5, 1, "symmetric"), lambda m, x: m.resize(x, (9, 31), "bicubic", False),
             lambda m, x: m.perspective(x, [1.1, 0.1, -2.0, 0.05, 0.9, 1.0, 1e-3, -2e-3], "bilinear", None)]
    for call in calls:
        for array in (batch, (batch / 255).astype(np.float32)):
            got, want = call(ours, tg.from_numpy(array)).numpy(), call(theirs, torch.from_numpy(array)).numpy()
            assert got.dtype == want.dtype
            apart = np.abs(got.astype(float) - want.astype(float))
            assert (apart > (1 if array.dtype == np.uint8 else 1e-4)).mean() < 0.002, apart.max()


# Random ones.
EVERY = [T.RandomCrop(32, padding=4), T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.RandomVerticalFlip(), T.ColorJitter(0.4, 0.4, 0.4, 0.1),
         T.RandomRotation(30), T.RandomAffine(20, (0.1, 0.1), (0.8, 1.2), 10), T.RandomPerspective(p=1.0), T.GaussianBlur(5), T.RandomGrayscale(0.5),
         T.RandomInvert(), T.RandomPosterize(4), T.RandomSolarize(128), T.RandomAdjustSharpness(2), T.RandomAutocontrast(), T.RandomEqualize(),
         T.ElasticTransform(), T.AutoAugment(), T.AutoAugment(T.AutoAugmentPolicy.CIFAR10), T.AutoAugment(T.AutoAugmentPolicy.SVHN),
         T.RandAugment(), T.TrivialAugmentWide(fill=7), T.RandomApply([T.RandomHorizontalFlip(1.0)], p=0.5)]


@pytest.mark.parametrize("transform", EVERY, ids=lambda t: type(t).__name__)
def test_random_transforms_depend_on_the_seed_only(transform):
    again = pickle.loads(pickle.dumps(transform))
    for image in (PICTURE, TENSOR):
        results = []
        for t in (transform, again):
            tg.manual_seed(3)
            results.append([as_array(t(image)) for _ in range(6)])
        for a, b in zip(*results, strict=True):
            np.testing.assert_array_equal(a, b)
        assert any(a.shape != results[0][0].shape or not np.array_equal(a, results[0][0]) for a in results[0][1:])


def test_probabilities():
    tg.manual_seed(0)
    flipped = np.mean([np.array_equal(as_array(T.RandomHorizontalFlip(0.3)(TENSOR)), as_array(TENSOR)[:, :, ::-1]) for _ in range(600)])
    assert abs(flipped - 0.3) < 0.06
    places = {T.RandomCrop.get_params(TENSOR, (38, 50))[:2] for _ in range(200)}
    assert places == {(i, j) for i in range(3) for j in range(3)}
    for _ in range(100):
        top, left, h, w = T.RandomResizedCrop.get_params(TENSOR, (0.2, 0.5), (0.5, 2.0))
        assert 0 <= top <= 40 - h and 0 <= left <= 52 - w and 0.15 < h * w / (40 * 52) < 0.56
        assert -25 <= T.RandomRotation.get_params([-25, 30]) <= 30
        angle, shift, scale, shear = T.RandomAffine.get_params((-5, 5), (0.1, 0.2), (0.5, 2), (-3, 3), [52, 40])
        assert abs(angle) <= 5 and abs(shift[0]) <= 5 and abs(shift[1]) <= 8 and 0.5 <= scale <= 2 and abs(shear[0]) <= 3 and shear[1] == 0
    assert T.RandomResizedCrop.get_params(tg.zeros(3, 4, 400), (1, 1), (1, 1.2)) == (0, 197, 4, 5)
    jitter = T.ColorJitter(brightness=0.5, hue=(-0.1, 0.2))
    assert (jitter.brightness, jitter.contrast, jitter.hue) == ((0.5, 1.5), None, (-0.1, 0.2))
    order, *factors = T.ColorJitter.get_params((0.5, 1.5), None, (2, 3), None)
    assert sorted(order.tolist()) == [0, 1, 2, 3] and factors[1] is factors[3] is None and 2 <= factors[2] <= 3


def test_random_erasing():
    tg.manual_seed(0)
    x = tg.ones(3, 20, 30)
    for _ in range(30):
        out = T.RandomErasing(p=1.0, scale=(0.1, 0.2), ratio=(0.5, 2.0))(x)
        gone = (out == 0).all(0)
        assert 0.06 < gone.float().mean().item() < 0.26 and x.min().item() == 1
        rows, columns = gone.any(1).sum().item(), gone.any(0).sum().item()
        assert gone.sum().item() == rows * columns  # a rectangle
    colours = T.RandomErasing(1.0, value=(0.1, 0.2, 0.3))(x)
    assert [len(c.unique()) for c in colours] == [2, 2, 2]
    assert len(T.RandomErasing(1.0, value="random")(x).unique()) > 20
    assert T.RandomErasing(1.0, inplace=True)(x) is x
    with pytest.raises(ValueError, match="single value or 3"):
        T.RandomErasing(1.0, value=(1, 2))(tg.ones(3, 20, 20))
    with pytest.raises(TypeError, match="Tensor Image"):
        F.erase(PICTURE, 0, 0, 1, 1, 0)


def test_augmentations_have_the_published_space():
    auto = T.AutoAugment(T.AutoAugmentPolicy.IMAGENET)
    assert len(auto.policies) == 25
    assert auto.policies[0] == (("Posterize", 0.4, 8), ("Rotate", 0.6, 9))
    assert auto.policies[13] == (("Invert", 0.6, None), ("Equalize", 1.0, None))
    assert T.AutoAugment(T.AutoAugmentPolicy.SVHN).policies[24] == (("ShearX", 0.7, 2), ("Invert", 0.1, None))
    assert T.AutoAugment(T.AutoAugmentPolicy.CIFAR10).policies[1] == (("Rotate", 0.7, 2), ("TranslateX", 0.3, 9))
    from tapegrad.vision.transforms import autoaugment as module

    ranges = module._ranges(tg.zeros(3, 331, 662, dtype=tg.uint8))
    assert (ranges["TranslateX"], ranges["TranslateY"]) == (300, 150)
    assert [module._strength("Posterize", i, 10, ranges) for i in (0, 9)] == [8, 4]
    assert [module._strength("Solarize", i, 10, ranges) for i in (0, 9)] == [255, 0]
    assert module._strength("Rotate", 3, 10, ranges) == pytest.approx(10)
    np.testing.assert_array_equal(as_array(module._apply(TENSOR, "TranslateX", -7, T.InterpolationMode.NEAREST, None))[:, :, :-7], as_array(TENSOR)[:, :, 7:])
    with pytest.raises(ValueError, match="not recognized"):
        T.AutoAugment("x")


def test_containers_and_text():
    both = T.Compose([T.Resize(32), T.CenterCrop(28), T.ToTensor(), T.Normalize((0.5,), (0.5,))])
    assert both(PICTURE).shape == (3, 28, 28)
    assert repr(both) == ("Compose(\n    Resize(size=32, interpolation=bilinear, max_size=None, antialias=True)\n    CenterCrop(size=(28, 28))\n"
                          "    ToTensor()\n    Normalize(mean=(0.5,), std=(0.5,))\n)")
    assert repr(T.RandomResizedCrop(8)) == ("RandomResizedCrop(size=(8, 8), scale=(0.08, 1.0), ratio=(0.75, 1.3333), interpolation=bilinear, "
                                            "antialias=True)")
    assert repr(T.RandomAffine(10, scale=(1, 2))) == "RandomAffine(degrees=[-10.0, 10.0], scale=(1, 2))"
    assert repr(T.RandomApply([T.RandomInvert()], p=0.3)) == "RandomApply(\n    p=0.3\n    RandomInvert(p=0.5)\n)"
    assert T.Lambda(lambda x: x + 1)(1) == 2
    assert T.RandomChoice([str, repr], p=[0, 1])("a") == "'a'"
    assert sorted(T.RandomOrder([lambda s: s + "a", lambda s: s + "b"])("")) == ["a", "b"]
    whiten = T.LinearTransformation(tg.eye(12) * 2, tg.ones(12))
    tg.testing.assert_close(whiten(tg.ones(3, 2, 2) * 3), tg.ones(3, 2, 2) * 4)
    for call in (lambda: T.Lambda(3), lambda: T.RandomOrder(3), lambda: T.ColorJitter("a"), lambda: T.RandomRotation({1, 2})):
        with pytest.raises(TypeError):
            call()
    for call in (lambda: T.ColorJitter(-1), lambda: T.ColorJitter(hue=0.7), lambda: T.RandomRotation(-1), lambda: T.GaussianBlur(4),
                 lambda: T.RandomAffine(1, translate=(2, 0)), lambda: T.RandomErasing(p=2), lambda: T.Pad((1, 2, 3))):
        with pytest.raises(ValueError):
            call()


def test_without_pillow(monkeypatch):
    """Tensors go without it; what needs it says what to install."""
    import builtins
    import importlib

    true_import = importlib.import_module

    def missing(name, *args):
        if name.split(".")[0] == "PIL":
            raise ImportError(name)
        return true_import(name, *args)

    monkeypatch.setattr(importlib, "import_module", missing)
    assert builtins and T.Resize(8)(TENSOR).shape == (3, 8, 10)
    with pytest.raises(ImportError, match="Pillow, which is not installed\npip install pillow"):
        T.ToPILImage()(TENSOR)
