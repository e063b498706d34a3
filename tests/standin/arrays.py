"""cupy.ndarray: memory of the interpreter behind CuPy's face, as strict as the real one.

What NumPy has and CuPy has not is not there; what CuPy does otherwise (C order of results, subscripts that wrap, 0-d
results that stay arrays) is done as CuPy does it.
"""

import operator

import numpy as np

from .flags import Flags
from .graphs import noted, recorded, refuse
from .machine import current, mark, written
from .memory import MemoryPointer, alloc

__all__ = ["check", "dtype_of", "fresh", "like_views", "ndarray", "plain", "store", "wrapped"]

TYPES = "?bhilqBHILQefdFD"
IMPLICIT = (
    "Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct a NumPy array explicitly."
)


def dtype_of(dtype):
    """A dtype that CuPy has."""
    dtype = np.dtype(float if dtype is None else dtype)
    if dtype.char not in TYPES and dtype.name != "bfloat16":  # which CuPy knows where ml_dtypes is
        raise ValueError(f"Unsupported dtype {dtype}")
    return dtype


class ndarray:
    """Shape, dtype and strides of NumPy's view `_x` on a block of memory; base: the array that it is a view of."""

    __slots__ = ("__weakref__", "_memory", "_x", "base")
    __array_priority__ = 100

    def __init__(self, shape, dtype=float, memptr=None, strides=None, order="C"):
        shape, dtype = (shape,) if isinstance(shape, int | np.integer) else tuple(shape), dtype_of(dtype)
        if any(size < 0 for size in shape):
            raise ValueError("Negative dimensions are not allowed")
        if order not in (None, "C", "F", "c", "f"):
            raise ValueError(f"order not understood. order={order}")
        if memptr is None and strides is not None:
            raise ValueError("memptr is required if strides is given.")
        memptr = alloc(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize) if memptr is None else memptr
        self._memory, start = memptr.mem, memptr._offset
        strides = (0,) * len(shape) if strides is None and 0 in shape else strides
        self._x = np.ndarray(shape, dtype, self._memory.owner, start, strides, (order or "C").upper())
        self.base = None

    # ---- what it is ------------------------------------------------------------------------------------------------

    shape = property(lambda self: self._x.shape)
    dtype = property(lambda self: self._x.dtype)
    strides = property(lambda self: self._x.strides)
    ndim = property(lambda self: self._x.ndim)
    size = property(lambda self: self._x.size)
    itemsize = property(lambda self: self._x.itemsize)
    nbytes = property(lambda self: self._x.nbytes)
    flags = property(Flags)
    device = property(lambda self: self._memory.device)

    @shape.setter
    def shape(self, shape):
        try:
            self._x = self._x.view()
            self._x.shape = shape
        except AttributeError as error:
            raise AttributeError("incompatible shape") from error

    @property
    def data(self):
        owner = self._memory.owner
        start = self._x.__array_interface__["data"][0] - owner.__array_interface__["data"][0] if self.size else 0
        return MemoryPointer(self._memory, start, self._x)

    @property
    def __cuda_array_interface__(self):
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "descr": self.dtype.descr,
            "stream": current().stream_pointer() or 1,
            "version": 3,
            "strides": None if self._x.flags.c_contiguous else self.strides,
            "data": (self.data.ptr, False),
        }

    def __array__(self, dtype=None, copy=None):
        raise TypeError(IMPLICIT)

    def __len__(self):
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self):
        if not self.shape:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(len(self)))

    __hash__ = None  # type: ignore[assignment]

    # ---- to the host and back ----------------------------------------------------------------------------------------

    def get(self, stream=None, order="C", out=None, blocking=True):
        """A copy on the host, into `out` if that is given."""
        if out is not None:
            self._check_host(out, "obtained from", "from")
        machine = current()
        if blocking or out is None:
            refuse(stream=stream)
        elif machine.pinned_at(out.ctypes.data) is None:
            refuse(stream=stream)  # memory that may be paged out
        elif noted("get", lambda: self.get(stream, order, out, False), [self._x], stream):
            return out
        machine.copied["to host"] += self.nbytes
        machine.access("get", [self._x], stream=stream)
        if blocking:
            machine.wait("get", stream)
        if out is None:
            return np.array(self._x, order=order.upper(), copy=True, subok=False)
        if not (out.flags.c_contiguous or out.flags.f_contiguous):
            raise RuntimeError("`out` cannot be specified when copying to non-contiguous ndarray")
        out[...] = self._x
        return out

    def set(self, arr, stream=None):
        """Copy an array of the host of the same shape and dtype into this one, which must be contiguous."""
        self._check_host(arr, "set to", "to")
        if not (self._x.flags.c_contiguous or self._x.flags.f_contiguous):
            raise RuntimeError("Cannot set to non-contiguous array")
        machine = current()
        if stream is None or machine.pinned_at(arr.ctypes.data) is None:
            refuse(stream=stream)
        elif noted("set", lambda: self.set(arr, stream), [self._x], stream):
            return
        machine.copied["to device"] += self.nbytes
        machine.access("set", [], [self._x], stream)
        if stream is None:
            machine.wait("set")
        self._x[...] = arr
        mark(self._x)

    def _check_host(self, array, how, way):
        if not isinstance(array, np.ndarray):
            raise TypeError(f"Only numpy.ndarray can be {how} cupy.ndarray")
        if self.dtype != array.dtype:
            raise TypeError(f"{array.dtype} array cannot be {how} {self.dtype} array")
        if self.shape != array.shape:
            raise ValueError(f"Shape mismatch. Expected shape: {self.shape}, actual shape: {array.shape}")

    def item(self):
        if self.size != 1:
            raise ValueError("can only convert an array of size 1 to a Python scalar")
        return self._read("item").item()

    def _read(self, why):
        machine = current()
        machine.copied["to host"] += self.nbytes
        machine.access(why, [self._x])
        machine.wait(why)
        return self._x.view(np.ndarray)

    def tolist(self):
        return self._read("tolist").tolist()

    def tobytes(self, order="C"):
        return self._read("tobytes").tobytes(order)

    def __bool__(self):
        if self.size == 0:
            return False
        if self.size > 1:
            raise ValueError(
                "The truth value of an array with more than one element is ambiguous. Use a.any() or a.all()"
            )
        return bool(self._read("bool"))

    def __int__(self):
        return int(self._read("int"))

    def __float__(self):
        return float(self._read("float"))

    def __complex__(self):
        return complex(self._read("complex"))

    def __index__(self):
        return operator.index(self._read("index"))

    def __repr__(self):
        return repr(self._read("repr"))

    def __str__(self):
        return str(self._read("str"))

    def __format__(self, specification):
        return format(self._read("format"), specification)

    # ---- subscripts --------------------------------------------------------------------------------------------------

    def __getitem__(self, key):
        from .indexing import get

        return get(self, key)

    def __setitem__(self, key, value):
        from .indexing import put

        put(self, key, value)

    @recorded
    def fill(self, value):
        for kind in (ndarray, np.ndarray):
            if isinstance(value, list | tuple):
                value = np.asarray(value)
            if isinstance(value, kind) and value.shape != ():
                raise ValueError(f"non-scalar {'cupy' if kind is ndarray else 'numpy'}.ndarray cannot be used for fill")
        check("fill", self)
        self._x.fill(plain(value))
        written(self._x)


