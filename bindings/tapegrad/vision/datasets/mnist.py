"""MNIST and the sets in its files, as Pillow's images; the files and checksums are those of tapegrad.datasets."""

import os
import string

from ... import datasets as _plain
from .._pillow import pillow
from .utils import check_integrity, download_and_extract_archive, extract_archive, verify_str_arg
from .vision import VisionDataset

__all__ = ["EMNIST", "FashionMNIST", "KMNIST", "MNIST"]


class MNIST(_plain.MNIST, VisionDataset):
    """28 x 28 images of handwritten digits: (image of mode L, number of the class), each through its transform.

    root: the folder below which MNIST/raw lies or is made; download: fetch what is missing. `data` (uint8) and `targets` (int64) are
    tensors with everything. Raises RuntimeError when the files are not there.
    """

    _embedded = False  # a script that names a folder gets the files in it

    def __init__(self, root, train: bool = True, transform=None, target_transform=None, download: bool = False) -> None:
        VisionDataset.__init__(self, root, transform=transform, target_transform=target_transform)
        super().__init__(os.path.expanduser(root), train, transform, target_transform, download)

    def __getitem__(self, index: int):
        image = pillow().fromarray(self.data[index].numpy(), mode=None)
        return self._transformed(image, int(self.targets[index]))

    @property
    def processed_folder(self) -> str:
        """Where older versions put their files."""
        return os.path.join(self.root, type(self).__name__, "processed")

    @property
    def train_data(self):
        """The old name of data."""
        return self.data

    @property
    def train_labels(self):
        """The old name of targets."""
        return self.targets

    test_data, test_labels = train_data, train_labels

    def extra_repr(self) -> str:
        return f"Split: {'Train' if self.train else 'Test'}"

    __repr__ = VisionDataset.__repr__


class FashionMNIST(MNIST):
    """28 x 28 images of clothes (Xiao, Rasul and Vollgraf, 2017)."""

    mirrors, resources, classes = _plain.FashionMNIST.mirrors, _plain.FashionMNIST.resources, _plain.FashionMNIST.classes
    mean, std = _plain.FashionMNIST.mean, _plain.FashionMNIST.std


class KMNIST(MNIST):
    """28 x 28 images of cursive Japanese characters (Clanuwat et al., 2018)."""

    mirrors = ["http://codh.rois.ac.jp/kmnist/dataset/kmnist/"]
    resources = _plain.MNIST._files_with("bdb82020997e1d708af4cf47b453dcf7", "e144d726b3acfaa3e44228e80efcd344",
                                         "5c965bf0a639b31b8f53240b1b52f4d7", "7320c461ea6c1c855c0b718fb2a4b134")
    classes = ["o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"]
    mean, std = 0.1918, 0.3483


class EMNIST(MNIST):
    """28 x 28 images of handwritten letters and digits (Cohen et al., 2017), in six splits."""

    url = "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip"
    md5 = "58c8d27c78d21e728a6bc7b3cc06412e"
    splits = ("byclass", "bymerge", "balanced", "letters", "digits", "mnist")
    _merged = set("cijklmopsuvwxyz")  # written like their capitals
    _all = set(string.digits + string.ascii_letters)
    classes_split_dict = {
        "byclass": sorted(_all),
        "bymerge": sorted(_all - _merged),
        "balanced": sorted(_all - _merged),
        "letters": ["N/A", *string.ascii_lowercase],
        "digits": list(string.digits),
        "mnist": list(string.digits),
    }

    def __init__(self, root, split: str, **kwargs) -> None:
        self.split = verify_str_arg(split, "split", self.splits)
        super().__init__(root, **kwargs)
        self.classes = self.classes_split_dict[self.split]

    def _names(self, train: bool) -> list[str]:
        part = f"emnist-{self.split}-{'train' if train else 'test'}"
        return [f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte"]

    def _paths(self) -> list[str]:
        paths = [os.path.join(self.raw_folder, name) for name in self._names(self.train)]
        if not all(map(check_integrity, paths)):
            raise RuntimeError("Dataset not found. You can use download=True to download it")
        return paths

    def download(self) -> None:
        """Fetches the archive of all splits and unpacks it, unless that was done before."""
        if all(check_integrity(os.path.join(self.raw_folder, name)) for train in (True, False) for name in self._names(train)):
            return
        os.makedirs(self.raw_folder, exist_ok=True)
        download_and_extract_archive(self.url, self.raw_folder, md5=self.md5)
        folder = os.path.join(self.raw_folder, "gzip")
        for name in sorted(os.listdir(folder)):
            if name.endswith(".gz"):
                extract_archive(os.path.join(folder, name), self.raw_folder, remove_finished=True)


