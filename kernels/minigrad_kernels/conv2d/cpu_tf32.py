"""The mode tf32 on the CPU: convolutions of operands that are rounded to TF32 first, into the workspace."""

from math import prod

import numpy as np

from ..layout import strides_of
from ..toolchain.product import ALIGNMENT
from ..toolchain.tf32_mode import round_to_tf32

__all__ = ["rounded_bytes", "rounding"]

SINGLE = np.dtype(np.float32)


def _room(size):
    """Bytes for so many elements, so that what follows lies as well as they do."""
    return -(-size * SINGLE.itemsize // ALIGNMENT) * ALIGNMENT


def rounded_bytes(*sizes):
    """Bytes for rounded copies of two operands of so many elements."""
    return sum(_room(size) for size in sizes) + ALIGNMENT


def rounding(run, first, second):
    """`run` on arrays of which the first two, which lie in these layouts, are rounded; the last is the workspace."""

    def rounded(a, b, *rest):
        memory = rest[-1]
        start, copies = -memory.ctypes.data % ALIGNMENT, []
        for array, layout in ((a, first), (b, second)):
            copy = np.ndarray(array.shape, SINGLE, memory, start, strides_of(array.shape, layout, SINGLE.itemsize))
            round_to_tf32(array, copy)
            copies.append(copy)
            start += _room(prod(array.shape))
        return run(*copies, *rest[:-1], memory[start:])

    return rounded
