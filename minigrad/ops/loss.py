"""Losses: of numbers, of probabilities, of classes; and how far vectors are from each other.

reduction   'mean' of the elements, 'sum', or 'none'; of classes the mean is weighted where there are weights
Shapes      input and target alike -> scalar, or alike if reduction is 'none'
Types       floating ones, which promote; classes are integers
Errors      ValueError for shapes that do not fit and numbers out of range, TypeError for other element types
Source      Bishop 2006, "Pattern Recognition and Machine Learning", sections 1.6, 3.1 and 4.3; Huber 1964, "Robust
            estimation of a location parameter"; Girshick 2015, "Fast R-CNN", eq. 3
"""

import math
import warnings

from minigrad_kernels import softmax as kernels
from minigrad_kernels.errors import KindError, ShapeError, StateError, SubscriptError

from .. import device
from ..anomaly import outside
from ..core.check import integer_of, number_of
from ..core.primitive import primitive
from ..core.tensor import Tensor, check_vectors, floating_of, tensor_of
from ..device import elementwise
from .autocast import composed
from .conversions import typed, widened
from .elementwise import abs, clamp, exp, log, log1p, minimum, softplus, sqrt, square, where
from .reduce import mean, norm, sum
from .shape import expand, movedim, reshape, unsqueeze
from .shape.select import pick, put, within
from .softmax import log_softmax, softmax

__all__ = ["binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_similarity", "cross_entropy"]
__all__ += ["huber_loss", "kl_div", "l1_loss", "mse_loss", "nll_loss", "pairwise_distance", "smooth_l1_loss"]
__all__ += ["triplet_margin_loss"]

WHOLE = device.element_type("int64")  # the type of classes in kernels


def _reduced(op, losses, reduction, weights=None):
    """The losses, their sum, or their mean: over their number, or over the sum of their weights."""
    if reduction == "none":
        return losses
    if reduction == "sum":
        return sum(losses)
    if reduction == "mean":
        return mean(losses) if weights is None else sum(losses) / sum(weights)
    raise ShapeError(f"{op}: reduction is {reduction!r}, wanted 'mean', 'sum' or 'none'")


def _weighted(op, name, weight, losses):
    """losses * weight; None is 1."""
    if weight is None:
        return losses
    if device.broadcast_shapes(op, tensor_of(op, name, weight), losses) != losses.shape:
        raise ShapeError(f"{op}: {name} has shape {weight.shape}, wanted one that broadcasts to {losses.shape}")
    return losses * weight


# ---- of numbers ------------------------------------------------------------------------------------------------------


def _of_difference(op, losses, input, target, reduction):
    """Losses of input - target, with a warning where shapes broadcast: (N, 1) and (N,) make (N, N)."""
    tensor_of(op, "input", input), tensor_of(op, "target", target)
    if not device.is_floating(input.dtype) and not device.is_floating(target.dtype):
        raise KindError(f"{op}: input has elements {input.dtype}, target {target.dtype}; wanted floating ones")
    if input.shape != target.shape:
        shape = device.broadcast_shapes(op, input, target)
        text = f"{op}: input has shape {input.shape}, target {target.shape}; they broadcast to {shape}"
        warnings.warn(f"{text}, wanted equal shapes", stacklevel=1 + outside()[1])  # the user's line
    return _reduced(op, losses(input - target), reduction)


@primitive(fixed=("delta",))
@widened
def _huber(input, delta):
    """d^2 / 2 up to |d| = delta, beyond it the tangent: (d - c / 2) c for c = d limited to +-delta, the slope."""
    limited = clamp.forward(input, -delta, delta)
    return elementwise("mul", elementwise("sub", input, elementwise("mul", limited, 0.5)), limited, out=limited)


_huber.grads(input=lambda g, input, delta: g * clamp(input, -delta, delta))


@composed
def mse_loss(input, target, *, reduction="mean"):
    """Mean squared error.

    Math    d = input - target;  K = count(input);  loss = sum(d^2) / K
    Grads   dinput = 2 * g * d / K        dtarget = -dinput
    Shapes  input and target alike -> scalar, or alike if reduction is 'none'
    """
    return _of_difference("mse_loss", square, input, target, reduction)


