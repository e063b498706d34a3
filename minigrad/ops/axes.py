"""Dimensions as users name them, and what reductions do with them."""

from minigrad_kernels.errors import ShapeError, SubscriptError

from ..core.check import integer_of
from ..core.tensor import tensor_of

__all__ = ["axes_of", "axis_of", "kept_shape", "reduced_axes", "sized_axis"]


def axis_of(op, dim, ndim):
    """A dimension counted from the front; negative ones count from the back."""
    if type(dim) is int and -ndim <= dim < ndim:  # as nearly always
        return dim % ndim
    dim, count = integer_of(op, "dim", dim), max(ndim, 1)  # a scalar takes 0 and -1
    if not -count <= dim < count:
        raise SubscriptError(f"{op}: dim is {dim}, wanted {-count} to {count - 1} for {ndim} dimensions")
    return dim % count


def sized_axis(op, name, input, dim):
    """(a dimension of a Tensor counted from the front, its size)."""
    axis = axis_of(op, dim, tensor_of(op, name, input).ndim)
    if not input.shape:
        raise SubscriptError(f"{op}: {name} has no dimensions, wanted at least one")
    return axis, input.shape[axis]


def axes_of(op, dim, ndim):
    """Distinct dimensions counted from the front; all of them for None."""
    if dim is None:
        return tuple(range(ndim))
    axes = tuple(axis_of(op, one, ndim) for one in (dim if isinstance(dim, tuple | list) else (dim,)))
    if len(set(axes)) != len(axes):
        raise ShapeError(f"{op}: dim is {dim}, which names a dimension twice")
    return axes if ndim else ()


def reduced_axes(op, input, dim):
    """The dimensions of a Tensor that a reduction runs over; () means all of them, as None does."""
    tensor_of(op, "input", input)
    return axes_of(op, None if isinstance(dim, tuple | list) and not dim else dim, input.ndim)


def kept_shape(shape, axes):
    """The shape that a reduction leaves if its dimensions stay with size 1."""
    return tuple([1 if axis in axes else size for axis, size in enumerate(shape)])
