"""The classifier by itself, without scikit-learn; tests/oracles/test_estimator_sklearn.py has it at work there."""

import pickle
import subprocess
import sys

import numpy as np
import pytest

import minigrad
from minigrad import nn
from minigrad.data import digits
from minigrad.estimator import Classifier


@pytest.fixture(scope="module")
def blobs():
    """Three clouds of points in the plane, with words for labels."""
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, 3, 120)
    centres = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])
    return centres[numbers] + rng.standard_normal((120, 2)) / 2, np.array(["ant", "bee", "cat"])[numbers]


def quick(**options):
    return Classifier(**{"epochs": 10, "lr": 1e-2, **options})


def test_it_learns_labels_of_any_kind(blobs):
    samples, words = blobs
    found = quick().fit(samples, words)
    assert list(found.classes_) == ["ant", "bee", "cat"] and found.n_features_in_ == 2
    assert found.score(samples, words) > 0.95 and set(found.predict(samples)) == {"ant", "bee", "cat"}
    shares = found.predict_proba(samples)
    assert shares.shape == (120, 3) and np.allclose(shares.sum(1), 1, atol=1e-5)
    assert (found.classes_[shares.argmax(1)] == found.predict(samples)).all()
    assert len(found.history_) == 10 and not found.model_.training
    for labels in (words == "ant", np.unique(words, return_inverse=True)[1] - 5, list(words)):
        assert quick().fit(samples, labels).score(samples, labels) > 0.95
    weights = (words == "ant") * 1.0
    assert found.score(samples, words, weights) == (found.predict(samples) == words)[words == "ant"].mean()


def test_equal_seeds_give_equal_bits_and_draw_from_nothing_else(blobs):
    minigrad.manual_seed(5)
    before = minigrad.default_generator.get_state()
    first, again = (quick(epochs=2).fit(*blobs).predict_proba(blobs[0]) for _ in range(2))
    assert (first == again).all() and minigrad.default_generator.get_state() == before
    assert (quick(epochs=2, seed=1).fit(*blobs).predict_proba(blobs[0]) != first).any()


def test_images_and_networks_by_name_or_function():
    train, _ = digits()
    images, labels = train.images[:200], train.labels[:200]
    found = Classifier("digits-cnn", epochs=2, lr=3e-3).fit(images, labels)
    assert found.score(images, labels) > 0.5 and not hasattr(found, "n_features_in_")
    np.testing.assert_allclose(found.predict_proba(images), found.predict_proba(images / np.float32(255)), atol=1e-5)
    seen = []

    def network(shape, classes):
        seen.append((shape, classes))
        return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Dropout(0.1), nn.Linear(64, classes))

    assert Classifier(network, epochs=3, lr=1e-2, batch_size=199).fit(images, labels).score(images, labels) > 0.5
    assert seen == [((1, 8, 8), 10)]


def test_parameters():
    model = Classifier("lenet", lr=0.1)
    assert model.get_params() == {
        "model": "lenet", "epochs": 20, "lr": 0.1, "batch_size": 32, "weight_decay": 0.0, "seed": 0, "device": "cpu",
    }  # fmt: skip
    assert model.set_params(seed=3, lr=0.2) is model and (model.seed, model.lr) == (3, 0.2)
    with pytest.raises(ValueError, match="Invalid parameter 'rate' for estimator Classifier.*wanted one of model"):
        model.set_params(lr=0.3, rate=1)
    assert model.lr == 0.2 and repr(model) == "Classifier(model='lenet', lr=0.2, seed=3)"


def test_parameters_changed_after_fit_are_for_the_next_one(blobs):
    found = quick(epochs=2).fit(*blobs)
    before = found.predict_proba(blobs[0])
    assert (found.set_params(device="cuda:7", model="lenet").predict_proba(blobs[0]) == before).all()


