"""Losses of numbers, and how far vectors are from each other.

reduction   'mean' of the elements, 'sum', or 'none'
Shapes      input and target alike -> scalar, or alike if reduction is 'none'; unequal shapes broadcast with a warning
Types       floating ones, which promote; one of input and target may be integers
Errors      ValueError for shapes that do not fit and options out of range, TypeError for other element types
Source      Bishop 2006, "Pattern Recognition and Machine Learning", section 3.1; Huber 1964, "Robust estimation of a
            location parameter"; Girshick 2015, "Fast R-CNN", eq. 3
"""

from minigrad_kernels.errors import ShapeError

from ... import device
from ...core.check import flag_of, number_of
from ...core.tensor import tensor_of
from ..axes import axis_of
from ..elementwise import abs, clamp, minimum, sqrt, square
from ..elementwise.conversions import composed
from ..reduce import norm, sum
from ..shape import expand
from .reduction import check_pair, check_reduction, reduce

__all__ = [
    "cosine_similarity",
    "huber_loss",
    "l1_loss",
    "mse_loss",
    "pairwise_distance",
    "smooth_l1_loss",
    "triplet_margin_loss",
]


def _difference(op, input, target, reduction):
    """input - target, after a check of all three."""
    check_reduction(op, reduction)
    check_pair(op, input, target)
    return input - target


@composed
def mse_loss(input, target, *, reduction="mean"):
    """Mean squared error.

    Math    d = input - target;  K = count(input);  loss = sum(d^2) / K
    Grads   dinput = 2 * g * d / K        dtarget = -dinput
    Shapes  input and target alike -> scalar, or alike if reduction is 'none'
    """
    return reduce(square(_difference("mse_loss", input, target, reduction)), reduction)


@composed
def l1_loss(input, target, *, reduction="mean"):
    """Mean absolute error.

    Math    d = input - target;  K = count(input);  loss = sum(abs(d)) / K
    Grads   dinput = g * sign(d) / K, 0 where d = 0        dtarget = -dinput
    Shapes  input and target alike -> scalar, or alike if reduction is 'none'
    """
    return reduce(abs(_difference("l1_loss", input, target, reduction)), reduction)


@composed
def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    """A square near 0 and the absolute error beyond beta; the absolute error alone for beta = 0.

    Math    d = input - target;  K = count(input)
            losses = d^2 / (2 * beta) where abs(d) < beta, else abs(d) - beta / 2;  loss = sum(losses) / K
    Grads   dinput = g / K * d / beta where abs(d) < beta, else g / K * sign(d)        dtarget = -dinput
    Shapes  input and target alike -> scalar, or alike if reduction is 'none'
    """
    d = _difference("smooth_l1_loss", input, target, reduction)
    if not number_of("smooth_l1_loss", "beta", beta) >= 0:
        raise ShapeError(f"smooth_l1_loss: beta is {beta}, wanted at least 0")
    return reduce(_huber(d, beta) / beta if beta else abs(d), reduction)


@composed
def huber_loss(input, target, reduction="mean", delta=1.0):
    """A square near 0, and beyond delta its tangent.

    Math    d = input - target;  K = count(input)
            losses = d^2 / 2 where abs(d) <= delta, else delta * (abs(d) - delta / 2);  loss = sum(losses) / K
    Grads   dinput = g / K * d where abs(d) <= delta, else g / K * delta * sign(d)        dtarget = -dinput
    Shapes  input and target alike -> scalar, or alike if reduction is 'none'
    """
    d = _difference("huber_loss", input, target, reduction)
    if not number_of("huber_loss", "delta", delta) > 0:
        raise ShapeError(f"huber_loss: delta is {delta}, wanted more than 0")
    return reduce(_huber(d, delta), reduction)


def _huber(d, delta):
    """d^2 / 2 up to |d| = delta, beyond it the tangent: (d - c / 2) c for c = d limited to +-delta."""
    limited = clamp(d, -delta, delta)
    return (d - limited / 2) * limited


# ---- vectors ---------------------------------------------------------------------------------------------------------


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
    axis, least = axis_of(op, dim, len(shape)), number_of(op, "eps", eps) ** 2
    x1, x2 = (expand(x.to(dtype), shape) for x in (x1, x2))
    x1, x2 = (x / sqrt(clamp(sum(square(x), axis, True), least)) for x in (x1, x2))
    return sum(x1 * x2, axis)


@composed
def pairwise_distance(x1, x2, p=2.0, eps=1e-6, keepdim=False):
    """The p-norm of the difference of vectors; eps keeps it from 0, where it has no slope.

    Math    d = x1 - x2 + eps;  out = sum(abs(d)^p, dim)^(1/p) for dim the last;  other p as norm
    Grads   dx1 = g * sign(d) * (abs(d) / out)^(p - 1)        dx2 = -dx1
    Shapes  x1 and x2 broadcast; the last dimension disappears unless keepdim
    Types   floating ones, which promote, and integers
    """
    op = "pairwise_distance"
    device.broadcast_shapes(op, tensor_of(op, "x1", x1), tensor_of(op, "x2", x2))
    return norm(x1 - x2 + float(number_of(op, "eps", eps)), p, -1, keepdim)


@composed
def triplet_margin_loss(anchor, positive, negative, margin=1.0, p=2, eps=1e-6, swap=False, *, reduction="mean"):
    """Whether the anchor is nearer to the positive than to the negative, by a margin.

    swap    take the distance of positive and negative where that is less than the one of anchor and negative
    Math    loss = max(margin + |anchor - positive| - |anchor - negative|, 0), distances as pairwise_distance
    Grads   those of the distances where the maximum is not 0
    Shapes  (..., D) three times, which broadcast -> scalar, or (...) if reduction is 'none'
    Source  Balntas and others 2016, "Learning local feature descriptors with triplets and shallow CNNs"
    """
    op = "triplet_margin_loss"
    check_reduction(op, reduction)
    for name, value in (("anchor", anchor), ("positive", positive), ("negative", negative)):
        tensor_of(op, name, value)
    near, far = pairwise_distance(anchor, positive, p, eps), pairwise_distance(anchor, negative, p, eps)
    if flag_of(op, "swap", swap):
        far = minimum(far, pairwise_distance(positive, negative, p, eps))
    return reduce(clamp(near - far + number_of(op, "margin", margin), 0), reduction)
