"""Dimensions as users name them."""

import operator

from minigrad_kernels.errors import KindError, ShapeError, SubscriptError

__all__ = ["axes_of", "axis_of"]


def axis_of(op, dim, ndim):
    """A dimension counted from the front; negative ones count from the back."""
    try:
        dim = operator.index(dim)
    except TypeError:
        raise KindError(f"{op}: dim is {dim!r}, wanted an integer") from None
    if not -ndim <= dim < ndim and not (ndim == 0 and dim in (-1, 0)):
        raise SubscriptError(f"{op}: dim is {dim}, wanted {-ndim} to {ndim - 1} for {ndim} dimensions")
    return dim % ndim if ndim else 0


def axes_of(op, dim, ndim):
    """Distinct dimensions counted from the front; all of them for None."""
    if dim is None:
        return tuple(range(ndim))
    axes = tuple(axis_of(op, one, ndim) for one in (dim if isinstance(dim, tuple | list) else (dim,)))
    if len(set(axes)) != len(axes):
        raise ShapeError(f"{op}: dim is {dim}, which names a dimension twice")
    return axes if ndim else ()
