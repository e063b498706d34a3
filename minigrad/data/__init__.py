"""Data sets, transforms and the loader."""

from .dataset import Dataset
from .datasets import available, cifar10, digits, mnist
from .formats import DataError, read_cifar10, read_idx
from .loader import Loader
from .transforms import Compose, Flip, Normalize, PadCrop

__all__ = [
    "Compose", "DataError", "Dataset", "Flip", "Loader", "Normalize", "PadCrop", "available", "cifar10", "digits",
    "mnist", "read_cifar10", "read_idx",
]  # fmt: skip
