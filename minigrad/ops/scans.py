"""Running sums and products, and the product of all elements.

dim     an integer; keepdim leaves it with size 1; dtype is an element type that input is converted to first
Types   out as input; bools and integers of any size become int64; running results are kept in float64 until written
Errors  IndexError for a dimension out of range, TypeError for several and for elements of another kind
Source  Blelloch 1990, "Prefix sums and their applications"
"""

from minigrad_kernels.errors import KindError

from .. import device
from ..core.check import flag_of
from ..core.primitive import primitive
from ..core.tensor import Tensor, tensor_of
from .axes import axis_of
from .elementwise.conversions import precise, typed, wide
from .reduce import along, converted
from .shape import cat, flip, getitem, reshape

__all__ = ["cumprod", "cumsum", "prod"]


def _running(method, x, axis, dtype):
    """The running "cumsum" or "cumprod" of an array."""
    floating = device.is_floating(x.dtype)
    out = device.reduce(x, method, axis, dtype="float64" if floating else dtype)
    return device.cast(out, x.dtype) if floating and out.dtype != x.dtype else out


@primitive
def _cumsum(input, axis, dtype):
    return _running("cumsum", input, axis, dtype)


def _sums_from_the_end(x, axis):
    return flip(_cumsum(flip(x, axis), axis, None), axis)


_cumsum.grads(input=lambda g, axis: _sums_from_the_end(g, axis))


def cumsum(input, dim, *, dtype=None):
    """The running sum along a dimension.

    Math    out_k = input_0 + ... + input_k
    Grads   dinput = flip(cumsum(flip(g, dim), dim), dim), that is dinput_k = g_k + g_(k+1) + ...
    Shapes  out as input
    """
    return _scan("cumsum", _cumsum, input, dim, dtype)


@primitive
def _cumprod(input, axis, dtype):
    return _running("cumprod", input, axis, dtype)


_cumprod.grads(input=precise(lambda g, input, out, axis: _sums_from_the_end(g * out, axis) / input))  # without zeros


@device.there
def _no_zero(x):
    return bool((x.array != 0).all())


def _running_products(x, axis):
    """The product of each beginning of x along an axis, twice as long in each step; nothing is divided by 0."""
    step = 1
    while step < x.shape[axis]:
        x, step = x * _later(x, axis, step), 2 * step
    return x


def _later(x, axis, step):
    """x moved by so many places along an axis, and ones in the free places."""
    ones = device.full((*x.shape[:axis], step, *x.shape[axis + 1 :]), 1, x.dtype, like=x.array)
    return cat([Tensor.made(ones), getitem(x, (slice(None),) * axis + (slice(x.shape[axis] - step),))], axis)


def cumprod(input, dim, *, dtype=None):
    """The running product along a dimension.

    Math    out_k = input_0 * ... * input_k
    Grads   dinput_k = sum over l >= k of g_l * product of all input_m with m <= l but m = k; zeros do no harm
    Shapes  out as input
    """
    return _scan("cumprod", _running_product, input, dim, dtype)


def _running_product(input, axis, dtype):
    if not input.requires_grad or _no_zero(input):
        return _cumprod(input, axis, dtype)
    return _running_products(input, axis)


def _scan(op, function, input, dim, dtype):
    axis = axis_of(op, dim, tensor_of(op, "input", input).ndim)
    input, dtype = converted(input, dtype)
    if dtype.kind == "b":
        raise KindError(f"{op}: dtype is bool, wanted numbers")
    if not input.ndim:
        return reshape(function(reshape(input, (1,)), 0, dtype), ())
    return function(input, axis, dtype)


@primitive
def _prod(input, axis, keepdim, dtype):
    dtype = input.dtype if device.is_floating(input.dtype) else dtype
    return device.reduce(input, "prod", axis, keepdims=keepdim, dtype=dtype)


def _dx_of_prod(g, input, out, axis):
    """The product of all others: out / input, or where there are zeros those before times those behind."""
    g = along(g, input.shape, (axis,))
    if input.shape[axis] == 1:
        return g
    if _no_zero(input):
        return g * along(out, input.shape, (axis,)) / input
    before = _later(_running_products(input, axis), axis, 1)
    behind = flip(_later(_running_products(flip(input, axis), axis), axis, 1), axis)
    return g * before * behind


_prod.grads(input=_dx_of_prod)


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
    input, dtype = converted(input, dtype)
    rows = reshape(input, (-1,)) if dim is None or not input.ndim else input
    return typed(_prod(wide(rows), axis, keepdim and rows is input, dtype), dtype)
