"""Sums, means, variances, norms and extremes over one dimension, several, or all.

dim     an integer, several, or None or () for all; keepdim leaves them with size 1
dtype   an element type that input is converted to first
Types   out as input, indices int64; mean, var, std and norm want floating elements; numbers of 16 bits are added up in
        float32
Errors  IndexError for a dimension out of range, ValueError for one named twice or for the extreme of nothing, TypeError
        for elements of another kind
Source  Chan, Golub and LeVeque 1983, "Algorithms for computing the sample variance"; derivatives of powers and
        logarithms; at ties, at 0 and at NaN the gradient follows PyTorch
"""

import math
from collections import namedtuple

from numpy import ndarray

from minigrad_kernels import bias, layout
from minigrad_kernels.errors import KindError, ShapeError

from .. import device
from ..core.check import axes_of, axis_of, flag_of, number_of
from ..core.primitive import primitive
from ..core.tensor import Tensor, floating_of, tensor_of
from ..device import array_module, elementwise
from .autocast import casting, composed
from .conversions import to, typed, widened
from .elementwise import abs, eq, exp, isnan, log, maximum, minimum, where
from .shape import flatten, gather, reshape, squeeze
from .shape.views import reshape_op

__all__ = ["all", "amax", "amin", "any", "argmax", "argmin", "logsumexp", "max", "mean", "min", "norm", "std"]
__all__ += ["sum", "var"]

WHOLE = device.element_type("int64")  # the type of sums of integers


def reduced_axes(op, input, dim):
    """The dimensions of a Tensor that a reduction runs over; () means all of them, as None does."""
    tensor_of(op, "input", input)
    return axes_of(op, None if isinstance(dim, tuple | list) and not dim else dim, input.ndim)


def kept_shape(shape, axes):
    """The shape that a reduction leaves if its dimensions stay with size 1."""
    return tuple([1 if axis in axes else size for axis, size in enumerate(shape)])


def total(x, axes, keepdim, dtype=None):
    """The sum of an array; dtype is that of the sum of integers, int64 if None."""
    if not device.is_floating(x.dtype):
        return device.reduce(x, "sum", axes, keepdims=keepdim, dtype=dtype or WHOLE)
    if x.size and _are_channels(x, axes):
        out = column_sums(x)
        out = out if out.dtype == x.dtype else device.cast(out, x.dtype)
        return out.reshape(kept_shape(x.shape, axes)) if keepdim else out
    if x.itemsize == 2:
        return device.cast(total(device.cast(x, "float32"), axes, keepdim), x.dtype)
    return device.reduce(x, "sum", axes, keepdims=keepdim)


def _are_channels(x, axes):
    """Whether the sums are those of channels, for which there is a kernel; over rows alone NumPy is as fast."""
    if axes == (0,) and x.ndim == 2:
        return x.__class__ is not ndarray and x.flags.c_contiguous
    return axes == (0, 2, 3) and x.ndim == 4 and layout.is_dense(x, layout.CHANNELS_LAST)


def column_sums(x):
    """The sums of the channels, axis 1, of an array in C order or channels last, always added in one order.

    Those of numbers of 16 bits are float32, here and below.
    """
    out = device.empty((x.shape[1],), device.sum_dtype(x), like=x)
    bias.column_sums(x, out, device.workspace)
    return out


def rectified_columns(g, out):
    """The gradient g of relu, whose result is `out`, on what it was applied to, and the column sums of that."""
    dx, sums = device.empty_like(g), device.empty((g.shape[1],), device.sum_dtype(g), like=g)
    bias.bias_relu_grad(g, out, dx, sums, device.workspace)
    return dx, sums


def converted(input, dtype):
    """input in the element type asked for, by default the type of sums and products of it."""
    if dtype is None:
        return input if device.is_floating(input.dtype) else typed(input, WHOLE)
    return typed(input, device.element_type(dtype))


def along(x, shape, axes):
    """The result of a reduction over axes with the axes that it has lost, ready to be broadcast to shape."""
    return reshape_op(x, kept_shape(shape, axes))


@casting("float32")
@primitive
def sum_op(input, axes, keepdim, dtype):
    return total(input, axes, keepdim, dtype)


@primitive(view="input")
def spread_op(input, axes, shape):
    """The adjoint of a sum over axes: input repeated along them, without copying."""
    return array_module(input).broadcast_to(input.reshape(kept_shape(shape, axes)), shape)


