"""Running sums and products, and the product of all elements.

dim     an integer; keepdim leaves it with size 1; dtype is an element type that input is converted to first
Types   out as input; bools and integers of any size become int64; running results are kept in float64 until written
Errors  IndexError for a dimension out of range, TypeError for several and for elements of another kind
Source  Blelloch 1990, "Prefix sums and their applications": products and their gradients as linear recurrences
"""

from minigrad_kernels.errors import KindError

from ... import device
from ...device import elementwise
from ...primitive import primitive
from ..arguments import flag_of, tensor_of
from ..axes import axis_of
from ..elementwise.conversions import precise, typed, wide
from ..shape import reshape
from .sums import along, converted

__all__ = ["cumprod", "cumsum", "prod"]


def _part(array, axis, *bounds):
    """What slice(*bounds) picks along an axis."""
    return array[(slice(None),) * axis + (slice(*bounds),)]


def _running(method, x, axis, reverse, dtype):
    """The running "cumsum" or "cumprod" of an array, from its last element on if reverse."""
    x = _part(x, axis, None, None, -1) if reverse else x
    floating = device.is_floating(x.dtype)
    out = device.reduce(x, method, axis, dtype="float64" if floating else dtype)
    out = device.cast(out, x.dtype) if floating and out.dtype != x.dtype else out
    return _part(out, axis, None, None, -1) if reverse else out


@primitive
def _cumsum(input, axis, reverse, dtype):
    return _running("cumsum", input, axis, reverse, dtype)


_cumsum.grads(input=lambda g, axis, reverse: _cumsum(g, axis, not reverse, None))


def cumsum(input, dim, *, dtype=None):
    """The running sum along a dimension.

    Math    out_k = input_0 + ... + input_k
    Grads   dinput = flip(cumsum(flip(g, dim), dim), dim), that is dinput_k = g_k + g_(k+1) + ...
    Shapes  out as input
    """
    return _scan("cumsum", _cumsum, input, dim, dtype)


@primitive
def _cumprod(input, axis, reverse, dtype):
    return _running("cumprod", input, axis, reverse, dtype)


def _dx_of_cumprod(g, input, out, axis, reverse):
    """The product of all before k, times S_k = g_k + input_(k+1) S_(k+1)."""
    if input.shape[axis] == 1:
        return g
    if _no_zero(input):
        return _cumsum(g * out, axis, not reverse, None) / input
    sums = _recurrence(g, _shift(input, axis, not reverse, 0.0), axis, not reverse)
    return sums * _shift(out, axis, reverse, 1.0)


_cumprod.grads(input=precise(_dx_of_cumprod))


@device.there
def _no_zero(x):
    return bool((x.data != 0).all())


@primitive
def _recurrence(input, factor, axis, reverse):
    """out_k = input_k + factor_k out_(k-1); of out_(k+1) if reverse."""
    out = device.copy(input)
    steps, last = range(input.shape[axis]), None
    for k in reversed(steps) if reverse else steps:
        here = _part(out, axis, k, k + 1)
        if last is not None:
            elementwise("add", here, elementwise("mul", _part(factor, axis, k, k + 1), last), out=here)
        last = here
    return out


def _dinput_of_recurrence(g, factor, axis, reverse):
    return _recurrence(g, _shift(factor, axis, not reverse, 0.0), axis, not reverse)


_recurrence.grads(
    input=_dinput_of_recurrence,
    factor=lambda g, factor, out, axis, reverse:
        _dinput_of_recurrence(g, factor, axis, reverse) * _shift(out, axis, reverse, 0.0),
)  # fmt: skip


@primitive
def _shift(input, axis, reverse, value):
    """The elements one place further along an axis, one place back if reverse, and value in the free place."""
    out = device.full(input.shape, value, input.dtype, like=input)
    behind, ahead = (None, -1), (1, None)
    into, of = (behind, ahead) if reverse else (ahead, behind)
    _part(out, axis, *into)[...] = _part(input, axis, *of)
    return out


_shift.grads(input=lambda g, axis, reverse: _shift(g, axis, not reverse, 0.0))


def cumprod(input, dim, *, dtype=None):
    """The running product along a dimension.

    Math    out_k = input_0 * ... * input_k
    Grads   dinput_k = sum over l >= k of g_l * product of all input_m with m <= l but m = k; zeros do no harm
    Shapes  out as input
    """
    return _scan("cumprod", _cumprod, input, dim, dtype)


def _scan(op, function, input, dim, dtype):
    axis = axis_of(op, dim, tensor_of(op, "input", input).ndim)
    input, dtype = converted(op, input, dtype)
    if dtype.kind == "b":
        raise KindError(f"{op}: dtype is bool, wanted numbers")
    if not input.ndim:
        return reshape(function(reshape(input, (1,)), 0, False, dtype), ())
    return function(input, axis, False, dtype)


@primitive
def _prod(input, axis, keepdim, dtype):
    dtype = input.dtype if device.is_floating(input.dtype) else dtype
    return device.reduce(input, "prod", axis, keepdims=keepdim, dtype=dtype)


def _dx_of_prod(g, input, out, axis):
    """The product of all others: out / input, or those before times those behind."""
    g = along(g, input.shape, (axis,))
    if input.shape[axis] == 1:
        return g
    if _no_zero(input):
        return g * along(out, input.shape, (axis,)) / input
    before, behind = (_shift(_cumprod(input, axis, back, None), axis, back, 1.0) for back in (False, True))
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
    input, dtype = converted("prod", input, dtype)
    rows = reshape(input, (-1,)) if dim is None or not input.ndim else input
    return typed(_prod(wide(rows), axis, keepdim and rows is input, dtype), dtype)
