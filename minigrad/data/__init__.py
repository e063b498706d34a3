"""Data sets, transforms and the loader."""

from .dataset import Dataset
from .datasets import available, cifar10, digits, folder, mnist
from .formats import DataError, read_cifar10, read_idx
from .loader import Loader
from .transforms import Affine, Compose, Flip, Gamma, Normalize, PadCrop

__all__ = [
    "Affine", "Compose", "DataError", "Dataset", "Flip", "Gamma", "Loader", "Normalize", "PadCrop", "available",
    "cifar10", "digits", "folder", "mnist", "read_cifar10", "read_idx",
]  # fmt: skip
