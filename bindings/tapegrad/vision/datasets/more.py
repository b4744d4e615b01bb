"""SVHN (Netzer et al., 2011) and STL-10 (Coates et al., 2011)."""

import os

import numpy as np

from .._pillow import pillow
from .matfile import read_mat
from .utils import check_integrity, download_url, verify_str_arg
from .vision import ArchivedDataset, VisionDataset

__all__ = ["STL10", "SVHN"]


class _OfSplit(VisionDataset):
    def extra_repr(self) -> str:
        return f"Split: {self.split}"


class SVHN(_OfSplit):
    """32 x 32 colour images of house numbers: (image, digit). split: 'train', 'test' or 'extra'. `data` is an array (N, 3, 32, 32)."""

    split_list = {
        "train": ["http://ufldl.stanford.edu/housenumbers/train_32x32.mat", "train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373"],
        "test": ["http://ufldl.stanford.edu/housenumbers/test_32x32.mat", "test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3"],
        "extra": ["http://ufldl.stanford.edu/housenumbers/extra_32x32.mat", "extra_32x32.mat", "a93ce644f1a588dc4d68dda5feec44a7"],
    }

    def __init__(self, root, split: str = "train", transform=None, target_transform=None, download: bool = False) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.split = verify_str_arg(split, "split", tuple(self.split_list))
        self.url, self.filename, self.file_md5 = self.split_list[split]
        if download:
            self.download()
        path = os.path.join(self.root, self.filename)
        if not check_integrity(path, self.file_md5):
            raise RuntimeError("Dataset not found or corrupted. You can use download=True to download it")
        content = read_mat(path)
        self.labels = content["y"].astype(np.int64).reshape(-1)
        self.labels[self.labels == 10] = 0  # in the file the digit 0 has the label 10
        self.data = np.ascontiguousarray(content["X"].transpose(3, 2, 0, 1))

    def __getitem__(self, index: int):
        return self._transformed(pillow().fromarray(self.data[index].transpose(1, 2, 0).copy()), int(self.labels[index]))

    def __len__(self) -> int:
        return len(self.data)

    def download(self) -> None:
        """Fetches the file unless it is there."""
        download_url(self.url, self.root, self.filename, self.file_md5)

class STL10(_OfSplit, ArchivedDataset):
    """96 x 96 colour images of 10 classes: (image, class, or -1). split: 'train', 'test', 'unlabeled' or 'train+unlabeled'; folds: 0 to 9."""

    base_folder = "stl10_binary"
    url = "http://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz"
    filename = "stl10_binary.tar.gz"
    tgz_md5 = "91f7769df0f17e558f3565bffb0c7dfb"
    class_names_file = "class_names.txt"
    folds_list_file = "fold_indices.txt"
    train_list = [["train_X.bin", "918c2871b30a85fa023e0c44e0bee87f"], ["train_y.bin", "5a34089d4802c674881badbb80307741"],
                  ["unlabeled_X.bin", "5242ba1fed5e4be9e1e742405eb56ca4"]]
    test_list = [["test_X.bin", "7f263ba9f9e0b06b93213547f721ac82"], ["test_y.bin", "36f9794fa4beb8a2c72628de14fa638e"]]
    splits = ("train", "train+unlabeled", "unlabeled", "test")

    def __init__(self, root, split: str = "train", folds=None, transform=None, target_transform=None, download: bool = False) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.split = verify_str_arg(split, "split", self.splits)
        if folds is not None and (not isinstance(folds, int) or not 0 <= folds < 10):
            raise ValueError(f"Value for argument folds should be in the range [0, 10), but got {folds}.")
        self.folds = folds
        self._find(download)
        parts = [self._part(name) for name in split.split("+")]
        self.data, self.labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        with open(self._path(self.class_names_file)) as file:
            self.classes = file.read().splitlines()

    def _part(self, name: str):
        images = np.fromfile(self._path(f"{name}_X.bin"), np.uint8).reshape(-1, 3, 96, 96).transpose(0, 1, 3, 2)  # columns come first
        if name == "unlabeled":
            return images, np.full(len(images), -1)
        labels = np.fromfile(self._path(f"{name}_y.bin"), np.uint8).astype(np.int64) - 1
        if name == "train" and self.folds is not None:
            with open(self._path(self.folds_list_file)) as file:
                chosen = np.array(file.read().splitlines()[self.folds].split(), np.int64)
            return images[chosen], labels[chosen]
        return images, labels

    def __getitem__(self, index: int):
        label = None if self.labels is None else int(self.labels[index])
        return self._transformed(pillow().fromarray(np.ascontiguousarray(self.data[index].transpose(1, 2, 0))), label)
