"""Losses of probabilities.

reduction   'mean' of the elements, 'sum', or 'none'
Types       floating; weights are constants, taken in the type of input
Errors      ValueError for shapes that do not fit and numbers out of range, TypeError for other element types,
            RuntimeError for a weight that requires a gradient
Source      Bishop 2006, "Pattern Recognition and Machine Learning", sections 1.6 and 4.3
"""

import math

from minigrad_kernels.errors import KindError, ShapeError

from ... import device
from ...core.check import flag_of
from ...core.primitive import primitive
from ...core.tensor import tensor_of
from ...device import elementwise
from ..elementwise import clamp, exp, log, log1p, softplus, where
from ..elementwise.conversions import composed
from .reduction import REDUCTIONS, check_reduction, check_weight, reduce

__all__ = ["binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div"]


def _check_pair(op, input, target, alike=True):
    """Refuse what is not floating, and shapes that would broadcast: (N, 1) and (N,) would make (N, N)."""
    for name, value in (("input", input), ("target", target)):
        if not device.is_floating(tensor_of(op, name, value).dtype):
            raise KindError(
                f"{op}: {name} has elements {value.dtype}, wanted floating ones; convert with .to('float32')"
            )
    if alike and input.shape != target.shape:
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
    check_reduction(op, reduction)
    _check_pair(op, input, target)
    if input.dtype != target.dtype:
        raise KindError(f"{op}: input has elements {input.dtype}, target {target.dtype}; wanted one type")
    for name, x in (("input", input), ("target", target)):
        if not ((x.array >= 0) & (x.array <= 1)).all():
            raise ShapeError(f"{op}: {name} has elements out of range, wanted probabilities from 0 to 1")
    weight = check_weight(op, "weight", weight, input)
    losses = _binary_cross_entropy(input, target)
    return reduce(losses if weight is None else losses * weight, reduction)


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
    _check_pair(op, input, target)
    weight, pos_weight = check_weight(op, "weight", weight, input), check_weight(op, "pos_weight", pos_weight, input)
    yes = target if pos_weight is None else target * pos_weight
    losses = (1 - target) * softplus(input, 1, math.inf) + yes * softplus(-input, 1, math.inf)
    return reduce(losses if weight is None else losses * weight, reduction)


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
    _check_pair("kl_div", input, target, alike=False)
    device.broadcast_shapes("kl_div", input, target)
    if flag_of("kl_div", "log_target", log_target):
        losses = exp(target) * (target - input)
    else:
        losses = where(target == 0, 0.0, target * log(target)) - target * input
    losses = reduce(losses, "sum" if reduction == "batchmean" else reduction)
    return losses / input.shape[0] if reduction == "batchmean" and input.ndim else losses
