"""cupy.ndarray and CuPy's functions: memory of the interpreter, computed by NumPy under CuPy's names and arguments.

Methods, functions and ufuncs are those of names.json. What CuPy does otherwise than NumPy (no arrays of the host, C
order of results, 0-d results that stay arrays, masks that the host waits for) is done as CuPy does it; an index beyond
the end, which CuPy wraps around, is refused.
"""

from typing import NamedTuple

import numpy as np

from .graphs import capturing, noted, recorded, refuse
from .machine import current, written
from .memory import MemoryPointer, alloc
from .names import known, signature
from .streams import Device

TYPES = "?bhilqBHILQefdFD"
SCALARS = bool | int | float | complex | np.generic
LIBRARY = {"dot", "einsum", "inner", "kron", "matmul", "outer", "tensordot", "vdot"}  # of NVIDIA's libraries
WAITS = {"argwhere", "flatnonzero", "nonzero", "repeat", "unique"}  # the host needs values for the shape of the result
FREE = {"arange", "broadcast_shapes", "can_cast", "eye", "linspace", "promote_types", "result_type"}  # need no array
NAMES = known()["cupy"]


def dtype_of(dtype):
    """A dtype that CuPy has."""
    dtype = np.dtype(float if dtype is None else dtype)
    if dtype.char not in TYPES and dtype.name != "bfloat16":  # which CuPy knows where ml_dtypes is
        raise ValueError(f"Unsupported dtype {dtype}")
    return dtype


class Flags(NamedTuple):
    """What CuPy says about the layout of an array."""

    c_contiguous: bool
    f_contiguous: bool

    forc = property(lambda self: self.c_contiguous or self.f_contiguous)

    def fit(self, order):
        return {"C": self.c_contiguous, "F": self.f_contiguous}.get(order, True)


class ndarray:
    """Shape, dtype and strides of NumPy's view `_x` on a block of memory; base: the array that it is a view of."""

    __slots__ = ("__weakref__", "_memory", "_x", "base")
    __array_priority__ = 100

    def __init__(self, shape, dtype=float, memptr=None, strides=None, order="C"):
        shape, dtype = (shape,) if isinstance(shape, int | np.integer) else tuple(shape), dtype_of(dtype)
        memptr = alloc(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize) if memptr is None else memptr
        self._memory, self.base = memptr.mem, None
        self._x = np.ndarray(shape, dtype, self._memory.owner, memptr._offset, strides, (order or "C").upper())

    # ---- what it is ------------------------------------------------------------------------------------------------

    device = property(lambda self: Device(self._memory.device_id))
    flags = property(lambda self: Flags(self._x.flags.c_contiguous, self._x.flags.f_contiguous))
    T = property(lambda self: wrapped(self._x.T, self))

    @property
    def data(self):
        owner = self._memory.owner
        start = self._x.__array_interface__["data"][0] - owner.__array_interface__["data"][0] if self.size else 0
        return MemoryPointer(self._memory, start, self._x)

    def __array__(self, dtype=None, copy=None):
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct a NumPy array "
            "explicitly."
        )

    def __len__(self):
        return len(self._x)

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def __array_ufunc__(self, ufunc, method, *inputs, out=(None,), **options):
        return CUPY_UFUNCS[ufunc.__name__](*inputs, out=out[0], **options)

    def __array_function__(self, function, types, arguments, options):
        return (FUNCTIONS.get(function.__name__) or find(function.__name__))(*arguments, **options)

    def __dlpack_device__(self):
        return 2, self._memory.device_id

    # ---- to the host -------------------------------------------------------------------------------------------------

    def get(self, stream=None, order="C", out=None, blocking=True):
        """A copy on the host, into `out` if that is given."""
        machine = current()
        self._check_host(self if out is None else out)
        if blocking or out is None or machine.pinned_at(out.ctypes.data) is None:
            refuse(stream=stream)  # the host waits, or its memory may be paged out
        elif noted("get", lambda: self.get(stream, order, out, False), [self._x], stream):
            return out
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
        """Copy an array of the host of the same shape and dtype into this one."""
        refuse(stream=stream)  # the host waits, or its memory may be paged out
        self._x[...] = arr
        written(self._x)

    def _check_host(self, other):
        if not isinstance(other, np.ndarray | ndarray) or (other.dtype, other.shape) != (self.dtype, self.shape):
            raise TypeError(f"stand-in: {other.dtype} array of {other.shape} for {self.dtype} of {self.shape}")

    def _read(self, why):
        machine = current()
        machine.access(why, [self._x])
        machine.wait(why)
        return self._x.view(np.ndarray)

    # ---- elements ----------------------------------------------------------------------------------------------------

    def __getitem__(self, key):
        key = key if isinstance(key, tuple) else (key,)
        if not all(map(_is_plain, key)):
            return self._picked(key)
        return wrapped(self._x[key if any(part is Ellipsis for part in key) else (*key, ...)], self)

    @recorded
    def _picked(self, key):
        return fresh(self._x[_subscript(self, key)])

    @recorded
    def __setitem__(self, key, value):
        subscript = _subscript(self, key if isinstance(key, tuple) else (key,))
        if not isinstance(value, ndarray):
            if np.ndim(value):
                raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
            value = np.asarray(value, self.dtype)
        check("setitem", self, value)
        self._x[subscript] = plain(value).astype(self.dtype, copy=False)
        written(self._x, subscript)

    @recorded
    def fill(self, value):
        check("fill", self)
        self._x.fill(plain(value))
        written(self._x)

    def astype(self, dtype, order="K", casting=None, subok=None, copy=True):
        if casting is not None or subok is not None:
            raise TypeError("casting is not supported yet")
        dtype = dtype_of(dtype)
        return self if not copy and dtype == self.dtype and self.flags.fit(order) else _copied(self, dtype, order)

    def copy(self, order="C"):
        return _copied(self, self.dtype, order)

    def reshape(self, *shape, order="C", copy=None):
        found = self._x.reshape(*shape)
        shares = np.may_share_memory(found, self._x) or not self.size
        return wrapped(found, self) if shares else self.copy().reshape(*shape)

    def view(self, dtype=None):
        return wrapped(self._x.view() if dtype is None else self._x.view(dtype_of(dtype)), self)

    def transpose(self, *axes):
        return wrapped(self._x.transpose(*axes), self)


