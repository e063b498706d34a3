"""Losses of numbers, and the cosine between vectors.

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
from ..arguments import number_of, tensor_of
from ..axes import axis_of
from ..elementwise import abs, clamp, sqrt, square
from ..reduce import sum
from ..shape import expand
from .reduction import check_reduction, difference, reduce

__all__ = ["cosine_similarity", "huber_loss", "l1_loss", "mse_loss", "smooth_l1_loss"]


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


def mse_loss(input, target, *, reduction="mean", weight=None):
    """Mean squared error.

    Math    loss = sum w d^2 / sum w, with d = input - target; w = 1 without weight
    Grads   dinput = 2 g w d / sum w        dtarget = -dinput        dweight = g (d^2 - loss) / sum w
    Shapes  input and target alike -> scalar, or alike if reduction is 'none'
    """
    check_reduction("mse_loss", reduction)
    return _reduced("mse_loss", square(difference("mse_loss", input, target)), weight, input, reduction)


def l1_loss(input, target, *, reduction="mean", weight=None):
    """Mean absolute error.

    Math    loss = sum w |d| / sum w, with d = input - target; w = 1 without weight
    Grads   dinput = g w sign(d) / sum w, 0 where d = 0        dtarget = -dinput        dweight = g (|d| - loss) / sum w
    Shapes  input and target alike -> scalar, or alike if reduction is 'none'
    """
    check_reduction("l1_loss", reduction)
    return _reduced("l1_loss", abs(difference("l1_loss", input, target)), weight, input, reduction)


@primitive
def _huber(input, delta):
    """input^2 / 2 up to |input| = delta, beyond it the tangent: (input - c / 2) c with c = input limited to +-delta."""
    limited = elementwise("minimum", elementwise("maximum", input, -delta), delta)
    return elementwise("mul", elementwise("sub", input, elementwise("mul", limited, 0.5)), limited)


_huber.grads(input=lambda g, input, delta: g * clamp(input, -delta, delta))


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    """A square near 0 and the absolute error beyond beta; the absolute error alone for beta = 0.

    Math    loss_k = d^2 / (2 beta) where |d| < beta, else |d| - beta / 2, with d = input - target
    Grads   dinput = g d / beta where |d| < beta, else g sign(d); over K for the mean        dtarget = -dinput
    Shapes  input and target alike -> scalar, or alike if reduction is 'none'
    """
    check_reduction("smooth_l1_loss", reduction)
    beta = float(number_of("smooth_l1_loss", "beta", beta))
    if not beta >= 0:
        raise ShapeError(f"smooth_l1_loss: beta is {beta}, wanted at least 0")
    error = difference("smooth_l1_loss", input, target)
    return reduce(_huber(error, beta) / beta if beta else abs(error), reduction)


def huber_loss(input, target, reduction="mean", delta=1.0, weight=None):
    """A square near 0, and beyond delta its tangent.

    Math    loss_k = d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2), with d = input - target; times w_k
    Grads   dinput = g w d where |d| <= delta, else g w delta sign(d); over K for the mean        dtarget = -dinput
    Shapes  input and target alike -> scalar, or alike if reduction is 'none'
    """
    check_reduction("huber_loss", reduction)
    delta = float(number_of("huber_loss", "delta", delta))
    if not delta > 0:
        raise ShapeError(f"huber_loss: delta is {delta}, wanted more than 0")
    losses = _huber(difference("huber_loss", input, target), delta)
    return reduce(losses if weight is None else _weighted("huber_loss", losses, weight, input), reduction)


# ---- vectors ---------------------------------------------------------------------------------------------------------


def cosine_similarity(x1, x2, dim=1, eps=1e-8):
    """The cosine of the angle between vectors.

    Math    out = x1 . x2 / (max(|x1|, eps) max(|x2|, eps)), along dim
    Grads   dx1 = g (x2 / |x2| - out x1 / |x1|) / |x1|, without the second part where |x1| < eps; dx2 alike
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
