"""Ops that look at the same elements in another shape or order.

Types   any; out as x
Errors  ValueError if a shape or size does not fit, IndexError for an axis or a subscript out of range
Source  each op is linear and its gradient is its adjoint: <A x, y> = <x, A^T y>
"""

import math

from minigrad_kernels.errors import ShapeError

from ... import device
from ...device import array_module
from ...primitive import primitive
from ..arguments import integers_of, tensor_of
from ..axes import axes_of, axis_of

__all__ = ["expand", "flatten", "permute", "reshape", "squeeze", "transpose", "unsqueeze"]


@primitive(view="x")
def _reshape(x, shape):
    """The same elements, in C order, in another shape."""
    return device.contiguous(x).reshape(shape)


_reshape.grads(x=lambda g, x_shape: _reshape(g, x_shape))


def reshape(x, shape):
    """The same elements, in C order, in another shape.

    Math    out.flat[i] = x.flat[i]
    Grads   dx = g reshaped back
    Shapes  any with as many elements; one size may be -1 and follows from the others
    """
    tensor_of("reshape", "x", x)
    shape = integers_of("reshape", "shape", (shape,))
    known, count = math.prod(n for n in shape if n != -1), math.prod(x.shape)
    wrong = any(n < -1 for n in shape) or shape.count(-1) > 1
    if not wrong and -1 in shape:
        wrong = known == 0 or count % known != 0
        shape = shape if wrong else tuple(count // known if n == -1 else n for n in shape)
    if wrong or math.prod(shape) != count:
        raise ShapeError(f"reshape: shape {shape} does not hold the {count} elements of x (shape {x.shape})")
    return x if shape == x.shape else _reshape(x, shape)


def flatten(x, start_dim=0, end_dim=-1):
    """The dimensions from start_dim to end_dim made into one.

    Math    out.flat[i] = x.flat[i]
    Grads   dx = g reshaped back
    Shapes  (n_0, ..., n_d) -> (..., n_start * ... * n_end, ...)
    """
    ndim = tensor_of("flatten", "x", x).ndim
    start, end = axis_of("flatten", start_dim, ndim), axis_of("flatten", end_dim, ndim)
    if not x.shape:
        return reshape(x, (1,))
    if start > end:
        raise ShapeError(f"flatten: start_dim {start_dim} comes after end_dim {end_dim}")
    return reshape(x, (*x.shape[:start], math.prod(x.shape[start : end + 1]), *x.shape[end + 1 :]))


def squeeze(x, dim=None):
    """Without the dimensions of size 1, or without those of dim that have size 1.

    Math    out.flat[i] = x.flat[i]
    Grads   dx = g reshaped back
    Shapes  sizes of 1 disappear
    """
    axes = axes_of("squeeze", dim, tensor_of("squeeze", "x", x).ndim)
    return reshape(x, tuple(n for i, n in enumerate(x.shape) if n != 1 or i not in axes))


def unsqueeze(x, dim):
    """With a new dimension of size 1 before position dim.

    Math    out.flat[i] = x.flat[i]
    Grads   dx = g reshaped back
    Shapes  (..., n_dim, ...) -> (..., 1, n_dim, ...)
    """
    axis = axis_of("unsqueeze", dim, tensor_of("unsqueeze", "x", x).ndim + 1)
    return reshape(x, (*x.shape[:axis], 1, *x.shape[axis:]))


@primitive(view="x")
def _permute(x, dims):
    """The axes in another order."""
    return x.transpose(dims)


_permute.grads(x=lambda g, dims: _permute(g, tuple(sorted(range(len(dims)), key=dims.__getitem__))))


def permute(x, dims):
    """The axes in another order.

    Math    out[i_dims[0], i_dims[1], ...] = x[i_0, i_1, ...]
    Grads   dx = g with the axes put back
    Shapes  out.shape[k] = x.shape[dims[k]]
    """
    dims = integers_of("permute", "dims", (dims,))
    axes = axes_of("permute", dims, tensor_of("permute", "x", x).ndim)
    if len(axes) != x.ndim:
        raise ShapeError(f"permute: dims {dims} name {len(axes)} dimensions, x has {x.ndim} (shape {x.shape})")
    return _permute(x, axes)


def transpose(x, dim0, dim1):
    """Two axes exchanged.

    Math    out[..., j, ..., i, ...] = x[..., i, ..., j, ...]
    Grads   dx = g with the axes put back
    Shapes  sizes dim0 and dim1 exchanged
    """
    tensor_of("transpose", "x", x)
    dims, a, b = list(range(x.ndim)), axis_of("transpose", dim0, x.ndim), axis_of("transpose", dim1, x.ndim)
    if dims:
        dims[a], dims[b] = dims[b], dims[a]
    return _permute(x, tuple(dims))


@primitive(view="x")
def _expand(x, shape):
    """x repeated along axes of size 1, without copying."""
    return array_module(x).broadcast_to(x, shape)


_expand.grads(x=lambda g: g)  # the engine sums over what was repeated


def expand(x, shape):
    """x repeated along axes of size 1 and along new leading axes, without copying.

    Math    out[i] = x[i, with 0 along the repeated axes]
    Grads   dx = sum of g over the repeated axes
    Shapes  x broadcasts to shape; a size of -1 keeps that of x
    """
    tensor_of("expand", "x", x)
    shape = integers_of("expand", "shape", (shape,))
    extra = len(shape) - x.ndim
    shape = tuple(x.shape[i - extra] if n == -1 and i >= extra else n for i, n in enumerate(shape))
    if (
        extra < 0
        or any(n < 0 for n in shape)
        or any(m not in (1, n) for m, n in zip(x.shape, shape[extra:], strict=True))
    ):
        raise ShapeError(f"expand: x has shape {x.shape}, which does not broadcast to {shape}")
    return _expand(x, shape)
