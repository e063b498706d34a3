"""Softmax and its logarithm.

Types   float32 or float64; out as input
Errors  IndexError for a dimension out of range, TypeError for other element types
Source  Bridle 1990, "Probabilistic interpretation of feedforward classification network outputs"
"""

from minigrad_kernels import softmax as kernels
from minigrad_kernels.errors import KindError

from .. import device
from ..primitive import primitive
from .arguments import tensor_of
from .axes import axis_of
from .elementwise import exp
from .reduce import sum
from .shape import reshape, transpose

__all__ = ["log_softmax", "softmax"]


def _by_rows(op, function, x, dim):
    """function on the rows of a matrix whose rows lie along dim of x."""
    if not device.is_floating(tensor_of(op, "input", x).dtype):
        raise KindError(f"{op}: input has elements {x.dtype}, wanted floating ones")
    axis = axis_of(op, dim, x.ndim)
    if x.ndim == 2 and axis == 1:
        return function(x)
    if not x.ndim:
        return reshape(function(reshape(x, (1, 1))), ())
    last = transpose(x, axis, -1)
    rows = reshape(last, (-1, last.shape[-1]) if x.shape[axis] else (0, 1))
    return transpose(reshape(function(rows), last.shape), axis, -1)


def _rows_kernel(kernel, *arrays):
    arrays = [device.contiguous(array) for array in arrays]
    out = device.empty(arrays[0].shape, arrays[0].dtype)
    if out.size:
        kernel(*arrays, out)
    return out


@primitive
def _softmax(x):
    return _rows_kernel(kernels.softmax, x)


_softmax.grads(x=lambda g, out: out * (g - sum(g * out, 1, True)))


@_softmax.fast_grads
def _softmax_at_once(g, out):
    return {"x": _rows_kernel(kernels.softmax_grad, g, out)}


def softmax(input, dim):
    """Exponentials along a dimension, scaled so that they sum to 1.

    Math    out_k = e^{x_k} / sum_l e^{x_l}
    Grads   dx = out (g - sum_l g_l out_l)
    Shapes  out as input
    """
    return _by_rows("softmax", _softmax, input, dim)


@primitive
def _log_softmax(x):
    return _rows_kernel(kernels.log_softmax, x)


_log_softmax.grads(x=lambda g, out: g - exp(out) * sum(g, 1, True))


@_log_softmax.fast_grads
def _log_softmax_at_once(g, out):
    return {"x": _rows_kernel(kernels.log_softmax_grad, g, out)}


def log_softmax(input, dim):
    """The logarithm of softmax, without overflow or loss of digits.

    Math    out_k = x_k - ln sum_l e^{x_l}
    Grads   dx = g - softmax(x) sum_l g_l
    Shapes  out as input
    """
    return _by_rows("log_softmax", _log_softmax, input, dim)
