"""Sums in one order whatever the number of ranks.

Floating-point addition is not associative, so a sum has as many values as orders. Here it is always taken pairwise,
((a0 + a1) + (a2 + a3)) + ...: a rank that holds an aligned block of 2^k of the terms can add them first, and the
total keeps its bits.

Source  Higham 1993, "The accuracy of floating point summation", SIAM J. Sci. Comput. 14 (pairwise summation)
"""

import numpy as np

__all__ = ["OPS", "pairwise"]

OPS = {"sum": np.add, "mean": np.add, "max": np.maximum, "min": np.minimum}  # a mean is a sum, divided in the end


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
