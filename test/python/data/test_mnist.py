"""MNIST: the packaged images, idx files in folders, downloads from a local server."""

import gzip
import hashlib
import os
import struct

import numpy as np
import pytest
import tapegrad as tg
from served import serving
from tapegrad.datasets import MNIST, FashionMNIST
from tapegrad.datasets.mnist import read_idx
from tapegrad.utils.data import DataLoader, Subset


def idx(array, kind=0x08):
    return bytes([0, 0, kind, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.astype(">u1").tobytes()


def make_files(folder, n, compress, names):
    rng = np.random.default_rng(n)
    images, labels = rng.integers(0, 256, (n, 28, 28), dtype=np.uint8), rng.integers(0, 10, n, dtype=np.uint8)
    os.makedirs(folder, exist_ok=True)
    for name, array in zip(names, (images, labels), strict=True):
        data = idx(array)
        path = os.path.join(folder, name if compress else name.removesuffix(".gz"))
        with open(path, "wb") as file:
            file.write(gzip.compress(data) if compress else data)
    return images, labels


def names(part):
    return [name for name, _ in (MNIST.resources[:2] if part == "train" else MNIST.resources[2:])]


def test_packaged():
    train, test = MNIST(), MNIST(train=False)
    assert (len(train), len(test)) == (8000, 2000)
    assert train.data.shape == (8000, 28, 28)
    assert train.data.dtype is tg.uint8
    assert train.targets.dtype is tg.int64
    assert sorted(set(test.targets.tolist())) == list(range(10))
    image, label = train[0]
    assert image.shape == (28, 28)
    assert image.dtype == np.uint8
    assert label == 7  # the first image of the well-known file
    images, labels = test.tensors()
    assert images.shape == (2000, 1, 28, 28)
    assert abs(images.mean().item()) < 0.1
    assert abs(images.std().item() - 1) < 0.1
    assert "Number of datapoints: 2000" in repr(test)
    assert train.class_to_idx["3 - three"] == 3
    assert not np.array_equal(train.data[:2000].numpy(), test.data.numpy())


def test_in_a_loader():
    data = MNIST(train=False)
    images, labels = next(iter(DataLoader(data, batch_size=5)))
    assert images.shape == (5, 28, 28)
    assert labels.tolist() == data.targets[:5].tolist()
    _, labels = next(iter(DataLoader(Subset(data, [7, 3]), batch_size=2)))
    assert labels.tolist() == data.targets[[7, 3]].tolist()
    scaled = MNIST(train=False, transform=lambda a: tg.from_numpy(a).float() / 255, target_transform=str)
    images, labels = next(iter(DataLoader(scaled, batch_size=2)))
    assert images.dtype is tg.float32
    assert list(labels) == [str(n) for n in data.targets[:2].tolist()]


@pytest.mark.parametrize("compress", [True, False])
@pytest.mark.parametrize("nested", [True, False])
def test_folder(tmp_path, compress, nested):
    folder = tmp_path / "MNIST" / "raw" if nested else tmp_path
    images, labels = make_files(folder, 12, compress, names("train"))
    data = MNIST(tmp_path)
    assert np.array_equal(data.data.numpy(), images)
    assert data.targets.tolist() == labels.tolist()
    with pytest.raises(RuntimeError, match="download=True"):
        MNIST(tmp_path, train=False)


def test_wrong_files(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"hello")
    with pytest.raises(RuntimeError, match="not an idx file"):
        read_idx(path)
    path.write_bytes(idx(np.zeros((2, 2)))[:-1])
    with pytest.raises(RuntimeError, match="holds 3 values"):
        read_idx(path)
    with pytest.raises(ValueError, match="only MNIST"):
        FashionMNIST()


@pytest.fixture
def server(tmp_path):
    folder = tmp_path / "served"
    folder.mkdir()
    with serving(folder) as (url, _):
        yield folder, url


def test_download(server, tmp_path):
    folder, url = server
    kinds = {}
    for part, n in (("train", 6), ("test", 4)):
        kinds[part] = make_files(folder, n, True, names(part))

    class Local(MNIST):
        mirrors = ["http://127.0.0.1:9/nothing", url]
        resources = [(name, hashlib.md5((folder / name).read_bytes()).hexdigest()) for name, _ in MNIST.resources]

    class Addresses(Local):
        mirrors = ["http://127.0.0.1:9/nothing"]
        resources = [(f"{url}/{name}", md5) for name, md5 in Local.resources]

    assert len(Addresses(tmp_path / "addresses", download=True)) == 6
    root = tmp_path / "root"
    data = Local(root, download=True)
    assert np.array_equal(data.data.numpy(), kinds["train"][0])
    assert np.array_equal(Local(root, train=False).data.numpy(), kinds["test"][0])
    for file in folder.iterdir():  # a second download asks nobody
        file.unlink()
    Local(root, download=True)

    class Wrong(Local):
        resources = [(name, "0" * 32) for name, _ in MNIST.resources]

    make_files(folder, 6, True, names("train"))
    with pytest.raises(RuntimeError, match="checksum") as error:
        Wrong(tmp_path / "other", download=True)
    assert "127.0.0.1:9" in str(error.value)
    assert os.listdir(tmp_path / "other" / "Wrong" / "raw") == []