@composed
def l1_loss(input, target, *, reduction="mean"):
    """Mean absolute error.

    Math    d = input - target;  K = count(input);  loss = sum(abs(d)) / K
    Grads   dinput = g * sign(d) / K, 0 where d = 0        dtarget = -dinput
    Shapes  input and target alike -> scalar, or alike if reduction is 'none'
    """
    return _of_difference("l1_loss", abs, input, target, reduction)


@composed
def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    """A square near 0 and the absolute error beyond beta; the absolute error alone for beta = 0.

    Math    d = input - target;  K = count(input)
            losses = d^2 / (2 * beta) where abs(d) < beta, else abs(d) - beta / 2;  loss = sum(losses) / K
    Grads   dinput = g / K * d / beta where abs(d) < beta, else g / K * sign(d)        dtarget = -dinput
    Shapes  input and target alike -> scalar, or alike if reduction is 'none'
    """
    losses = (lambda d: _huber(d, beta) / beta) if number_of("smooth_l1_loss", "beta", beta, 0) else abs
    return _of_difference("smooth_l1_loss", losses, input, target, reduction)


@composed
def huber_loss(input, target, reduction="mean", delta=1.0):
    """A square near 0, and beyond delta its tangent.

    Math    d = input - target;  K = count(input)
            losses = d^2 / 2 where abs(d) <= delta, else delta * (abs(d) - delta / 2);  loss = sum(losses) / K
    Grads   dinput = g / K * d where abs(d) <= delta, else g / K * delta * sign(d)        dtarget = -dinput
    Shapes  input and target alike -> scalar, or alike if reduction is 'none'
    """
    if not number_of("huber_loss", "delta", delta) > 0:
        raise ShapeError(f"huber_loss: delta is {delta}, wanted more than 0")
    return _of_difference("huber_loss", lambda d: _huber(d, delta), input, target, reduction)


# ---- of probabilities ------------------------------------------------------------------------------------------------


def _check_alike(op, input, target):
    floating_of(op, "input", input)
    if floating_of(op, "target", target).shape != input.shape:
        raise ShapeError(f"{op}: input has shape {input.shape}, target {target.shape}; wanted equal shapes")


@primitive
def _binary_cross_entropy(input, target):
    """-t ln p - (1 - t) ln (1 - p), each logarithm at least -100, so that the loss of a sure error is finite."""
    yes = elementwise("maximum", elementwise("log", input), -100.0)
    no = elementwise("maximum", elementwise("log1p", elementwise("neg", input)), -100.0)
    against = elementwise("mul", elementwise("sub", target, 1.0), no)
    return elementwise("sub", against, elementwise("mul", target, yes))


_binary_cross_entropy.grads(
    input=lambda g, input, target: g * (input - target) / clamp(input * (1 - input), 1e-12),
    target=lambda g, input: g * (log1p(-input) - log(input)),
)


@composed
@device.there
def binary_cross_entropy(input, target, weight=None, *, reduction="mean"):
    """Cross entropy of probabilities of yes, for targets from 0 (no) to 1 (yes).

    Math    K = count(input)
            loss = sum(-weight * (target * ln(input) + (1 - target) * ln(1 - input))) / K, each logarithm at least -100
    Grads   dinput = g / K * weight * (input - target) / max(input * (1 - input), 1e-12)
            dtarget = g / K * weight * ln((1 - input) / input)
    Shapes  input p and target t alike -> scalar, or alike if reduction is 'none'; weight w broadcasts to them
    Errors  also ValueError for numbers of input or target below 0, above 1 or NaN
    """
    op = "binary_cross_entropy"
    _check_alike(op, input, target)
    for name, x in (("input", input), ("target", target)):
        if not ((x.array >= 0) & (x.array <= 1)).all():
            raise ShapeError(f"{op}: {name} has elements out of range, wanted probabilities from 0 to 1")
    return _reduced(op, _weighted(op, "weight", weight, _binary_cross_entropy(input, target)), reduction)


@composed
def binary_cross_entropy_with_logits(input, target, weight=None, *, reduction="mean", pos_weight=None):
    """Cross entropy of sigmoid(input), for targets from 0 (no) to 1 (yes), without overflow or loss of digits.

    Math    K = count(input);  p = 1 / (1 + e^-input)
            loss = sum(-weight * (pos_weight * target * ln(p) + (1 - target) * ln(1 - p))) / K
    Grads   dinput = g / K * weight * ((1 - target + pos_weight * target) * p - pos_weight * target)
            dtarget = g / K * weight * (ln(1 - p) - pos_weight * ln(p))
    Shapes  input and target t alike -> scalar, or alike if reduction is 'none'; weight w and pos_weight P broadcast
            to them
    """
    op = "binary_cross_entropy_with_logits"
    _check_alike(op, input, target)
    yes = _weighted(op, "pos_weight", pos_weight, target)
    losses = (1 - target) * softplus(input, 1, math.inf) + yes * softplus(-input, 1, math.inf)
    return _reduced(op, _weighted(op, "weight", weight, losses), reduction)


