"""Data sets of pictures: files made here, served from here."""

import gzip
import hashlib
import io
import os
import pickle
import struct
import tarfile
import zipfile

import numpy as np
import pytest
import tapegrad as tg
from served import serving
from tapegrad.datasets.download import download
from tapegrad.utils.data import DataLoader
from tapegrad.vision import datasets, transforms
from tapegrad.vision.datasets import utils

Image = pytest.importorskip("PIL.Image")


def md5(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()


def idx(array):
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.astype(np.uint8).tobytes()


@pytest.mark.smoke
def test_mnist_as_pictures(tmp_path):
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (7, 28, 28), dtype=np.uint8), rng.integers(0, 10, 7, dtype=np.uint8)
    served = tmp_path / "served"
    served.mkdir()
    for (name, _), array in zip(datasets.MNIST.resources, (images, labels, images[:3], labels[:3]), strict=True):
        (served / name).write_bytes(gzip.compress(idx(array)))

    with serving(served) as (url, asked):
        class MNIST(datasets.MNIST):
            mirrors = [url]
            resources = [(name, md5((served / name).read_bytes())) for name, _ in datasets.MNIST.resources]

        with pytest.raises(RuntimeError, match="download=True"):
            MNIST(str(tmp_path / "root"))
        data = MNIST(str(tmp_path / "root"), train=True, download=True, transform=transforms.ToTensor(), target_transform=lambda t: t + 100)
        assert len(asked) == 4
        MNIST(str(tmp_path / "root"), download=True)
        assert len(asked) == 4
        unpacked = tmp_path / "unpacked" / "MNIST" / "raw"
        unpacked.mkdir(parents=True)
        for name, _ in MNIST.resources:
            (unpacked / name.removesuffix(".gz")).write_bytes(gzip.decompress((served / name).read_bytes()))
        assert len(MNIST(tmp_path / "unpacked", download=True)) == 7 and len(asked) == 4
    image, label = data[2]
    assert image.dtype is tg.float32
    np.testing.assert_allclose(image.numpy(), images[2][None] / np.float32(255), rtol=1e-7)
    assert label == labels[2] + 100
    picture, _ = MNIST(tmp_path / "root", train=False)[1]
    assert (picture.mode, picture.size) == ("L", (28, 28))
    assert np.array_equal(np.asarray(picture), images[1])
    batch, targets = next(iter(DataLoader(data, batch_size=5)))
    assert batch.shape == (5, 1, 28, 28)
    assert targets.tolist() == (labels[:5].astype(int) + 100).tolist()
    assert repr(data).splitlines()[:4] == ["Dataset MNIST", "    Number of datapoints: 7", f"    Root location: {tmp_path / 'root'}",
                                           "    Split: Train"]
    assert isinstance(data, datasets.VisionDataset)


def test_published_checksums():
    assert len({m for kind in (datasets.MNIST, datasets.FashionMNIST, datasets.KMNIST) for _, m in kind.resources}) == 12
    for kind in (datasets.MNIST, datasets.FashionMNIST, datasets.KMNIST):
        assert [name[:5] for name, _ in kind.resources] == ["train", "train", "t10k-", "t10k-"]
    assert datasets.CIFAR10.tgz_md5 == "c58f30108f718f92721af3b95e74349a"
    assert datasets.CIFAR100.tgz_md5 == "eb9058c3a382ffc7106e4002c42a8d85"


def test_emnist(tmp_path):
    rng = np.random.default_rng(1)
    images, labels = rng.integers(0, 256, (4, 28, 28), dtype=np.uint8), np.array([1, 2, 26, 3])
    served = tmp_path / "served"
    served.mkdir()
    with zipfile.ZipFile(served / "gzip.zip", "w") as archive:
        for part in ("train", "test"):
            for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
                archive.writestr(f"gzip/emnist-letters-{part}-{kind}-ubyte.gz", gzip.compress(idx(array)))
    with serving(served) as (address, _):
        class EMNIST(datasets.EMNIST):
            url, md5 = f"{address}/gzip.zip", hashlib.md5((served / "gzip.zip").read_bytes()).hexdigest()

        data = EMNIST(str(tmp_path / "root"), "letters", download=True, train=False)
    assert np.array_equal(np.asarray(data[3][0]), images[3])
    assert [data.classes[t] for t in data.targets.tolist()] == ["a", "b", "z", "c"]
    with pytest.raises(ValueError, match="Unknown value 'x' for argument split"):
        datasets.EMNIST(str(tmp_path), "x")


