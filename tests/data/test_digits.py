"""The packaged digits: their bytes, their splits, their enlargement."""

import hashlib
from fractions import Fraction
from importlib import resources

import numpy as np
import pytest

from minigrad.data import Dataset, digits
from minigrad.data import datasets as named
from minigrad_kernels.errors import KindError, ShapeError


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
    first, second = digits(split="writers")
    np.testing.assert_array_equal(np.concatenate([first.labels, second.labels]), table[:, -1])
    pixels = np.concatenate([first.images, second.images]).reshape(1797, 64)
    np.testing.assert_array_equal(pixels // 15, table[:, :-1])
    assert (len(first), len(second)) == (898, 899)
    assert (digits(seed=1)[0].labels != train.labels).any()


def test_digits_random_split_keeps_every_image_once():
    train, test = digits()
    pixels = np.concatenate([train.images, test.images]).reshape(1797, 64)
    table = np.loadtxt(named.DIGITS_FILE, np.uint8, delimiter=",")[:, :-1] * np.uint8(15)
    assert sorted(map(bytes, pixels)) == sorted(map(bytes, table))


@pytest.mark.parametrize("size", [9, 28, 32])
def test_digits_enlarged_against_exact_fractions(size):
    image = digits(split="writers")[0].images[5, 0]
    large = digits(split="writers", size=size)[0].images[5, 0]

    def weights(i):
        place = min(max((i + Fraction(1, 2)) * Fraction(8, size) - Fraction(1, 2), Fraction(0)), Fraction(7))
        low = int(place)
        return [(low, 1 - (place - low)), (min(low + 1, 7), place - low)]

    for i in range(size):
        for j in range(size):
            exact = sum(a * b * int(image[h, w]) for h, a in weights(i) for w, b in weights(j))
            assert large[i, j] == int(exact + Fraction(1, 2))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"split": "half"}, ShapeError),
        ({"size": 7}, ShapeError),
        ({"size": 28.0}, KindError),
        ({"seed": -1}, ShapeError),
    ],
)
def test_digits_refuses(arguments, error):
    with pytest.raises(error):
        digits(**arguments)
