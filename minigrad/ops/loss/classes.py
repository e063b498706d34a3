"""Losses of classes.

reduction   'mean' (of the elements; weighted where there are weights), 'sum', or 'none'
Types       floating; targets that are class numbers are integers
Errors      ValueError for shapes that do not fit or a class out of range, TypeError for other element types,
            RuntimeError for a weight that requires a gradient
Source      Bishop 2006, "Pattern Recognition and Machine Learning", section 4.3
"""

import math

from minigrad_kernels import softmax as kernels
from minigrad_kernels.errors import ShapeError

from ... import device
from ...primitive import primitive, watching
from ...tensor import Tensor
from ..arguments import integer_of, number_of
from ..elementwise import where
from ..elementwise.conversions import composed, to, wide
from ..reduce import sum
from ..shape import expand, reshape, take_along_dim, unsqueeze
from ..softmax import log_softmax, softmax
from .reduction import reduce
from .scores import (
    WHOLE,
    check_classes,
    check_constant,
    check_range,
    check_scores,
    check_weight,
    classes_last,
    places_of,
)

__all__ = ["cross_entropy", "nll_loss"]

UNSIGNED = device.element_type("uint64")


@primitive(outputs=("out", "divisor", "logsumexp"), fixed=("target", "divisor", "logsumexp"))
def _cross_entropy(input, target, ignore_index, mean):
    """The losses of the rows that count added up, over their number if mean, else over 1: the divisor."""
    x = device.contiguous(input)
    dtype = device.sum_dtype(x)
    out, divisor = device.empty((), dtype, None, x), device.empty((), dtype, None, x)
    logsumexp = device.empty(x.shape[:1], dtype, like=x)
    wrong = device.place_of(x).wrong
    kernels.cross_entropy_total(x, target, ignore_index, mean, out, divisor, logsumexp, device.workspace, wrong)
    return out, divisor, logsumexp


_cross_entropy.grads(
    input=lambda g, input, target, ignore_index, divisor: _dinput_of_cross_entropy(
        reshape(g / divisor, (1,)), input, target, ignore_index
    )
)


@_cross_entropy.fast_grads
def _cross_entropy_at_once(g, divisor, input, target, ignore_index, logsumexp):
    x = device.contiguous(input)
    dx = device.empty(x.shape, x.dtype, like=x)
    kernels.cross_entropy_total_grad(g, divisor, x, target, ignore_index, logsumexp, dx)
    return {"input": dx}


@primitive(outputs=("losses", "logsumexp"), fixed=("target", "logsumexp"))
def _cross_entropy_rows(input, target, ignore_index):
    """logsumexp(row) - row[target] for each row; 0 where the target is ignore_index."""
    x = device.contiguous(input)
    losses, logsumexp = (device.empty(x.shape[:1], device.sum_dtype(x), like=x) for _ in range(2))
    kernels.cross_entropy(x, target, ignore_index, losses, logsumexp, device.place_of(x).wrong)
    return losses, logsumexp


@device.there
def _dinput_of_cross_entropy(g, input, target, ignore_index):
    used = unsqueeze(_used(target, ignore_index), 1)
    scores = where(used, wide(input), 0.0)
    numbers = Tensor.made(device.arange(scores.shape[1], target.data))
    one_hot = (unsqueeze(target, 1) == numbers).to(scores.dtype)
    return where(used, unsqueeze(g, 1), 0.0) * (softmax(scores, 1) - one_hot)


@device.there
def _used(target, ignore_index):
    """Which rows count. The others are masked, not multiplied by 0, because they may hold NaN or receive it."""
    return Tensor.made(target.data != ignore_index)


_cross_entropy_rows.grads(input=_dinput_of_cross_entropy)


@_cross_entropy_rows.fast_grads
def _cross_entropy_rows_at_once(g, input, target, ignore_index, logsumexp):
    x = device.contiguous(input)
    dx = device.empty(x.shape, x.dtype, like=x)
    kernels.cross_entropy_grad(device.contiguous(g), x, target, ignore_index, logsumexp, dx)
    return {"input": dx}


