"""cupy.ndarray: memory of the interpreter behind CuPy's face, computed by NumPy under CuPy's names and arguments.

Methods are those of names.json. What CuPy does otherwise than NumPy (no arrays of the host, C order of results, 0-d
results that stay arrays, masks that the host waits for) is done as CuPy does it; an index beyond the end, which CuPy
wraps around, is refused.
"""

import inspect
from typing import NamedTuple

import numpy as np

from .graphs import noted, recorded, refuse
from .machine import current, mark, written
from .memory import MemoryPointer, alloc
from .names import known, signature

__all__ = ["SCALARS", "bound", "check", "derived", "dtype_of", "fresh", "like_views", "ndarray", "plain", "wrapped"]

TYPES = "?bhilqBHILQefdFD"
SCALARS = bool | int | float | complex | np.generic
LIBRARY = {"dot", "einsum", "inner", "kron", "matmul", "outer", "tensordot", "vdot"}  # of NVIDIA's libraries
WAITS = {"argwhere", "flatnonzero", "nonzero", "repeat", "unique"}  # the host needs values for the shape of the result
FREE = {"arange", "broadcast_shapes", "can_cast", "eye", "linspace", "promote_types", "result_type"}  # need no array


def dtype_of(dtype):
    """A dtype that CuPy has."""
    dtype = np.dtype(float if dtype is None else dtype)
    if dtype.char not in TYPES and dtype.name != "bfloat16":  # which CuPy knows where ml_dtypes is
        raise ValueError(f"Unsupported dtype {dtype}")
    return dtype


class Flags(NamedTuple):
    """What CuPy says about the layout of an array, and no more."""

    c_contiguous: bool
    f_contiguous: bool
    owndata: bool

    forc = property(lambda self: self.c_contiguous or self.f_contiguous)
    fnc = property(lambda self: self.f_contiguous and not self.c_contiguous)


