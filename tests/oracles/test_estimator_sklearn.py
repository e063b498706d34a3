"""The classifier in scikit-learn's own tests, searches and pipelines."""

import numpy as np
import pytest

from minigrad.estimator import Classifier

sklearn = pytest.importorskip("sklearn")

from sklearn.base import clone, is_classifier  # noqa: E402
from sklearn.datasets import load_iris  # noqa: E402
from sklearn.exceptions import NotFittedError  # noqa: E402
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from sklearn.utils.estimator_checks import check_estimator  # noqa: E402

LEFT_OUT = {
    "check_array_api_input",  # wants SCIPY_ARRAY_API set: arrays of other libraries, which this takes as NumPy's alone
    "check_classifier_data_not_an_array",  # wants pandas
}


@pytest.mark.filterwarnings("ignore:Estimator Classifier does not inherit")  # so that it needs no scikit-learn
def test_scikit_learns_own_checks():
    results = check_estimator(Classifier(epochs=12, lr=1e-2), on_skip=None, on_fail=None)
    assert len(results) > 40
    failed = [
        f"{one['check_name']}: {one['exception']}" for one in results if one["status"] not in ("passed", "skipped")
    ]
    assert not failed, "\n".join(failed)
    assert {one["check_name"] for one in results if one["status"] == "skipped"} <= LEFT_OUT


def test_cross_validation_search_and_pipeline():
    samples, labels = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[labels]
    pipeline = make_pipeline(StandardScaler(), Classifier(epochs=10, lr=1e-2))
    scores = cross_val_score(pipeline, samples, names, cv=3)
    assert scores.mean() > 0.9 and (scores == cross_val_score(pipeline, samples, names, cv=3)).all()
    shares = cross_val_predict(pipeline, samples, names, cv=3, method="predict_proba")
    assert shares.shape == (150, 3)
    grid = {"classifier__lr": [1e-5, 1e-2], "classifier__batch_size": [50]}
    search = GridSearchCV(pipeline, grid, cv=2).fit(samples, names)
    assert search.best_params_["classifier__lr"] == 1e-2 and search.score(samples, names) > 0.9


def test_images_in_a_search():
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 255, (80, 1, 8, 8)).astype(np.uint8), rng.integers(0, 2, 80)
    images[labels == 1, :, :4] = 255
    scores = cross_val_score(Classifier("digits-cnn", epochs=10, lr=1e-2), images, labels, cv=2)
    assert scores.mean() > 0.9


def test_clones_and_errors():
    function = lambda shape, classes: None
    model = Classifier(function, epochs=3)
    assert clone(model).get_params() == model.get_params() and is_classifier(model)
    with pytest.raises(NotFittedError):
        model.predict(np.ones((2, 2)))
