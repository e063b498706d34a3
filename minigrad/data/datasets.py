"""The three data sets by name: digits comes with the package, MNIST and CIFAR-10 are found or downloaded."""

import gzip
import io
from importlib import resources
from pathlib import Path

import numpy as np

from minigrad_kernels.errors import ShapeError

from .dataset import Dataset
from .formats import DataError, read_cifar10, read_idx
from .seeds import checked_integer
from .sources import CIFAR10, MNIST, find, obtain

__all__ = ["available", "cifar10", "digits", "mnist"]

DIGITS_FILE = "digits/digits.csv.gz"
DIGITS_SOURCE = "Optical Recognition of Handwritten Digits (Alpaydin and Kaynak 1998, UCI; CC BY 4.0), in the package"
DIGITS_LEVEL = 15  # pixels are 0..16; times 15 they are 0..240: exactly proportional, so nothing is lost to rounding
DIGITS_TRAIN = 0.8
TEN_DIGITS = tuple("0123456789")

# The customary figures of the 60,000 and 50,000 training images.
MNIST_STATISTICS = {"mean": (0.1307,), "std": (0.3081,)}
CIFAR10_STATISTICS = {"mean": (0.4914, 0.4822, 0.4465), "std": (0.2470, 0.2435, 0.2616)}
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
MNIST_IMAGE = (28, 28)


def digits(split="random", size=8, seed=0):
    """The 1,797 handwritten digits that come with the package, as (train, test). Needs no network.

    split "random" puts 80 of 100 images, drawn by the seed, into train; "writers" takes the first half of the
    file for train and the second, mostly written by other people, for test, which is harder. A size above 8
    enlarges the 8 x 8 images bilinearly, pixel centres at halves and edges held, to fit networks made for 28
    x 28 or 32 x 32. Mean and std are those of train.

    Shapes  images (N, 1, size, size)
    Errors  ShapeError for an unknown split or a size below 8
    """
    if split not in ("random", "writers"):
        raise ShapeError(f"digits: split is {split!r}, want 'random' or 'writers'")
    size = checked_integer("digits", "size", size, 8)
    table = _digits_table()
    pixels = table[:, :-1].reshape(-1, 1, 8, 8) * np.uint8(DIGITS_LEVEL)
    whole = Dataset(_enlarged(pixels, size), table[:, -1], TEN_DIGITS, "digits", DIGITS_SOURCE)
    if split == "random":
        train, test = whole.split(DIGITS_TRAIN, seed)
    else:
        train, test = whole.subset(slice(len(whole) // 2)), whole.subset(slice(len(whole) // 2, None))
    fit = Dataset(train.images, train.labels, whole.classes, whole.name, whole.source)
    return fit, Dataset(test.images, test.labels, whole.classes, whole.name, whole.source, fit.mean, fit.std)


def mnist(data_dir=None, download=True):
    """MNIST's 60,000 training and 10,000 test images, as (train, test), from its four IDX files.

    They are looked for in data_dir, in the folder named by MINIGRAD_DATA and in the cache, then downloaded.
    Files in the first two may hold fewer records than the published ones; the source text then says so.

    Shapes  images (N, 1, 28, 28)
    Errors  DataError if a file is absent or damaged, ShapeError if it does not fit the others
    """
    folder, source = obtain(MNIST, data_dir, download)
    return _mnist_part(folder, "train", source), _mnist_part(folder, "t10k", source)


def cifar10(data_dir=None, download=True):
    """CIFAR-10's 50,000 training and 10,000 test images, as (train, test), from its binary archive.

    Found and downloaded as mnist() does.

    Shapes  images (N, 3, 32, 32)
    Errors  DataError if the file is absent or damaged
    """
    folder, source = obtain(CIFAR10, data_dir, download)
    train, test = (
        Dataset(images, labels, CIFAR10_CLASSES, "cifar10", source, **CIFAR10_STATISTICS)
        for images, labels in read_cifar10(folder / next(iter(CIFAR10.files)))
    )
    return train, test


def available(name, data_dir=None):
    """The folder that holds the data set "digits", "mnist" or "cifar10", or None: a look without a network.

    Errors  ShapeError for another name
    """
    if name == "digits":
        return Path(str(resources.files(__package__).joinpath(DIGITS_FILE))).parent
    published = {"mnist": MNIST, "cifar10": CIFAR10}.get(name)
    if published is None:
        raise ShapeError(f"available: name is {name!r}, want 'digits', 'mnist' or 'cifar10'")
    return find(published, data_dir)


def _mnist_part(folder, part, source):
    path = folder / f"{part}-images-idx3-ubyte.gz"
    images, labels = read_idx(path), read_idx(folder / f"{part}-labels-idx1-ubyte.gz")
    if images.shape[1:] != MNIST_IMAGE:
        raise DataError(f"mnist: {path}: holds images {images.shape}, want (N, 28, 28)")
    return Dataset(images[:, None], labels, TEN_DIGITS, "mnist", source, **MNIST_STATISTICS)


def _digits_table():
    packed = resources.files(__package__).joinpath(DIGITS_FILE).read_bytes()
    return np.loadtxt(io.StringIO(gzip.decompress(packed).decode("ascii")), np.uint8, delimiter=",")


def _enlarged(images, size):
    """Bilinear enlargement in integers, halves rounded up: the same bits on every machine."""
    old = images.shape[-1]
    if size == old:
        return images
    # Everything in units of 1 / (2 size) of an old pixel, so that positions and weights are integers.
    unit = 2 * size
    position = np.clip((2 * np.arange(size) + 1) * old - size, 0, unit * (old - 1))
    low, share = np.divmod(position, unit)
    high = np.minimum(low + 1, old - 1)
    wide = images.astype(np.int64)
    rows = wide[:, :, low] * (unit - share)[:, None] + wide[:, :, high] * share[:, None]
    both = rows[..., low] * (unit - share) + rows[..., high] * share
    return ((2 * both + unit**2) // (2 * unit**2)).astype(np.uint8)
