"""Networks without a tape: their loss and accuracy, what they say of each image, which classes they confuse."""

import math

import numpy as np

from minigrad_kernels.errors import ShapeError

from .. import device, ops
from ..core.check import integer_of
from ..data.loader import Shards
from ..nn.module import evaluation
from .checks import check_model, checked
from .precision import computing
from .team import team_of


def evaluate(model, loader, loss=ops.cross_entropy, *, precision=None):
    """(mean loss, accuracy) over all batches, in evaluation mode.

    Of a DataParallel model all ranks call this: they share the batches, and all get the figures of the whole.
    The training flags of all modules are as before afterwards.
    precision   in which types the model and the loss compute, as that of fit
    Errors  ValueError if there are no batches, TypeError for a Dataset instead of them
    """
    check_model("evaluate", model, loader=loader)
    team, coming = team_of(model), []
    with evaluation(model), computing(precision, "evaluate"):
        for batch in team.own(checked("evaluate", loader)):
            images, labels = on_device(batch, model)
            scores = model(images)
            found = ops.stack([loss(scores, labels).double().reshape(()), right(scores, labels).double()]).array
            coming.append((len(labels), device.place_of(found).fetched(found)))  # no batch waits for the one before
    arrived = [(loss * count, hits, count) for count, found in coming for loss, hits in [found.value().tolist()]]
    rows = team.gathered(arrived)
    images = int(sum(count for _, _, count in rows))
    if not images:
        raise ShapeError("evaluate: loader has no images")
    return math.fsum(loss for loss, _, _ in rows) / images, int(sum(hits for _, hits, _ in rows)) / images


def predict(model, loader, *, precision=None):
    """(probabilities, targets) of all images of the batches (images, labels), in evaluation mode, as NumPy arrays.

    The training flags of all modules are as before afterwards. Of a DataParallel model a rank that calls this
    predicts by itself.

    precision   in which types the model computes, as that of fit; the softmax is float32
    Math    p = softmax(scores)
    Shapes  probabilities (N, classes), targets (N,)
    Errors  ValueError if there are no batches
    """
    check_model("predict", model, loader=loader)
    probabilities, targets = [], []
    with evaluation(model), computing(precision, "predict"):
        for batch in checked("predict", loader):
            images, labels = on_device(batch, model)
            probabilities.append(ops.softmax(model(images), 1).numpy())
            targets.append(labels.numpy())
    if not targets:
        raise ShapeError("predict: loader has no images")
    return np.concatenate(probabilities), np.concatenate(targets)


def confusion_matrix(targets, predicted, classes):
    """How many images of each class (rows) were taken for each class (columns).

    targets, predicted  numbers of classes, from 0 to classes - 1, as Tensors or arrays

    Math    C_ij = |{n: targets_n = i, predicted_n = j}|
    Shapes  targets and predicted (N,), the matrix (classes, classes), int64
    Errors  ValueError for another shape or a negative number; IndexError for what is no integer or no such class
    """
    matrix = np.zeros((integer_of("confusion_matrix", "classes", classes, 1),) * 2, np.int64)
    targets, predicted = np.asarray(targets), np.asarray(predicted)
    if targets.ndim != 1 or targets.shape != predicted.shape or (targets < 0).any() or (predicted < 0).any():
        seen = f"got {targets!r:.100} and {predicted!r:.100}"
        raise ShapeError(f"confusion_matrix: {seen}, wanted two of shape (N,) without negative numbers")
    np.add.at(matrix, (targets, predicted), 1)
    return matrix


# ---- batches and modes -----------------------------------------------------------------------------------------------


def on_device(batch, model):
    """A batch, or Shards of one, where the parameters are."""
    if isinstance(batch, Shards):
        return batch._replace(parts=[part and on_device(part, model) for part in batch.parts])
    images, labels = batch
    parameter = next(iter(model.parameters()), None)
    return batch if parameter is None else (images.to(parameter.device), labels.to(parameter.device))


def right(scores, labels):
    """How many scores are highest at their label, on their device."""
    return (ops.argmax(scores, 1) == labels).sum()
