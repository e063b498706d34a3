"""Reductions over one dimension, several, or all.

dim     an integer, several, or None or () for all; keepdim leaves them with size 1
Types   out as x; the sum of bools or of integers of any size is int64; mean, var and logsumexp want floating elements
Errors  IndexError for a dimension out of range, ValueError for one named twice or for the extreme of nothing
Source  derivatives of sums; at ties the gradient follows PyTorch
"""

import math

from minigrad_kernels import layout, norm
from minigrad_kernels.errors import KindError, ShapeError
from minigrad_kernels.toolchain import arguments as kernel_arguments

from ... import device
from ...device import array_module
from ...primitive import primitive
from ...tensor import Tensor
from ..arguments import number_of, tensor_of
from ..axes import axes_of, axis_of
from ..elementwise import eq, exp, log
from ..shape import expand, reshape, squeeze, take_along_dim

__all__ = ["amax", "amin", "argmax", "argmin", "logsumexp", "max", "mean", "min", "sum", "var"]


LONG = 4096  # rows; from here on adding them up one by one in float32 loses digits that show


def _axes(op, x, dim):
    """The axes to reduce over; () means all of them, as None does."""
    tensor_of(op, "x", x)
    return axes_of(op, None if isinstance(dim, tuple | list) and not dim else dim, x.ndim)


def _reduced(op, x, dim, keepdim, function):
    """function(x, axes) over the axes that dim names, which stay with size 1 if keepdim."""
    axes = _axes(op, x, dim)
    out = function(x, axes)
    return out if keepdim or not axes else squeeze(out, axes)


@primitive
def _sum(x, axes):
    """Sum over axes, which stay with size 1."""
    if x.size and kernel_arguments.is_floating(x.dtype):
        if axes == (0, 2, 3) and layout.is_dense(x, layout.CHANNELS_LAST):
            return _column_sums(x).reshape(1, -1, 1, 1)
        if axes == (0,) and x.ndim == 2 and len(x) >= LONG and x.flags.c_contiguous:
            return _column_sums(x).reshape(1, -1)
    return device.reduce(x, "sum", axes, dtype=None if device.is_floating(x.dtype) else "int64")


def _column_sums(x):
    out = device.empty((x.shape[1],), x.dtype)
    norm.channel_sum(x, out, device.workspace(norm.workspace("channel_sum", x.shape)))
    return out


_sum.grads(x=lambda g, x_shape: expand(g, x_shape))


def sum(x, dim=None, keepdim=False):
    """Sum.

    Math    out = sum over dim of x
    Grads   dx = g, repeated over dim
    Shapes  the dimensions of dim disappear
    """
    return _reduced("sum", x, dim, keepdim, _sum)


def mean(x, dim=None, keepdim=False):
    """Mean; NaN of nothing.

    Math    out = (1 / K) sum over dim of x, for K elements each
    Grads   dx = g / K, repeated over dim
    Shapes  the dimensions of dim disappear
    """
    _floating("mean", x)
    count = math.prod(x.shape[axis] for axis in _axes("mean", x, dim))
    return sum(x, dim, keepdim) / (float(count) if count else math.nan)


def var(x, dim=None, correction=1, keepdim=False):
    """Variance, by default the unbiased estimate; infinite or NaN if K <= correction.

    Math    out = sum over dim of (x - mean)^2 / (K - correction), for K elements each
    Grads   dx = 2 g (x - mean) / (K - correction)
    Shapes  the dimensions of dim disappear
    """
    _floating("var", x)
    axes, correction = _axes("var", x, dim), number_of("var", "correction", correction)
    deviation = x - mean(x, axes, keepdim=True)
    freedom = float(math.prod(x.shape[axis] for axis in axes) - correction)
    return sum(deviation * deviation, axes, keepdim) / (freedom if freedom > 0 else 0.0)


def _floating(op, x):
    tensor_of(op, "x", x)
    if not device.is_floating(x.dtype):
        raise KindError(f"{op}: x has elements {x.dtype}, wanted floating ones; convert with x.to('float32')")


def _nonempty(op, x, axes):
    if not math.prod(x.shape[axis] for axis in axes):
        raise ShapeError(f"{op}: x has shape {x.shape}, and nothing along dim {axes} has no extreme")


