"""Elements copied from array to array, on the CPU by several threads where they are many."""

import numpy as np

from minigrad_kernels.copy import copy

from .places import place_of

__all__ = ["concatenate", "copyto"]

LARGE = 1 << 18  # bytes of arrays that threads copy; for fewer NumPy's copy costs as little


def copyto(out, array):
    """Write the elements of an array into one of its device, whose type may be another one."""
    if type(array) is not np.ndarray:
        there = place_of(array)
        with there.active():
            there.module.copyto(out, array, casting="unsafe")
    elif (
        array.nbytes < LARGE or array.dtype != out.dtype or array.shape != out.shape or np.may_share_memory(array, out)
    ):
        np.copyto(out, array, casting="unsafe")
    else:
        copy(array, out)


def concatenate(arrays, axis, out):
    """Write arrays one after the other along an axis into out, whose type may be another one."""
    if type(out) is not np.ndarray or out.nbytes < LARGE:
        place_of(out).module.concatenate(arrays, axis=axis, out=out)
        return
    start = 0
    for array in arrays:
        stop = start + array.shape[axis]
        copyto(out[(slice(None),) * axis + (slice(start, stop),)], array)
        start = stop