class ndarray:
    """Shape, dtype and strides of NumPy's view `_x` on a block of memory; base: the array that it is a view of."""

    __slots__ = ("__weakref__", "_memory", "_x", "base")
    __array_priority__ = 100

    def __init__(self, shape, dtype=float, memptr=None, strides=None, order="C"):
        shape, dtype = (shape,) if isinstance(shape, int | np.integer) else tuple(shape), dtype_of(dtype)
        if memptr is None and strides is not None:
            raise ValueError("memptr is required if strides is given.")
        memptr = alloc(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize) if memptr is None else memptr
        self._memory, self.base = memptr.mem, None
        self._x = np.ndarray(shape, dtype, self._memory.owner, memptr._offset, strides, (order or "C").upper())

    # ---- what it is ------------------------------------------------------------------------------------------------

    shape = property(lambda self: self._x.shape)
    dtype = property(lambda self: self._x.dtype)
    strides = property(lambda self: self._x.strides)
    ndim = property(lambda self: self._x.ndim)
    size = property(lambda self: self._x.size)
    itemsize = property(lambda self: self._x.itemsize)
    nbytes = property(lambda self: self._x.nbytes)
    device = property(lambda self: self._memory.device)
    T = property(lambda self: wrapped(self._x.T, self))
    real = property(lambda self: self)

    @property
    def flags(self):
        return Flags(self._x.flags.c_contiguous, self._x.flags.f_contiguous, self.base is None)

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
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    # ---- to the host and back ----------------------------------------------------------------------------------------

    def get(self, stream=None, order="C", out=None, blocking=True):
        """A copy on the host, into `out` if that is given."""
        if out is not None:
            self._check_host(out, "obtained from")
        machine = current()
        if blocking or out is None or machine.pinned_at(out.ctypes.data) is None:
            refuse(stream=stream)  # the host waits, or its memory may be paged out
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
        self._check_host(arr, "set to")
        if not self.flags.forc:
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

    def _check_host(self, array, how):
        if not isinstance(array, np.ndarray):
            raise TypeError(f"Only numpy.ndarray can be {how} cupy.ndarray")
        if self.dtype != array.dtype:
            raise TypeError(f"{array.dtype} array cannot be {how} {self.dtype} array")
        if self.shape != array.shape:
            raise ValueError(f"Shape mismatch. Expected shape: {self.shape}, actual shape: {array.shape}")

    def _read(self, why):
        machine = current()
        machine.copied["to host"] += self.nbytes
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
        if not isinstance(value, SCALARS) and getattr(value, "shape", None) != ():
            raise ValueError("non-scalar array cannot be used for fill")
        check("fill", self)
        self._x.fill(plain(value))
        written(self._x)

    def astype(self, dtype, order="K", casting=None, subok=None, copy=True):
        if casting is not None or subok is not None:
            raise TypeError("casting is not supported yet")
        dtype, flags = dtype_of(dtype), self.flags
        if not copy and dtype == self.dtype and {"C": flags.c_contiguous, "F": flags.f_contiguous}.get(order, True):
            return self
        return self._astype(dtype, order)

    @recorded
    def _astype(self, dtype, order):
        check("astype", self)
        return fresh(self._x.astype(dtype), order)

    def reshape(self, *shape, order="C", copy=None):
        found = self._x.reshape(*shape)
        shares = np.may_share_memory(found, self._x) or not self.size
        return wrapped(found, self) if shares else self.copy().reshape(*shape)

    def view(self, dtype=None):
        return wrapped(self._x.view() if dtype is None else self._x.view(dtype_of(dtype)), self)

    def transpose(self, *axes):
        return wrapped(self._x.transpose(*axes), self)

    @recorded
    def sort(self, axis=-1, kind=None):
        check("sort", self)
        if not self.flags.c_contiguous:
            raise NotImplementedError("Sorting non-contiguous array is not supported.")
        self._x.sort(axis)
        written(self._x)

    @recorded
    def copy(self, order="C"):
        check("copy", self)
        return fresh(self._x, order)

    def __deepcopy__(self, memo=None):
        with self.device:
            return self.copy("K")

    __copy__ = __deepcopy__

    def __matmul__(self, other):
        from .functions import matmul

        return matmul(self, other)

    # ---- NumPy's protocols -------------------------------------------------------------------------------------------

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **options):
        from .functions import CUPY_UFUNCS, matmul

        function = matmul if ufunc is np.matmul else CUPY_UFUNCS.get(ufunc.__name__)
        if method != "__call__" or function is None:
            return NotImplemented
        return function(*inputs, **options, **({} if out is None else {"out": out[0]}))

    def __array_function__(self, function, types, arguments, options):
        from .modules import CUPY

        found = getattr(CUPY, function.__name__, None)
        return NotImplemented if found is None else found(*arguments, **options)

    def __dlpack__(self, *, stream=None, **options):
        raise NotImplementedError("stand-in: DLPack")

    def __dlpack_device__(self):
        return 2, self._memory.device_id


ndarray.__module__ = "cupy"


def _dunder(name):
    return lambda self, *more: getattr(self._read(name), f"__{name}__")(*more)


for name in ("bool", "int", "float", "index", "repr", "str", "format"):
    setattr(ndarray, f"__{name}__", _dunder(name))
for name in ("item", "tolist", "tobytes"):
    setattr(ndarray, name, lambda self, *more, name=name: getattr(self._read(name), name)(*more))


def _is_plain(part):
    return part is None or part is Ellipsis or isinstance(part, slice | int | np.integer) and not isinstance(part, bool)


def _subscript(array, key):
    """The subscript for NumPy; lists and NumPy's arrays in it are sent to the device."""
    found = []
    for part in key:
        if not _is_plain(part):
            if not isinstance(part, ndarray):
                part = np.asarray(part)
                refuse()
                current().copied["to device"] += part.nbytes
                part = fresh(part)
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
    machine.doing = name
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
    made.base = whole if whole.base is None else whole.base
    return made


def like_views(result, arrays):
    """What NumPy gave, as arrays: views on the memory of `arrays` where NumPy gave such, else new ones."""
    if isinstance(result, list | tuple):
        return type(result)([like_views(part, arrays) for part in result])
    if not isinstance(result, np.ndarray | np.generic):
        return result
    if isinstance(result, np.ndarray):
        for array in arrays:
            if result is array._x:
                return array
            if result.size and np.may_share_memory(result, array._x):
                return wrapped(result, array)
    return fresh(result)