@device.there
def _weights(classes, weight, used, dtype):
    """The weight of each row: that of its class, 0 where it is ignored."""
    if weight is None:
        return used.to(dtype)
    return Tensor.made(device.select(used.data, weight.data[classes.data * used.data], 0.0))


def _reduce_rows(rows, weights, shape, reduction):
    if reduction == "none":
        return reshape(rows, shape)
    return sum(rows) / sum(weights) if reduction == "mean" else sum(rows)


@primitive(fixed=("classes",))
def _of_rows(input, classes):
    """One element of each row, on the CPU."""
    return input[device.arange(len(classes)), classes]


@primitive(fixed=("classes", "width"))
def _into_rows(input, classes, width):
    """Zeros but for one element of each row: the adjoint of _of_rows."""
    out = device.zeros((len(classes), width), input.dtype)
    out[device.arange(len(classes)), classes] = input
    return out


_of_rows.grads(input=lambda g, classes, input_shape: _into_rows(g, classes, input_shape[1]))
_into_rows.grads(input=lambda g, classes: _of_rows(g, classes))


@primitive(fixed=("target", "divisor"))
def _nll(input, target, divisor):
    """Minus the scores of the target classes on the CPU, added up in float64, over a divisor."""
    out = device.empty((), input.dtype)
    out[...] = input[device.arange(len(target)), target].sum(dtype="float64") / -divisor
    return out


def _dinput_of_nll(g, target, divisor, input_shape):
    return _into_rows(expand(g / -divisor, target.shape), target, input_shape[1])


_nll.grads(input=_dinput_of_nll)


@_nll.fast_grads
def _nll_at_once(g, target, divisor, input_shape):
    dx = device.zeros(input_shape, g.dtype)
    dx[device.arange(len(target)), target] = g / -divisor
    return {"input": dx}


def _are_classes(input, target):
    """Whether these are scores on the CPU, of 32 bits or 64, for each row of which the target names a class."""
    if not _are_rows(input, target) or not len(target.data) or input.dtype.itemsize == 2:
        return False
    places = device.place_of(input.data), device.place_of(target.data)
    return places == (device.CPU, device.CPU) and target.data.view(UNSIGNED).max() < input.shape[1]


def nll_loss(input, target, weight=None, *, ignore_index=-100, reduction="mean"):
    """Negative log likelihood of the target classes.

    Math    loss_n = -weight[t_n] input[n, t_n]; the mean divides by the sum of weight[t_n]
    Grads   dinput[n, t_n] = -g weight[t_n] / sum of weights, else 0
    Shapes  input (C,), (N, C) or (N, C, ...) log probabilities; target (), (N,) or (N, ...) classes; weight (C,)
    """
    known = weight is None and type(reduction) is str and reduction in ("mean", "sum")
    if known and type(ignore_index) is int and -(1 << 63) <= ignore_index < 0:  # which is no class
        if watching.get() is None and _are_classes(input, target):
            return _nll(input, target, float(input.shape[0]) if reduction == "mean" else 1.0)
    return _nll_in_general(input, target, weight, ignore_index, reduction)


@composed
@device.there
def _nll_in_general(input, target, weight, ignore_index, reduction):
    check_scores("nll_loss", input, target, reduction)
    ignore_index = integer_of("nll_loss", "ignore_index", ignore_index)
    classes = check_classes("nll_loss", input, target)
    rows = classes_last(input)
    check_constant("nll_loss", weight, input, rows.shape[1])
    used = _used(classes, ignore_index)
    check_range("nll_loss", classes.data, used.data, rows.shape[1])
    if weight is None and device.place_of(input.data) is device.CPU and used.data.all():
        losses = -_of_rows(rows, classes)
        return reshape(losses, places_of(input)) if reduction == "none" else reduce(losses, reduction)
    weights = _weights(classes, weight, used, input.dtype)
    there = Tensor.made((classes.data * used.data)[:, None], version=classes.version)
    picked = reshape(take_along_dim(rows, there, 1), -1)
    return _reduce_rows(where(used, -picked, 0.0) * weights, weights, places_of(input), reduction)


