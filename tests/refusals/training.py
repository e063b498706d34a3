"""What fit, evaluate, predict, histories, callbacks, profiles and reports refuse."""

from functools import partial

import numpy as np

import minigrad
from minigrad import Tensor, nn, optim, profile, train
from minigrad.amp import GradScaler
from minigrad.data import Dataset, Loader
from minigrad.graph import capture
from minigrad.nn import functional as F
from minigrad.optim.lr_scheduler import StepLR
from minigrad.train import Histograms, History, confusion_matrix

DATA = Dataset(np.zeros((6, 1, 2, 2), np.uint8), np.arange(6) % 3, tuple("abc"))


def model():
    minigrad.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 3))


def fit(network=None, loader=None, optimizer=None, epochs=1, **options):
    """A call of fit whose parts are good but for those that are given."""
    network = model() if network is None else network
    optimizer = optim.SGD(network.parameters(), 0.1) if optimizer is None else optimizer
    loader = Loader(DATA, 3) if loader is None else loader
    return partial(train.fit, network, loader, optimizer, epochs, **options)


def begun(**options):
    """A call of fit that is refused after it has taken a batch, or made an update."""
    return lambda: fit(**options)()


def wrapped(network):
    return partial(train.fit, network, Loader(DATA, 3), optim.SGD(model().parameters(), 0.1), 1)


def given(value):
    """fit with this as its loader, which partial shows."""
    return fit(loader=value)


def images(*shape):
    return minigrad.zeros(*shape)


def labels(*values):
    return minigrad.tensor(values)


FIT = [
    ("model", wrapped(nn.ReLU), TypeError, r"model is <class .*ReLU'>, wanted an instance of Module"),
    ("model a function", wrapped(F.relu), TypeError, r"model is <minigrad.core.primitive.Primitive .*>, wanted an"),
    ("loader", given(3), TypeError, r"loader is a int, wanted batches: data.Loader\(dataset"),
    ("loader a set", given(DATA), TypeError, r"loader is a Dataset, wanted batches: data.Loader"),
    ("optimizer", fit(optimizer=optim.SGD), TypeError, r"optimizer is <class .*SGD'>, wanted an instance of Optimizer"),
    ("epochs 0", fit(epochs=0), ValueError, r"epochs is 0, wanted at least 1"),
    ("epochs 1.0", fit(epochs=1.0), TypeError, r"epochs is 1.0, wanted an integer"),
    ("epochs True", fit(epochs=True), TypeError, r"epochs is True, wanted an integer"),
    ("accumulate", fit(accumulate=0), ValueError, r"accumulate is 0, wanted at least 1"),
    ("accumulate text", fit(accumulate="2"), TypeError, r"accumulate is '2', wanted an integer"),
    ("clip", fit(clip=0), ValueError, r"clip is 0, wanted at least"),
    ("clip nan", fit(clip=float("nan")), ValueError, r"clip is nan, wanted at least"),
    ("precision", fit(precision="half"), ValueError, r"precision is 'half', wanted 'float32' or 'tf32' or"),
    ("precision number", fit(precision=16), ValueError, r"precision is 16, wanted 'float32' or"),
    ("scaler", fit(scaler=2.0), TypeError, r"scaler is 2.0, wanted an instance of GradScaler or None"),
    ("schedule", fit(schedule=StepLR), TypeError, r"schedule is <class .*StepLR'>, wanted an instance of LRSch"),
    ("schedule of another", fit(schedule=StepLR(optim.SGD(model().parameters(), 0.1), 2)), ValueError,
     r"schedule belongs to another optimiser"),
    ("loss", fit(loss="cross_entropy"), TypeError, r"loss is a str, wanted a function"),
    ("loss a number", begun(loss=lambda scores, labels: 0.5), ValueError, r"loss gave 0.5, wanted a Tensor of one"),
    ("loss of each", begun(loss=partial(F.cross_entropy, reduction="none")), ValueError,
     r"loss gave Tensor.*, wanted a Tensor of one number"),
    ("eager", fit(eager="no"), TypeError, r"eager is 'no', wanted True or False"),
    ("history", fit(history=[]), TypeError, r"history is \[\], wanted an instance of History or None"),
    ("callbacks a function", fit(callbacks=[print]), TypeError, r"callbacks\[0\] is <built-in function print>, want"),
    ("test", fit(test=DATA), TypeError, r"test is a Dataset, wanted batches"),
    ("test a number", fit(test=0.2), TypeError, r"test is a float, wanted batches"),
    ("no batches", fit(loader=[]), ValueError, r"loader has no images in epoch 1"),
    ("no test batches", begun(test=[]), ValueError, r"loader has no images"),
]  # fmt: skip

