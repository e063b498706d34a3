"""Losses of numbers, and how far vectors are from each other.

reduction   'mean' of the elements, 'sum', or 'none'
weight      a factor for each element, of the shape of input
Shapes      input and target alike -> scalar, or alike if reduction is 'none'; unequal shapes broadcast with a warning
Types       floating ones, which promote; one of input and target may be integers
Errors      ValueError for shapes that do not fit and options out of range, TypeError for other element types
Source      Bishop 2006, "Pattern Recognition and Machine Learning", section 3.1; Huber 1964, "Robust estimation of a
            location parameter"; Girshick 2015, "Fast R-CNN", eq. 3
"""

from minigrad_kernels.errors import KindError, ShapeError

from ... import device
from ...device import elementwise
from ...primitive import primitive
from ..arguments import flag_of, number_of, tensor_of
from ..axes import axis_of
from ..elementwise import clamp, minimum, sign, sqrt, square
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


def _weighted(op, losses, weight, input):
    """The losses times their weights."""
    if tensor_of(op, "weight", weight).shape != input.shape:
        raise ShapeError(f"{op}: weight has shape {weight.shape}, wanted {input.shape}, that of input")
    return losses * weight


def _reduced(op, losses, weight, input, reduction):
    """The mean divides by the sum of the weights."""
    if weight is None:
        return reduce(losses, reduction)
    losses = _weighted(op, losses, weight, input)
    return sum(losses) / sum(weight) if reduction == "mean" else reduce(losses, reduction)


@primitive
def _squared_error(input, target):
    d = elementwise("sub", input, target)
    return elementwise("mul", d, d)


def _dx_of_squared_error(g, input, target):
    return g * (2 * (input - target))


_squared_error.grads(
    input=_dx_of_squared_error, target=lambda g, input, target: -_dx_of_squared_error(g, input, target)
)


@composed
def mse_loss(input, target, *, reduction="mean", weight=None):
    """Mean squared error.

    Math    d = input - target;  loss = sum(weight * d^2) / sum(weight), weight all ones if None
    Grads   dinput = 2 * g * weight * d / sum(weight)        dtarget = -dinput
            dweight = g * (d^2 - loss) / sum(weight)
    Shapes  input and target alike -> scalar, or alike if reduction is 'none'
    """
    check_reduction("mse_loss", reduction)
    check_pair("mse_loss", input, target)
    return _reduced("mse_loss", _squared_error(input, target), weight, input, reduction)


@primitive
def _absolute_error(input, target):
    d = elementwise("sub", input, target)
    return elementwise("abs", d)


def _dx_of_absolute_error(g, input, target):
    return g * sign(input - target)


_absolute_error.grads(
    input=_dx_of_absolute_error, target=lambda g, input, target: -_dx_of_absolute_error(g, input, target)
)


@composed
def l1_loss(input, target, *, reduction="mean", weight=None):
    """Mean absolute error.

    Math    d = input - target;  loss = sum(weight * abs(d)) / sum(weight), weight all ones if None
    Grads   dinput = g * weight * sign(d) / sum(weight), 0 where d = 0        dtarget = -dinput
            dweight = g * (abs(d) - loss) / sum(weight)
    Shapes  input and target alike -> scalar, or alike if reduction is 'none'
    """
    check_reduction("l1_loss", reduction)
    check_pair("l1_loss", input, target)
    return _reduced("l1_loss", _absolute_error(input, target), weight, input, reduction)


@primitive(fixed=("delta", "divisor"))
def _huber(input, target, delta, divisor):
    """d^2 / 2 up to |d| = delta, beyond it the tangent: (d - c / 2) c with c = d limited to +-delta; over divisor."""
    d = elementwise("sub", input, target)
    limited = elementwise("minimum", elementwise("maximum", d, -delta), delta)
    out = elementwise("mul", elementwise("sub", d, elementwise("mul", limited, 0.5)), limited)
    return out if divisor == 1 else elementwise("div", out, divisor)


def _dx_of_huber(g, input, target, delta, divisor):
    return g / divisor * clamp(input - target, -delta, delta)


_huber.grads(
    input=_dx_of_huber,
    target=lambda g, input, target, delta, divisor: -_dx_of_huber(g, input, target, delta, divisor),
)


