"""A classifier with the face of scikit-learn's estimators, for its cross-validation, searches and pipelines.

Nothing of scikit-learn is imported unless scikit-learn itself asks.

Source  Buitinck and others 2013, "API design for machine learning software: experiences from the scikit-learn project"
"""

import inspect
import sys

import numpy as np

from . import device as devices
from . import models, nn, optim
from .device.random import Generator, drawing_from
from .errors import KindError, ShapeError, StateError
from .ops import softmax
from .tensor import Tensor
from .train import fit
from .train.evaluation import evaluation

__all__ = ["Classifier"]


class _NotFitted(StateError, ValueError, AttributeError):
    """What was asked for comes of fit, which has not been called."""


class Classifier:
    """A network that learns to tell classes apart.

    model           a name as in minigrad.models.MODELS, or a function of (the shape of a sample, number of classes)
                    that makes a Module; of features, (N, F), "mlp" is the name to take
    epochs, lr, batch_size, weight_decay    of the training by AdamW
    seed            of weights, order and dropout: equal seeds give equal bits; the default generator stays as it was
    device          where it runs

    After fit: classes_, the labels in order; n_features_in_, for (N, F); model_, the Module; history_, its training.
    Features are taken as they are: put a StandardScaler before. Images of uint8 are scaled to 0..1.

    Shapes  X (N, F) or (N, C, H, W), y (N,)
    Types   X numbers, computed in float32; y labels of any kind that can be sorted
    Errors  ValueError for NaN, infinite numbers, shapes that do not fit, targets that are no classes; before fit
            scikit-learn's NotFittedError where scikit-learn is in use, else a RuntimeError that is a ValueError too
    """

    _estimator_type = "classifier"  # for scikit-learn before 1.6

    def __init__(self, model="mlp", *, epochs=20, lr=1e-3, batch_size=32, weight_decay=0.0, seed=0, device="cpu"):
        self.model = model
        self.epochs = epochs
        self.lr = lr
        self.batch_size = batch_size
        self.weight_decay = weight_decay
        self.seed = seed
        self.device = device

    # ---- parameters ------------------------------------------------------------------------------------------------

    @classmethod
    def _names(cls):
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    def get_params(self, deep=True):
        """{name: value} of what __init__ takes."""
        return {name: getattr(self, name) for name in self._names()}

    def set_params(self, **params):
        """Change what __init__ takes; returns self."""
        for name in params:
            if name not in self._names():
                known = ", ".join(self._names())
                raise ShapeError(
                    f"set_params: Invalid parameter {name!r} for estimator {self!r}; wanted one of {known}"
                )
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __repr__(self):
        defaults = inspect.signature(type(self).__init__).parameters
        changed = {n: v for n, v in self.get_params().items() if v is not defaults[n].default}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in changed.items())})"

    def __sklearn_tags__(self):
        """What scikit-learn asks of its estimators since 1.6."""
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=True),
            classifier_tags=ClassifierTags(),
            input_tags=InputTags(two_d_array=True),
        )

    def __sklearn_is_fitted__(self):
        return hasattr(self, "model_")

    def __setstate__(self, state):
        """Of what pickle kept; arrays that joblib has left in a file are read into memory."""
        self.__dict__.update(state)
        model = state.get("model_")
        for tensor in () if model is None else (*model.parameters(), *model.buffers()):
            if isinstance(tensor.data, np.memmap):
                tensor.data = np.array(tensor.data)

    # ---- learning --------------------------------------------------------------------------------------------------

    def fit(self, X, y):
        """Train a new network on samples and their labels; returns self."""
        batch_size = self._whole("batch_size", 1)
        epochs, seed = self._whole("epochs", 1), self._whole("seed", 0)
        samples, labels = _samples("fit", X), _labels(y)
        if len(samples) != len(labels):
            raise ShapeError(_inconsistent("fit", samples, labels))
        classes, numbers = np.unique(labels, return_inverse=True)
        if len(classes) < 2:
            raise ShapeError(f"fit: y has one class, {classes[0]!r}, wanted at least two classes")
        with drawing_from(Generator(seed)):
            model = self._network(samples.shape[1:], len(classes)).to(self.device)
            optimizer = optim.AdamW(model.parameters(), lr=self.lr, weight_decay=self.weight_decay)
            batches = _Batches(samples, numbers.reshape(-1), batch_size, seed, self.device)
            history = fit(model, batches, optimizer, epochs)
        self.classes_, self.model_, self.history_ = classes, model.eval(), history
        self._shape = samples.shape[1:]
        self.__dict__.pop("n_features_in_", None)
        if len(self._shape) == 1:
            self.n_features_in_ = self._shape[0]
        return self

    def _whole(self, name, least):
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise KindError(f"fit: {name} is {value!r}, wanted an integer")
        if value < least:
            raise ShapeError(f"fit: {name} is {value}, wanted at least {least}")
        return int(value)

    def _network(self, shape, classes):
        if isinstance(self.model, str):
            if len(shape) == 1 and self.model != "mlp" and self.model in models.MODELS:
                raise ShapeError(f"fit: X has {shape[0]} features, {self.model} wants images, (N, C, H, W); or 'mlp'")
            return models.build(self.model, shape if len(shape) == 3 else (*shape, 1, 1), classes)
        if not callable(self.model) or isinstance(self.model, nn.Module):
            kind = type(self.model).__name__
            raise KindError(f"fit: model is a {kind}, wanted a name, or a function of shape and number of classes")
        model = self.model(shape, classes)
        if not isinstance(model, nn.Module):
            raise KindError(f"fit: model made a {type(model).__name__}, wanted a Module")
        return model

    # ---- use -------------------------------------------------------------------------------------------------------

    def predict_proba(self, X):
        """The probability of each class, (N, classes), for samples."""
        if not hasattr(self, "model_"):
            raise _not_fitted(f"This {type(self).__name__} instance is not fitted yet; call fit first")
        samples = _samples("predict", X)
        if samples.shape[1:] != self._shape:
            self._refuse_shape(samples)
        found, place = [], next(self.model_.parameters()).device  # set_params may have changed that of the next fit
        with evaluation(self.model_):
            for start in range(0, len(samples), 256):
                part = Tensor(devices.move(samples[start : start + 256], place))
                found.append(softmax(self.model_(part), 1).numpy())
        return np.concatenate(found)

    def _refuse_shape(self, samples):
        name = type(self).__name__
        if samples.ndim == 2 and len(self._shape) == 1:
            here, there = samples.shape[1], self._shape[0]
            raise ShapeError(f"predict: X has {here} features, but {name} is expecting {there} features as input")
        raise ShapeError(f"predict: X has shape {samples.shape}, but {name} is expecting {('N', *self._shape)}")

    def predict(self, X):
        """The likeliest label of each sample."""
        numbers = self.predict_proba(X).argmax(1)
        return self.classes_[numbers]

    def score(self, X, y, sample_weight=None):
        """The share of samples whose label is predicted, weighted by sample_weight if given."""
        predicted, labels = self.predict(X), np.asarray(y).reshape(-1)
        if len(predicted) != len(labels):
            raise ShapeError(_inconsistent("score", predicted, labels))
        return float(np.average(predicted == labels, weights=sample_weight))