def cifar_archive(folder: str, batches: dict[str, dict]) -> tuple[bytes, dict[str, str]]:
    raw = io.BytesIO()
    sums = {}
    with tarfile.open(fileobj=raw, mode="w:gz") as archive:
        for name, content in batches.items():
            data = pickle.dumps(content, protocol=2)
            sums[name] = md5(data)
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return raw.getvalue(), sums


@pytest.mark.parametrize("fine", [False, True])
def test_cifar(tmp_path, fine):
    rng = np.random.default_rng(2)
    base = datasets.CIFAR100 if fine else datasets.CIFAR10
    names = [name for name, _ in (*base.train_list, *base.test_list)]
    planes = {name: rng.integers(0, 256, (3, 3072), dtype=np.uint8) for name in names}
    labels = {name: rng.integers(0, 10, 3).tolist() for name in names}
    batches = {name: {"data": planes[name], "fine_labels" if fine else "labels": labels[name]} for name in names}
    batches[base.meta["filename"]] = {base.meta["key"]: ["ant", "bee", "cat"]}
    archive, sums = cifar_archive(base.base_folder, batches)
    (tmp_path / base.filename).write_bytes(archive)
    with serving(tmp_path) as (address, _):
        class CIFAR(base):
            url, tgz_md5 = f"{address}/{base.filename}", md5(archive)
            train_list = [[name, sums[name]] for name, _ in base.train_list]
            test_list = [[name, sums[name]] for name, _ in base.test_list]
            meta = {**base.meta, "md5": sums[base.meta["filename"]]}

        root = tmp_path / "root"
        with pytest.raises(RuntimeError, match="not found or corrupted"):
            CIFAR(root)
        train = CIFAR(root, download=True)
    assert len(train) == 3 * len(base.train_list)
    assert train.data.shape == (len(train), 32, 32, 3)
    assert train.targets == [label for name, _ in base.train_list for label in labels[name]]
    assert train.class_to_idx == {"ant": 0, "bee": 1, "cat": 2}
    picture, label = CIFAR(root, train=False)[2]
    assert np.array_equal(np.asarray(picture).transpose(2, 0, 1).ravel(), planes[names[-1]][2])
    assert label == labels[names[-1]][2]
    with open(root / base.base_folder / names[0], "ab") as file:
        file.write(b"x")
    with pytest.raises(RuntimeError, match="not found or corrupted"):
        CIFAR(root)


def test_cifar_runs_no_code(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "made"),)

    (tmp_path / "x").write_bytes(pickle.dumps({"data": Evil()}))
    from tapegrad.vision.datasets.cifar import read_batch

    with pytest.raises(pickle.UnpicklingError, match="asks for posix.mkdir"):
        read_batch(tmp_path / "x")
    assert not (tmp_path / "made").exists()


def make_tree(root):
    rng = np.random.default_rng(3)
    for kind, names in {"cat": ["1.png", "2.PNG", "notes.txt"], "dog": ["deep/3.png"]}.items():
        for name in names:
            path = root / kind / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if name.endswith("txt"):
                path.write_text("no image")
            else:
                Image.fromarray(rng.integers(0, 256, (6, 5), dtype=np.uint8)).save(path, format="png")


def test_image_folder(tmp_path):
    make_tree(tmp_path)
    data = datasets.ImageFolder(tmp_path, transform=transforms.ToTensor())
    assert data.classes == ["cat", "dog"]
    assert [(os.path.relpath(p, tmp_path), c) for p, c in data.samples] == [("cat/1.png", 0), ("cat/2.PNG", 0), ("dog/deep/3.png", 1)]
    assert data.targets == [0, 0, 1]
    assert data.imgs is data.samples
    image, label = data[2]
    assert (image.shape, label) == ((3, 6, 5), 1)  # gray files come as RGB
    lines = datasets.DatasetFolder(tmp_path, loader=lambda p: open(p).read(), is_valid_file=lambda p: p.endswith("txt"), allow_empty=True)
    assert [lines[i] for i in range(len(lines))] == [("no image", 0)]
    with pytest.raises(FileNotFoundError, match="Found no valid file for the classes dog. Supported extensions are: .txt"):
        datasets.DatasetFolder(tmp_path, loader=None, extensions=(".txt",))
    with pytest.raises(FileNotFoundError, match="Couldn't find any class folder"):
        datasets.ImageFolder(tmp_path / "dog" / "deep")
    with pytest.raises(ValueError, match="cannot be None or not None at the same time"):
        datasets.DatasetFolder(tmp_path, loader=None, extensions=(".txt",), is_valid_file=bool)