BATCHES = [  # refused by fit, evaluate and predict alike
    ("arrays", [(np.zeros((2, 4)), np.zeros(2, int))], TypeError, r"is ndarray\(2, 4\), ndarray\(2,\), wanted a pair"),
    ("array labels", [(images(2, 4), np.zeros(2, int))], TypeError, r"is Tensor\(2, 4\), ndarray\(2,\), wanted a pair"),
    ("images alone", [images(2, 4)], TypeError, r"batch 0 of loader is Tensor\(2, 4\), wanted a pair"),
    ("three things", [(images(2, 4), labels(0, 1), 3)], TypeError, r"is Tensor\(2, 4\), Tensor\(2,\), int, wanted a"),
    ("a dictionary", [{"images": images(2, 4)}], TypeError, r"is dict, wanted a pair"),
    ("too few labels", [(images(3, 4), labels(0, 1))], ValueError, r"is Tensor\(3, 4\), Tensor\(2,\), wanted a pair"),
    ("a label", [(images(1, 4), minigrad.tensor(0))], ValueError, r"is Tensor\(1, 4\), Tensor\(\), wanted .* as many"),
    ("empty", [(images(0, 4), labels())], ValueError, r"Tensor\(0, 4\), Tensor\(0,\), wanted .* at least one"),
]  # fmt: skip

LABELS = [  # of a batch of two
    ("beyond", labels(0, 3), ValueError, r"target\[1\] = 3, but there are 3 classes \(0..2\)"),
    ("below", labels(-1, 0), ValueError, r"target\[0\] = -1, but there are 3 classes"),
]

MATRICES = [
    ((labels(0, 1), labels(0, 1), "2"), TypeError, r"classes is '2', wanted an integer"),
    ((labels(0, 1), labels(0, 1), 0), ValueError, r"classes is 0, wanted at least 1"),
    ((labels(0, 1), labels(0), 2), ValueError, r"got array.*wanted two of shape \(N,\)"),
    ((images(2, 2).long(), labels(0, 1), 2), ValueError, r"got array"),
    ((labels(0, -1), labels(0, 1), 2), ValueError, r"got array.* without negative numbers"),
]

HISTORIES = [
    (None, r"state is malformed, wanted what History.state_dict\(\) gives"),
    ({}, r"state is malformed"),
    ({"rows": 3, "steps": 1, "running": {}}, r"state is malformed"),
    ({"rows": [{"loss": "low"}], "steps": 1, "running": {}}, r"state is malformed"),
    ({"rows": [], "steps": "x", "running": {}}, r"state is malformed"),
    ({"rows": [], "steps": 1, "running": {"unknown": 1}}, r"state is malformed"),
]

RAN = train.fit(model(), Loader(DATA, 3), optim.SGD(model().parameters(), 0.1), 1)


def histograms(state):
    return partial(Histograms(model()).load_state_dict, state)


def ended():
    with profile.Profile() as found:
        minigrad.ones(3).sum()
    return found


