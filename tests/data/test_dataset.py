"""Dataset: its layout, its picks, its statistics, its splits; the digits of the package.

What they refuse is in tests/refusals/training.py.
"""

import hashlib
from fractions import Fraction
from importlib import resources

import numpy as np
import pytest

from minigrad.data import Dataset, digits
from minigrad_kernels.errors import ShapeError
from minigrad_kernels.layout import CHANNELS_LAST, is_dense

IMAGES = np.random.default_rng(0).integers(0, 256, (10, 2, 4, 5), np.uint8)
SMALL = Dataset(IMAGES, (np.arange(10) % 3).astype(np.uint8), "abc", "small")


def test_a_dataset_lies_channels_last_knows_its_statistics_and_is_picked_from():
    np.testing.assert_array_equal(SMALL.images, IMAGES)
    assert is_dense(SMALL.images, CHANNELS_LAST) and SMALL.labels.dtype == np.int64
    assert np.shares_memory(Dataset(SMALL.images, SMALL.labels, "abc").images, SMALL.images)
    np.testing.assert_allclose(SMALL.mean, (IMAGES / 255).mean((0, 2, 3)), rtol=1e-13)
    np.testing.assert_allclose(SMALL.std, (IMAGES / 255).std((0, 2, 3)), rtol=1e-13)
    given = Dataset(IMAGES, SMALL.labels, "abc", mean=[0.5, 0.25])
    assert given.mean == (0.5, 0.25) and given.std == SMALL.std
    for indices in ([3, 1], slice(2, 4), np.arange(10) > 6, []):
        part = SMALL.subset(indices)
        np.testing.assert_array_equal(part.labels, np.arange(10)[indices] % 3)
        np.testing.assert_array_equal(part.images, IMAGES[indices])
        assert part.mean == SMALL.mean and part.name == "small"


def test_split_is_a_seeded_partition():
    dataset = Dataset(np.arange(50, dtype=np.uint8).reshape(50, 1, 1, 1), np.zeros(50, int), ("a",))
    split = lambda seed: [part.images.ravel().tolist() for part in dataset.split(0.7, seed)]
    first, second = split(3)
    assert len(first) == 35 and sorted(first + second) == list(range(50))
    assert first == sorted(first) and second == sorted(second)
    assert split(3) == [first, second] != split(4)
    for fraction in (0, 1, float("nan"), 0.001, 0.999):
        with pytest.raises(ShapeError, match="one part empty"):
            dataset.split(fraction, 0)


# ---- digits ----------------------------------------------------------------------------------------------------------


def test_digits_are_those_published_in_two_splits():
    folder = resources.files("minigrad.data").joinpath("digits")
    readme = folder.joinpath("README.md").read_text()
    assert hashlib.sha256(folder.joinpath("digits.csv.gz").read_bytes()).hexdigest() in readme and "CC BY 4.0" in readme
    train, test = digits()
    assert (len(train), len(test)) == (1438, 359) and train.images.shape[1:] == (1, 8, 8)
    assert train.mean == test.mean == Dataset(train.images, train.labels, train.classes).mean
    table = np.loadtxt(str(folder.joinpath("digits.csv.gz")), np.uint8, delimiter=",")
    whole = table[:, :-1] * np.uint8(15)
    assert sorted(map(bytes, [*train.images, *test.images])) == sorted(map(bytes, whole))
    first, second = digits(split="writers")
    np.testing.assert_array_equal(np.concatenate([first.labels, second.labels]), table[:, -1])
    np.testing.assert_array_equal(np.concatenate([first.images, second.images]).reshape(1797, 64), whole)
    assert len(first) == 898 and (digits(seed=1)[0].labels != train.labels).any()


def test_digits_enlarged_against_exact_fractions(size=28):
    image, large = (digits("writers", one)[0].images[5, 0].astype(object) for one in (8, size))
    weights = np.full((size, 8), Fraction(0))
    for i in range(size):
        place = min(max((i + Fraction(1, 2)) * Fraction(8, size) - Fraction(1, 2), Fraction(0)), Fraction(7))
        weights[i, int(place)] += 1 - place % 1
        weights[i, min(int(place) + 1, 7)] += place % 1
    exact = weights @ image @ weights.T
    assert (large == np.vectorize(lambda x: int(x + Fraction(1, 2)), otypes=[object])(exact)).all()