ndarray.__module__, ndarray.__hash__ = "cupy", None
for name in ("shape", "dtype", "strides", "ndim", "size", "itemsize", "nbytes"):
    setattr(ndarray, name, property(lambda self, name=name: getattr(self._x, name)))
for name in ("bool", "int", "float", "index", "repr", "str", "format"):
    dunder = f"__{name}__"
    setattr(ndarray, dunder, lambda self, *more, name=name, dunder=dunder: getattr(self._read(name), dunder)(*more))
for name in ("item", "tolist", "tobytes"):
    setattr(ndarray, name, lambda self, *more, name=name: getattr(self._read(name), name)(*more))


def _is_plain(part):
    return part is None or part is Ellipsis or isinstance(part, slice | int | np.integer) and not isinstance(part, bool)


def _subscript(array, key):
    """The subscript for NumPy; lists and NumPy's arrays in it are sent to the device."""
    found = []
    for part in key:
        if not _is_plain(part):
            part = part if isinstance(part, ndarray) else asarray(np.asarray(part))
            check("subscript", array, part)
            if part.dtype == bool:
                current().wait("boolean subscript")
        found.append(plain(part))
    return tuple(found)


# ---- between NumPy's arrays and these --------------------------------------------------------------------------------


def check(name, *arrays):
    """Arrays work on their own device only: here as if no device could reach the memory of another."""
    machine = current()
    machine.functions[name] += 1
    machine.thread.doing = name
    arrays = [array for array in arrays if isinstance(array, ndarray)]
    for array in arrays:
        if array._memory.device_id not in (None, machine.device):
            raise ValueError(
                f"Array device must be same as the current device: array device = {array._memory.device_id} "
                f"while current = {machine.device} (stand-in, in {name})"
            )
    machine.access(name, [array._x for array in arrays])


def plain(value):
    """NumPy's view of an array; other values as they are, lists and tuples by their elements."""
    if isinstance(value, ndarray):
        return value._x
    return type(value)(map(plain, value)) if type(value) in (list, tuple) else value


