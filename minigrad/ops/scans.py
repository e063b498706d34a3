"""Running sums and products, and the product of all elements.

dim     an integer; keepdim leaves it with size 1; dtype is an element type that input is converted to first
Types   out as input; bools and integers of any size become int64; running sums are kept in float64 until written
Errors  IndexError for a dimension out of range, TypeError for several and for elements of another kind
Source  Blelloch 1990, "Prefix sums and their applications"
"""

from minigrad_kernels.errors import KindError

from .. import device
from ..core.check import axis_of, flag_of
from ..core.primitive import primitive
from ..core.tensor import tensor_of
from .autocast import casting, composed
from .reduce import converted, sum
from .shape import cat, clone, flip, reshape, squeeze
from .shape.arrange import part

__all__ = ["cumprod", "cumsum", "prod"]


@casting("float32")
@primitive
def _cumsum(input, axis):
    if not device.is_floating(input.dtype):
        return device.reduce(input, "cumsum", axis, dtype=input.dtype)
    return device.cast(device.reduce(input, "cumsum", axis, dtype="float64"), input.dtype)


_cumsum.grads(input=lambda g, axis: flip(_cumsum(flip(g, axis), axis), axis))


def cumsum(input, dim, *, dtype=None):
    """The running sum along a dimension.

    Math    out_k = input_0 + ... + input_k
    Grads   dinput = flip(cumsum(flip(g, dim), dim), dim), that is dinput_k = g_k + g_(k+1) + ...
    Shapes  out as input
    """
    return _scan("cumsum", _cumsum, input, dim, dtype)


def _cumprod(x, axis):
    """The product of each beginning, twice as long in each step; nothing is divided by 0."""
    x, step = clone(x), 1
    while step < x.shape[axis]:
        start, rest = part(x, axis, 0, step), part(x, axis, step, x.shape[axis])
        x, step = cat([start, rest * part(x, axis, 0, rest.shape[axis])], axis), 2 * step
    return x


@composed
def cumprod(input, dim, *, dtype=None):
    """The running product along a dimension.

    Math    out_k = input_0 * ... * input_k
    Grads   dinput_k = sum over l >= k of g_l * product of all input_m with m <= l but m = k; zeros do no harm
    Shapes  out as input
    """
    return _scan("cumprod", _cumprod, input, dim, dtype)


def _scan(op, function, input, dim, dtype):
    axis = axis_of(op, dim, tensor_of(op, "input", input).ndim)
    input = converted(input, dtype)
    return reshape(function(input if input.ndim else reshape(input, (1,)), axis), input.shape)


def _product(x, axis):
    """The product along an axis, which keeps size 1, by halves: gradients are those of mul, so zeros do no harm."""
    if x.shape[axis] < 2:
        return clone(x) if x.shape[axis] else 1 + sum(x, axis, True)
    while (size := x.shape[axis]) > 1:
        half = size // 2
        product = part(x, axis, 0, half) * part(x, axis, half, half)
        x = cat([product, part(x, axis, 2 * half, 1)], axis) if size % 2 else product
    return x


@composed
def prod(input, dim=None, keepdim=False, *, dtype=None):
    """Product of all elements, or of those along one dimension.

    Math    out = product over dim of input
    Grads   dinput_k = g * product of all input_l but l = k; zeros do no harm
    Shapes  the dimension dim disappears; without dim, all do
    """
    tensor_of("prod", "input", input)
    keepdim, axis = flag_of("prod", "keepdim", keepdim), 0 if dim is None else axis_of("prod", dim, input.ndim)
    if keepdim and dim is None:
        raise KindError("prod: keepdim is True, which wants a dim")
    input = converted(input, dtype)
    rows = reshape(input, (-1,)) if dim is None or not input.ndim else input
    out = _product(rows, axis)
    return out if keepdim and rows is input else squeeze(out, axis)
