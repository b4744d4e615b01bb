"""Transforms of whole samples, files of images, and the sets that are read by formats of their own."""

import hashlib
import io
import struct
import tarfile
import zlib

import numpy as np
import pytest
import tapegrad as tg
from served import serving
from tapegrad.vision import datasets, tv_tensors, utils
from tapegrad.vision import io as vision_io
from tapegrad.vision.datasets.matfile import read_mat
from tapegrad.vision.transforms import v2

Image = pytest.importorskip("PIL.Image")
RNG = np.random.default_rng(0)
PICTURE = Image.fromarray(RNG.integers(0, 256, (20, 24, 3), dtype=np.uint8))


# Samples.
def test_the_usual_chain():
    chain = v2.Compose([v2.ToImage(), v2.RandomResizedCrop(16, antialias=True), v2.RandomHorizontalFlip(), v2.ToDtype(tg.float32, scale=True),
                        v2.Normalize([0.5] * 3, [0.5] * 3)])
    image, label = chain(PICTURE, 3)
    assert label == 3 and type(image) is tv_tensors.Image and image.shape == (3, 16, 16) and image.dtype is tg.float32
    assert -1 <= image.min().item() < image.max().item() <= 1
    assert chain(PICTURE).shape == (3, 16, 16)
    assert type(v2.ToPureTensor()(image)) is tg.Tensor
    assert v2.ToPILImage()(v2.ToImage()(PICTURE)).tobytes() == PICTURE.tobytes()


@pytest.mark.parametrize("transform", [v2.RandomCrop(10), v2.RandomHorizontalFlip(), v2.RandomAffine(30, (0.2, 0.2)), v2.RandomResizedCrop(12),
                                       v2.RandomRotation(40), v2.RandomApply([v2.RandomVerticalFlip(1.0)])], ids=lambda t: type(t).__name__)
def test_masks_follow_their_image(transform):
    """The mask marks the bright pixels; after any geometry it still does."""
    tg.manual_seed(1)
    image = tg.zeros(1, 20, 24)
    image[:, 5:15, 6:18] = 1
    changed = 0
    for _ in range(8):
        sample = transform({"image": tv_tensors.Image(image), "mask": tv_tensors.Mask(image[0].to(tg.uint8)), "name": "a"})
        got, mask = sample["image"], sample["mask"]
        assert sample["name"] == "a" and type(got) is tv_tensors.Image and type(mask) is tv_tensors.Mask and mask.dtype is tg.uint8
        assert ((got[0] > 0.5) == (mask == 1)).float().mean().item() > 0.85
        changed += mask.shape != (20, 24) or not tg.equal(mask.as_subclass(tg.Tensor), image[0].to(tg.uint8))
    assert changed or isinstance(transform, (v2.RandomHorizontalFlip, v2.RandomApply))  # it lies in the middle


def test_colours_leave_masks_alone():
    mask = tv_tensors.Mask(tg.ones(20, 24, dtype=tg.uint8))
    image, same = v2.ColorJitter(0.5, 0.5)(PICTURE, mask)
    assert same is mask and image.tobytes() != PICTURE.tobytes()


def test_two_images_see_the_same_numbers_and_the_next_sample_others():
    tg.manual_seed(0)
    crop = v2.RandomCrop(5)
    a = tv_tensors.Image(tg.arange(24.0 * 20).view(1, 20, 24))
    corners = set()
    for _ in range(10):
        first, second = crop(a, tv_tensors.Image(a + 1000))
        assert tg.equal(first + 1000, second.as_subclass(tg.Tensor))
        corners.add(first[0, 0, 0].item())
    assert len(corners) > 4


def test_plain_tensors_and_other_values():
    flip = v2.RandomHorizontalFlip(1.0)
    x, y = tg.arange(6.0).view(1, 2, 3), tg.arange(3)
    out = flip(x, y)
    assert tg.equal(out[0], x.flip(-1)) and out[1] is y  # the first plain tensor is the image
    picture, z = flip(PICTURE, x)
    assert z is x and picture.tobytes() != PICTURE.tobytes()
    assert v2.Lambda(lambda v: v + 1, int)([1, "a"]) == [2, "a"]
    assert v2.Identity()(PICTURE) is PICTURE
    assert repr(v2.Compose([v2.Resize(3)])) == "Compose(\n      Resize(size=3, interpolation=bilinear, max_size=None, antialias=True)\n)"
    assert v2.RandomChoice([v2.ToDtype(tg.float64), v2.ToDtype(tg.float16)], p=[0, 1])(x).dtype is tg.float16
    assert v2.ToDtype({tv_tensors.Mask: tg.int64, "others": None})(tv_tensors.Mask(tg.ones(2, 2))).dtype is tg.int64
    assert v2.RandomErasing(1.0)(tg.ones(3, 20, 20)).min().item() == 0


