"""Image data sets, with checksums and atomic downloads."""

from . import utils
from .cifar import CIFAR10, CIFAR100
from .fakedata import FakeData
from .folder import DatasetFolder, ImageFolder
from .mnist import EMNIST, KMNIST, MNIST, FashionMNIST
from .more import STL10, SVHN
from .vision import StandardTransform, VisionDataset

__all__ = ["CIFAR10", "CIFAR100", "DatasetFolder", "EMNIST", "FakeData", "FashionMNIST", "ImageFolder", "KMNIST", "MNIST", "STL10",
           "SVHN", "StandardTransform", "VisionDataset"]