def _extreme(name, method, words):
    """amax or amin: equal extremes share the gradient."""

    def reduce(x, axes):
        _nonempty(name, x, axes)
        return device.reduce(x, method, axes)

    reduce.__name__ = name
    extreme = primitive(reduce)

    def gradient(g, x, out):
        winners = eq(x, out).to(x.dtype)
        return g * winners / sum(winners, tuple(i for i, n in enumerate(g.shape) if n != x.shape[i]), True)

    extreme.grads(x=gradient)

    def op(x, dim=None, keepdim=False):
        return _reduced(name, x, dim, keepdim, extreme)

    op.__name__ = op.__qualname__ = name
    op.__doc__ = f"""The {words} element; NaN if there is one.

    Math    out = {method} over dim of x
    Grads   dx = g / ties where x = out, else 0
    Shapes  the dimensions of dim disappear
    """
    return op


amax = _extreme("amax", "max", "largest")
amin = _extreme("amin", "min", "smallest")


@primitive(fixed=("x",))
def _argextreme(x, axis, name):
    """Index of the first extreme along an axis, which stays with size 1."""
    _nonempty(name, x, (axis,))
    return array_module(x).asarray(getattr(x, name)(axis=axis, keepdims=True))


def _arg(name, x, dim, keepdim):
    tensor_of(name, "x", x)
    if dim is None:
        out = _argextreme(reshape(x, -1), 0, name)
        return reshape(out, (1,) * x.ndim if keepdim else ())
    axis = axis_of(name, dim, x.ndim)
    out = _argextreme(x if x.shape else reshape(x, 1), axis, name)
    return out if keepdim and x.shape else squeeze(out, axis)


def argmax(x, dim=None, keepdim=False):
    """The index of the first largest element along dim, or in C order.

    Math    out = argmax over dim of x
    Grads   none
    Shapes  the dimension dim disappears
    Types   out int64
    """
    return _arg("argmax", x, dim, keepdim)


def argmin(x, dim=None, keepdim=False):
    """The index of the first smallest element along dim, or in C order.

    Math    out = argmin over dim of x
    Grads   none
    Shapes  the dimension dim disappears
    Types   out int64
    """
    return _arg("argmin", x, dim, keepdim)


def _with_indices(op, arg, x, dim, keepdim):
    dim = axis_of(op, dim, tensor_of(op, "x", x).ndim)
    indices = _arg(arg, x, dim, True)
    values = take_along_dim(x, indices, dim) if x.shape else x
    if not keepdim:
        values, indices = squeeze(values, dim), squeeze(indices, dim)
    return values, indices


def max(x, dim=None, keepdim=False):
    """The largest element; with dim, the pair (values, indices).

    Math    out = max over dim of x
    Grads   dx = g at the first maximum; without dim, equal maxima share it
    Shapes  the dimension dim disappears
    """
    return amax(x) if dim is None else _with_indices("max", "argmax", x, dim, keepdim)


def min(x, dim=None, keepdim=False):
    """The smallest element; with dim, the pair (values, indices).

    Math    out = min over dim of x
    Grads   dx = g at the first minimum; without dim, equal minima share it
    Shapes  the dimension dim disappears
    """
    return amin(x) if dim is None else _with_indices("min", "argmin", x, dim, keepdim)


def logsumexp(x, dim, keepdim=False):
    """The logarithm of a sum of exponentials, without overflow.

    Math    out = ln sum over dim of e^x = m + ln sum of e^(x - m), for any finite m; here m = max x
    Grads   dx = g * e^(x - out), that is g * softmax(x)
    Shapes  the dimensions of dim disappear
    """
    _floating("logsumexp", x)
    axes = _axes("logsumexp", x, dim)
    with_axes = _reduced_largest(x, axes)
    out = log(sum(exp(x - with_axes), axes, True)) + with_axes
    return out if keepdim or not axes else squeeze(out, axes)


def _reduced_largest(x, axes):
    """The maximum, or 0 where it is infinite, as a constant: the derivative with respect to it is zero."""
    array = device.reduce(x.data, "max", axes, initial=-math.inf)
    array[~array_module(array).isfinite(array)] = 0
    return Tensor.made(array)
