"""What a network says of each image, and which classes it takes for which."""

import numpy as np

from minigrad_kernels.errors import KindError, ShapeError

from .. import ops
from .checks import check_model, checked, naming_batch
from .evaluation import evaluation
from .passes import on_device
from .precision import computing

__all__ = ["confusion_matrix", "predict"]


def predict(model, loader, *, precision=None):
    """(probabilities, targets) of all images of the batches (images, labels), in evaluation mode, as NumPy arrays.

    The training flags of all modules are as before afterwards. Of a DataParallel model a rank that calls this
    predicts by itself.

    precision   in which types the model computes, as that of fit; the softmax is float32
    Math    p = softmax(scores)
    Shapes  probabilities (N, classes), targets (N,)
    Errors  ValueError if there are no batches, or scores are not of shape (N, classes)
    """
    check_model("predict", model, loader=loader)
    probabilities, targets = [], []
    with evaluation(model), computing(precision, "predict"):
        for images, labels in on_device(checked("predict", loader), model):
            with naming_batch("predict", len(labels)):
                scores = model(images)
                if scores.ndim != 2:
                    raise ShapeError(f"predict: scores have shape {scores.shape}, want (N, classes)")
                probabilities.append(ops.softmax(scores, 1).numpy())
                targets.append(labels.numpy())
    if not targets:
        raise ShapeError("predict: loader has no images")
    return np.concatenate(probabilities), np.concatenate(targets)


def confusion_matrix(targets, predicted, classes):
    """How many images of each class (rows) were taken for each class (columns).

    targets, predicted  numbers of classes, from 0 to classes - 1, as Tensors or arrays

    Math    C_ij = |{n: targets_n = i, predicted_n = j}|
    Shapes  targets and predicted (N,), the matrix (classes, classes), int64
    Errors  TypeError for what are no integers; ValueError for another shape or a number out of range
    """
    if isinstance(classes, bool) or not isinstance(classes, int | np.integer):
        raise KindError(f"confusion_matrix: classes is {classes!r}, want an integer")
    if classes < 1:
        raise ShapeError(f"confusion_matrix: classes is {classes}, want at least 1")
    rows, columns = (_numbers(name, given, classes) for name, given in (("targets", targets), ("predicted", predicted)))
    if rows.shape != columns.shape:
        raise ShapeError(f"confusion_matrix: targets have shape {rows.shape}, predicted {columns.shape}, want the same")
    return np.bincount(rows * classes + columns, minlength=classes * classes).reshape(classes, classes)


def _numbers(name, given, classes):
    """Numbers of classes as an array of int64."""
    found = np.asarray(given)
    if found.dtype.kind not in "iu":
        raise KindError(f"confusion_matrix: {name} are {found.dtype}, want integers (the number of the class)")
    if found.ndim != 1:
        raise ShapeError(f"confusion_matrix: {name} have shape {found.shape}, want (N,)")
    wrong = np.flatnonzero((found < 0) | (found >= classes))
    if wrong.size:
        at = wrong[0]
        raise ShapeError(
            f"confusion_matrix: {name}[{at}] = {found[at]}, but there are {classes} classes (0..{classes - 1})"
        )
    return found.astype(np.int64)