@composed
def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    """A square near 0 and the absolute error beyond beta; the absolute error alone for beta = 0.

    Math    d = input - target;  K = count(input)
            losses = d^2 / (2 * beta) where abs(d) < beta, else abs(d) - beta / 2;  loss = sum(losses) / K
    Grads   dinput = g / K * d / beta where abs(d) < beta, else g / K * sign(d)        dtarget = -dinput
    Shapes  input and target alike -> scalar, or alike if reduction is 'none'
    """
    check_reduction("smooth_l1_loss", reduction)
    beta = float(number_of("smooth_l1_loss", "beta", beta))
    if not beta >= 0:
        raise ShapeError(f"smooth_l1_loss: beta is {beta}, wanted at least 0")
    check_pair("smooth_l1_loss", input, target)
    if beta:
        return reduce(_huber(input, target, beta, beta), reduction)
    return reduce(_absolute_error(input, target), reduction)


@composed
def huber_loss(input, target, reduction="mean", delta=1.0, weight=None):
    """A square near 0, and beyond delta its tangent.

    Math    d = input - target;  K = count(input)
            losses = d^2 / 2 where abs(d) <= delta, else delta * (abs(d) - delta / 2);  loss = sum(weight * losses) / K
    Grads   dinput = g / K * weight * d where abs(d) <= delta, else g / K * weight * delta * sign(d)
            dtarget = -dinput        dweight = g / K * losses
    Shapes  input and target alike -> scalar, or alike if reduction is 'none'
    """
    check_reduction("huber_loss", reduction)
    delta = float(number_of("huber_loss", "delta", delta))
    if not delta > 0:
        raise ShapeError(f"huber_loss: delta is {delta}, wanted more than 0")
    check_pair("huber_loss", input, target)
    losses = _huber(input, target, delta, 1.0)
    return reduce(losses if weight is None else _weighted("huber_loss", losses, weight, input), reduction)


# ---- vectors ---------------------------------------------------------------------------------------------------------


@composed
def cosine_similarity(x1, x2, dim=1, eps=1e-8):
    """The cosine of the angle between vectors.

    Math    a = sum(x1^2, dim)^(1/2);  b = sum(x2^2, dim)^(1/2), each at least eps;  out = sum(x1 * x2, dim) / (a * b)
    Grads   dx1 = g * (x2 / b - out * x1 / a) / a        dx2 = g * (x1 / a - out * x2 / b) / b
            without the second part where the length is below eps
    Shapes  x1 and x2 broadcast; the dimension dim disappears
    Types   floating ones, which promote; one of x1 and x2 may be integers
    Source  Bishop 2006, appendix C
    """
    op = "cosine_similarity"
    dtype = device.result_dtype(*(tensor_of(op, name, x).data for name, x in (("x1", x1), ("x2", x2))), op=op)
    if not device.is_floating(dtype):
        raise KindError(f"{op}: x1 has elements {x1.dtype}, x2 {x2.dtype}; wanted floating ones")
    if not number_of(op, "eps", eps) >= 0:
        raise ShapeError(f"{op}: eps is {eps}, wanted at least 0")
    shape = device.broadcast_shapes(op, x1, x2)
    axis = axis_of(op, dim, len(shape))
    x1, x2 = (_directed(expand(x.to(dtype), shape), axis, eps) for x in (x1, x2))
    return sum(x1 * x2, axis)


def _directed(x, axis, eps):
    """x over its length along an axis, or over eps where it is shorter."""
    return x / sqrt(clamp(sum(square(x), axis, True), eps**2))


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
    p, eps = number_of(op, "p", p), number_of(op, "eps", eps)
    return norm(x1 - x2 + float(eps), p, -1, flag_of(op, "keepdim", keepdim))


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
    named = {"anchor": anchor, "positive": positive, "negative": negative}
    shapes = [tensor_of(op, name, vectors).shape for name, vectors in named.items()]
    if len({len(shape) for shape in shapes}) > 1:
        raise ShapeError(f"{op}: anchor, positive, negative have shapes {shapes}, wanted as many dimensions each")
    device.broadcast_shapes(op, anchor, positive, negative)
    if not number_of(op, "margin", margin) > 0:
        raise ShapeError(f"{op}: margin is {margin}, wanted more than 0")
    near, far = pairwise_distance(anchor, positive, p, eps), pairwise_distance(anchor, negative, p, eps)
    if flag_of(op, "swap", swap):
        far = minimum(far, pairwise_distance(positive, negative, p, eps))
    return reduce(clamp(near - far + margin, 0), reduction)