sum_op.grads(input=lambda g, input_shape, axes: spread_op(g, axes, input_shape))
spread_op.grads(input=lambda g, input_shape, axes: reshape_op(sum_op(g, axes, False, None), input_shape))


def sum(input, dim=None, keepdim=False, *, dtype=None):
    """Sum.

    Math    out = sum(input, dim)
    Grads   dinput = g, repeated over dim
    Shapes  the dimensions of dim disappear
    Types   the sum of bools or of integers of any size is int64
    """
    axes, keepdim = reduced_axes("sum", input, dim), flag_of("sum", "keepdim", keepdim)
    return sum_op(input if dtype is None else typed(input, device.element_type(dtype)), axes, keepdim, dtype)


@primitive
@widened
def mean_op(input, axes, keepdim):
    return elementwise("div", total(input, axes, keepdim), float(_count(input.shape, axes)))


mean_op.grads(input=lambda g, input_shape, axes:
            spread_op(g / float(_count(input_shape, axes)), axes, input_shape))  # fmt: skip


def _count(shape, axes):
    """How many elements each sum has."""
    return math.prod([shape[axis] for axis in axes])


def mean(input, dim=None, keepdim=False, *, dtype=None):
    """Mean; NaN of nothing.

    Math    K = count(input, dim);  out = sum(input, dim) / K
    Grads   dinput = g / K, repeated over dim
    Shapes  the dimensions of dim disappear
    """
    axes, keepdim = reduced_axes("mean", input, dim), flag_of("mean", "keepdim", keepdim)
    input = input if dtype is None else typed(input, device.element_type(dtype))
    return mean_op(floating_of("mean", "input", input), axes, keepdim)