@composed
def kl_div(input, target, *, reduction="mean", log_target=False):
    """Kullback-Leibler divergence of the distribution e^input from target.

    reduction   also 'batchmean', the mathematical one: the sum over the size of the first dimension of input
    log_target  whether target holds logarithms too

    Math    K = count(input);  loss = sum(target * (ln(target) - input)) / K, 0 ln 0 = 0
            log_target: loss_k = e^target (target - input)
    Grads   dinput = -g / K * target        dtarget = g / K * (ln(target) + 1 - input)
            log_target: -g e^target / K and g e^target (target + 1 - input) / K
    Shapes  input and target broadcast -> scalar, or their shape if reduction is 'none'
    """
    device.broadcast_shapes("kl_div", floating_of("kl_div", "input", input), floating_of("kl_div", "target", target))
    if log_target:
        losses = exp(target) * (target - input)
    else:
        losses = where(target == 0, 0.0, target * log(target)) - target * input
    if reduction == "batchmean":
        return sum(losses) / (input.shape[0] if input.ndim else 1)
    return _reduced("kl_div", losses, reduction)


# ---- of classes ------------------------------------------------------------------------------------------------------


@primitive(outputs=("out", "divisor", "logsumexp"), fixed=("target", "divisor", "logsumexp"))
def _cross_entropy(input, target, ignore_index, reduction):
    """logsumexp(row) - row[target] for each row, 0 where the target is ignore_index; or the sum over a divisor: 1, or
    for the mean the number of rows that count."""
    x, dtype, wrong = device.contiguous(input), device.sum_dtype(input), device.place_of(input).wrong
    logsumexp = device.empty(x.shape[:1], dtype, like=x)
    if reduction == "none":
        losses, divisor = device.empty(x.shape[:1], dtype, like=x), device.full((), 1, dtype, like=x)
        kernels.cross_entropy(x, target, ignore_index, losses, logsumexp, wrong)
        return losses, divisor, logsumexp
    out, divisor = device.empty((), dtype, like=x), device.empty((), dtype, like=x)
    mean = reduction == "mean"
    kernels.cross_entropy_total(x, target, ignore_index, mean, out, divisor, logsumexp, device.workspace, wrong)
    return out, divisor, logsumexp


@device.there
def _dinput_of_cross_entropy(g, input, target, ignore_index, divisor):
    used = unsqueeze(_used(target, ignore_index), 1)
    scores = where(used, input, 0.0)
    numbers = Tensor.made(device.arange(scores.shape[1], target.array))
    one_hot = (unsqueeze(target, 1) == numbers).to(scores.dtype)
    return where(used, reshape(g / divisor, (-1, 1)), 0.0) * (softmax(scores, 1) - one_hot)


_cross_entropy.grads(input=_dinput_of_cross_entropy)


@_cross_entropy.fast_grads
def _cross_entropy_at_once(g, divisor, input, target, ignore_index, logsumexp):
    x = device.contiguous(input)
    dx = device.empty(x.shape, x.dtype, like=x)
    kernels.cross_entropy_grad(device.contiguous(g), x, target, ignore_index, logsumexp, divisor, dx)
    return {"input": dx}


@device.there
def _used(target, ignore_index):
    """Which rows count. The others are masked, not multiplied by 0, because they may hold NaN or receive it."""
    return Tensor.made(target.array != ignore_index)


@device.there
def _weights(op, weight, rows, classes, used):
    """The weight of each row: that of its class, 0 where it is ignored."""
    check_vectors(op, rows, rows.shape[1:], weight=weight)
    if weight is None:
        return used.to(device.default_dtype)
    if weight.requires_grad:
        raise StateError(f"{op}: weight requires a gradient, but it is a constant here; pass weight.detach()")
    return Tensor.made(device.select(used.array, weight.array[classes.array * used.array], 0.0))


