"""Pooled memory on the CPU.

A large array that is allocated afresh costs a page fault for every 4 KiB that it touches, which is more than the
arithmetic of a small CNN. So the bytes of an array that died go on a shelf of their size and serve the next one.

An array is a view on a Loan. NumPy's views, memoryviews and DLPack capsules of the array keep the Loan alive; when
the last of them is gone its finaliser puts the bytes back. Shelves are plain lists, whose append and pop are atomic,
so a finaliser takes no lock and may run at any moment, inside an allocation too.

What shelves keep is bounded: before new bytes would bring the total above twice the most that was ever in use, and
64 MiB more, all shelves are given back to the system. A training step that repeats needs no new bytes, so it never
pays for this; sizes that grow or change forever do not pile up.
"""

import functools
import math

import numpy as np

__all__ = ["empty_cache", "memory_statistics", "take"]

SMALLEST = 1 << 14  # bytes; below this the C library's allocator reuses memory by itself
SLACK = 1 << 26  # bytes that shelves may keep in any case
ALIGNMENT = 64  # bytes; one cache line, and one AVX-512 vector

_shelves: dict[int, list["_Bytes"]] = {}


class _Bytes(np.ndarray):
    """The bytes themselves. A class of its own, so that NumPy does not look through a Loan for its base."""

    made = 0  # bytes obtained from the system and not given back
    peak = 0  # the most that `made` has been
    most_used = 0  # the most that was in use whenever new bytes were made
    requests = 0
    served = 0  # requests that a shelf could serve

    __slots__ = ("offset",)  # bytes to skip so that the data starts aligned


class _Loan(np.ndarray):
    """Bytes that are in use as long as this object lives."""

    __slots__ = ()

    def __del__(self):
        if type(self.base) is _Bytes:  # views on the loan itself hold no bytes of their own
            _shelves[self.base.size].append(self.base)


def size_class(nbytes):
    """nbytes rounded up to one of four steps between powers of two, so at most a quarter is wasted."""
    step = 1 << max((nbytes - 1).bit_length() - 3, 0)
    return -(-nbytes // step) * step


@functools.lru_cache(maxsize=4096)
def _place(shape, dtype):
    """(bytes of such an array, bytes that hold it wherever they begin, the shelf of these or None)."""
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes < SMALLEST:
        return nbytes, nbytes, None
    size = size_class(nbytes) + ALIGNMENT
    return nbytes, size, _shelves.setdefault(size, [])


def take(shape, dtype, strides):
    """An uninitialised array of this shape, element type and byte strides (dense, in any order of axes)."""
    nbytes, size, shelf = _place(shape, np.dtype(dtype))
    if shelf is None:
        return np.ndarray(shape, dtype, np.empty(nbytes, np.uint8), 0, strides)
    _Bytes.requests += 1
    try:
        stored = shelf.pop()
        _Bytes.served += 1
    except IndexError:
        stored = _made(size)
    return np.ndarray(shape, dtype, stored.view(_Loan), stored.offset, strides)


def _made(size):
    """Bytes from the system."""
    _Bytes.most_used = max(_Bytes.most_used, _Bytes.made - _cached() + size)
    if _Bytes.made + size > 2 * _Bytes.most_used + SLACK:
        empty_cache()
    try:
        stored = _Bytes((size,), np.uint8)
    except MemoryError:
        empty_cache()
        stored = _Bytes((size,), np.uint8)
    stored.offset = -stored.ctypes.data % ALIGNMENT
    _Bytes.made += size
    _Bytes.peak = max(_Bytes.peak, _Bytes.made)
    return stored


def _cached():
    return sum(size * len(shelf) for size, shelf in list(_shelves.items()))


def empty_cache():
    """Give the bytes on the shelves back to the system."""
    for size, shelf in list(_shelves.items()):
        while True:
            try:
                shelf.pop()
            except IndexError:  # empty; another thread may have taken the last one
                break
            _Bytes.made -= size


def memory_statistics():
    """Bytes obtained from the system, of these in use and on shelves, the peak; how many requests were reused."""
    cached = _cached()
    return {
        "reserved_bytes": _Bytes.made,
        "used_bytes": _Bytes.made - cached,
        "cached_bytes": cached,
        "peak_bytes": _Bytes.peak,
        "requests": _Bytes.requests,
        "reused": _Bytes.served,
    }