def fresh(values, order="C"):
    """An array of its own on the current device with these values, in C order unless another is asked for."""
    values = np.asarray(values)
    strides = np.empty_like(values, dtype_of(values.dtype), order or "K", subok=False).strides
    made = ndarray(values.shape, values.dtype, alloc(values.nbytes), strides)
    made._x[...] = values
    written(made._x)
    return made


def wrapped(view, whole):
    """NumPy's view on the memory of an array as such an array."""
    made = ndarray.__new__(ndarray)
    made._memory, made._x = whole._memory, view.view(np.ndarray)
    made._x.flags.writeable = True  # also where NumPy repeats elements
    made.base = whole if whole.base is None else whole.base
    return made


def like_views(result, arrays):
    """What NumPy gave, as arrays: views on the memory of `arrays` where NumPy gave such, else new ones."""
    if isinstance(result, list | tuple):
        return type(result)([like_views(part, arrays) for part in result])
    if not isinstance(result, np.ndarray | np.generic):
        return result
    for array in arrays if isinstance(result, np.ndarray) else ():
        if result is array._x:
            return array
        if result.size and np.may_share_memory(result, array._x):
            return wrapped(result, array)
    return fresh(result)


@recorded
def _copied(array, dtype, order):
    check("copy", array)
    return fresh(array._x.astype(dtype, copy=False), order)


# ---- functions, methods and ufuncs, computed by NumPy's --------------------------------------------------------------


def arrays_in(name, values):
    """The arrays among arguments and in the lists among them. Errors: TypeError for those of the host."""
    for value in values:
        if isinstance(value, np.ndarray):
            raise TypeError(f"Unsupported type {type(value)} (stand-in, in {name}: send it by cupy.asarray)")
        if isinstance(value, ndarray):
            yield value
        elif type(value) in (list, tuple):
            yield from arrays_in(name, value)


def derived(name, function, parameters):
    """CuPy's function of a name, computed by NumPy's. What NVIDIA's libraries compute is counted."""

    def call(*arguments, **options):
        try:
            given = signature(parameters).bind(*arguments, **options)
        except TypeError as error:
            raise TypeError(f"{name}() {error}") from None
        found = list(arrays_in(name, [*given.args, *given.kwargs.values()]))
        if not found and name not in FREE:
            raise TypeError(f"Unsupported type (stand-in, in {name}: wants an array of CuPy)")
        check(name, *found)
        if name in LIBRARY:
            if capturing():
                raise NotImplementedError("calling cuBLAS API during stream capture is currently unsupported")
            current().library[name] += 1
        if name in WAITS:
            current().wait(name)
        with np.errstate(all="ignore"):
            result = function(*plain(arguments), **{name: plain(value) for name, value in options.items()})
        if (out := given.arguments.get("out")) is not None:
            written(out._x)
        return like_views(result, found)

    call.__name__ = name
    return recorded(call)


for name, parameters in NAMES["ndarray"]["members"].items():
    if parameters is not None and hasattr(np, name) and not hasattr(ndarray, name):
        setattr(ndarray, name, derived(name, getattr(np, name), "a, " + parameters))


class ufunc:
    """One elementwise function."""

    def __init__(self, name):
        self.__name__, self._numpys = name, getattr(np, name)

    @recorded
    def __call__(self, *arguments, out=None, dtype=None, casting="same_kind", **others):
        if others:
            raise TypeError(f"Wrong arguments {others}")
        for value in arguments:
            if not isinstance(value, ndarray | SCALARS):
                raise TypeError(f"Unsupported type {type(value)}")
        if not isinstance(out, ndarray | None):
            raise TypeError("Output arguments type must be cupy.ndarray")
        arrays = [value for value in (*arguments, out) if isinstance(value, ndarray)]
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
    for name, told in NAMES.items()
    if isinstance(told, dict) and "inputs" in told and isinstance(getattr(np, name, None), np.ufunc)
}
BINARY = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "true_divide", "floordiv": "floor_divide",
    "mod": "remainder", "pow": "power", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
    "lshift": "left_shift", "rshift": "right_shift",
}  # fmt: skip
OTHERS = {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}
OTHERS |= {"neg": "negative", "abs": "absolute", "invert": "invert"}