OTHERS = [
    ("Histograms: model", partial(Histograms, "model"), TypeError, r"Histograms: model is 'model', wanted an i"),
    ("Histograms: bins", partial(Histograms, model(), 64), ValueError, r"bins is 64, wanted an odd number"),
    ("Histograms: state", histograms({"1.weight": 3}), ValueError, r"Histograms: state is malformed, wanted what"),
    ("Histograms: list", histograms([]), ValueError, r"Histograms: state is malformed, wanted what"),
    ("History: quantity", partial(RAN.plot, None, "speed"), ValueError, r"learning_curve: quantity is 'speed', want o"),
    ("History: empty", partial(History().plot), ValueError, r"learning_curve: history has no epochs"),
    ("Progress: images", partial(train.Progress, "all", 1), TypeError, r"Progress: images is 'all', wanted an integer"),
    ("Progress: epochs", partial(train.Progress, 10, 0), ValueError, r"Progress: epochs is 0, wanted at least 1"),
    ("evaluate: model", partial(train.evaluate, F.relu, []), TypeError, r"evaluate: model is <minigrad"),
    ("evaluate: set", partial(train.evaluate, model(), DATA), TypeError, r"evaluate: loader is a Dataset, wanted batc"),
    ("evaluate: nothing", partial(train.evaluate, model(), []), ValueError, r"evaluate: loader has no images"),
    ("evaluate: precision", partial(train.evaluate, model(), Loader(DATA, 3), precision="int8"), ValueError,
     r"evaluate: precision is 'int8', wanted 'float32' or"),
    ("predict: model", partial(train.predict, None, []), TypeError, r"predict: model is None, wanted an instance of M"),
    ("predict: nothing", partial(train.predict, model(), []), ValueError, r"predict: loader has no images"),
    ("Profile: model", partial(profile.Profile, "model"), TypeError, r"Profile: model is a str, wanted a Module or No"),
    ("Profile: again", partial(ended().__enter__), RuntimeError, r"Profile: this one has begun already; make a new on"),
    ("Profile: asked early", partial(profile.Profile().table), RuntimeError, r"Profile: it has not ended yet; ask aft"),
    ("Profile: by", partial(ended().table, "line"), ValueError, r"table: by is 'line', want one of"),
    ("Profile: sort", partial(ended().table, "op", "size"), ValueError, r"table: sort is 'size', want one of"),
    ("record_function: name", partial(profile.record_function, 3), TypeError, r"record_function: name is 3, wanted a"),
    ("measure_step: batch", partial(profile.measure_step, model(), F.cross_entropy, images(2, 4),
     optim.SGD(model().parameters(), 0.1)), TypeError, r"measure_step: batch is a Tensor, want a pair \(images, label"),
    ("measure_step: model", partial(profile.measure_step, 3, F.cross_entropy, (images(2, 4), labels(0, 1)),
     optim.SGD(model().parameters(), 0.1)), TypeError, r"measure_step: model is 3, want an instance of Module"),
    ("capture: function", partial(capture, 3), TypeError, r"capture: function is 3, wanted a function of Tensors"),
    ("GradScaler: fit", fit(precision="float16", scaler=GradScaler), TypeError, r"fit: scaler is <class .*, wanted an"),
    ("autocast: dtype", partial(minigrad.autocast, "float8"), TypeError, r"dtype is 'float8', wanted 'float16' or"),
    ("autocast: a device", partial(minigrad.autocast, "cuda"), TypeError, r"the type comes first: devices need no nam"),
    ("autocast: enabled", partial(minigrad.autocast, "bfloat16", "no"), TypeError, r"autocast: enabled is 'no'"),
    ("tf32: mode", partial(minigrad.tf32, "on"), TypeError, r"tf32: mode is 'on', wants True or False"),
    ("winograd: mode", partial(minigrad.winograd, "never"), ValueError, r"winograd: mode is 'never', wants True, Fals"),
    ("manual_seed: text", partial(minigrad.manual_seed, "0"), TypeError, r"manual_seed: seed is '0', wanted an intege"),
    ("manual_seed: below", partial(minigrad.manual_seed, -1), ValueError, r"manual_seed: seed is -1, wanted an intege"),
]  # fmt: skip


def rows():
    for name, call, error, pattern in FIT:
        yield f"fit: {name}", call, error, pattern if name == "no test batches" else f"fit: {pattern}"
    for name, loader, error, pattern in BATCHES:
        yield f"fit: batch, {name}", given(loader), error, f"fit: .*{pattern}"
        for op in (train.evaluate, train.predict):
            call = partial(op, model(), loader)
            yield f"{op.__name__}: batch, {name}", call, error, pattern
    for name, target, error, pattern in LABELS:
        loader = [(Tensor(np.zeros((2, 4), np.float32)), target)]
        yield f"fit: label {name}", given(loader), error, pattern
        yield f"evaluate: label {name}", partial(train.evaluate, model(), loader), error, pattern
    for i, (args, error, pattern) in enumerate(MATRICES):
        yield f"confusion_matrix: {i}", partial(confusion_matrix, *args), error, f"confusion_matrix: {pattern}"
    for i, (state, pattern) in enumerate(HISTORIES):
        history = History([{"loss": 1.0}])
        yield f"History: load_state_dict, {i}", partial(history.load_state_dict, state), ValueError, pattern
    yield from OTHERS


REFUSALS = list(rows())