def _classes_last(input):
    """(N, C, ...) or (C,) as a matrix of C columns."""
    axis = min(1, input.ndim - 1)
    return reshape(movedim(input, axis, -1), (math.prod(_rest(input)), input.shape[axis]))


def _rest(input):
    """The shape of the losses: that of input without the classes."""
    return () if input.ndim == 1 else (input.shape[0], *input.shape[2:])


def _rows(op, input, target):
    """The scores as a matrix of a column a class, and the classes as a vector of int64."""
    shape, dtype = input.shape, target.dtype
    if dtype == WHOLE and len(shape) == 2 and target.shape == shape[:1] and target.array.flags.c_contiguous:
        return input, target  # as nearly always
    if not shape or not shape[min(1, len(shape) - 1)]:
        raise ShapeError(f"{op}: input has shape {shape}, wanted scores (N, C) of at least one class")
    if dtype.kind not in "iu":
        raise KindError(f"{op}: target has elements {dtype}, wanted integers, the numbers of the classes")
    wanted = _rest(input)
    if target.shape != wanted and (len(shape), target.shape) != (1, (1,)):
        hint = "; class probabilities are floating: one_hot(...).float()" if target.shape == shape else ""
        shape = f"{shape}, the number of a class for each{hint}"
        raise ShapeError(f"{op}: target has shape {target.shape}, wanted {wanted} for an input of shape {shape}")
    return _classes_last(input), _vector(target)


@device.there
def _vector(target):
    """The target as a vector of int64, with the version of the target itself."""
    return Tensor.made(device.contiguous(target.array.astype(WHOLE, copy=False)).reshape(-1), version=target.version)


@composed
@device.there
def nll_loss(input, target, weight=None, *, ignore_index=-100, reduction="mean"):
    """Negative log likelihood of the target classes.

    Math    loss_n = -weight[t_n] input[n, t_n]; the mean divides by the sum of weight[t_n]
    Grads   dinput[n, t_n] = -g weight[t_n] / sum of weights, else 0
    Shapes  input (C,), (N, C) or (N, C, ...) log probabilities; target (), (N,) or (N, ...) classes; weight (C,)
    """
    op = "nll_loss"
    rows, classes = _rows(op, floating_of(op, "input", input), tensor_of(op, "target", target))
    used, (count, number) = _used(classes, integer_of(op, "ignore_index", ignore_index)), rows.shape
    try:
        classes = within(op, Tensor.made(classes.array * used.array, version=classes.version), number)
    except SubscriptError as error:
        raise ShapeError(f"{op}: target has a class out of range, there are {number} (0..{number - 1})") from error
    places = Tensor.made(device.arange(count, rows.array) * number + classes.array, version=classes.version)
    weights = _weights(op, weight, rows, classes, used)
    losses = _nll(rows, places, used, weights)
    return _reduced(op, reshape(losses, _rest(input)), reduction, weights)


@primitive(fixed=("places", "used", "weights"))
def _nll(input, places, used, weights):
    """-weights times the elements at these places in C order; 0 where they are not used."""
    return _used_times(pick.forward(device.contiguous(input).reshape(-1), places, 0), used, weights)


@primitive(fixed=("places", "used", "weights"))
def _nll_grad(grad, places, used, weights, shape):
    """The gradient of _nll, its adjoint: -weights times grad in zeros of this shape."""
    return put.forward(_used_times(grad, used, weights), places, 0, (math.prod(shape),)).reshape(shape)


def _used_times(values, used, weights):
    return device.select(used, elementwise("mul", elementwise("neg", values), weights), 0.0)


_nll.grads(input=lambda g, input_shape, places, used, weights: _nll_grad(g, places, used, weights, input_shape))
_nll_grad.grads(grad=lambda g, places, used, weights: _nll(g, places, used, weights))