def _are_rows(input, target):
    """Whether these are scores (N, C) and classes (N,) that need no other look, as nearly always."""
    if not isinstance(input, Tensor) or not isinstance(target, Tensor):
        return False
    scores, classes = input.data, target.data
    shape = scores.shape
    if len(shape) != 2 or not shape[1] or not device.is_floating(scores.dtype):
        return False
    return classes.dtype == WHOLE and classes.shape == shape[:1] and classes.flags.c_contiguous


def cross_entropy(input, target, weight=None, *, ignore_index=-100, reduction="mean", label_smoothing=0.0):
    """Cross entropy between softmax(input) and the target, class numbers or class probabilities.

    Math    numbers: loss_n = -weight[t_n] ln softmax(input)[n, t_n]; the mean divides by the sum of weight[t_n]
            probabilities: loss_n = -sum_c weight[c] target[n, c] ln softmax(input)[n, c]; the mean divides by N
            label_smoothing e replaces the target's distribution p by (1 - e) p + e / C
    Grads   dinput = g * (softmax(input, 1) - one_hot(target, C)) / N, for N rows of C classes
            without weights and smoothing; with p = softmax(input) and probabilities
            dtarget[n, c] = -g weight[c] ln p[n, c] / N        dweight[c] = -g sum_n target[n, c] ln p[n, c] / N
    Shapes  input (C,), (N, C) or (N, C, ...); target (), (N,) or (N, ...) of integers, or as input; weight (C,)
    """
    plain = weight is None and type(label_smoothing) in (int, float) and not label_smoothing
    known = plain and type(ignore_index) is int and type(reduction) is str and reduction in ("mean", "sum")
    if known and -(1 << 63) <= ignore_index < 1 << 63 and _are_rows(input, target):
        loss = _cross_entropy(input, target, ignore_index, reduction == "mean")[0]
        return loss if loss.dtype == input.dtype else to(loss, input.dtype)
    return _cross_entropy_in_general(input, target, weight, ignore_index, reduction, label_smoothing)


@composed
def _cross_entropy_in_general(input, target, weight, ignore_index, reduction, label_smoothing):
    check_scores("cross_entropy", input, target, reduction)
    label_smoothing = number_of("cross_entropy", "label_smoothing", label_smoothing)
    ignore_index = integer_of("cross_entropy", "ignore_index", ignore_index)
    if not 0 <= label_smoothing <= 1:
        raise ShapeError(f"cross_entropy: label_smoothing is {label_smoothing}, wanted 0 to 1")
    if device.is_floating(target.dtype) and target.shape == input.shape:
        if ignore_index >= 0:
            raise ShapeError(
                f"cross_entropy: ignore_index is {ignore_index}, but target holds probabilities, not classes"
            )
        return _cross_entropy_of_probabilities(input, target, weight, reduction, label_smoothing)
    classes = check_classes("cross_entropy", input, target)
    rows = classes_last(input)
    check_constant("cross_entropy", weight, input, rows.shape[1])
    plain = weight is None and not label_smoothing
    if plain and reduction != "none":
        return _cross_entropy(rows, classes, ignore_index, reduction == "mean")[0]
    losses, _ = _cross_entropy_rows(rows, classes, ignore_index)
    if plain:
        return reshape(losses, places_of(input))
    used = _used(classes, ignore_index)
    weights = _weights(classes, weight, used, input.dtype)
    losses = losses * weights
    if label_smoothing:
        smooth = log_softmax(where(unsqueeze(used, 1), rows, 0.0), 1)
        smooth = where(used, sum(smooth if weight is None else smooth * weight, 1), 0.0)
        losses = (1 - label_smoothing) * losses - label_smoothing / rows.shape[1] * smooth
    return _reduce_rows(losses, weights, places_of(input), reduction)


def _cross_entropy_of_probabilities(input, target, weight, reduction, label_smoothing):
    count = input.shape[0 if input.ndim == 1 else 1]
    check_weight("cross_entropy", weight, count)
    if label_smoothing:
        target = target * (1 - label_smoothing) + label_smoothing / count
    rows = log_softmax(classes_last(input), 1) * classes_last(target)
    losses = -sum(rows if weight is None else rows * weight, 1)
    if reduction == "none":
        return reshape(losses, places_of(input))
    return sum(losses) / float(losses.numel() or math.nan) if reduction == "mean" else sum(losses)
