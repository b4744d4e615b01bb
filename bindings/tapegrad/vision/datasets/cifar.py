"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009): 32 x 32 colour images."""

import io
import pickle

import numpy as np

from .._pillow import pillow
from .vision import ArchivedDataset

__all__ = ["CIFAR10", "CIFAR100"]


class _PlainUnpickler(pickle.Unpickler):
    """The published files are pickles: of dictionaries, lists, strings and NumPy's arrays, and nothing else is let in."""

    _allowed = {("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct"), ("numpy", "ndarray"),
                ("numpy", "dtype"), ("_codecs", "encode")}

    def find_class(self, module, name):
        if (module, name) not in self._allowed:
            raise pickle.UnpicklingError(f"CIFAR: the file asks for {module}.{name}")
        return super().find_class(module, name)


def read_batch(path) -> dict:
    """The dictionary in one file of the data set."""
    with open(path, "rb") as file:
        return _PlainUnpickler(io.BytesIO(file.read()), encoding="latin1").load()


class CIFAR10(ArchivedDataset):
    """60,000 32 x 32 colour images of 10 classes: (image, number of the class), each through its transform.

    root: the folder in which cifar-10-batches-py lies or is unpacked. `data` is an array (N, 32, 32, 3) of uint8, `targets` a list.
    Raises RuntimeError when a file is missing or its checksum another one.
    """

    base_folder = "cifar-10-batches-py"
    url = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
    filename = "cifar-10-python.tar.gz"
    tgz_md5 = "c58f30108f718f92721af3b95e74349a"
    train_list = [
        ["data_batch_1", "c99cafc152244af753f735de768cd75f"],
        ["data_batch_2", "d4bba439e000b95fd0a9bffe97cbabec"],
        ["data_batch_3", "54ebc095f3ab1f0389bbae665268c751"],
        ["data_batch_4", "634d18415352ddfa80567beed471001a"],
        ["data_batch_5", "482c414d41f54cd18b22e5b47cb7c3cb"],
    ]
    test_list = [["test_batch", "40351d587109b95175f43aff81a1287e"]]
    meta = {"filename": "batches.meta", "key": "label_names", "md5": "5ff9c542aee3614f3951f8cda6e48888"}

    def __init__(self, root, train: bool = True, transform=None, target_transform=None, download: bool = False) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.train = train
        self._find(download)
        batches = [read_batch(self._path(name)) for name, _ in (self.train_list if train else self.test_list)]
        self.data = np.ascontiguousarray(np.concatenate([b["data"] for b in batches]).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
        self.targets = [int(label) for b in batches for label in (b["labels"] if "labels" in b else b["fine_labels"])]
        self.classes = read_batch(self._path(self.meta["filename"]))[self.meta["key"]]
        self.class_to_idx = {name: i for i, name in enumerate(self.classes)}

    @property
    def _deterministic(self) -> bool:
        return self.transform is None and self.target_transform is None

    def __getitem__(self, index: int):
        return self._transformed(pillow().fromarray(self.data[index]), self.targets[index])

    def _files(self) -> list:
        return [*super()._files(), (self.meta["filename"], self.meta["md5"])]

    def extra_repr(self) -> str:
        return f"Split: {'Train' if self.train else 'Test'}"


class CIFAR100(CIFAR10):
    """60,000 32 x 32 colour images of 100 classes."""

    base_folder = "cifar-100-python"
    url = "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz"
    filename = "cifar-100-python.tar.gz"
    tgz_md5 = "eb9058c3a382ffc7106e4002c42a8d85"
    train_list = [["train", "16019d7e3df5f24257cddd939b257f8d"]]
    test_list = [["test", "f0ef6b0ae62326f3e7ffdfab6717acfc"]]
    meta = {"filename": "meta", "key": "fine_label_names", "md5": "7973b15100ade9c7d40fb424638fde48"}
