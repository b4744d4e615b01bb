"""Data sets in folders: one folder for each class."""

import os

from .._pillow import pillow
from .vision import VisionDataset

__all__ = ["DatasetFolder", "IMG_EXTENSIONS", "ImageFolder", "default_loader", "find_classes", "has_file_allowed_extension",
           "is_image_file", "make_dataset", "pil_loader"]

IMG_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


def has_file_allowed_extension(filename: str, extensions) -> bool:
    """Whether a name ends with one of the extensions, in capitals or not."""
    return filename.lower().endswith(extensions if isinstance(extensions, str) else tuple(extensions))


def is_image_file(filename: str) -> bool:
    """Whether a name is that of an image."""
    return has_file_allowed_extension(filename, IMG_EXTENSIONS)


def find_classes(directory):
    """(sorted names of the folders in a folder, their numbers); FileNotFoundError when there are none."""
    classes = sorted(entry.name for entry in os.scandir(directory) if entry.is_dir())
    if not classes:
        raise FileNotFoundError(f"Couldn't find any class folder in {directory}.")
    return classes, {name: i for i, name in enumerate(classes)}


def make_dataset(directory, class_to_idx=None, extensions=None, is_valid_file=None, allow_empty: bool = False):
    """The sorted list of (path, class) of all files below the folders of the classes that are valid."""
    directory = os.path.expanduser(directory)
    if class_to_idx is None:
        _, class_to_idx = find_classes(directory)
    elif not class_to_idx:
        raise ValueError("'class_to_index' must have at least one entry to collect any samples.")
    if (extensions is None) == (is_valid_file is None):
        raise ValueError("Both extensions and is_valid_file cannot be None or not None at the same time")
    if is_valid_file is None:
        def is_valid_file(path):
            return has_file_allowed_extension(path, extensions)

    samples, found = [], set()
    for name in sorted(class_to_idx):
        for folder, _, files in sorted(os.walk(os.path.join(directory, name), followlinks=True)):
            paths = [os.path.join(folder, file) for file in sorted(files)]
            valid = [(path, class_to_idx[name]) for path in paths if is_valid_file(path)]
            samples += valid
            if valid:
                found.add(name)
    if missing := sorted(set(class_to_idx) - found):
        if not allow_empty:
            known = "" if extensions is None else f" Supported extensions are: {extensions if isinstance(extensions, str) else ', '.join(extensions)}"
            raise FileNotFoundError(f"Found no valid file for the classes {', '.join(missing)}.{known}")
    return samples


def pil_loader(path):
    """The image in a file, as RGB."""
    with open(path, "rb") as file:
        return pillow().open(file).convert("RGB")


default_loader = pil_loader


class DatasetFolder(VisionDataset):
    """Files in root/class/...: (loader(path), number of the class), each through its transform.

    extensions or is_valid_file(path) says which files belong to it. Raises FileNotFoundError when a class has none.
    """

    def __init__(self, root, loader, extensions=None, transform=None, target_transform=None, is_valid_file=None,
                 allow_empty: bool = False) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.classes, self.class_to_idx = self.find_classes(self.root)
        self.samples = self.make_dataset(self.root, self.class_to_idx, extensions, is_valid_file, allow_empty)
        self.loader, self.extensions = loader, extensions
        self.targets = [target for _, target in self.samples]

    @staticmethod
    def make_dataset(directory, class_to_idx, extensions=None, is_valid_file=None, allow_empty: bool = False):
        """The list of (path, class); to be overridden."""
        if class_to_idx is None:
            raise ValueError("The class_to_idx parameter cannot be None.")
        return make_dataset(directory, class_to_idx, extensions=extensions, is_valid_file=is_valid_file, allow_empty=allow_empty)

    def find_classes(self, directory):
        """(names, {name: number}); to be overridden."""
        return find_classes(directory)

    def __getitem__(self, index: int):
        path, target = self.samples[index]
        return self._transformed(self.loader(path), target)

    def __len__(self) -> int:
        return len(self.samples)


class ImageFolder(DatasetFolder):
    """Images in root/class/...: (image as RGB, number of the class)."""

    def __init__(self, root, transform=None, target_transform=None, loader=default_loader, is_valid_file=None,
                 allow_empty: bool = False) -> None:
        super().__init__(root, loader, IMG_EXTENSIONS if is_valid_file is None else None, transform, target_transform, is_valid_file,
                         allow_empty)
        self.imgs = self.samples
