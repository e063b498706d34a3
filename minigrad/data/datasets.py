"""Data sets: digits comes with the package, MNIST and CIFAR-10 are found or downloaded, a folder holds one's own."""

from pathlib import Path

import numpy as np

from ..core.check import integer_of, one_of
from .dataset import Dataset, statistics
from .formats import DataError, read_cifar10, read_idx, read_picture
from .sources import CIFAR10, MNIST, find, obtain

DIGITS_FILE = Path(__file__).parent / "digits" / "digits.csv.gz"
DIGITS_SOURCE = "Optical Recognition of Handwritten Digits (Alpaydin and Kaynak 1998, UCI; CC BY 4.0), in the package"
TEN_DIGITS = tuple("0123456789")

# The customary figures of the 60,000 and 50,000 training images.
MNIST_STATISTICS = {"mean": (0.1307,), "std": (0.3081,)}
CIFAR10_STATISTICS = {"mean": (0.4914, 0.4822, 0.4465), "std": (0.2470, 0.2435, 0.2616)}
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def digits(split="random", size=8, seed=0):
    """The 1,797 handwritten digits that come with the package, as (train, test). Needs no network.

    split "random" puts 80 of 100 images, drawn by the seed, into train; "writers" takes the first half of the
    file for train and the second, mostly written by other people, for test, which is harder. A size above 8
    enlarges the 8 x 8 images bilinearly, pixel centres at halves and edges held, to fit networks made for 28
    x 28 or 32 x 32. Mean and std are those of train.

    Shapes  images (N, 1, size, size)
    Errors  ShapeError for an unknown split or a size below 8
    """
    one_of("digits", "split", split, ("random", "writers"))
    size = integer_of("digits", "size", size, 8)
    table = np.loadtxt(DIGITS_FILE, np.uint8, delimiter=",")
    # Pixels are 0..16; times 15 they are 0..240: exactly proportional, so nothing is lost to rounding.
    pixels = table[:, :-1].reshape(-1, 1, 8, 8) * np.uint8(15)
    whole = Dataset(_enlarged(pixels, size), table[:, -1], TEN_DIGITS, "digits", DIGITS_SOURCE)
    half = len(whole) // 2
    both = whole.subset(slice(half)), whole.subset(slice(half, None))
    train, test = whole.split(0.8, seed) if split == "random" else both
    train.mean, train.std = test.mean, test.std = statistics(train.images)
    return train, test


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
    parts = read_cifar10(folder / next(iter(CIFAR10.files)))
    return tuple(Dataset(*part, CIFAR10_CLASSES, "cifar10", source, **CIFAR10_STATISTICS) for part in parts)


def folder(path, size=32, seed=0):
    """The pictures in a folder, as (train, test): a subfolder for each class, whose name it has.

    Every file that Pillow reads is a picture, in subfolders of subfolders too; files whose names begin with a dot are
    passed over. Transparent ones lie on white. All are resized to size x size. They have three colours, or one if all
    are grey. 80 of 100, drawn by the seed, are in train; mean and std are those of train.

    Shapes  images (N, 1 or 3, size, size)
    Errors  DataError for less than two classes, a class without pictures, and a file that is none, by name
    """
    from PIL import Image

    path, size = Path(path), integer_of("folder", "size", size, 1)
    entries = path.iterdir() if path.is_dir() else ()
    classes = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    if len(classes) < 2:
        raise DataError(f"folder: {path} has {len(classes)} subfolders, wanted one for each of at least two classes")
    pictures, labels = [], []
    for label, name in enumerate(classes):
        files = sorted(file for file in (path / name).rglob("[!.]*") if file.is_file())
        if not files:
            raise DataError(f"folder: {path / name} holds no pictures")
        for file in files:
            pictures.append(read_picture(file).resize((size, size), Image.Resampling.BILINEAR))
            labels.append(label)
    kind = "L" if all(picture.mode == "L" for picture in pictures) else "RGB"
    images = np.stack([np.atleast_3d(np.asarray(picture.convert(kind))) for picture in pictures]).transpose(0, 3, 1, 2)
    train, test = Dataset(images, labels, classes, path.name, f"pictures in {path}").split(0.8, seed)
    train.mean, train.std = test.mean, test.std = statistics(train.images)
    return train, test


def available(name, data_dir=None):
    """The folder that holds the data set "digits", "mnist" or "cifar10", or None: a look without a network.

    Errors  ShapeError for another name
    """
    one_of("available", "name", name, ("digits", "mnist", "cifar10"))
    return DIGITS_FILE.parent if name == "digits" else find(MNIST if name == "mnist" else CIFAR10, data_dir)


def _mnist_part(folder, part, source):
    path = folder / f"{part}-images-idx3-ubyte.gz"
    images, labels = read_idx(path), read_idx(folder / f"{part}-labels-idx1-ubyte.gz")
    if images.shape[1:] != (28, 28):
        raise DataError(f"mnist: {path}: holds images {images.shape}, wanted (N, 28, 28)")
    return Dataset(images[:, None], labels, TEN_DIGITS, "mnist", source, **MNIST_STATISTICS)


def _enlarged(images, size):
    """Bilinear enlargement in integers, halves rounded up: the same bits on every machine."""
    old, unit = images.shape[2], 2 * size
    centres = np.clip((2 * np.arange(size) + 1) * old - size, 0, (old - 1) * unit)  # in pixels / unit
    weights = np.maximum(unit - abs(centres[:, None] - unit * np.arange(old)), 0)  # of old pixels in new ones
    both = weights @ images.astype(np.int64) @ weights.T
    return ((2 * both + unit**2) // (2 * unit**2)).astype(np.uint8)
