"""Losses of probabilities.

reduction   'mean' of the elements, 'sum', or 'none'
Types       floating; weights are constants, taken in the type of input
Errors      ValueError for shapes that do not fit and numbers out of range, TypeError for other element types,
            RuntimeError for a weight that requires a gradient
Source      Bishop 2006, "Pattern Recognition and Machine Learning", sections 1.6 and 4.3
"""

from minigrad_kernels.errors import KindError, ShapeError

from ... import device
from ...device import elementwise
from ...primitive import primitive
from ..arguments import flag_of, tensor_of
from ..elementwise import clamp, exp, log, log1p, sigmoid, where
from ..elementwise.conversions import composed
from .reduction import REDUCTIONS, check_reduction, check_weight, reduce

__all__ = ["binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div"]


def _check_pair(op, input, target):
    """Refuse what is not floating."""
    for name, value in (("input", input), ("target", target)):
        if not device.is_floating(tensor_of(op, name, value).dtype):
            raise KindError(
                f"{op}: {name} has elements {value.dtype}, wanted floating ones; convert with .to('float32')"
            )


def _check_alike(op, input, target):
    """Refuse shapes that would broadcast: (N, 1) and (N,) would make (N, N)."""
    _check_pair(op, input, target)
    if input.shape != target.shape:
        raise ShapeError(f"{op}: input has shape {input.shape}, target {target.shape}; wanted equal shapes")


# ---- yes or no -------------------------------------------------------------------------------------------------------


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
    check_reduction(op, reduction)
    _check_alike(op, input, target)
    if input.dtype != target.dtype:
        raise KindError(f"{op}: input has elements {input.dtype}, target {target.dtype}; wanted one type")
    for name, x in (("input", input), ("target", target)):
        if not ((x.data >= 0) & (x.data <= 1)).all():
            raise ShapeError(f"{op}: {name} has elements out of range, wanted probabilities from 0 to 1")
    weight = check_weight(op, "weight", weight, input)
    losses = _binary_cross_entropy(input, target)
    return reduce(losses if weight is None else losses * weight, reduction)


@primitive(fixed=("pos_weight",))
def _logistic(input, target, pos_weight):
    """(1 - t) softplus(x) + P t softplus(-x), with softplus(x) = max(x, 0) + ln(1 + e^-|x|)."""
    no = elementwise("sub", 1.0, target)
    yes = target if pos_weight is None else elementwise("mul", target, pos_weight)
    tail = elementwise("log1p", elementwise("exp", elementwise("neg", elementwise("abs", input))))
    if pos_weight is not None:
        tail = elementwise("mul", tail, elementwise("add", no, yes))
    head = elementwise("mul", no, elementwise("maximum", input, 0.0))
    head = elementwise("sub", head, elementwise("mul", yes, elementwise("minimum", input, 0.0)))
    return elementwise("add", head, tail)


def _dx_of_logistic(g, input, target, pos_weight):
    if pos_weight is None:
        return g * (sigmoid(input) - target)
    yes = target * pos_weight
    return g * ((1 - target + yes) * sigmoid(input) - yes)


def _dt_of_logistic(g, input, pos_weight):
    if pos_weight is None:
        return g * -input
    return g * ((pos_weight - 1) * _logistic(input, 1.0, None) - input)  # for target 1 it is -ln sigmoid(input)


_logistic.grads(input=_dx_of_logistic, target=_dt_of_logistic)


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
    check_reduction(op, reduction)
    _check_alike(op, input, target)
    weight = check_weight(op, "weight", weight, input)
    losses = _logistic(input, target, check_weight(op, "pos_weight", pos_weight, input))
    return reduce(losses if weight is None else losses * weight, reduction)


# ---- divergence ------------------------------------------------------------------------------------------------------


@primitive
def _divergence(input, target):
    """t (ln t - input), with 0 ln 0 = 0."""
    own = device.select(elementwise("eq", target, 0.0), 0.0, elementwise("mul", target, elementwise("log", target)))
    return elementwise("sub", own, elementwise("mul", target, input))


_divergence.grads(
    input=lambda g, target: -g * target,
    target=lambda g, input, target: g * (where(target == 0, 0.0, 1.0) * (log(target) + 1) - input),  # NaN at 0
)


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
    check_reduction("kl_div", reduction, (*REDUCTIONS, "batchmean"))
    _check_pair("kl_div", input, target)
    device.broadcast_shapes("kl_div", input, target)
    how = "sum" if reduction == "batchmean" else reduction
    if flag_of("kl_div", "log_target", log_target):
        losses = reduce(exp(target) * (target - input), how)
    else:
        losses = reduce(_divergence(input, target), how)
    return losses / input.shape[0] if reduction == "batchmean" and input.ndim else losses