class _Batches:
    """Batches of nearly one size in an order drawn anew for each epoch; none is much smaller than the others."""

    def __init__(self, samples, numbers, batch_size, seed, device):
        self.samples, self.numbers, self.device = samples, numbers.astype(np.int64), device
        self.count, self.source = -(-len(samples) // batch_size), np.random.default_rng(seed)

    def __len__(self):
        return self.count

    def __iter__(self):
        for chosen in np.array_split(self.source.permutation(len(self.samples)), self.count):
            pair = self.samples[chosen], self.numbers[chosen]
            yield tuple(Tensor(devices.move(array, self.device)) for array in pair)


def _inconsistent(op, samples, labels):
    return f"{op}: Found input variables with inconsistent numbers of samples: {[len(samples), len(labels)]}"


# ---- what is taken ---------------------------------------------------------------------------------------------------


def _samples(op, X):
    """The samples as an array of float32."""
    if hasattr(X, "toarray"):
        raise KindError(f"{op}: X is a sparse {type(X).__name__}, wanted a dense array; use X.toarray()")
    array = np.asarray(X)
    if array.dtype.kind == "c":
        raise ShapeError(f"{op}: Complex data not supported; X has elements {array.dtype}")
    if array.ndim not in (2, 4):
        hint = " Reshape your data: X.reshape(-1, 1) for one feature, X.reshape(1, -1) for one sample"
        raise ShapeError(f"{op}: X has shape {array.shape}, wanted (N, F) or (N, C, H, W).{hint}")
    if 0 in array.shape:
        found = f"{array.shape[0]} sample(s)" if not array.shape[0] else f"{array.shape[1]} feature(s)"
        raise ShapeError(f"{op}: Found array with {found} (shape={array.shape}) while a minimum of 1 is required.")
    pixels = array.ndim == 4 and array.dtype == np.uint8
    try:
        with np.errstate(over="ignore"):
            samples = array.astype(np.float32)
    except (TypeError, ValueError) as error:
        kind = KindError if isinstance(error, TypeError) else ShapeError
        raise kind(
            f"{op}: X has elements that are no numbers: argument must be a string or a number; {error}"
        ) from error
    if not np.isfinite(samples).all():
        found = "NaN" if np.isnan(samples).any() else "infinity, or a value too large for float32"
        raise ShapeError(f"{op}: Input X contains {found}")
    return samples / 255 if pixels else samples


def _labels(y):
    """The labels as a vector."""
    if y is None:
        raise ShapeError("fit: requires y to be passed, but the target y is None")
    labels = np.asarray(y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        _warn_of_column()
        labels = labels.reshape(-1)
    if labels.ndim != 1:
        raise ShapeError(f"fit: y should be a 1d array, got an array of shape {labels.shape} instead.")
    if labels.dtype.kind == "f" and (not np.isfinite(labels).all() or (labels != np.round(labels)).any()):
        what = "contains NaN or infinity" if not np.isfinite(labels).all() else "has fractions"
        raise ShapeError(f"fit: Unknown label type: continuous; Input y {what}, wanted classes")
    return labels


def _warn_of_column():
    import warnings

    category = UserWarning
    if "sklearn" in sys.modules:
        from sklearn.exceptions import DataConversionWarning as category
    warnings.warn("A column-vector y was passed when a 1d array was expected.", category, stacklevel=4)


def _not_fitted(message):
    """scikit-learn's error where it is in use, whose searches and tests look for it."""
    if "sklearn" in sys.modules:
        from sklearn.exceptions import NotFittedError

        return type("NotFittedError", (_NotFitted, NotFittedError), {})(message)
    return _NotFitted(message)
