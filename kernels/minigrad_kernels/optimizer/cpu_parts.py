"""How updates on the CPU find their work: tables of where tensors lie, cut into chunks."""

import ctypes
from typing import NamedTuple

import numpy as np

from ..toolchain import array_at, jit

__all__ = ["CHUNK", "SMALL", "addresses", "chunks", "find", "part", "tables"]

CHUNK = 16384  # elements
SMALL = 1 << 16  # elements; below it a second thread costs more than it brings
LIKE = {np.dtype(t): np.empty(0, t) for t in (np.float32, np.float64)}


def addresses(arrays):
    return tuple([_pointer(id(array) + HEAD).value for array in arrays])


# NumPy's interface for C: the pointer to the elements is what follows the head of the object. To read it there takes a
# quarter of the time that __array_interface__ does.
HEAD, _pointer = object.__basicsize__, ctypes.c_void_p.from_address
if addresses([_probe := np.zeros(1)]) != (_probe.ctypes.data,):

    def addresses(arrays):
        return tuple([array.ctypes.data for array in arrays])


class Tables(NamedTuple):
    addresses: np.ndarray  # (kinds, tensors); kinds that are not there have no row
    sizes: np.ndarray  # (tensors,)
    like: np.ndarray  # of the element type
    present: tuple  # for each state whether it is there


def tables(rows, sizes, like):
    """Tables from rows of addresses, those of the parameters first; a row of a state that is not there is empty."""
    places = np.array([row for row in rows if row], np.int64)
    return Tables(places, np.array(sizes, np.int64), LIKE[like.dtype], tuple(map(bool, rows[2:])))


@jit
def chunks(sizes):
    """How many chunks tensors of these sizes are cut into."""
    count = 0
    for t in range(sizes.size):
        count += (sizes[t] + CHUNK - 1) // CHUNK
    return count


@jit
def find(sizes, chunk):
    """The tensor that a chunk belongs to, and the first and one past the last element of the chunk in it."""
    for t in range(sizes.size):
        count = (sizes[t] + CHUNK - 1) // CHUNK
        if chunk < count:
            return t, chunk * CHUNK, min(sizes[t], chunk * CHUNK + CHUNK)
        chunk -= count
    return 0, 0, 0


@jit
def part(addresses, kind, t, start, stop, like):
    """Elements start..stop of tensor t of this kind."""
    return array_at(addresses[kind, t] + start * like.itemsize, stop - start, like)