def test_fake_data():
    data = datasets.FakeData(size=20, image_size=(1, 8, 9), num_classes=5, transform=transforms.PILToTensor())
    first = [data[i] for i in range(20)]
    assert {t for _, t in first} <= set(range(5)) and len({t for _, t in first}) > 2
    tg.manual_seed(5)
    state = tg.get_rng_state()
    again = datasets.FakeData(size=20, image_size=(1, 8, 9), num_classes=5, transform=transforms.PILToTensor())[7]
    assert tg.equal(again[0], first[7][0]) and again[1] == first[7][1]
    assert tg.equal(state, tg.get_rng_state())
    assert not tg.equal(first[0][0], first[1][0])
    shifted = datasets.FakeData(size=20, image_size=(1, 8, 9), random_offset=3, transform=transforms.PILToTensor())
    assert tg.equal(shifted[4][0], first[7][0])
    with pytest.raises(IndexError):
        data[20]


def test_transforms_or_the_two():
    both = datasets.FakeData(2, transform=transforms.ToTensor(), target_transform=str)
    assert repr(both.transforms) == "StandardTransform\nTransform: ToTensor()\nTarget transform: <class 'str'>"
    with pytest.raises(ValueError, match="Only transforms or transform/target_transform"):
        datasets.VisionDataset(None, transforms=str, transform=str)


# Downloads.
@pytest.mark.parametrize("ranges", [True, False])
def test_a_broken_connection_is_taken_up(tmp_path, ranges):
    data = np.random.default_rng(4).bytes(250_000)
    (tmp_path / "file").write_bytes(data)
    target = tmp_path / "out" / "file"
    target.parent.mkdir()
    with serving(tmp_path, cut=100_000, ranges=ranges) as (url, asked):
        if ranges:
            download([f"{url}/file"], str(target), md5(data))
            assert target.read_bytes() == data
            assert [r for _, r in asked] == [None, "bytes=100000-", "bytes=200000-"]
        else:  # never gets beyond the first part
            target.write_bytes(b"old")
            with pytest.raises(RuntimeError, match="the connection ended after 100000 of 250000 bytes"):
                download([f"{url}/file"], str(target), md5(data))
            assert target.read_bytes() == b"old"
    assert os.listdir(target.parent) == ["file"]


def test_download_url_and_archives(tmp_path):
    served, root = tmp_path / "served", tmp_path / "root"
    served.mkdir()
    with tarfile.open(served / "a.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo("inside/b.txt")
        member.size = 2
        archive.addfile(member, io.BytesIO(b"hi"))
    digest = md5((served / "a.tar.gz").read_bytes())
    with serving(served) as (url, asked):
        utils.download_and_extract_archive(f"{url}/a.tar.gz", root, md5=digest)
        utils.download_url(f"{url}/a.tar.gz", root, md5=digest)
        assert len(asked) == 1
        with pytest.raises(RuntimeError, match="404"):
            utils.download_url(f"{url}/none", root)
        with pytest.raises(RuntimeError, match="the checksum is"):
            utils.download_url(f"{url}/a.tar.gz", root, filename="c", md5="0" * 32)
    assert (root / "inside" / "b.txt").read_text() == "hi"
    assert sorted(os.listdir(root)) == ["a.tar.gz", "inside"]
    assert utils.check_integrity(root / "a.tar.gz", digest) and not utils.check_integrity(root / "c")
    assert utils.list_dir(root) == ["inside"] and utils.list_files(root, ".gz", prefix=True) == [str(root / "a.tar.gz")]


def test_archives_stay_in_their_folder(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo("../escaped"), io.BytesIO())
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("/tmp/escaped-from-zip", "")
    with tarfile.open(tmp_path / "link.tar", "w") as archive:
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc"
        archive.addfile(link)
    (tmp_path / "x").mkdir()
    for name, message in (("a.tar", "outside of its folder"), ("a.zip", "outside of its folder"), ("link.tar", "has links")):
        with pytest.raises(RuntimeError, match=message):
            utils.extract_archive(tmp_path / name, tmp_path / "x")
    assert not list((tmp_path / "x").iterdir()) and not (tmp_path / "escaped").exists()
    (tmp_path / "y.gz").write_bytes(gzip.compress(b"text"))
    assert open(utils.extract_archive(tmp_path / "y.gz", remove_finished=True)).read() == "text"
    assert not (tmp_path / "y.gz").exists()
    (tmp_path / "z").write_bytes(b"text")
    with pytest.raises(RuntimeError, match="unknown compression"):
        utils.extract_archive(tmp_path / "z")
