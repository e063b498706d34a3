"""The mode tf32 on the CPU: convolutions of operands that are rounded to TF32 first, into the workspace."""

import functools
from math import prod

import numpy as np

from ..layout import strides_of
from ..toolchain.product import ALIGNMENT
from ..toolchain.tf32_mode import mode, round_to_tf32

__all__ = ["in_tf32", "rounded_bytes"]

SINGLE = np.dtype(np.float32)


def _room(size):
    """Bytes for so many elements, so that what follows lies as well as they do."""
    return -(-size * SINGLE.itemsize // ALIGNMENT) * ALIGNMENT


def rounded_bytes(*sizes):
    """Bytes for rounded copies of two operands of so many elements."""
    return sum(_room(size) for size in sizes) + ALIGNMENT


def in_tf32(first, second):
    """A decorator for a direction, whose first arguments are its operands and whose last one is the workspace.

    first, second: the layouts of the operands; what is named is passed on
    """

    def decorated(direction):
        @functools.wraps(direction)
        def rounding(a, b, *rest, **named):
            if not mode() or a.dtype != SINGLE:
                return direction(a, b, *rest, **named)
            memory = rest[-1]
            start, copies = -memory.ctypes.data % ALIGNMENT, []
            for array, layout in ((a, first), (b, second)):
                copy = np.ndarray(array.shape, SINGLE, memory, start, strides_of(array.shape, layout, SINGLE.itemsize))
                round_to_tf32(array, copy)
                copies.append(copy)
                start += _room(prod(array.shape))
            return direction(*copies, *rest[:-1], memory[start:], **named)

        return rounding

    return decorated
