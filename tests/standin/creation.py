"""CuPy's functions that make arrays, send them to the device and copy between arrays."""

import numpy as np

from .arrays import check, dtype_of, fresh, like_views, ndarray, plain, store, wrapped
from .graphs import recorded, refuse
from .machine import current

__all__ = ["FUNCTIONS"]


def _order_of(array, order):
    """The axes in memory, slowest first, for order "K"; else "C" or "F"."""
    order = (order or "K").upper()
    if order == "A" or order == "K" and array._x.flags.forc:
        return "F" if array._x.flags.fnc else "C"
    if order != "K":
        return order
    return sorted(range(array.ndim), key=lambda axis: (-abs(array.strides[axis]), axis))


def empty(shape, dtype=float, order="C"):
    return ndarray(shape, dtype, order=order)


def empty_like(prototype, dtype=None, order="K", subok=None, shape=None):
    if subok is not None:
        raise TypeError("subok is not supported yet")
    if not isinstance(prototype, ndarray):
        raise TypeError(f"Unsupported type {type(prototype)}")
    dtype = prototype.dtype if dtype is None else dtype
    if shape is not None:
        same = np.ndim(np.empty(0)) and len(np.atleast_1d(shape)) == prototype.ndim
        return ndarray(shape, dtype, order=_order_of(prototype, order) if same and prototype._x.flags.forc else "C")
    axes = _order_of(prototype, order)
    if isinstance(axes, str):
        return ndarray(prototype.shape, dtype, order=axes)
    whole = ndarray([prototype.shape[axis] for axis in axes], dtype)
    return wrapped(whole._x.transpose(np.argsort(axes)), whole, owned=True)


def _filled(array, value):
    array.fill(value)
    return array


@recorded
def zeros(shape, dtype=float, order="C"):
    return _filled(empty(shape, dtype, order), 0)


@recorded
def ones(shape, dtype=float, order="C"):
    return _filled(empty(shape, dtype, order), 1)


@recorded
def full(shape, fill_value, dtype=None, order="C"):
    if dtype is None:
        dtype = fill_value.dtype if isinstance(fill_value, ndarray) else np.array(fill_value).dtype
    return _filled(empty(shape, dtype, order), fill_value)


@recorded
def zeros_like(a, dtype=None, order="K", subok=None, shape=None):
    return _filled(empty_like(a, dtype, order, subok, shape), 0)


@recorded
def ones_like(a, dtype=None, order="K", subok=None, shape=None):
    return _filled(empty_like(a, dtype, order, subok, shape), 1)


@recorded
def full_like(a, fill_value, dtype=None, order="K", subok=None, shape=None):
    return _filled(empty_like(a, dtype, order, subok, shape), fill_value)


@recorded
def array(obj, dtype=None, copy=True, order="K", subok=False, ndmin=0, *, blocking=False):
    """An array on the current device: of another device, of the host, or of numbers."""
    if subok:
        raise NotImplementedError
    machine, order = current(), (order or "K").upper()
    if isinstance(obj, ndarray):
        here = obj._memory.device_id in (None, machine.device)
        if not here:
            machine.copied["between devices"] += obj.nbytes
        values = obj._x if dtype is None else obj._x.astype(dtype_of(dtype), copy=False)
        fits = {"C": obj._x.flags.c_contiguous, "F": obj._x.flags.f_contiguous}.get(order, True)
        made = obj if here and not copy and fits and values.dtype == obj.dtype else fresh(values, order)
        return made if made.ndim >= ndmin else made.reshape((1,) * (ndmin - made.ndim) + made.shape)
    if _all_arrays(obj):
        values = np.array(plain(obj), dtype, ndmin=ndmin)
        check("array", *_flat(obj))
        return fresh(values, "F" if order == "F" else "C")
    values = np.asarray(obj, dtype)
    dtype_of(values.dtype)
    refuse()  # it goes by way of pinned memory that others get afterwards
    machine.copied["to device"] += values.nbytes
    if blocking:
        machine.wait("array")
    order = order if order in "CF" else "F" if values.flags.fnc else "C"
    return fresh(np.array(values, ndmin=ndmin, copy=None), order)


