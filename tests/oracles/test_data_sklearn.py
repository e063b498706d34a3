"""The packaged digits against scikit-learn's."""

import numpy as np
import pytest

from minigrad.data import digits

datasets = pytest.importorskip("sklearn.datasets")


def test_digits_are_those_of_scikit_learn():
    theirs = datasets.load_digits()
    ours = digits(split="writers")
    images = np.concatenate([part.images for part in ours])
    np.testing.assert_array_equal(images[:, 0] / 15, theirs.images)
    np.testing.assert_array_equal(np.concatenate([part.labels for part in ours]), theirs.target)