@composed
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
    op = "cross_entropy"
    ignore_index = integer_of(op, "ignore_index", ignore_index)
    smoothing = label_smoothing and number_of(op, "label_smoothing", label_smoothing, 0, 1)
    shape = floating_of(op, "input", input).shape
    if tensor_of(op, "target", target).shape == shape and device.is_floating(target.dtype):
        if ignore_index >= 0:
            raise ShapeError(f"{op}: ignore_index is {ignore_index}, but target holds probabilities, not classes")
        return _cross_entropy_of_probabilities(op, input, target, weight, reduction, smoothing)
    rows, classes = _rows(op, input, target)
    if weight is None and not smoothing and reduction in ("mean", "sum"):
        return _cross_entropy(rows, classes, ignore_index, reduction)[0]
    losses, used = _cross_entropy(rows, classes, ignore_index, "none")[0], _used(classes, ignore_index)
    weights = _weights(op, weight, rows, classes, used)
    losses = losses * weights
    if smoothing:
        smooth = log_softmax(where(unsqueeze(used, 1), rows, 0.0), 1)
        smooth = where(used, sum(smooth if weight is None else smooth * weight, 1), 0.0)
        losses = (1 - smoothing) * losses - smoothing / rows.shape[1] * smooth
    return _reduced(op, reshape(losses, _rest(input)), reduction, weights)


def _cross_entropy_of_probabilities(op, input, target, weight, reduction, smoothing):
    logs, target = log_softmax(_classes_last(input), 1), _classes_last(target)
    check_vectors(op, input, logs.shape[1:], weight=weight)
    if smoothing:
        target = target * (1 - smoothing) + smoothing / logs.shape[1]
    losses = -sum(logs * target if weight is None else logs * target * weight, 1)
    return _reduced(op, reshape(losses, _rest(input)), reduction)


# ---- of vectors ------------------------------------------------------------------------------------------------------


@composed
def cosine_similarity(x1, x2, dim=1, eps=1e-8):
    """The cosine of the angle between vectors.

    Math    a = sum(x1^2, dim)^(1/2);  b = sum(x2^2, dim)^(1/2), each at least eps;  out = sum(x1 * x2, dim) / (a * b)
    Grads   dx1 = g * (x2 / b - out * x1 / a) / a        dx2 = g * (x1 / a - out * x2 / b) / b
            without the second part where the length is below eps
    Shapes  x1 and x2 broadcast; the dimension dim disappears
    Types   floating ones, which promote
    Source  Bishop 2006, appendix C
    """
    op = "cosine_similarity"
    shape = device.broadcast_shapes(op, tensor_of(op, "x1", x1), tensor_of(op, "x2", x2))
    dtype = device.result_dtype(x1.array, x2.array, op=op)
    x1, x2 = (expand(typed(x, dtype), shape) for x in (x1, x2))
    x1, x2 = (x / sqrt(clamp(sum(square(x), dim, True), eps * eps)) for x in (x1, x2))
    return sum(x1 * x2, dim)


@composed
def pairwise_distance(x1, x2, p=2.0, eps=1e-6, keepdim=False):
    """The p-norm of the difference of vectors; eps keeps it from 0, where it has no slope.

    Math    d = x1 - x2 + eps;  out = sum(abs(d)^p, dim)^(1/p), dim the last;  other p as norm
    Grads   dx1 = g * sign(d) * (abs(d) / out)^(p - 1)        dx2 = -dx1
    Shapes  x1 and x2 broadcast; the last dimension disappears unless keepdim
    Types   floating ones, which promote, and integers
    """
    difference = tensor_of("pairwise_distance", "x1", x1) - tensor_of("pairwise_distance", "x2", x2)
    return norm(difference + eps, p, -1, keepdim)


@composed
def triplet_margin_loss(anchor, positive, negative, margin=1.0, p=2, eps=1e-6, swap=False, *, reduction="mean"):
    """Whether the anchor is nearer to the positive than to the negative, by a margin.

    swap    take the distance of positive and negative where that is less than the one of anchor and negative
    Math    near = sum(abs(anchor - positive + eps)^p, dim)^(1/p);  far = sum(abs(anchor - negative + eps)^p, dim)^(1/p)
            losses = max(margin + near - far, 0);  loss = sum(losses) / count(losses), dim the last
    Grads   those of the distances where the maximum is not 0
    Shapes  (..., D) three times, which broadcast -> scalar, or (...) if reduction is 'none'
    Source  Balntas and others 2016, "Learning local feature descriptors with triplets and shallow CNNs"
    """
    for name, value in (("anchor", anchor), ("positive", positive), ("negative", negative)):
        tensor_of("triplet_margin_loss", name, value)
    near, far = pairwise_distance(anchor, positive, p, eps), pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = minimum(far, pairwise_distance(positive, negative, p, eps))
    return _reduced("triplet_margin_loss", clamp(near - far + margin, 0), reduction)
