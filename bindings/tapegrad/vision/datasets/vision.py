"""The base of image data sets."""

import os

from ...datasets.mnist import WithTransforms
from ...utils.data import Dataset
from .utils import check_integrity, download_and_extract_archive

__all__ = ["StandardTransform", "VisionDataset"]


class StandardTransform(WithTransforms):
    """One transform for the image, another one for the target."""

    def __init__(self, transform=None, target_transform=None) -> None:
        self.transform = transform
        self.target_transform = target_transform

    __call__ = WithTransforms._transformed

    def __repr__(self) -> str:
        lines = [type(self).__name__]
        for title, transform in (("Transform: ", self.transform), ("Target transform: ", self.target_transform)):
            if transform is not None:
                lines.append(title + repr(transform).replace("\n", "\n" + " " * len(title)))
        return "\n".join(lines)


class VisionDataset(WithTransforms, Dataset):
    """Base of data sets of pictures: root, and either transforms of both or transform and target_transform.

    Raises ValueError when transforms is given together with one of the other two.
    """

    _repr_indent = 4

    def __init__(self, root=None, transforms=None, transform=None, target_transform=None) -> None:
        self.root = os.path.expanduser(root) if isinstance(root, str) else root
        separate = transform is not None or target_transform is not None
        if transforms is not None and separate:
            raise ValueError("Only transforms or transform/target_transform can be passed as argument")
        self.transform = transform
        self.target_transform = target_transform
        self.transforms = StandardTransform(transform, target_transform) if separate else transforms

    def __getitem__(self, index: int):
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def __repr__(self) -> str:
        body = [f"Number of datapoints: {len(self)}"]
        if self.root is not None:
            body.append(f"Root location: {self.root}")
        body += self.extra_repr().splitlines()
        if getattr(self, "transforms", None) is not None:
            body += repr(self.transforms).splitlines()
        return "\n".join([f"Dataset {type(self).__name__}", *(" " * self._repr_indent + line for line in body)])

    def extra_repr(self) -> str:
        """Further lines of repr."""
        return ""


class ArchivedDataset(VisionDataset):
    """Base of data sets in one archive: its `url`, `filename` and `tgz_md5`, the folder `base_folder` that is in it, and its files' checksums.

    Raises RuntimeError when the files are not there or damaged.
    """

    def _find(self, download: bool) -> None:
        if download:
            self.download()
        if not self._check_integrity():
            raise RuntimeError("Dataset not found or corrupted. You can use download=True to download it")

    def _path(self, name: str) -> str:
        return os.path.join(self.root, self.base_folder, name)

    def _files(self) -> list:
        """(name, checksum) of each file."""
        return [*self.train_list, *self.test_list]

    def _check_integrity(self) -> bool:
        return all(check_integrity(self._path(name), md5) for name, md5 in self._files())

    def download(self) -> None:
        """Fetches and unpacks the archive unless all files are there."""
        if not self._check_integrity():
            download_and_extract_archive(self.url, self.root, filename=self.filename, md5=self.tgz_md5)

    def __len__(self) -> int:
        return len(self.data)
