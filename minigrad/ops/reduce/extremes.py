"""The largest and smallest elements, where they are, and whether any or all elements hold.

dim     an integer (amax, amin, any, all: or several), None for all; keepdim leaves them with size 1
Types   out as input; indices are int64
Errors  IndexError for a dimension out of range, ValueError for one named twice or for the extreme of nothing
Source  at ties and NaN the gradient follows PyTorch
"""

import math
from collections import namedtuple

from minigrad_kernels.errors import KindError, ShapeError

from ... import device
from ...core.check import flag_of
from ...core.primitive import primitive
from ...core.tensor import Tensor, tensor_of
from ..axes import axes_of, axis_of, kept_shape, reduced_axes
from ..elementwise import eq, isnan, maximum, minimum
from ..elementwise.conversions import typed
from ..shape import reshape, squeeze, take_along_dim
from .sums import along, sum

__all__ = ["all", "amax", "amin", "any", "argmax", "argmin", "max", "min"]

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
def _argextreme(input, axis, name):
    """The index of the first extreme along an axis, which stays with size 1."""
    return device.reduce(input, name, axis, keepdims=True)


def _index(op, name, input, dim, keepdim):
    """The index of the first extreme, "argmax" or "argmin", along dim or in C order."""
    keepdim = flag_of(op, "keepdim", keepdim)
    if tensor_of(op, "input", input).dtype == bool:
        raise KindError(f"{op}: input has elements bool, wanted numbers; use any or all")
    axes = axes_of(op, dim if dim is None else axis_of(op, dim, input.ndim), input.ndim)
    _nonempty(op, input, axes)
    flat = dim is None or not input.ndim
    out = _argextreme(reshape(input, (-1,)) if flat else input, 0 if flat else axes[0], name)
    kept = kept_shape(input.shape, axes)
    return reshape(out, kept if keepdim else [size for axis, size in enumerate(kept) if axis not in axes])


def argmax(input, dim=None, keepdim=False):
    """The index of the first largest element, or of the first NaN, along dim or in C order.

    Math    out = argmax over dim of input
    Grads   none
    Shapes  the dimension dim disappears, or all do
    Types   input not bool, out int64
    """
    return _index("argmax", "argmax", input, dim, keepdim)


def argmin(input, dim=None, keepdim=False):
    """The index of the first smallest element, or of the first NaN, along dim or in C order.

    Math    out = argmin over dim of input
    Grads   none
    Shapes  the dimension dim disappears, or all do
    Types   input not bool, out int64
    """
    return _index("argmin", "argmin", input, dim, keepdim)


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
    tensor_of(op, "input", input)
    if isinstance(dim, Tensor) and other is None:  # max(x, y)
        dim, other = None, dim
    if other is not None and dim is not None:
        raise KindError(f"{op}: dim is {dim!r} and other is given, wanted one of them")
    if flag_of(op, "keepdim", keepdim) and dim is None:
        raise KindError(f"{op}: keepdim is {keepdim}, which wants a dim")
    if other is not None:
        return elementwise(input, tensor_of(op, "other", other))
    if dim is None:
        axes = tuple(range(input.ndim))
        _nonempty(op, input, axes)
        return _extreme(input, axes, False, op, True)
    return _first_extreme(op, input, axis_of(op, dim, input.ndim), keepdim)


def _first_extreme(op, input, axis, keepdim):
    """The extremes along an axis and the indices of the first of each."""
    rows = input if input.ndim else reshape(input, (1,))
    _nonempty(op, rows, (axis,))
    indices = _argextreme(rows, axis, f"arg{op}")
    out = Extremes(take_along_dim(rows, indices, axis), indices)
    return out if keepdim and input.ndim else Extremes(*[squeeze(one, axis) for one in out])


@primitive(fixed=("input",))
def _logical(input, axes, keepdim, name):
    """Whether "any" or "all" elements over axes are not 0."""
    return device.reduce(input, name, axes, keepdims=keepdim)


def _logical_along(name, input, dim, keepdim):
    axes = axes_of(name, dim, tensor_of(name, "input", input).ndim)
    return _logical(input, axes, flag_of(name, "keepdim", keepdim), name)


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
