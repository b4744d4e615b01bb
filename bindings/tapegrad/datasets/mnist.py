"""The MNIST digits (LeCun, Cortes and Burges, 1998) and data sets in the same files.

Without a folder, MNIST is the 10,000 images that come with the package, 8,000 to train and 2,000 to test. With a folder
it is the full set of 60,000 and 10,000, downloaded when asked.
"""

import gzip
import os
import struct

import numpy as np

from .. import as_tensor, from_numpy
from ..utils.data import Dataset
from .download import fetch

__all__ = ["MNIST", "FashionMNIST", "read_idx"]

_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(path) -> np.ndarray:
    """The array in an idx file, plain or compressed with gzip."""
    with open(path, "rb") as file:
        start = file.read(2)
    with (gzip.open if start == b"\x1f\x8b" else open)(path, "rb") as file:
        data = file.read()
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in _TYPES:
        raise RuntimeError(f"read_idx: not an idx file: {path}")
    kind, ndim = np.dtype(_TYPES[data[2]]), data[3]
    shape = struct.unpack(f">{ndim}I", data[4:4 + 4 * ndim])
    values = np.frombuffer(data, kind, offset=4 + 4 * ndim)
    if values.size != np.prod(shape, dtype=np.int64):
        raise RuntimeError(f"read_idx: {path} holds {values.size} values, its header says {shape}")
    return values.reshape(shape).astype(kind.newbyteorder("="))


class WithTransforms:
    """What has a transform of images and one of targets, or None in their places."""

    def _transformed(self, image, target):
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return image, target


class MNIST(WithTransforms, Dataset):
    """28 x 28 images of handwritten digits with their labels; the arguments are those of torchvision.

    root: a folder with (or for) the full set's files; None: the images that come with the package.
    Samples are (image, label): the image as an array of uint8, or what `transform` makes of it; `data` and `targets`
    are tensors with all of them, and `tensors()` gives them ready for training.
    """

    mirrors = ["https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"]

    @staticmethod
    def _files_with(*md5) -> list[tuple[str, str]]:
        """The names of MNIST's files with the MD5 sums of others that are named so."""
        return [(f"{part}-ubyte.gz", own) for part, own in zip(("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"), md5)]

    # Images and labels to train, images and labels to test: (name of the file, MD5 sum).
    resources = _files_with("f68b3c2dcbeaaa9fbdd348bbdeb94873", "d53e105ee54ea40749a09fcbcd1e9432",
                            "9fb629c4189551a2d022fa330f9573f3", "ec29112dd5afa0611ce80d1b7f02629c")
    classes = ["0 - zero", "1 - one", "2 - two", "3 - three", "4 - four", "5 - five", "6 - six", "7 - seven", "8 - eight",
               "9 - nine"]
    mean, std = 0.1307, 0.3081
    _embedded = True
    _embedded_train = 8000

    def __init__(self, root=None, train: bool = True, transform=None, target_transform=None, download: bool = False) -> None:
        self.root = None if root is None else os.fspath(root)
        self.train = train
        self.transform = transform
        self.target_transform = target_transform
        if self.root is None:
            images, labels = self._packaged()
        else:
            if download:
                self.download()
            images, labels = (read_idx(path) for path in self._paths())
        if images.shape[1:] != (28, 28) or len(images) != len(labels):
            raise RuntimeError(f"{type(self).__name__}: expected images of 28 x 28 and a label for each: got {images.shape} and "
                               f"{labels.shape}")
        self.data = from_numpy(images)
        self.targets = from_numpy(labels.astype(np.int64))

    # Where the files are.
    @property
    def raw_folder(self) -> str:
        """The folder below root that the files are downloaded into."""
        return os.path.join(self.root, type(self).__name__, "raw")

    def _files(self, train: bool) -> list[tuple[str, str]]:
        """(name, MD5 sum) of the images and of the labels; scripts put whole addresses in the place of names."""
        return [(os.path.basename(name), md5) for name, md5 in (self.resources[:2] if train else self.resources[2:])]

    def _packaged(self):
        if not self._embedded:
            raise ValueError(f"{type(self).__name__}: expected a folder as root: only MNIST comes with the package")
        folder = os.path.join(os.path.dirname(__file__), "data", "mnist")
        part = slice(0, self._embedded_train) if self.train else slice(self._embedded_train, None)
        return tuple(read_idx(os.path.join(folder, name))[part] for name, _ in self._files(train=False))

    def _paths(self) -> list[str]:
        """The files of this part, compressed or not, in root or where a download puts them."""
        found = []
        for name, _ in self._files(self.train):
            plain = name.removesuffix(".gz")
            places = [os.path.join(folder, n) for folder in (self.raw_folder, self.root) for n in (plain, name)]
            path = next((p for p in places if os.path.exists(p)), None)
            if path is None:
                raise RuntimeError(f"Dataset not found. You can use download=True to download it\n{plain} is neither in "
                                   f"{self.raw_folder} nor in {self.root}")
            found.append(path)
        return found

    def download(self) -> None:
        """Fetches the files that are not there yet, unpacked or not, and checks the sums of what it fetches."""
        for url, (name, md5) in zip(self.resources, [*self._files(train=True), *self._files(train=False)], strict=True):
            if os.path.exists(os.path.join(self.raw_folder, name.removesuffix(".gz"))):
                continue
            fetch(name, self.mirrors if url[0] == name else [os.path.dirname(url[0])], self.raw_folder, md5)

    # What is in it.
    @property
    def class_to_idx(self) -> dict[str, int]:
        """Number of each class."""
        return {name: i for i, name in enumerate(self.classes)}

    @property
    def _deterministic(self) -> bool:
        return self.transform is None and self.target_transform is None

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int):
        return self._transformed(self.data[index].numpy(), int(self.targets[index]))

    def _collated(self, indices):
        if not self._deterministic or type(self).__getitem__ is not MNIST.__getitem__:
            return None
        chosen = as_tensor(indices)
        return [self.data.index_select(0, chosen), self.targets.index_select(0, chosen)]

    def tensors(self):
        """Images as float32 of shape (N, 1, 28, 28), normalised to mean 0 and variance 1, and labels."""
        images = self.data.unsqueeze(1).float() / 255
        return (images - self.mean) / self.std, self.targets

    def __repr__(self) -> str:
        lines = [f"Dataset {type(self).__name__}", f"    Number of datapoints: {len(self)}"]
        lines.append(f"    Root location: {self.root or 'in the package'}")
        lines.append(f"    Split: {'Train' if self.train else 'Test'}")
        return "\n".join(lines)


class FashionMNIST(MNIST):
    """28 x 28 images of clothes (Xiao, Rasul and Vollgraf, 2017), in MNIST's files."""

    mirrors = ["http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"]
    resources = MNIST._files_with("8d4fb7e6c68d591d4c3dfef9ec88bf0d", "25c81989df183df01b3e8a0aad5dffbe",
                                  "bef4ecab320f06d8554ea6380940ec79", "bb300cfdad3c16e7a12a480ee83cd310")
    classes = ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"]
    mean, std = 0.2860, 0.3530
    _embedded = False
