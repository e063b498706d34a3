"""Subscripts as CuPy has them: lists and NumPy's arrays are sent to the device, integers beyond the end wrap around."""

import operator

import numpy as np

from .arrays import check, fresh, ndarray, plain, store, wrapped
from .graphs import recorded, refuse
from .machine import current, written

__all__ = ["get", "put"]


def _sent(part):
    """One part of a subscript, arrays on the device."""
    if part is None or part is Ellipsis or isinstance(part, slice | ndarray):
        return part
    if np.isscalar(part) and not isinstance(part, bool | np.bool_):
        return operator.index(part)
    host = np.asarray(part)
    if host.size == 0 and isinstance(part, list | tuple):
        host = host.astype(np.int32)
    if host.dtype.kind not in "biu":
        raise IndexError(
            "only integers, slices (`:`), ellipsis (`...`),numpy.newaxis (`None`) and integer or boolean arrays are "
            "valid indices"
        )
    refuse()
    current().copied["to device"] += host.nbytes
    return fresh(host)


def _axes(part):
    """How many axes a part of a subscript takes."""
    if part is None or part is Ellipsis:
        return 0
    return part.ndim if isinstance(part, ndarray) and part.dtype == bool else 1


def _numpys(array, key):
    """(the subscript for NumPy, whether it has arrays)"""
    parts = [_sent(part) for part in (key if isinstance(key, tuple) else (key,))]
    taken, axis, found = sum(map(_axes, parts)), 0, []
    if taken > array.ndim:
        raise IndexError(f"too many indices for array: array is {array.ndim}-dimensional, but {taken} were indexed")
    for part in parts:
        if isinstance(part, ndarray):
            if part.dtype.kind not in "biu":
                raise IndexError(
                    f"arrays used as indices must be of integer or boolean type. (actual: {part.dtype.type})"
                )
            check("subscript", part)
            if part.dtype == bool:
                current().wait("boolean subscript")
                found.append(part._x)
            else:
                size = array.shape[axis]
                found.append(part._x % size if size else part._x)
        elif isinstance(part, int):
            if not -array.shape[axis] <= part < array.shape[axis]:
                raise IndexError(f"Index {part} is out of bounds for axis {axis} with size {array.shape[axis]}")
            found.append(part)
        else:
            found.append(part)
        axis += array.ndim - taken if part is Ellipsis else _axes(part)
    return tuple(found), any(isinstance(part, ndarray) for part in parts)


@recorded
def get(array, key):
    subscript, advanced = _numpys(array, key)
    if advanced:
        check("getitem", array)
        return fresh(array._x[subscript])
    return wrapped(array._x[_as_view(subscript)], array)


def _as_view(subscript):
    """With an ellipsis, so that NumPy gives an array even of a single element."""
    return subscript if any(part is Ellipsis for part in subscript) else (*subscript, ...)


@recorded
def put(array, key, value):
    subscript, advanced = _numpys(array, key)
    if not advanced:
        place = wrapped(array._x[_as_view(subscript)], array)
        if isinstance(value, ndarray):
            check("setitem", value, place)
            store(place, value._x.astype(place.dtype, copy=False))
        else:
            place.fill(value)
        return
    check("setitem", array, value)
    if not isinstance(value, ndarray):
        refuse()
        value = np.asarray(value, dtype=array.dtype)
        current().copied["to device"] += value.nbytes
    array._x[subscript] = plain(value).astype(array.dtype, copy=False)
    written(array._x, subscript)