# ---- functions and methods, computed by NumPy's ----------------------------------------------------------------------


def bound(name, parameters, arguments, options):
    """The given arguments by their names; TypeError for others than CuPy's function has."""
    try:
        return signature(parameters).bind(*arguments, **options)
    except TypeError as error:
        raise TypeError(f"{name}() {error}") from None


def arrays_in(name, values):
    """The arrays among arguments and in the lists among them. Errors: TypeError for those of the host."""
    for value in values:
        if isinstance(value, np.ndarray):
            raise TypeError(f"Unsupported type {type(value)} (stand-in, in {name}: send it by cupy.asarray)")
        if isinstance(value, ndarray):
            yield value
        elif type(value) in (list, tuple):
            yield from arrays_in(name, value)


def _for_numpy(function, call):
    """(arguments, options) of a call under the names that NumPy has for them, which differ here and there."""
    if any(p.kind is p.VAR_POSITIONAL for p in call.signature.parameters.values()):
        return plain(list(call.args)), {name: plain(value) for name, value in call.kwargs.items()}
    theirs = list(inspect.signature(function).parameters.values())
    named, arguments, options = {p.name for p in theirs if p.kind is not p.POSITIONAL_ONLY}, [], {}
    for position, name in enumerate(call.signature.parameters):
        if name in call.arguments:
            if position == 0 or theirs[min(position, len(theirs) - 1)].kind is inspect.Parameter.POSITIONAL_ONLY:
                arguments.append(plain(call.arguments[name]))
            else:
                options[name if name in named else theirs[position].name] = plain(call.arguments[name])
    return arguments, options


def derived(name, function, parameters, label=None):
    """CuPy's function of a name, computed by NumPy's. What NVIDIA's libraries compute is counted."""
    label = label or name

    def call(*arguments, **options):
        given = bound(label, parameters, arguments, options)
        found = list(arrays_in(label, [*given.args, *given.kwargs.values()]))
        if not found and name not in FREE:
            raise TypeError(f"Unsupported type (stand-in, in {label}: wants an array of CuPy)")
        check(label, *found)
        used(label, name in LIBRARY or "." in label)
        if name in WAITS:
            current().wait(label)
        theirs, named = _for_numpy(function, given)
        with np.errstate(all="ignore"):
            result = function(*theirs, **named)
        if (out := given.arguments.get("out")) is not None:
            written(out._x)
        return like_views(result, found)

    call.__name__ = name
    return recorded(call)


def used(label, library=True):
    """Count a call into a library of NVIDIA, which no stream captures."""
    from .graphs import capturing

    if library and capturing():
        raise NotImplementedError("calling cuBLAS API during stream capture is currently unsupported")
    current().library[label] += library


for name, parameters in known()["cupy"]["ndarray"]["members"].items():
    if parameters is not None and hasattr(np, name) and not hasattr(ndarray, name):
        setattr(ndarray, name, derived(name, getattr(np, name), "a, " + parameters))


# ---- operators -------------------------------------------------------------------------------------------------------

BINARY = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "true_divide", "floordiv": "floor_divide",
    "mod": "remainder", "pow": "power", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
    "lshift": "left_shift", "rshift": "right_shift",
}  # fmt: skip
COMPARED = {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}
UNARY = {"neg": "negative", "abs": "absolute", "invert": "invert"}


def _operator(name, swapped=False, in_place=False):
    def call(self, *others):
        from .functions import CUPY_UFUNCS

        if others and not isinstance(others[0], ndarray | np.ndarray | SCALARS):
            return NotImplemented
        operands = (*others, self) if swapped else (self, *others)
        return CUPY_UFUNCS[name](*operands, **({"out": self} if in_place else {}))

    return call


for name, ufunc in (BINARY | COMPARED | UNARY).items():
    setattr(ndarray, f"__{name}__", _operator(ufunc))
    if name in BINARY:
        setattr(ndarray, f"__r{name}__", _operator(ufunc, swapped=True))
        setattr(ndarray, f"__i{name}__", _operator(ufunc, in_place=True))
ndarray.__hash__ = None