# Files.
def test_image_files(tmp_path):
    tensor = v2.PILToTensor()(PICTURE)
    vision_io.write_png(tensor, tmp_path / "a.png")
    assert tg.equal(vision_io.read_image(tmp_path / "a.png"), tensor)
    assert tg.equal(vision_io.decode_image(vision_io.encode_png(tensor)), tensor)
    gray = vision_io.read_image(tmp_path / "a.png", vision_io.ImageReadMode.GRAY)
    assert gray.shape == (1, 20, 24) and vision_io.decode_image(str(tmp_path / "a.png"), mode="rgba").shape == (4, 20, 24)
    smooth = v2.Resize((20, 24))(tensor[:, ::10, ::10])
    vision_io.write_jpeg(smooth, tmp_path / "a.jpg", quality=95)
    assert (vision_io.read_image(tmp_path / "a.jpg").int() - smooth.int()).abs().float().mean().item() < 6
    Image.fromarray(np.arange(20, dtype=np.uint8).reshape(4, 5), mode=None).convert("P").save(tmp_path / "p.png")
    assert vision_io.read_image(tmp_path / "p.png").shape == (3, 4, 5)
    with pytest.raises(RuntimeError, match="not an image"):
        vision_io.decode_image(tg.zeros(10, dtype=tg.uint8))
    with pytest.raises(RuntimeError, match="uint8"):
        vision_io.encode_png(tensor.float())
    with pytest.raises(FileNotFoundError):
        vision_io.read_image(tmp_path / "none")


def test_grids(tmp_path):
    batch = tg.rand(5, 1, 4, 6)
    grid = utils.make_grid(batch, nrow=3, padding=2, pad_value=0.5)
    assert grid.shape == (3, 2 * 6 + 2, 3 * 8 + 2)
    for i in range(5):
        top, left = i // 3 * 6 + 2, i % 3 * 8 + 2
        assert tg.equal(grid[1, top:top + 4, left:left + 6], batch[i, 0])
    assert grid[0, 0].unique().tolist() == [0.5] and grid[0, 8:12, 18:24].unique().tolist() == [0.5]
    normal = utils.make_grid([b * 10 - 3 for b in batch], normalize=True, padding=0, nrow=5)
    assert (normal.min().item(), normal.max().item()) == (0, 1)
    each = utils.make_grid(batch, normalize=True, scale_each=True, padding=0, nrow=5)
    assert all(part.max().item() == 1 for part in each.split(6, 2))
    assert utils.make_grid(batch[0]).shape == (3, 4, 6)
    half = utils.make_grid(tg.full((1, 3, 2, 2), 5.0), normalize=True, value_range=(0, 10))
    assert half.unique().tolist() == [0.5]
    utils.save_image(batch, tmp_path / "a.png", nrow=3)
    saved = vision_io.read_image(tmp_path / "a.png")
    assert (saved.float() / 255 - utils.make_grid(batch, nrow=3)).abs().max().item() <= 0.5 / 255 + 1e-6
    buffer = io.BytesIO()
    utils.save_image(batch, buffer, format="png")
    assert buffer.getvalue().startswith(b"\x89PNG")
    with pytest.raises(TypeError, match="tensor or list of tensors expected"):
        utils.make_grid(3)


