"""Ops that put elements together: cat, stack, pad.

Types   any; out as x
Errors  ValueError if a shape or size does not fit, IndexError for an axis or a subscript out of range
Source  each op is linear and its gradient is its adjoint: <A x, y> = <x, A^T y>
"""

from minigrad_kernels.errors import ShapeError

from ... import device
from ...device import array_module
from ...primitive import primitive
from ..arguments import integers_of, number_of, tensor_of, tensors_of
from ..axes import axis_of
from .select import getitem
from .views import unsqueeze

__all__ = ["cat", "pad", "stack"]


@primitive
def _cat(*tensors, dim):
    """Arrays one after the other along an axis."""
    shape = list(tensors[0].shape)
    shape[dim] = sum(x.shape[dim] for x in tensors)
    out = device.empty(tuple(shape), device.result_dtype(*tensors, op="cat"), device.order_of(tensors[0]))
    array_module(out).concatenate(tensors, axis=dim, out=out)
    return out


def _dx_of_cat(g, tensors_shape, index, dim):
    start = sum(shape[dim] for shape in tensors_shape[:index])
    return g[(slice(None),) * dim + (slice(start, start + tensors_shape[index][dim]),)]


_cat.grads(tensors=_dx_of_cat)


def cat(tensors, dim=0):
    """Tensors one after the other along a dimension.

    Math    out = [x_0, x_1, ...]
    Grads   dx_k = the part of g that came from x_k
    Shapes  equal but for dim, where the sizes add up
    Types   promote
    """
    tensors = tensors_of("cat", tensors)
    first = tensors[0]
    axis = axis_of("cat", dim, first.ndim)
    if not first.ndim:
        raise ShapeError("cat: tensors[0] has no dimensions, wanted at least one; use stack")
    for k, x in enumerate(tensors):
        if x.ndim != first.ndim or any(
            i != axis and a != b for i, (a, b) in enumerate(zip(x.shape, first.shape, strict=True))
        ):
            raise ShapeError(
                f"cat: tensors[{k}] has shape {x.shape}, tensors[0] {first.shape}; they may differ in dim {dim} only"
            )
    return _cat(*tensors, dim=axis)


def stack(tensors, dim=0):
    """Tensors of one shape along a new dimension.

    Math    out[k] = x_k
    Grads   dx_k = g[k]
    Shapes  K times (n_0, ...) -> (..., K, ...)
    """
    tensors = tensors_of("stack", tensors)
    dim = axis_of("stack", dim, tensors[0].ndim + 1)
    if len({x.shape for x in tensors}) > 1:
        raise ShapeError(f"stack: tensors have shapes {[x.shape for x in tensors]}, wanted equal ones")
    return cat([unsqueeze(x, dim) for x in tensors], dim)


@primitive
def _pad(x, widths, value):
    """x inside a border: widths gives (before, after) for each axis."""
    shape = tuple(n + before + after for n, (before, after) in zip(x.shape, widths, strict=True))
    out = device.full(shape, value, x.dtype, device.order_of(x))
    out[_inside(x.shape, widths)] = x
    return out


def _inside(shape, widths):
    return tuple(slice(before, before + n) for n, (before, _) in zip(shape, widths, strict=True))


_pad.grads(x=lambda g, x_shape, widths: getitem(g, _inside(x_shape, widths)))


def pad(x, pad, mode="constant", value=0.0):
    """x inside a border of one value; negative widths cut.

    Math    out = value outside, x inside
    Grads   dx = g inside
    Shapes  pad = (before, after) of the last dimension, then of the one before it, ...
    """
    if mode != "constant":
        raise ShapeError(f"pad: mode is {mode!r}, wanted 'constant'")
    tensor_of("pad", "x", x)
    pad, value = integers_of("pad", "pad", (pad,)), 0 if value is None else number_of("pad", "value", value)
    if not device.is_floating(x.dtype) and not float(value).is_integer():
        raise ShapeError(f"pad: value is {value}, wanted a whole number as x has elements {x.dtype}")
    if len(pad) % 2 or len(pad) > 2 * x.ndim:
        raise ShapeError(f"pad: pad has {len(pad)} widths, wanted a pair for each of at most {x.ndim} dimensions")
    pairs = [(0, 0)] * (x.ndim - len(pad) // 2) + list(zip(pad[0::2], pad[1::2], strict=True))[::-1]
    for n, (before, after) in zip(x.shape, pairs, strict=True):
        if n + min(before, 0) + min(after, 0) < 0:
            raise ShapeError(f"pad: pad {pad} cuts more than there is of x (shape {x.shape})")
    if any(width < 0 for pair in pairs for width in pair):
        cut = [slice(max(-b, 0), n - max(-a, 0)) for n, (b, a) in zip(x.shape, pairs, strict=True)]
        x = getitem(x, tuple(cut))
    return _pad(x, tuple((max(b, 0), max(a, 0)) for b, a in pairs), value)
