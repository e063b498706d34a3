"""Softmax and its logarithm.

dtype   the element type in which to compute; that of input by default
Types   floating, or anything with a floating dtype
Errors  IndexError for a dimension out of range, TypeError for other element types
Source  Bridle 1990, "Probabilistic interpretation of feedforward classification network outputs"
"""

from minigrad_kernels import softmax as kernels

from .. import device
from ..core.check import axis_of, floats_of
from ..core.primitive import primitive
from ..core.tensor import tensor_of
from .autocast import casting
from .conversions import precise
from .elementwise import exp, to
from .reduce import sum
from .shape import reshape, transpose

__all__ = ["log_softmax", "softmax"]


def _by_rows(op, function, input, dim, dtype):
    """function on the rows of a matrix whose rows lie along dim of the input."""
    tensor_of(op, "input", input)
    if dtype is not None:
        input = to(input, device.element_type(dtype))
    axis = axis_of(op, dim, input.ndim)
    if input.ndim == 2 and axis == 1:
        return function(input)
    if not input.ndim:
        return reshape(function(reshape(input, (1, 1))), ())
    last = transpose(input, axis, -1)
    rows = reshape(last, (-1, last.shape[-1]) if input.shape[axis] else (0, 1))
    return transpose(reshape(function(rows), last.shape), axis, -1)


def _rows_kernel(kernel, logs, *arrays):
    arrays = [device.contiguous(array) for array in arrays]
    out = device.empty(arrays[0].shape, arrays[0].dtype, like=arrays[0])
    if out.size:
        kernel(*arrays, logs, out)
    return out


@casting("float32")
@primitive
def softmax_op(input):
    return _rows_kernel(kernels.softmax, False, floats_of("softmax", "input", input))


softmax_op.grads(input=precise(lambda g, out: out * (g - sum(g * out, 1, True))))
softmax_op.fast_grads(lambda g, out: {"input": _rows_kernel(kernels.softmax_grad, False, g, out)})


def softmax(input, dim, *, dtype=None):
    """Exponentials along a dimension, scaled so that they sum to 1.

    Math    out = e^input / sum(e^input, dim)
    Grads   dinput = out * (g - sum(g * out, dim))
    Shapes  out as input
    """
    return _by_rows("softmax", softmax_op, input, dim, dtype)


@casting("float32")
@primitive
def log_softmax_op(input):
    return _rows_kernel(kernels.softmax, True, floats_of("log_softmax", "input", input))


log_softmax_op.grads(input=precise(lambda g, out: g - exp(out) * sum(g, 1, True)))
log_softmax_op.fast_grads(lambda g, out: {"input": _rows_kernel(kernels.softmax_grad, True, g, out)})


def log_softmax(input, dim, *, dtype=None):
    """The logarithm of softmax, without overflow or loss of digits.

    Math    out = input - ln(sum(e^input, dim))
    Grads   dinput = g - e^out * sum(g, dim)
    Shapes  out as input
    """
    return _by_rows("log_softmax", log_softmax_op, input, dim, dtype)