ndarray.__module__ = "cupy"


# ---- between NumPy's arrays and these --------------------------------------------------------------------------------


def check(name, *arrays):
    """Arrays work on their own device only: here as if no device could reach the memory of another."""
    machine = current()
    machine.functions[name] += 1
    machine.doing = name
    for array in arrays:
        if isinstance(array, ndarray) and array._memory.device_id not in (None, machine.device):
            raise ValueError(
                f"Array device must be same as the current device: array device = {array._memory.device_id} "
                f"while current = {machine.device} (stand-in, in {name})"
            )
    machine.access(name, [array._x for array in arrays if isinstance(array, ndarray)])


def plain(value):
    """NumPy's view of an array; other values as they are, lists and tuples by their elements."""
    if isinstance(value, ndarray):
        return value._x
    if type(value) in (list, tuple):
        return type(value)(plain(part) for part in value)
    return value


def fresh(values, order="C"):
    """An array of its own on the current device with these values, in C order unless another is asked for."""
    values = np.asarray(values)
    dtype_of(values.dtype)
    order = "F" if order == "F" or order in "AK" and values.flags.fnc else "C" if order != "K" else "K"
    if order == "K" and values.ndim > 2 and not values.flags.c_contiguous:
        axes = sorted(range(values.ndim), key=lambda axis: (-abs(values.strides[axis]), axis))
        whole = fresh(values.transpose(axes))
        return wrapped(whole._x.transpose(np.argsort(axes)), whole, owned=True)
    made = ndarray(values.shape, values.dtype, order="C" if order == "K" else order)
    store(made, values)
    return made


def store(target, values):
    """Write values into an array."""
    target._x[...] = values
    written(target._x)


def wrapped(view, whole, owned=False):
    """NumPy's view on the memory of an array as such an array."""
    made = ndarray.__new__(ndarray)
    made._memory, made._x = whole._memory, view.view(np.ndarray)
    made.base = None if owned else whole if whole.base is None else whole.base
    return made


def like_views(result, arrays):
    """What NumPy gave, as arrays: views on the memory of `arrays` where NumPy gave such, else new ones."""
    if isinstance(result, list | tuple):
        parts = [like_views(part, arrays) for part in result]
        return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
    if not isinstance(result, np.ndarray | np.generic):
        return result
    if isinstance(result, np.ndarray):
        for array in arrays:
            if result is array._x:
                return array
            if result.size and np.may_share_memory(result, array._x):
                return wrapped(result, array)
    return fresh(result)