def _operator(name, swapped=False, in_place=False):
    def call(self, *others):
        if others and not isinstance(others[0], ndarray | np.ndarray | SCALARS):
            return NotImplemented
        operands = (*others, self) if swapped else (self, *others)
        return CUPY_UFUNCS[name](*operands, **({"out": self} if in_place else {}))

    return call


for name, function in (BINARY | OTHERS).items():
    setattr(ndarray, f"__{name}__", _operator(function))
for name, function in BINARY.items():
    setattr(ndarray, f"__r{name}__", _operator(function, swapped=True))
    setattr(ndarray, f"__i{name}__", _operator(function, in_place=True))


# ---- functions that CuPy has otherwise than NumPy --------------------------------------------------------------------


matmul = derived("matmul", lambda a, b, out=None: np.matmul(a, b, out=out), NAMES["matmul"])


def empty(shape, dtype=float, order="C"):
    return ndarray(shape, dtype, order=order)


def empty_like(prototype, dtype=None, order="K", subok=None, shape=None):
    if subok is not None or not isinstance(prototype, ndarray):
        raise TypeError(f"Unsupported type {type(prototype)}")
    like = np.empty_like(prototype._x, dtype, order, subok=False, shape=shape)
    return ndarray(like.shape, dtype_of(like.dtype), alloc(like.nbytes), like.strides)


def full(shape, fill_value, dtype=None, order="C"):
    made = empty(shape, np.asarray(plain(fill_value)).dtype if dtype is None else dtype, order)
    made.fill(fill_value)
    return made


def zeros(shape, dtype=float, order="C"):
    return full(shape, 0, dtype, order)


def ones(shape, dtype=None, order="C"):
    return full(shape, 1, float if dtype is None else dtype, order)


def array(obj, dtype=None, copy=True, order="K", subok=False, ndmin=0, *, blocking=False):
    """An array on the current device: of the host, or of numbers; another device's is refused here."""
    order = order or "K"
    if isinstance(obj, ndarray):
        if not copy and obj.flags.fit(order) and dtype in (None, obj.dtype):
            return obj
        return _copied(obj, obj.dtype if dtype is None else dtype_of(dtype), order)
    values = np.array(obj, dtype, ndmin=ndmin, copy=None)
    dtype_of(values.dtype)
    refuse()  # it goes by way of pinned memory that others get afterwards
    return fresh(values, order if order in "CF" else "F" if values.flags.fnc else "C")


def asarray(a, dtype=None, order=None, *, copy=None, blocking=False):
    return array(a, dtype, bool(copy), order)


def ascontiguousarray(a, dtype=None):
    if not isinstance(a, ndarray):
        raise TypeError(f"Argument 'a' has incorrect type (expected cupy._core.core._ndarray_base, got {type(a)})")
    return (a if a.ndim else a.reshape(1)).astype(a.dtype if dtype is None else dtype, "C", copy=False)


@recorded
def copyto(dst, src, casting="same_kind", where=None):
    """Copy into an array, from another one or a number."""
    if isinstance(src, np.ndarray) and src.ndim:
        raise ValueError("non-scalar numpy.ndarray cannot be used for copyto")
    check("copyto", dst, src, where)
    np.copyto(dst._x, plain(src), casting, where=True if where is None else plain(where))
    written(dst._x)


def from_dlpack(array, *, device=None, copy=None):
    """A view on the memory of an array that lies on a device."""
    if not isinstance(array, ndarray):
        raise NotImplementedError(f"stand-in: DLPack from {type(array).__module__}.{type(array).__name__}")
    return wrapped(array._x.view(), array)


OWN = array, asarray, ascontiguousarray, copyto, empty, empty_like, from_dlpack, full, matmul, ones, zeros
FUNCTIONS = {function.__name__: function for function in OWN}


def find(name):
    """CuPy's function or value of a name: None if the stand-in has nothing for it."""
    told, numpys = NAMES[name], getattr(np, name, None)
    if isinstance(told, str) and callable(numpys):
        return derived(name, numpys, told)
    return numpys if isinstance(numpys, type | float) else None