def _flat(obj):
    return [part for row in obj for part in _flat(row)] if isinstance(obj, list | tuple) else [obj]


def _all_arrays(obj):
    """Whether a list holds arrays of CuPy alone."""
    parts = _flat(obj)
    return isinstance(obj, list | tuple) and bool(parts) and all(isinstance(part, ndarray) for part in parts)


def asarray(a, dtype=None, order=None, *, copy=None, blocking=False):
    return array(a, dtype, bool(copy), order, blocking=blocking)


def _contiguous(order):
    def function(a, dtype=None):
        if not isinstance(a, ndarray):
            kind = f"{type(a).__module__}.{type(a).__name__}"
            raise TypeError(f"Argument 'a' has incorrect type (expected cupy._core.core._ndarray_base, got {kind})")
        return (a if a.ndim else a.reshape(1)).astype(a.dtype if dtype is None else dtype, order, copy=False)

    return function


def copy(a, order="K"):
    if not isinstance(a, ndarray):
        raise TypeError(f"Unsupported type {type(a)}")
    return array(a, order=order)


def asnumpy(a, stream=None, order="C", out=None, *, blocking=True):
    if isinstance(a, ndarray):
        return a.get(stream, order, out, blocking)
    values = np.asarray(a, order=order)
    if out is None:
        return values
    out[...] = values
    return out


@recorded
def copyto(dst, src, casting="same_kind", where=None):
    """Copy into an array, from one of any device or a number."""
    if isinstance(src, np.ndarray) and src.ndim:
        raise ValueError("non-scalar numpy.ndarray cannot be used for copyto")
    scalar = type(src) in (bool, int, float, complex)
    if not (scalar or np.can_cast(src.dtype, dst.dtype, casting)):
        raise TypeError(f"Cannot cast {src.dtype} to {dst.dtype} in {casting} casting mode")
    if scalar and not np.can_cast(np.result_type(dst.dtype, src), dst.dtype, casting):
        raise TypeError(f"Cannot cast {type(src).__name__} to {dst.dtype} in {casting} casting mode")
    if isinstance(src, ndarray) and src._memory.device_id != dst._memory.device_id and where is None:
        current().copied["between devices"] += src.nbytes
        store(dst, src._x)
        return
    check("copyto", dst, src, where)
    values = np.broadcast_to(np.asarray(plain(src)), dst.shape)
    store(dst, values if where is None else np.where(plain(where), values.astype(dst.dtype), dst._x))


def from_dlpack(array, *, device=None, copy=None):
    """A view on the memory of an array that lies on a device."""
    if not isinstance(array, ndarray):
        raise NotImplementedError(f"stand-in: DLPack from {type(array).__module__}.{type(array).__name__}")
    return array.copy() if copy else wrapped(array._x.view(), array)


def get_array_module(*args):
    from .modules import CUPY

    return CUPY if any(isinstance(argument, ndarray) for argument in args) else np


@recorded
def where(condition, x=None, y=None):
    if (x is None) != (y is None):
        raise ValueError("Must provide both 'x' and 'y' or neither.")
    if x is None:
        current().wait("where")
        return like_views(np.nonzero(condition._x), ())
    if not isinstance(condition, ndarray):
        raise AttributeError(f"{type(condition).__name__!r} object has no attribute 'astype'")
    for value in (x, y):
        if isinstance(value, np.ndarray) or not isinstance(value, ndarray | np.generic | int | float | complex):
            raise TypeError(f"Unsupported type {type(value)}")
    check("where", condition, x, y)
    return fresh(np.where(condition._x, plain(x), plain(y)))


FUNCTIONS = {
    function.__name__: function
    for function in (
        array, asarray, asnumpy, copy, copyto, empty, empty_like, from_dlpack, full, full_like, get_array_module, ones,
        ones_like, where, zeros, zeros_like,
    )
}  # fmt: skip
FUNCTIONS |= {"asanyarray": asarray, "ascontiguousarray": _contiguous("C"), "asfortranarray": _contiguous("F")}