@composed
def var(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
    """Variance, by default the unbiased estimate; infinite or NaN if K <= correction.

    Math    K = count(input, dim);  m = mean(input, dim)
            out = sum((input - m)^2, dim) / (K - correction)
    Grads   dinput = 2 * g * (input - m) / (K - correction)
    Shapes  the dimensions of dim disappear
    Errors  TypeError for both a correction and unbiased, which means a correction of 1 or, if False, of 0
    """
    return _dispersion("var", input, dim, unbiased, keepdim, correction)


@primitive
def _root(input, p=2):
    """The root of a number of at least 0, with a gradient of 0 at 0."""
    return elementwise("sqrt", input) if p == 2 else elementwise("pow", input, 1 / p)


def _dx_of_root(g, out, p):
    zero = eq(out, 0.0)
    return where(zero, 0.0, g) / (p * where(zero, 1.0, out) ** (p - 1))


_root.grads(input=_dx_of_root)


@composed
def std(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
    """Standard deviation: the square root of the variance.

    Math    K = count(input, dim);  m = mean(input, dim)
            out = (sum((input - m)^2, dim) / (K - correction))^(1/2)
    Grads   dinput = 0 where out = 0, else g * (input - m) / ((K - correction) * out)
    Shapes  the dimensions of dim disappear
    Errors  as var
    """
    return _root(_dispersion("std", input, dim, unbiased, keepdim, correction))


def var_mean(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
    """(var, mean) of the same dimensions.

    Math    K = count(input, dim);  m = mean(input, dim)
            out = sum((input - m)^2, dim) / (K - correction), m
    Grads   as var and mean
    Shapes  the dimensions of dim disappear
    """
    return var(input, dim, unbiased, keepdim, correction=correction), mean(input, dim, keepdim)


def std_mean(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
    """(std, mean) of the same dimensions.

    Math    K = count(input, dim);  m = mean(input, dim)
            out = (sum((input - m)^2, dim) / (K - correction))^(1/2), m
    Grads   as std and mean
    Shapes  the dimensions of dim disappear
    """
    return std(input, dim, unbiased, keepdim, correction=correction), mean(input, dim, keepdim)


def _dispersion(op, input, dim, unbiased, keepdim, correction):
    """The variance, for an op."""
    axes, keepdim = reduced_axes(op, input, dim), flag_of(op, "keepdim", keepdim)
    if unbiased is not None:
        if correction is not None:
            raise KindError(f"{op}: unbiased is {unbiased} and correction {correction}, wanted one of them")
        correction = int(flag_of(op, "unbiased", unbiased))
    correction = 1 if correction is None else number_of(op, "correction", correction)
    deviation = floating_of(op, "input", input) - mean_op(input, axes, True)
    deviation = deviation - mean_op(deviation, axes, True)  # the average was rounded, which shows where it is large
    freedom = float(_count(input.shape, axes)) - correction
    return sum_op(deviation * deviation, axes, keepdim, None) / (freedom if freedom > 0 else 0.0)


# ---- norms, and the logarithm of a sum of exponentials ---------------------------------------------------------------


@composed
def logsumexp(input, dim, keepdim=False):
    """The logarithm of a sum of exponentials, without overflow.

    Math    out = ln(sum(e^input, dim)), computed as m + ln sum of e^(input - m) for m = max input
    Grads   dinput = g * e^(input - out), that is g * softmax(input)
    Shapes  the dimensions of dim disappear
    Types   integers become float32
    """
    if dim is None:
        raise KindError("logsumexp: dim is None, wanted dimensions; () names all")
    axes, keepdim = reduced_axes("logsumexp", input, dim), flag_of("logsumexp", "keepdim", keepdim)
    input = input if device.is_floating(input.dtype) else to(input, "float32")
    largest = Tensor.made(_largest(input.array, axes))
    out = log(sum_op(exp(input - largest), axes, True, None)) + largest
    return out if keepdim else squeeze(out, axes)


@device.there
def _largest(x, axes):
    """The largest finite element along axes, which keep size 1; 0 where there is none."""
    found = device.reduce(x, "max", axes, keepdims=True) if x.size else total(x, axes, True)
    found[~array_module(x).isfinite(found)] = 0
    return found


@composed
def norm(input, p="fro", dim=None, keepdim=False, *, dtype=None):
    """The p-norm of a vector: of all elements, or along dim; over several dimensions, of the elements as one vector.

    p       2, by the name "fro" too or None; any other number of at least 1; inf for the largest absolute value
    Math    out = sum(abs(input)^p, dim)^(1/p)
    Grads   dinput = 0 where input = 0 or out = 0, else g * sign(input) * (abs(input) / out)^(p - 1)
            p inf: the largest share g
    Shapes  the dimensions of dim disappear
    Errors  ValueError for p below 1, and for the largest of nothing
    """
    axes, keepdim = reduced_axes("norm", input, dim), flag_of("norm", "keepdim", keepdim)
    p = 2 if p is None or isinstance(p, str) and p == "fro" else number_of("norm", "p", p, 1)
    input = floating_of("norm", "input", input if dtype is None else typed(input, device.element_type(dtype)))
    if p == math.inf:
        _nonempty("norm", input, axes)
        return _extreme(abs(input), axes, keepdim, "max", True)
    return _root(sum_op(input * input if p == 2 else abs(input) ** p, axes, keepdim, None), p)


# ---- extremes, where they are, and whether any or all hold -----------------------------------------------------------

Extremes = namedtuple("Extremes", "values indices")
Extremes.__doc__ = "What max and min return along a dimension: the extremes, and the indices of the first of each."


def _nonempty(op, input, axes):
    if not math.prod([input.shape[axis] for axis in axes]):
        raise ShapeError(f"{op}: input has shape {input.shape}, and nothing along dim {axes} has no extreme")


@primitive
def _extreme(input, axes, keepdim, name, nan_wins):
    """The "max" or "min" over axes; nan_wins says whether NaN, which is the extreme, gets the gradient."""
    return device.reduce(input, name, axes, keepdims=keepdim)


def _dx_of_extreme(g, input, out, axes, nan_wins):
    g, out = along(g, input.shape, axes), along(out, input.shape, axes)
    winners = typed(eq(input, out) + isnan(input) if nan_wins else eq(input, out), g.dtype)
    return g * winners / sum(winners, axes, True)


_extreme.grads(input=_dx_of_extreme)


def _extreme_along(op, name, input, dim, keepdim):
    axes = reduced_axes(op, input, dim)
    _nonempty(op, input, axes)
    return _extreme(input, axes, flag_of(op, "keepdim", keepdim), name, False)


def amax(input, dim=None, keepdim=False):
    """The largest element; NaN if there is one.

    Math    out = the largest of input along dim
    Grads   ties = sum(input = out, dim)
            dinput = g / ties where input = out, else 0;  NaN where out is NaN
    Shapes  the dimensions of dim disappear
    """
    return _extreme_along("amax", "max", input, dim, keepdim)


def amin(input, dim=None, keepdim=False):
    """The smallest element; NaN if there is one.

    Math    out = the smallest of input along dim
    Grads   ties = sum(input = out, dim)
            dinput = g / ties where input = out, else 0;  NaN where out is NaN
    Shapes  the dimensions of dim disappear
    """
    return _extreme_along("amin", "min", input, dim, keepdim)


@primitive(fixed=("input",))
def _found(input, axes, keepdim, name):
    """The index "argmax" or "argmin" of the first extreme along an axis, or whether "any" or "all" are not 0."""
    return device.reduce(input, name, axes, keepdims=keepdim)


def _index(op, input, dim, keepdim):
    """The index of the first extreme, "argmax" or "argmin", along dim or in C order."""
    keepdim = flag_of(op, "keepdim", keepdim)
    tensor_of(op, "input", input)
    axes = axes_of(op, dim if dim is None else axis_of(op, dim, input.ndim), input.ndim)
    _nonempty(op, input, axes)
    flat = dim is None or not input.ndim
    out = _found(flatten(input) if flat else input, 0 if flat else axes[0], not flat and keepdim, op)
    return reshape(out, kept_shape(input.shape, axes)) if flat and keepdim else out


def argmax(input, dim=None, keepdim=False):
    """The index of the first largest element, or of the first NaN, along dim or in C order.

    Math    out = argmax over dim of input
    Grads   none
    Shapes  the dimension dim disappears, or all do
    Types   out int64
    """
    return _index("argmax", input, dim, keepdim)


def argmin(input, dim=None, keepdim=False):
    """The index of the first smallest element, or of the first NaN, along dim or in C order.

    Math    out = argmin over dim of input
    Grads   none
    Shapes  the dimension dim disappears, or all do
    Types   out int64
    """
    return _index("argmin", input, dim, keepdim)


def max(input, dim=None, keepdim=False, *, other=None):
    """The largest element; along dim, (values, indices); of two Tensors, the elementwise maximum.

    Math    out = max over dim of input, or max(input, other)
    Grads   dinput = g at the first maximum; without dim, equal maxima share it
            with other, dinput and dother as maximum
    Shapes  the dimension dim disappears; without dim, all do; with other, as maximum
    """
    return _max_or_min("max", maximum, input, dim, keepdim, other)


def min(input, dim=None, keepdim=False, *, other=None):
    """The smallest element; along dim, (values, indices); of two Tensors, the elementwise minimum.

    Math    out = min over dim of input, or min(input, other)
    Grads   dinput = g at the first minimum; without dim, equal minima share it
            with other, dinput and dother as minimum
    Shapes  the dimension dim disappears; without dim, all do; with other, as minimum
    """
    return _max_or_min("min", minimum, input, dim, keepdim, other)


def _max_or_min(op, elementwise, input, dim, keepdim, other):
    keepdim, ndim = flag_of(op, "keepdim", keepdim), tensor_of(op, "input", input).ndim
    if other is not None or isinstance(dim, Tensor):  # max(x, y)
        return elementwise(input, tensor_of(op, "other", dim if other is None else other))
    if dim is None:
        _nonempty(op, input, range(ndim))
        return _extreme(input, tuple(range(ndim)), keepdim, op, True)
    return _first_extreme(op, input, axis_of(op, dim, input.ndim), keepdim)


def _first_extreme(op, input, axis, keepdim):
    """The extremes along an axis and the indices of the first of each."""
    rows = input if input.ndim else reshape(input, (1,))
    _nonempty(op, rows, (axis,))
    indices = _found(rows, axis, True, f"arg{op}")
    out = Extremes(gather(rows, axis, indices), indices)
    return out if keepdim and input.ndim else Extremes(*[squeeze(one, axis) for one in out])


def _logical_along(name, input, dim, keepdim):
    axes = axes_of(name, dim, tensor_of(name, "input", input).ndim)
    return _found(input, axes, flag_of(name, "keepdim", keepdim), name)


def any(input, dim=None, keepdim=False):
    """Whether any element is not 0; NaN is not 0.

    Math    out = or over dim of (input != 0)
    Grads   none
    Shapes  the dimensions of dim disappear; () names none, so all stay
    Types   out bool
    """
    return _logical_along("any", input, dim, keepdim)


def all(input, dim=None, keepdim=False):
    """Whether no element is 0; NaN is not 0.

    Math    out = and over dim of (input != 0)
    Grads   none
    Shapes  the dimensions of dim disappear; () names none, so all stay
    Types   out bool
    """
    return _logical_along("all", input, dim, keepdim)
