"""Copies between orders of axes on the CPU, such as channels last and C order, by a kernel of our own."""

import math

import numpy as np

from minigrad_kernels.toolchain import threads
from minigrad_kernels.transpose import transpose

__all__ = ["SMALLEST", "turned"]

SMALLEST = 1 << 15  # elements of arrays to ask for; for fewer NumPy's copy costs as little
NARROW = 16  # rows or columns, below which there are no tiles
MANY = 3  # threads, from which on a narrow matrix is worth the kernel: one by itself takes twice as long as NumPy
TYPES = (np.dtype(np.float32), np.dtype(np.float64))


def turned(array, out, order, out_order):
    """Write a dense array, whose axes lie in `order`, into `out`, where they lie in out_order; whether that was done.

    It is where, behind what both orders begin with, two groups of axes have changed places, and the kernel pays.
    """
    if array.__class__ is not np.ndarray or array.dtype not in TYPES:
        return False
    seen = array.transpose(order)
    if not seen.flags.c_contiguous:
        return False
    same = next((k for k, (a, b) in enumerate(zip(order, out_order, strict=True)) if a != b), len(order))
    rest, out_rest = order[same:], out_order[same:]
    if not rest or rest.index(out_rest[0]) + out_rest.index(rest[0]) != len(rest):
        return False
    middle = rest.index(out_rest[0])
    if rest[middle:] + rest[:middle] != out_rest:
        return False
    count = math.prod(array.shape[axis] for axis in order[:same])
    rows = math.prod(array.shape[axis] for axis in rest[:middle])
    columns = array.size // (count * rows)
    least = min(rows, columns)
    if least == 1 or (least < NARROW and threads() < MANY):
        return False
    transpose(seen.reshape(count, rows, columns), out.transpose(out_order).reshape(count, columns, rows))
    return True
