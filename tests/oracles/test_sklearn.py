"""The example of a classifier in scikit-learn's own tests and searches; the packaged digits against its digits."""

import sys

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.datasets import load_digits  # noqa: E402
from sklearn.model_selection import GridSearchCV  # noqa: E402
from sklearn.utils.estimator_checks import check_estimator  # noqa: E402

from minigrad.data import digits  # noqa: E402
from tests.examples.test_examples import example  # noqa: E402


@pytest.fixture
def classifier(monkeypatch):
    module = example("estimator")
    monkeypatch.setitem(sys.modules, "estimator", module)  # where pickle looks for the class
    return module.Classifier


@pytest.mark.deep
def test_scikit_learns_own_checks(classifier):
    results = check_estimator(classifier(epochs=12), on_skip=None, on_fail=None)
    assert len(results) > 40
    failed = [f"{one['check_name']}: {one['exception']}" for one in results if one["status"] == "failed"]
    assert not failed, "\n".join(failed)


@pytest.mark.deep
def test_images_in_a_search(classifier):
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 255, (80, 1, 8, 8)) / np.float32(255), rng.choice(["dark", "half"], 80)
    images[labels == "half", :, :4] = 1
    search = GridSearchCV(classifier("digits-cnn"), {"epochs": [6], "lr": [1e-7, 1e-2]}, cv=2)
    assert search.fit(images, labels).best_params_["lr"] == 1e-2 and search.score(images, labels) > 0.9


def test_digits_are_those_of_scikit_learn():
    theirs, ours = load_digits(), digits(split="writers")
    images = np.concatenate([part.images for part in ours])
    np.testing.assert_array_equal(images[:, 0] / 15, theirs.images)
    np.testing.assert_array_equal(np.concatenate([part.labels for part in ours]), theirs.target)