def test_drawings():
    image = tg.zeros(3, 30, 40, dtype=tg.uint8)
    boxes = tg.tensor([[5.0, 6.0, 20.0, 15.0]])
    out = utils.draw_bounding_boxes(image, boxes, colors="red")
    want = np.zeros((30, 40), bool)
    want[6:16, 5:21] = True
    want[7:15, 6:20] = False
    assert np.array_equal(out[0].numpy() == 255, want) and out[1:].max().item() == 0 and image.max().item() == 0
    filled = utils.draw_bounding_boxes(image.float(), boxes, labels=["x"], colors=[(0, 255, 0)], fill=True, width=2)
    assert filled.dtype is tg.float32 and 0 < filled[1, 12, 15].item() < 0.5
    assert utils.draw_bounding_boxes(image, tg.zeros(0, 4)) is image
    mask = tg.zeros(30, 40, dtype=tg.bool)
    mask[3:5, 4:9] = True
    shaded = utils.draw_segmentation_masks(image + 100, mask, alpha=0.5, colors=(200, 0, 100))
    assert shaded[:, 3, 4].tolist() == [150, 50, 100] and shaded[:, 0, 0].tolist() == [100, 100, 100]
    dots = utils.draw_keypoints(image, tg.tensor([[[10.0, 10.0], [30.0, 20.0]]]), connectivity=[(0, 1)], colors="blue", radius=1)
    assert dots[2, 10, 10].item() == 255 and dots[2, 15, 20].item() == 255 and dots[0].max().item() == 0
    flow = tg.zeros(2, 4, 4)
    flow[0, 0, 0] = 3
    colours = utils.flow_to_image(flow)
    assert colours.dtype is tg.uint8 and colours[:, 0, 0].tolist() == [255, 0, 0] and colours[:, 2, 2].tolist() == [255, 255, 255]
    for call, message in ((lambda: utils.draw_bounding_boxes(image[None], boxes), "individual images"),
                          (lambda: utils.draw_bounding_boxes(image, boxes.flip(1)), "xmin, ymin, xmax, ymax"),
                          (lambda: utils.draw_bounding_boxes(image, boxes, labels=["a", "b"]), "mismatch"),
                          (lambda: utils.draw_segmentation_masks(image, mask.int()), "dtype bool"),
                          (lambda: utils.flow_to_image(tg.zeros(3, 2, 2)), "shape")):
        with pytest.raises(ValueError, match=message):
            call()


# Sets in formats of their own.
def mat_element(kind, data, order="<"):
    return struct.pack(f"{order}II", kind, len(data)) + data + b"\0" * (-len(data) % 8)


def mat_matrix(name, array, order="<"):
    kind, stored = {"u1": (9, 2), "f8": (6, 9)}[array.dtype.str[1:]]
    small = struct.pack(f"{order}HH" if order == "<" else ">HH", *((1, len(name)) if order == "<" else (len(name), 1))) + name.encode().ljust(4, b"\0")
    body = (mat_element(6, struct.pack(f"{order}II", kind, 0), order) + mat_element(5, np.array(array.shape, f"{order}i4").tobytes(), order)
            + small + mat_element(stored, array.astype(array.dtype.newbyteorder(order)).tobytes(order="F"), order))
    return mat_element(14, body, order)


@pytest.mark.parametrize("order", ["<", ">"])
def test_matlab_files(tmp_path, order):
    x, y = RNG.integers(0, 256, (3, 4, 2), dtype=np.uint8), RNG.random((4, 1))
    packed = zlib.compress(mat_matrix("y", y, order))
    header = b"MATLAB 5.0".ljust(124, b" ") + struct.pack(f"{order}H", 0x0100) + (b"IM" if order == "<" else b"MI")
    path = tmp_path / "a.mat"
    data = header + mat_matrix("X", x, order) + struct.pack(f"{order}II", 15, len(packed)) + packed
    path.write_bytes(data)
    got = read_mat(path)
    assert sorted(got) == ["X", "y"] and np.array_equal(got["X"], x) and np.array_equal(got["y"], y)
    for n in (10, 130, 200, len(data) - 3):
        path.write_bytes(data[:n])
        with pytest.raises(RuntimeError, match="read_mat"):
            read_mat(path)


def test_svhn(tmp_path):
    images, labels = RNG.integers(0, 256, (32, 32, 3, 4), dtype=np.uint8), np.array([[10.0], [1], [9], [3]])
    header = b"MATLAB 5.0".ljust(124, b" ") + struct.pack("<H", 0x0100) + b"IM"
    data = header + b"".join(struct.pack("<II", 15, len(p)) + p for p in (zlib.compress(mat_matrix("X", images)), zlib.compress(mat_matrix("y", labels))))
    (tmp_path / "test_32x32.mat").write_bytes(data)
    with serving(tmp_path) as (url, _):
        class SVHN(datasets.SVHN):
            split_list = {**datasets.SVHN.split_list, "test": [f"{url}/test_32x32.mat", "test_32x32.mat", hashlib.md5(data).hexdigest()]}

        test = SVHN(tmp_path / "root", split="test", download=True)
    assert test.labels.tolist() == [0, 1, 9, 3] and test.data.shape == (4, 3, 32, 32)
    picture, label = test[2]
    assert label == 9 and np.array_equal(np.asarray(picture), images[..., 2])
    with pytest.raises(ValueError, match="Unknown value 'x'"):
        datasets.SVHN(tmp_path, split="x")


