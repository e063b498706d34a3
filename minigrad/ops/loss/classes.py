"""Losses of classes.

reduction   'mean' (of the elements; weighted where there are weights), 'sum', or 'none'
Types       floating; targets that are class numbers are integers
Errors      ValueError for shapes that do not fit or a class out of range, TypeError for other element types,
            RuntimeError for a weight that requires a gradient
Source      Bishop 2006, "Pattern Recognition and Machine Learning", section 4.3
"""

import math

from minigrad_kernels import softmax as kernels
from minigrad_kernels.errors import KindError, ShapeError, StateError

from ... import device
from ...core.check import integer_of, number_of
from ...core.primitive import primitive
from ...core.tensor import Tensor, tensor_of
from ..elementwise import where
from ..elementwise.conversions import composed, to, wide
from ..reduce import sum
from ..shape import gather, permute, reshape, unsqueeze
from ..softmax import log_softmax, softmax
from .reduction import check_reduction

__all__ = ["cross_entropy", "nll_loss"]

WHOLE = device.element_type("int64")  # the type of classes in kernels


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
    numbers = Tensor.made(device.arange(scores.shape[1], target.array))
    one_hot = (unsqueeze(target, 1) == numbers).to(scores.dtype)
    return where(used, unsqueeze(g, 1), 0.0) * (softmax(scores, 1) - one_hot)


@device.there
def _used(target, ignore_index):
    """Which rows count. The others are masked, not multiplied by 0, because they may hold NaN or receive it."""
    return Tensor.made(target.array != ignore_index)


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
    return Tensor.made(device.select(used.array, weight.array[classes.array * used.array], 0.0))


def _reduce_rows(rows, weights, shape, reduction):
    if reduction == "none":
        return reshape(rows, shape)
    return sum(rows) / sum(weights) if reduction == "mean" else sum(rows)


@composed
@device.there
def nll_loss(input, target, weight=None, *, ignore_index=-100, reduction="mean"):
    """Negative log likelihood of the target classes.

    Math    loss_n = -weight[t_n] input[n, t_n]; the mean divides by the sum of weight[t_n]
    Grads   dinput[n, t_n] = -g weight[t_n] / sum of weights, else 0
    Shapes  input (C,), (N, C) or (N, C, ...) log probabilities; target (), (N,) or (N, ...) classes; weight (C,)
    """
    _check_scores("nll_loss", input, target, reduction)
    ignore_index = integer_of("nll_loss", "ignore_index", ignore_index)
    classes = _check_classes("nll_loss", input, target)
    rows = _classes_last(input)
    _check_constant("nll_loss", weight, input, rows.shape[1])
    used = _used(classes, ignore_index)
    _check_range("nll_loss", classes.array, used.array, rows.shape[1])
    weights = _weights(classes, weight, used, input.dtype)
    there = Tensor.made((classes.array * used.array)[:, None], version=classes.version)
    picked = reshape(gather(rows, 1, there), -1)
    return _reduce_rows(where(used, -picked, 0.0) * weights, weights, _places_of(input), reduction)


def _are_rows(input, target):
    """Whether these are scores (N, C) and classes (N,) that need no other look, as nearly always."""
    if not isinstance(input, Tensor) or not isinstance(target, Tensor):
        return False
    scores, classes = input.array, target.array
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
    _check_scores("cross_entropy", input, target, reduction)
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
    classes = _check_classes("cross_entropy", input, target)
    rows = _classes_last(input)
    _check_constant("cross_entropy", weight, input, rows.shape[1])
    plain = weight is None and not label_smoothing
    if plain and reduction != "none":
        return _cross_entropy(rows, classes, ignore_index, reduction == "mean")[0]
    losses, _ = _cross_entropy_rows(rows, classes, ignore_index)
    if plain:
        return reshape(losses, _places_of(input))
    used = _used(classes, ignore_index)
    weights = _weights(classes, weight, used, input.dtype)
    losses = losses * weights
    if label_smoothing:
        smooth = log_softmax(where(unsqueeze(used, 1), rows, 0.0), 1)
        smooth = where(used, sum(smooth if weight is None else smooth * weight, 1), 0.0)
        losses = (1 - label_smoothing) * losses - label_smoothing / rows.shape[1] * smooth
    return _reduce_rows(losses, weights, _places_of(input), reduction)


def _cross_entropy_of_probabilities(input, target, weight, reduction, label_smoothing):
    count = input.shape[0 if input.ndim == 1 else 1]
    _check_weight("cross_entropy", weight, count)
    if label_smoothing:
        target = target * (1 - label_smoothing) + label_smoothing / count
    rows = log_softmax(_classes_last(input), 1) * _classes_last(target)
    losses = -sum(rows if weight is None else rows * weight, 1)
    if reduction == "none":
        return reshape(losses, _places_of(input))
    return sum(losses) / float(losses.numel() or math.nan) if reduction == "mean" else sum(losses)


# ---- what both check: the scores, the numbers of the classes and their weights ---------------------------------------


def _classes_last(input):
    """(N, C, ...) or (C,) as a matrix of C columns."""
    if input.ndim == 2:
        return input
    if input.ndim > 2:
        input = permute(input, (0, *range(2, input.ndim), 1))
    return reshape(input, (-1, input.shape[-1]))


def _places_of(input):
    """The shape of the losses: that of input without the classes."""
    return () if input.ndim == 1 else (input.shape[0], *input.shape[2:])


def _check_scores(op, input, target, reduction):
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
def _check_classes(op, input, target):
    """The target as a vector of int64, with the version of the target itself."""
    if target.dtype.kind not in "iu":
        raise KindError(f"{op}: target has elements {target.dtype}, wanted integers, the numbers of the classes")
    wanted = _places_of(input)
    if target.shape != wanted and (input.ndim, target.shape) != (1, (1,)):
        hint = "; class probabilities are floating: one_hot(...).float()" if target.shape == input.shape else ""
        shape = f"{input.shape}, the number of a class for each{hint}"
        raise ShapeError(f"{op}: target has shape {target.shape}, wanted {wanted} for an input of shape {shape}")
    if target.dtype == WHOLE and len(wanted) == 1 and target.array.flags.c_contiguous:
        return target
    classes = device.contiguous(target.array.astype(WHOLE, copy=False)).reshape(-1)
    return Tensor.made(classes, version=target.version)


def _check_weight(op, weight, classes):
    if weight is not None and tensor_of(op, "weight", weight).shape != (classes,):
        raise ShapeError(f"{op}: weight has shape {weight.shape}, wanted ({classes},), one for each class")


def _check_constant(op, weight, input, classes):
    _check_weight(op, weight, classes)
    if weight is not None and weight.dtype != input.dtype:
        raise KindError(f"{op}: weight has elements {weight.dtype}, input {input.dtype}; wanted one type")
    if weight is not None and weight.requires_grad:
        raise StateError(f"{op}: weight requires a gradient, but it is a constant here; pass weight.detach()")


@device.there
def _check_range(op, classes, used, count):
    wrong = (classes.view("uint64") >= count) & used  # without a sign a negative number is huge
    if wrong.any():
        n = int(wrong.argmax())
        raise ShapeError(f"{op}: target[{n}] = {int(classes[n])}, but there are {count} classes (0..{count - 1})")
