"""CuPy's ufuncs, and the functions that make arrays, send them to the device and copy between arrays."""

import numpy as np

from .arrays import SCALARS, TYPES, check, derived, dtype_of, fresh, like_views, ndarray, plain, used, wrapped
from .graphs import recorded, refuse
from .machine import current, written
from .names import known

__all__ = ["CUPY_UFUNCS", "FUNCTIONS", "matmul"]


class ufunc:
    """One elementwise function."""

    def __init__(self, name):
        self.__name__, self._numpys = name, getattr(np, name)

    @recorded
    def __call__(self, *arguments, out=None, dtype=None, casting="same_kind", **others):
        if others:
            raise TypeError(f"Wrong arguments {others}")
        arrays = [value for value in (*arguments, out) if isinstance(value, ndarray)]
        for value in arguments:
            if not isinstance(value, ndarray | SCALARS):
                raise TypeError(f"Unsupported type {type(value)}")
        if out is not None and not isinstance(out, ndarray):
            raise TypeError("Output arguments type must be cupy.ndarray")
        check(self.__name__, *arrays)
        if any(array.dtype.char not in TYPES for array in arrays):
            raise TypeError(f"Wrong type ({[array.dtype for array in arrays]}) of arguments for {self.__name__}")
        with np.errstate(all="ignore"):
            result = self._numpys(*map(plain, arguments), out=plain(out), dtype=dtype, casting=casting)
        if out is not None:
            written(out._x)
        return like_views(result, arrays)

    @recorded
    def at(self, a, indices, b):
        check(f"{self.__name__}.at", a, indices, b)
        self._numpys.at(a._x, plain(indices), plain(b))
        written(a._x)


ufunc.__module__ = "cupy._core._kernel"
CUPY_UFUNCS = {
    name: ufunc(name)
    for name, told in known()["cupy"].items()
    if isinstance(told, dict) and "inputs" in told and isinstance(getattr(np, name, None), np.ufunc)
}


@recorded
def matmul(a, b, out=None):
    """The product of matrices, by cuBLAS."""
    for position, operand in zip("ab", (a, b), strict=True):
        if not isinstance(operand, ndarray):
            kind = f"{type(operand).__module__}.{type(operand).__name__}"
            raise TypeError(
                f"Argument '{position}' has incorrect type (expected cupy._core.core._ndarray_base, got {kind})"
            )
    check("matmul", a, b, out)
    used("matmul")
    with np.errstate(all="ignore"):
        result = np.matmul(a._x, b._x, out=plain(out))
    if out is not None:
        written(out._x)
    return like_views(result, [] if out is None else [out])


# ---- arrays that are made --------------------------------------------------------------------------------------------


def empty(shape, dtype=float, order="C"):
    return ndarray(shape, dtype, order=order)


def empty_like(prototype, dtype=None, order="K", subok=None, shape=None):
    if subok is not None or not isinstance(prototype, ndarray):
        raise TypeError(f"Unsupported type {type(prototype)}")
    like = np.empty_like(prototype._x, dtype, order, subok=False, shape=shape)
    found = ndarray(like.nbytes, np.uint8)
    return ndarray(like.shape, dtype_of(like.dtype), found.data, like.strides)


def _filled(make, value):
    @recorded
    def function(first, *more, **options):
        made = make(first, *more, **options)
        made.fill(value)
        return made

    return function


@recorded
def full(shape, fill_value, dtype=None, order="C"):
    made = empty(shape, np.asarray(plain(fill_value)).dtype if dtype is None else dtype, order)
    made.fill(fill_value)
    return made


def array(obj, dtype=None, copy=True, order="K", subok=False, ndmin=0, *, blocking=False):
    """An array on the current device: of another device, of the host, or of numbers."""
    machine, order = current(), order or "K"
    if isinstance(obj, ndarray):
        here, flags = obj._memory.device_id in (None, machine.device), obj.flags
        fits = {"C": flags.c_contiguous, "F": flags.f_contiguous}.get(order, True)
        if here and not copy and fits and dtype in (None, obj.dtype):
            return obj
        if not here:
            machine.copied["between devices"] += obj.nbytes
        return _copied(obj, obj.dtype if dtype is None else dtype_of(dtype), order)
    values = np.array(obj, dtype, ndmin=ndmin, copy=None)
    dtype_of(values.dtype)
    refuse()  # it goes by way of pinned memory that others get afterwards
    machine.copied["to device"] += values.nbytes
    if blocking:
        machine.wait("array")
    return fresh(values, order if order in "CF" else "F" if values.flags.fnc else "C")


@recorded
def _copied(array, dtype, order):
    return fresh(array._x.astype(dtype, copy=False), order)


def asarray(a, dtype=None, order=None, *, copy=None, blocking=False):
    return array(a, dtype, bool(copy), order, blocking=blocking)


def ascontiguousarray(a, dtype=None):
    if not isinstance(a, ndarray):
        raise TypeError(f"Argument 'a' has incorrect type (expected cupy._core.core._ndarray_base, got {type(a)})")
    return (a if a.ndim else a.reshape(1)).astype(a.dtype if dtype is None else dtype, "C", copy=False)


@recorded
def copyto(dst, src, casting="same_kind", where=None):
    """Copy into an array, from one of any device or a number."""
    if isinstance(src, np.ndarray) and src.ndim:
        raise ValueError("non-scalar numpy.ndarray cannot be used for copyto")
    if isinstance(src, ndarray) and src._memory.device_id != dst._memory.device_id and where is None:
        current().copied["between devices"] += src.nbytes
    else:
        check("copyto", dst, src, where)
    np.copyto(dst._x, plain(src), casting, where=True if where is None else plain(where))
    written(dst._x)


def from_dlpack(array, *, device=None, copy=None):
    """A view on the memory of an array that lies on a device."""
    if not isinstance(array, ndarray):
        raise NotImplementedError(f"stand-in: DLPack from {type(array).__module__}.{type(array).__name__}")
    return wrapped(array._x.view(), array)


@recorded
def where(condition, x, y):
    if not isinstance(condition, ndarray):
        raise AttributeError(f"{type(condition).__name__!r} object has no attribute 'astype'")
    for value in (x, y):
        if not isinstance(value, ndarray | SCALARS):
            raise TypeError(f"Unsupported type {type(value)}")
    check("where", condition, x, y)
    return fresh(np.where(condition._x, plain(x), plain(y)))


FUNCTIONS = {
    function.__name__: function
    for function in (
        array, asarray, ascontiguousarray, copyto, empty, empty_like, from_dlpack, full, matmul, where,
    )
}  # fmt: skip
FUNCTIONS |= {"zeros": _filled(empty, 0), "zeros_like": _filled(empty_like, 0), "ones": _filled(empty, 1)}


def find(name):
    """CuPy's function or value of a name: None if the stand-in has nothing for it."""
    told, numpys = known()["cupy"][name], getattr(np, name, None)
    if isinstance(told, str) and callable(numpys):
        return derived(name, numpys, told)
    return numpys if isinstance(numpys, type | float) else None
