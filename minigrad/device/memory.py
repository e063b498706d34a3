"""Memory on the CPU: a pool, and whether the host has room for an array.

A large array that is allocated afresh costs a page fault for every 4 KiB that it touches, which is more than the
arithmetic of a small CNN. So the bytes of an array that died go on a shelf of their size and serve the next one.

An array is a view on a Loan. NumPy's views, memoryviews and DLPack capsules of the array keep the Loan alive; when
the last of them is gone its finaliser puts the bytes back. Shelves are plain lists, whose append and pop are atomic,
so a finaliser takes no lock and may run at any moment, inside an allocation too.

What shelves keep is bounded: before new bytes would bring the total above twice the most that was ever in use, and
64 MiB more, all shelves are given back to the system. A training step that repeats needs no new bytes, so it never
pays for this; sizes that grow or change forever do not pile up.

Linux promises more memory than there is and ends the process that writes to it. So the host is asked before a large
array is made: a message does less harm.
"""

import contextlib
import functools
import gc
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

from minigrad_kernels.errors import OutOfMemory
from minigrad_kernels.layout import c_order, strides_of

__all__ = ["check_room", "naming", "refuse_memory"]  # the pool is that of the place "cpu"

SMALLEST = 1 << 14  # bytes; below this the C library's allocator reuses memory by itself
SLACK = 1 << 26  # bytes that shelves may keep in any case
ALIGNMENT = 64  # bytes; one cache line, and one AVX-512 vector
LARGE = 1 << 28  # bytes from which on the host is asked, which takes a fraction of the time of writing as many
MEMINFO = Path("/proc/meminfo")
ADDRESSES = 1 << 62  # bytes that no array reaches, whatever the machine

_array, _empty, _BYTE = np.ndarray, np.empty, np.dtype(np.uint8)
_shelves: dict[int, list["_Bytes"]] = {}


class _Bytes(np.ndarray):
    """The bytes themselves. A class of its own, so that NumPy does not look through a Loan for its base."""

    made = 0  # bytes obtained from the system and not given back
    most_used = 0  # the most that was in use whenever new bytes were made

    __slots__ = ("offset",)  # bytes to skip so that the data starts aligned


class _Loan(np.ndarray):
    """Bytes that are in use as long as this object lives."""

    __slots__ = ()

    def __del__(self):
        if type(self.base) is _Bytes:  # views on the loan itself hold no bytes of their own
            _shelves[self.base.size].append(self.base)


@functools.lru_cache(maxsize=4096)
def _place(shape, dtype, order):
    """(byte strides, bytes that hold such an array wherever they begin, the shelf of these or None)."""
    dtype = np.dtype(dtype)
    nbytes = math.prod(shape) * dtype.itemsize
    strides = strides_of(shape, c_order(len(shape)) if order is None else order, dtype.itemsize)
    if nbytes < SMALLEST:
        return strides, nbytes, None
    step = 1 << (nbytes - 1).bit_length() - 3  # one of four between powers of two, so at most a quarter is wasted
    size = -(-nbytes // step) * step + ALIGNMENT
    return strides, size, _shelves.setdefault(size, [])


def take(shape, dtype, order):
    """An uninitialised array of this shape and element type, its axes in this order, slowest first (None: C order)."""
    strides, size, shelf = _place(shape, dtype, order)
    if shelf is None:
        return _empty(shape, dtype) if order is None else _array(shape, dtype, _empty(size, _BYTE), 0, strides)
    try:
        stored = shelf.pop()
    except IndexError:
        stored = _made(size)
    return _array(shape, dtype, stored.view(_Loan), stored.offset, strides)


def _made(size):
    """Bytes from the system; where it has none, once more after everything unused was given back."""
    _Bytes.most_used = max(_Bytes.most_used, _Bytes.made - _cached() + size)
    if _Bytes.made + size > 2 * _Bytes.most_used + SLACK:
        empty_cache()
    try:
        stored = _asked(size)
    except MemoryError:
        gc.collect()  # cycles may hold arrays
        empty_cache()
        stored = _asked(size)
    stored.offset = -stored.ctypes.data % ALIGNMENT
    _Bytes.made += size
    return stored


def _asked(size):
    check_room((size,), _BYTE)
    return _Bytes((size,), _BYTE)


def _cached():
    return sum(size * len(shelf) for size, shelf in list(_shelves.items()))


def empty_cache():
    """Give the bytes on the shelves back to the system."""
    for size, shelf in list(_shelves.items()):
        with contextlib.suppress(IndexError):  # empty; another thread may have taken the last one
            while True:
                shelf.pop()
                _Bytes.made -= size


class Block(NamedTuple):
    """The memory in which an array lies, perhaps with others that look at it.

    key     the same number for arrays in one block, another for those in another, as long as they live
    nbytes  of the array for which it was made; of memory that is not the pool's, of the array that looks at it
    pooled  bytes of the pool that it takes: more, as sizes are rounded up; 0 where it is not of the pool
    """

    key: int
    nbytes: int
    pooled: int


def block(array):
    """The Block of an array on the host."""
    nbytes = array.nbytes
    while isinstance(array.base, np.ndarray):
        if type(array.base) is _Loan:
            return Block(id(array.base), array.nbytes, array.base.base.size)
        array = array.base
    return Block(id(array), nbytes, 0)


def memory_statistics():
    """Bytes obtained from the system, of these in use and on shelves."""
    cached = _cached()
    return {"reserved_bytes": _Bytes.made, "used_bytes": _Bytes.made - cached, "cached_bytes": cached}


# ---- room on the host ------------------------------------------------------------------------------------------------

ADVICE = "use a smaller shape or batch"


def check_room(shape, dtype):
    """Raise MemoryError if an array of this shape is larger than what the host has left."""
    nbytes = math.prod(shape) * np.dtype(dtype).itemsize
    if nbytes >= LARGE and nbytes > (free := free_bytes()):
        raise OutOfMemory(f"the host is out of memory: wanted {nbytes:,} bytes, but {free:,} are free; {ADVICE}")


def free_bytes():
    """Bytes that the host can still give, by Linux's estimate; elsewhere any number."""
    try:
        rows = dict(line.split(":") for line in MEMINFO.read_text().splitlines())
        return sum(int(rows[name].split()[0]) << 10 for name in ("MemAvailable", "SwapFree"))
    except (OSError, KeyError, ValueError):
        return ADDRESSES


def refuse_memory(op, error):
    """Raise a MemoryError, which may be one of NumPy's, with the name of the op that met it."""
    text = str(error) or f"the host is out of memory; {ADVICE}"
    raise OutOfMemory(text if text.startswith(f"{op}: ") else f"{op}: {text}") from error


@contextlib.contextmanager
def naming(op):
    """A context, or a decorator, within which a MemoryError says which op met it."""
    try:
        yield
    except MemoryError as error:
        refuse_memory(op, error)
