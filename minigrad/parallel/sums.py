"""Sums in one order whatever the number of ranks, and numbers of 16 bits on the wire.

Floating-point addition is not associative, so a sum has as many values as orders. Here it is always taken pairwise,
((a0 + a1) + (a2 + a3)) + ...: a rank that holds an aligned block of 2^k of the terms can add them first, and the
total keeps its bits.

Source  Higham 1993, "The accuracy of floating point summation", SIAM J. Sci. Comput. 14 (pairwise summation)
"""

import numpy as np

__all__ = ["OPS", "WIRES", "decoded", "encoded", "pairwise"]

OPS = {"sum": np.add, "mean": np.add, "max": np.maximum, "min": np.minimum}  # a mean is a sum, divided in the end
WIRES = ("float16", "bfloat16")
_HALF, _QUIET_NAN = 0x7FFF, 0x7FC0


def pairwise(parts, add=np.add):
    """The sum of arrays of one shape, neighbours first, a last one without a neighbour passed on; they stay the same.

    add     a ufunc of two arguments
    """
    level, owned = list(parts), False
    while len(level) > 1:
        rest = level[len(level) & ~1 :]  # it never comes first in a pair, so it is not written
        level = [add(a, b, out=a if owned else None) for a, b in zip(level[::2], level[1::2], strict=False)] + rest
        owned = True
    return level[0]


def encoded(array, wire):
    """float32 numbers as those of 16 bits, rounded to nearest even; bfloat16 as the uint16 of its bits."""
    if wire == "float16":
        with np.errstate(over="ignore"):  # beyond 65504 is infinity, as for any conversion
            return array.astype(np.float16)
    bits = array.view(np.uint32)
    rounded = ((bits + (_HALF + ((bits >> 16) & 1))) >> 16).astype(np.uint16)
    return np.where(np.isnan(array), np.uint16(_QUIET_NAN), rounded)


def decoded(array, wire):
    """What encoded gave, as float32; without a wire, the array as it is."""
    if wire == "bfloat16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32) if wire else array
