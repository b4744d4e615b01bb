"""Data sets that can be downloaded or come with the package."""

from .mnist import MNIST, FashionMNIST

__all__ = ["MNIST", "FashionMNIST"]
