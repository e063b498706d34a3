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
from ..arguments import array_of, shape_of, tensor_of
from ..axes import axis_of

__all__ = ["getitem", "put_along_dim", "take_along_dim"]


@primitive(view="x")
def _getitem(x, key):
    """x[key] under NumPy's rules."""
    try:
        return array_module(x).asarray(x[key])
    except (IndexError, ValueError) as error:
        raise SubscriptError(f"getitem: {error} (x has shape {x.shape})") from None
    except TypeError as error:
        raise KindError(f"getitem: {error} (x has shape {x.shape})") from None


_getitem.grads(x=lambda g, key, x_shape: put(g, key, x_shape))


def getitem(x, key):
    """The elements that a subscript picks: integers, slices, None, Ellipsis, integer and bool arrays.

    Math    out = x[key]
    Grads   dx = g at the picked places (added where one was picked twice), 0 elsewhere
    Shapes  as NumPy's indexing
    """
    return _getitem(tensor_of("getitem", "x", x), key)


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


put.grads(x=lambda g, key: _getitem(g, key))


def take_along_dim(x, indices, dim):
    """One element along a dimension for each index.

    Math    out[..., k, ...] = x[..., indices[..., k, ...], ...]
    Grads   dx = g added at the picked places
    Shapes  indices as x but for dim; out as indices
    Types   indices integer
    """
    axis = axis_of("take_along_dim", dim, tensor_of("take_along_dim", "x", x).ndim)
    return _take(x, _checked("take_along_dim", indices, x.shape, axis), axis)


def _checked(op, indices, shape, axis):
    """Indices as a Tensor of integers within range, of the shape but for one axis."""
    if not shape:
        raise ShapeError(f"{op}: there are no dimensions to index along, wanted at least one")
    indices = indices if isinstance(indices, Tensor) else Tensor.made(array_of(op, "indices", indices))
    array = indices.data
    if array.dtype.kind not in "iu":
        raise KindError(f"{op}: indices have elements {array.dtype}, wanted integers")
    if array.ndim != len(shape) or any(
        i != axis and a != b for i, (a, b) in enumerate(zip(array.shape, shape, strict=True))
    ):
        raise ShapeError(f"{op}: indices have shape {array.shape}, wanted {shape} but for dim {axis}")
    if array.size and not 0 <= int(array.min()) <= int(array.max()) < shape[axis]:
        raise SubscriptError(f"{op}: indices run from {array.min()} to {array.max()}, wanted 0 to {shape[axis] - 1}")
    return indices


@primitive(fixed=("indices",))
def _take(x, indices, dim):
    return array_module(x).take_along_axis(x, indices, dim)


_take.grads(x=lambda g, indices, x_shape, dim: _put(g, indices, x_shape, dim))


@primitive(fixed=("indices",))
def _put(x, indices, shape, dim):
    module = array_module(x)
    out = device.zeros(shape, x.dtype)
    places = list(module.indices(indices.shape, sparse=True))
    places[dim] = indices
    module.add.at(out, tuple(places), x)
    return out


_put.grads(x=lambda g, indices, dim: _take(g, indices, dim))


def put_along_dim(x, indices, shape, dim):
    """x added into zeros of this shape along a dimension: the adjoint of take_along_dim.

    Math    out[..., indices[..., k, ...], ...] += x[..., k, ...]
    Grads   dx[..., k, ...] = g[..., indices[..., k, ...], ...]
    Shapes  x and indices alike, and as shape but for dim
    Types   indices integer
    """
    tensor_of("put_along_dim", "x", x)
    shape = shape_of("put_along_dim", "shape", (shape,))
    axis = axis_of("put_along_dim", dim, len(shape))
    indices = _checked("put_along_dim", indices, shape, axis)
    if indices.shape != x.shape:
        raise ShapeError(f"put_along_dim: indices have shape {indices.shape}, x {x.shape}; wanted equal shapes")
    return _put(x, indices, shape, axis)