def test_it_survives_pickling(blobs):
    found = quick(epochs=2).fit(*blobs)
    again = pickle.loads(pickle.dumps(found))
    assert (again.predict_proba(blobs[0]) == found.predict_proba(blobs[0])).all()


X, Y = np.ones((4, 2)), np.array([0, 1, 0, 1])
REFUSED = [
    ({}, (X[:, 0], Y), ValueError, r"X has shape \(4,\), wanted \(N, F\) or \(N, C, H, W\). Reshape your data"),
    ({}, (X[:0], Y[:0]), ValueError, r"Found array with 0 sample\(s\)"),
    ({}, (X[:, :0], Y), ValueError, r"Found array with 0 feature\(s\)"),
    ({}, (X * np.nan, Y), ValueError, "Input X contains NaN"),
    ({}, (X * 1e300, Y), ValueError, "Input X contains infinity"),
    ({}, (X * 1j, Y), ValueError, "Complex data not supported"),
    ({}, ([["a", "b"]] * 4, Y), ValueError, "elements that are no numbers"),
    ({}, (X, None), ValueError, "requires y to be passed"),
    ({}, (X, Y[:3]), ValueError, r"inconsistent numbers of samples: \[4, 3\]"),
    ({}, (X, Y + 0.5), ValueError, "Unknown label type: continuous"),
    ({}, (X, Y * np.nan), ValueError, "Input y contains NaN"),
    ({}, (X, np.eye(4)), ValueError, "y should be a 1d array"),
    ({}, (X, Y * 0), ValueError, "wanted at least two classes"),
    ({"epochs": 0}, (X, Y), ValueError, "epochs is 0, wanted at least 1"),
    ({"batch_size": 2.5}, (X, Y), TypeError, "batch_size is 2.5, wanted an integer"),
    ({"seed": -1}, (X, Y), ValueError, "seed is -1"),
    ({"model": "lenet"}, (X, Y), ValueError, "X has 2 features, lenet wants images"),
    ({"model": "vgg"}, (X[:, :, None, None], Y), ValueError, "name is 'vgg'"),
    ({"model": "vgg"}, (X, Y), ValueError, "name is 'vgg', want one of"),
    ({"model": nn.Linear(2, 2)}, (X, Y), TypeError, "model is a Linear, wanted a name, or a function"),
    ({"model": lambda shape, classes: 5}, (X, Y), TypeError, "model made a int, wanted a Module"),
]


@pytest.mark.parametrize("options, data, kind, message", REFUSED, ids=[message[:25] for *_, message in REFUSED])
def test_refusals(options, data, kind, message):
    model = Classifier(**options)
    with pytest.raises(kind, match=message):
        model.fit(*data)
    assert not hasattr(model, "model_")


def test_refusals_in_use(blobs):
    with pytest.raises(ValueError, match="not fitted yet"):
        Classifier().predict(X)
    found = quick(epochs=1).fit(*blobs)
    with pytest.raises(ValueError, match="X has 3 features, but Classifier is expecting 2 features as input"):
        found.predict(np.ones((2, 3)))
    with pytest.raises(ValueError, match=r"X has shape \(1, 2, 3, 3\)"):
        found.predict(np.ones((1, 2, 3, 3)))
    with pytest.raises(ValueError, match=r"score: .*inconsistent numbers of samples: \[120, 1\]"):
        found.score(*blobs[:1], ["ant"])
    with pytest.warns(UserWarning, match="column-vector"):
        quick(epochs=1).fit(blobs[0], blobs[1].reshape(-1, 1))


def test_scikit_learn_is_not_imported():
    text = (
        "import sys, numpy as np; from minigrad.estimator import Classifier\n"
        "Classifier(epochs=1).fit(np.eye(4), [0, 1, 0, 1]).predict(np.eye(4))\n"
        "try: Classifier().predict(np.eye(4))\n"
        "except ValueError: pass\n"
        "assert 'sklearn' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", text], check=True, timeout=300)
