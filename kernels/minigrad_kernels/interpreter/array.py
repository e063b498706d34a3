"""Memory of the device called "interpreter": arrays that know which of their bytes were written, and their addresses.

Every allocation, the owner at the end of an array's chain of bases, has 4 GB of addresses of its own: the upper half of
an address is the number of the allocation, the lower half the byte in it, counted from the middle, START. So nothing
lies before or behind an array.
"""

import threading
import weakref
from typing import Any

import numpy as np

from ..errors import KindError, ShapeError

WINDOW_BITS = 32
START = 1 << 31
FIRST_NUMBER = 1 << 16  # lower numbers are for what a launch itself has
FILL = np.uint16(0xFFFD)  # repeated, it is a quiet NaN of 16, 32 and 64 bits


class Array(np.ndarray):
    """An ndarray whose kernels are the compiled CUDA kernels, interpreted. Views and results of NumPy's functions are
    Arrays; where those give scalars, they are arrays without dimensions.

    Memory from `empty` remembers which bytes were written: by kernels, by subscripts, by fill, by copyto and by NumPy
    functions that write where told (out=).
    """

    written: Any = None  # for owners: None, or a byte for each byte of the memory, 255 where it was written

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        self._mark(key)

    def fill(self, value):
        super().fill(value)
        self._mark(...)

    def __array_ufunc__(self, ufunc, method, *inputs, out=(), **options):
        if out:
            options["out"] = tuple(map(_plain, out))
        results = getattr(ufunc, method)(*map(_plain, inputs), **options)
        _mark_written(*out)
        if out:
            return out[0] if len(out) == 1 else out
        return as_array(results)

    def __array_function__(self, function, types, args, options):
        results = function(*_plain(args), **{name: _plain(value) for name, value in options.items()})
        out = args[0] if function is np.copyto else options.get("out")
        _mark_written(out)
        return as_array(results) if out is None else out

    def _mark(self, key):
        """Remember that the elements at a subscript were written."""
        owner = owner_of(self)
        written = getattr(owner, "written", None)
        if written is None or not self.size:
            return
        marks = np.ndarray(self.shape, f"V{self.itemsize}", written, _first_byte(self), self.strides)
        marks[key] = np.void(b"\xff" * self.itemsize)


def _plain(value):
    """The value with every Array in it, in tuples and lists too, seen as NumPy's."""
    if isinstance(value, Array):
        return value.view(np.ndarray)
    return type(value)(map(_plain, value)) if type(value) in (tuple, list) else value


def _mark_written(*targets):
    for target in targets:
        if isinstance(target, Array):
            target._mark(...)


def as_array(result):
    """Arrays and scalars of NumPy, also in a tuple or a list, as Arrays; scalars become arrays without dimensions."""
    if isinstance(result, np.generic):
        return np.asarray(result).view(Array)
    if isinstance(result, np.ndarray):
        return result.view(Array)
    return type(result)(map(as_array, result)) if type(result) in (tuple, list) else result


def array(x):
    """A copy of an array, in memory of the interpreter."""
    return np.array(x, copy=True, order="K").view(Array)


def empty(shape, dtype=np.float32):
    """Memory that nobody has written: NaN in floating types, and reading it in a kernel is a fault."""
    memory = np.ndarray.__new__(Array, shape, dtype)
    memory.written = np.zeros(memory.nbytes, np.uint8)
    flat = memory.reshape(-1).view(np.ndarray).view(np.uint8)
    flat[0::2], flat[1::2] = int(FILL) & 255, int(FILL) >> 8
    return memory


def owner_of(x):
    """The array whose memory x is a part of."""
    owner, base = x, x
    while base is not None:
        if isinstance(base, np.ndarray):
            owner = base
        base = getattr(base, "base", None)
    return owner


def _first_byte(x):
    """Where in its owner the first element of an array lies."""
    return x.__array_interface__["data"][0] - owner_of(x).__array_interface__["data"][0]


def byte_range(x):
    """(first, end): the bytes of its owner that x spans."""
    low, high = np.lib.array_utils.byte_bounds(x)
    start = owner_of(x).__array_interface__["data"][0]
    return (low - start, high - start) if x.size else (low - start, low - start)


class Allocation:
    """An owner's number, and the ranges of bytes that pointers handed out by `address` may reach."""

    def __init__(self, number, owner):
        self.number = number
        self.owner = weakref.ref(owner)
        self.ranges = {}  # range of bytes -> whether it may be written
        weakref.finalize(owner, _forget, id(owner), number).atexit = False  # at exit there is nothing left to do


def _forget(key, number):
    """The owner has died, and another object may get its id."""
    with _lock:
        _by_owner.pop(key, None)
        _by_number.pop(number, None)


_lock = threading.RLock()
_by_owner: dict[int, Allocation] = {}
_by_number: dict[int, Allocation] = {}
_next_number = FIRST_NUMBER


def register(x):
    """The Allocation that x lies in, new if need be.

    Errors  ValueError if its memory has gaps or is 2 GB or larger
    """
    global _next_number
    owner = owner_of(x)
    if owner.size and np.subtract(*np.lib.array_utils.byte_bounds(owner)) != -owner.nbytes:
        raise ShapeError(f"address: the memory of the array (shape {x.shape}) is itself a view with gaps; pass a copy")
    if owner.nbytes >= START:
        raise ShapeError(f"address: the array lies in {owner.nbytes} bytes, wants less than 2 GB")
    with _lock:
        found = _by_owner.get(id(owner))
        if found is None:
            found = Allocation(_next_number, owner)
            _next_number += 1
            _by_owner[id(owner)] = _by_number[found.number] = found
        return found


def allocation(number):
    """The Allocation of a number, or None."""
    with _lock:
        return _by_number.get(number)


def address(x):
    """The simulated address of the first element of an array: what kernels find in tables of pointers.

    Errors  TypeError if x is no NumPy array, ValueError if its memory has gaps or is 2 GB or larger
    """
    if not isinstance(x, np.ndarray):
        raise KindError(f"address: got {type(x).__name__}, wants a NumPy array")
    found = register(x)
    span = byte_range(x)
    with _lock:
        found.ranges[span] = found.ranges.get(span, False) or bool(x.flags.writeable)
    return base_address(x, found)


def base_address(x, found):
    """The address of the first element of an array in an Allocation."""
    return (found.number << WINDOW_BITS) + START + _first_byte(x)
