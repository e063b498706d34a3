"""Ops that pick elements: subscripts, and one element along a dimension.

Types   any; out as x
Errors  ValueError if a shape or size does not fit, IndexError for an axis or a subscript out of range
Source  each op is linear and its gradient is its adjoint: <A x, y> = <x, A^T y>
"""

from minigrad_kernels.errors import KindError, ShapeError, SubscriptError

from ... import device
from ...device import array_module
from ...primitive import primitive
from ...tensor import Tensor
from ..axes import axis_of

__all__ = ["getitem", "put", "put_along_dim", "take_along_dim"]


@primitive(view="x")
def getitem(x, key):
    """The elements that a subscript picks: integers, slices, None, Ellipsis, integer and bool arrays.

    Math    out = x[key]
    Grads   dx = g at the picked places (added where one was picked twice), 0 elsewhere
    Shapes  as NumPy's indexing
    """
    try:
        return array_module(x).asarray(x[key])
    except IndexError as error:
        raise SubscriptError(f"getitem: {error} (x has shape {x.shape})") from None


getitem.grads(x=lambda g, key, x_shape: put(g, key, x_shape))


@primitive
def put(x, key, shape):
    """x added into zeros of this shape at the places that a subscript picks: the adjoint of getitem.

    Math    out[key] += x
    Grads   dx = g[key]
    Shapes  x as zeros(shape)[key]
    """
    out = device.zeros(shape, x.dtype)
    parts = key if isinstance(key, tuple) else (key,)
    if all(part is None or part is Ellipsis or isinstance(part, int | slice) for part in parts):
        out[key] = x
    else:
        array_module(x).add.at(out, key, x)
    return out


put.grads(x=lambda g, key: getitem(g, key))


def take_along_dim(x, indices, dim):
    """One element along a dimension for each index.

    Math    out[..., k, ...] = x[..., indices[..., k, ...], ...]
    Grads   dx = g added at the picked places
    Shapes  indices as x but for dim; out as indices
    Types   indices integer
    """
    axis = axis_of("take_along_dim", dim, x.ndim)
    return _take(x, _checked("take_along_dim", indices, x.shape, axis), axis)


def _checked(op, indices, shape, axis):
    """Indices as a Tensor of int64 within range, of the shape but for one axis."""
    array = indices.data if isinstance(indices, Tensor) else device.asarray(indices)
    if array.dtype.kind not in "iu":
        raise KindError(f"{op}: indices have elements {array.dtype}, wanted integers")
    if array.ndim != len(shape) or any(
        i != axis and a != b for i, (a, b) in enumerate(zip(array.shape, shape, strict=True))
    ):
        raise ShapeError(f"{op}: indices have shape {array.shape}, wanted {shape} but for dim {axis}")
    if array.size and not 0 <= int(array.min()) <= int(array.max()) < shape[axis]:
        raise SubscriptError(f"{op}: indices run from {array.min()} to {array.max()}, wanted 0 to {shape[axis] - 1}")
    return Tensor.made(array)


@primitive(fixed=("indices",))
def _take(x, indices, dim):
    return array_module(x).take_along_axis(x, indices, dim)


_take.grads(x=lambda g, indices, x_shape, dim: put_along_dim(g, indices, x_shape, dim))


@primitive(fixed=("indices",))
def put_along_dim(x, indices, shape, dim):
    """x added into zeros of this shape along a dimension: the adjoint of take_along_dim.

    Math    out[..., indices[..., k, ...], ...] += x[..., k, ...]
    Grads   dx[..., k, ...] = g[..., indices[..., k, ...], ...]
    Shapes  x and indices alike
    """
    module = array_module(x)
    out = device.zeros(shape, x.dtype)
    places = list(module.indices(indices.shape, sparse=True))
    places[dim] = indices
    module.add.at(out, tuple(places), x)
    return out


put_along_dim.grads(x=lambda g, indices, dim: _take(g, indices, dim))
