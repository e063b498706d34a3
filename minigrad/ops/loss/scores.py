"""What losses of classes check: the scores, the numbers of the classes and their weights, and the shapes of all three.

Errors  as in classes.py
"""

from minigrad_kernels.errors import KindError, ShapeError, StateError

from ... import device
from ...tensor import Tensor
from ..arguments import tensor_of
from ..shape import permute, reshape
from .reduction import check_reduction

__all__ = [
    "WHOLE",
    "check_classes",
    "check_constant",
    "check_range",
    "check_scores",
    "check_weight",
    "classes_last",
    "places_of",
]

WHOLE = device.element_type("int64")  # the type of classes in kernels


def classes_last(input):
    """(N, C, ...) or (C,) as a matrix of C columns."""
    if input.ndim == 2:
        return input
    if input.ndim > 2:
        input = permute(input, (0, *range(2, input.ndim), 1))
    return reshape(input, (-1, input.shape[-1]))


def places_of(input):
    """The shape of the losses: that of input without the classes."""
    return () if input.ndim == 1 else (input.shape[0], *input.shape[2:])


def check_scores(op, input, target, reduction):
    """Refuse what no kind of target can fit."""
    check_reduction(op, reduction)
    tensor_of(op, "input", input)
    tensor_of(op, "target", target)
    if not input.ndim or not device.is_floating(input.dtype):
        raise KindError(
            f"{op}: input has shape {input.shape} and elements {input.dtype}, wanted floating scores (N, C)"
        )
    if not input.shape[min(1, input.ndim - 1)]:
        raise ShapeError(f"{op}: input has shape {input.shape}, wanted at least one class")


@device.there
def check_classes(op, input, target):
    """The target as a vector of int64, with the version of the target itself."""
    if target.dtype.kind not in "iu":
        raise KindError(f"{op}: target has elements {target.dtype}, wanted integers, the numbers of the classes")
    wanted = places_of(input)
    if target.shape != wanted and (input.ndim, target.shape) != (1, (1,)):
        hint = "; class probabilities are floating: one_hot(...).float()" if target.shape == input.shape else ""
        shape = f"{input.shape}, the number of a class for each{hint}"
        raise ShapeError(f"{op}: target has shape {target.shape}, wanted {wanted} for an input of shape {shape}")
    if target.dtype == WHOLE and len(wanted) == 1 and target.data.flags.c_contiguous:
        return target
    classes = device.contiguous(target.data.astype(WHOLE, copy=False)).reshape(-1)
    return Tensor.made(classes, version=target.version)


def check_weight(op, weight, classes):
    if weight is not None and tensor_of(op, "weight", weight).shape != (classes,):
        raise ShapeError(f"{op}: weight has shape {weight.shape}, wanted ({classes},), one for each class")


def check_constant(op, weight, input, classes):
    check_weight(op, weight, classes)
    if weight is not None and weight.dtype != input.dtype:
        raise KindError(f"{op}: weight has elements {weight.dtype}, input {input.dtype}; wanted one type")
    if weight is not None and weight.requires_grad:
        raise StateError(f"{op}: weight requires a gradient, but it is a constant here; pass weight.detach()")


@device.there
def check_range(op, classes, used, count):
    wrong = (classes.view("uint64") >= count) & used  # without a sign a negative number is huge
    if wrong.any():
        n = int(wrong.argmax())
        raise ShapeError(f"{op}: target[{n}] = {int(classes[n])}, but there are {count} classes (0..{count - 1})")