def test_stl10(tmp_path):
    parts = {"train_X.bin": RNG.integers(0, 256, (4, 3, 96, 96), dtype=np.uint8), "train_y.bin": np.array([1, 10, 3, 4], np.uint8),
             "unlabeled_X.bin": RNG.integers(0, 256, (2, 3, 96, 96), dtype=np.uint8), "test_X.bin": RNG.integers(0, 256, (1, 3, 96, 96), dtype=np.uint8),
             "test_y.bin": np.array([2], np.uint8)}
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as archive:
        for name, data in {**{k: v.tobytes() for k, v in parts.items()}, "class_names.txt": b"airplane\nbird\n", "fold_indices.txt": b"2 0 \n1 3 \n"}.items():
            member = tarfile.TarInfo(f"stl10_binary/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    (tmp_path / "stl10_binary.tar.gz").write_bytes(raw.getvalue())

    def sums(files):
        return [[name, hashlib.md5(parts[name].tobytes()).hexdigest()] for name, _ in files]

    with serving(tmp_path) as (address, _):
        class STL10(datasets.STL10):
            url, tgz_md5 = f"{address}/stl10_binary.tar.gz", hashlib.md5(raw.getvalue()).hexdigest()
            train_list, test_list = sums(datasets.STL10.train_list), sums(datasets.STL10.test_list)

        train = STL10(tmp_path / "root", download=True)
    assert train.labels.tolist() == [0, 9, 2, 3] and train.classes == ["airplane", "bird"]
    assert np.array_equal(np.asarray(train[1][0]), parts["train_X.bin"][1].transpose(2, 1, 0))
    assert STL10(tmp_path / "root", folds=0).labels.tolist() == [2, 0]
    both = STL10(tmp_path / "root", split="train+unlabeled")
    assert len(both) == 6 and both[5][1] == -1
    assert STL10(tmp_path / "root", split="test")[0][1] == 1


def test_functional_of_version_2():
    x = (tg.arange(2 * 3 * 2 * 2) * 10).view(2, 3, 2, 2).to(tg.uint8)
    assert v2.functional.to_dtype(x, tg.float32, scale=True)[0, 1].allclose(tg.tensor([[40, 50], [60, 70.0]]) / 255)
    assert v2.functional.to_dtype(x, tg.int64).equal(x.long()) and v2.functional.to_dtype(x, tg.int16, scale=True)[0, 1, 0].tolist() == [5120, 6400]
    gray = v2.functional.grayscale_to_rgb(x[:, :1])
    assert gray.shape == x.shape and gray[:, 2].equal(x[:, 0]) and v2.functional.grayscale_to_rgb(x) is x
    image = v2.functional.to_image(np.arange(24, dtype=np.uint8).reshape(2, 4, 3))
    assert type(image).__name__ == "Image" and image.shape == (3, 2, 4) and v2.functional.get_size(image) == [2, 4]
    assert v2.functional.to_image(np.zeros((2, 4), np.uint8)).shape == (1, 2, 4)
    padded = v2.functional.pad(x, [1, 0], fill=[7, 8, 9])
    assert padded.shape == (2, 3, 2, 4) and padded[1, :, 0, 0].tolist() == [7, 8, 9] and padded[:, :, :, 1:3].equal(x)
    assert v2.functional.pad(x, [1, 1])[0, 0].sum() == x[0, 0].sum() and v2.functional.permute_channels(x, [2, 1, 0])[:, 0].equal(x[:, 2])
    assert v2.functional.horizontal_flip(x).equal(x.flip(-1)) and v2.functional.resize(x, [4, 4]).shape == (2, 3, 4, 4)
    with pytest.raises(TypeError, match="^to_image: expected a tensor"):
        v2.functional.to_image([1])
    with pytest.raises(ValueError, match="permutation has 2 numbers: expected 3"):
        v2.functional.permute_channels(x, [0, 1])
