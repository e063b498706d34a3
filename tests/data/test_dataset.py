"""Dataset: its layout, its picks, its statistics, its splits; the digits of the package.

What they refuse is in tests/refusals/training.py.
"""

import hashlib
from fractions import Fraction
from importlib import resources

import numpy as np
import pytest

from minigrad.data import Dataset, digits
from minigrad.data import datasets as named
from minigrad_kernels.errors import ShapeError
from minigrad_kernels.layout import CHANNELS_LAST, is_dense


def small(n=10, channels=3, classes="abc"):
    images = np.random.default_rng(0).integers(0, 256, (n, channels, 4, 5), np.uint8)
    return Dataset(images, np.arange(n) % len(classes), tuple(classes), "small")


def test_dataset_lies_channels_last_with_the_same_pixels():
    images = np.random.default_rng(0).integers(0, 256, (6, 3, 4, 5), np.uint8)
    dataset = Dataset(images, np.zeros(6, np.uint8), ("a",))
    np.testing.assert_array_equal(dataset.images, images)
    assert is_dense(dataset.images, CHANNELS_LAST) and dataset.labels.dtype == np.int64
    assert np.shares_memory(Dataset(dataset.images, dataset.labels, ("a",)).images, dataset.images)


def test_dataset_picks_and_subsets():
    dataset = small()
    for indices in ([3, 1], np.array([3, 1]), slice(2, 4), np.arange(10) > 6, range(3), []):
        images, labels = dataset[indices]
        picked = np.arange(10)[indices]
        np.testing.assert_array_equal(labels, dataset.labels[picked])
        np.testing.assert_array_equal(images, dataset.images[picked])
        part = dataset.subset(indices)
        assert len(part) == np.size(picked) and part.mean == dataset.mean and part.name == "small"
    with pytest.raises(IndexError):
        dataset[[10]]


def test_dataset_statistics():
    dataset = small(channels=2)
    scaled = dataset.images / 255
    np.testing.assert_allclose(dataset.mean, scaled.mean((0, 2, 3)), rtol=1e-13)
    np.testing.assert_allclose(dataset.std, scaled.std((0, 2, 3)), rtol=1e-13)
    given = Dataset(dataset.images, dataset.labels, "abc", mean=[0.5, 0.25])
    assert given.mean == (0.5, 0.25) and given.std == dataset.std


def test_split_is_a_seeded_partition():
    dataset = Dataset(np.arange(50, dtype=np.uint8).reshape(50, 1, 1, 1), np.zeros(50, int), ("a",))
    first, second = dataset.split(0.7, seed=3)
    values = [part.images.ravel() for part in (first, second)]
    assert [len(v) for v in values] == [35, 15]
    assert all((np.diff(v.astype(int)) > 0).all() for v in values)
    assert sorted(np.concatenate(values)) == list(range(50))
    again, other = dataset.split(0.7, seed=3)[0], dataset.split(0.7, seed=4)[0]
    assert (again.images == first.images).all() and (other.images != first.images).any()
    for fraction in (0, 1, -0.5, float("nan"), 0.001, 0.999):
        with pytest.raises(ShapeError, match="one part empty"):
            dataset.split(fraction, 0)


# ---- digits ----------------------------------------------------------------------------------------------------------


def test_digits_file_is_the_published_one():
    packed = resources.files("minigrad.data").joinpath("digits/digits.csv.gz").read_bytes()
    readme = resources.files("minigrad.data").joinpath("digits/README.md").read_text()
    assert hashlib.sha256(packed).hexdigest() in readme and "CC BY 4.0" in readme and "Alpaydin" in readme


def test_digits_splits():
    train, test = digits()
    assert (len(train), len(test)) == (1438, 359)
    assert train.images.shape[1:] == (1, 8, 8) and np.unique(train.images).tolist() == list(range(0, 241, 15))
    assert train.mean == test.mean and train.mean == Dataset(train.images, train.labels, train.classes).mean
    table = np.loadtxt(named.DIGITS_FILE, np.uint8, delimiter=",")
    whole = table[:, :-1] * np.uint8(15)
    assert sorted(map(bytes, [*train.images, *test.images])) == sorted(map(bytes, whole))
    first, second = digits(split="writers")
    assert (len(first), len(second)) == (898, 899)
    np.testing.assert_array_equal(np.concatenate([first.labels, second.labels]), table[:, -1])
    np.testing.assert_array_equal(np.concatenate([first.images, second.images]).reshape(1797, 64), whole)
    assert (digits(seed=1)[0].labels != train.labels).any()


def test_digits_enlarged_against_exact_fractions(size=28):
    image = digits(split="writers")[0].images[5, 0]
    large = digits(split="writers", size=size)[0].images[5, 0]

    def weights(i):
        place = min(max((i + Fraction(1, 2)) * Fraction(8, size) - Fraction(1, 2), Fraction(0)), Fraction(7))
        low = int(place)
        return [(low, 1 - (place - low)), (min(low + 1, 7), place - low)]

    for i, j in np.ndindex(size, size):
        exact = sum(a * b * int(image[h, w]) for h, a in weights(i) for w, b in weights(j))
        assert large[i, j] == int(exact + Fraction(1, 2))
