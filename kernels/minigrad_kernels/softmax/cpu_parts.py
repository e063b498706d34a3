"""What rows of softmax are made of on the CPU: blocks of rows, so that exp meets vectors of any number of classes."""

import math

import numpy as np

from ..pointwise import maths
from ..toolchain import jit, stack_array
from ..toolchain.scalars import wide

__all__ = ["BLOCK", "block", "blocks", "exps", "exps_of_rows", "logs", "shift", "sum_of", "sums_of_exps"]

BLOCK = 2048  # elements of a block of rows; a longer row is a block
LANES = 16  # independent sums and maxima

single_exp, single_log = maths.exp, maths.log


@jit
def rows_of(classes):
    return max(1, BLOCK // classes)


@jit
def blocks(x):
    """How many blocks the rows of x make."""
    each = rows_of(x.shape[1])
    return (x.shape[0] + each - 1) // each


@jit
def block(x, number):
    """The rows of a block. Numba counts a prange without sign, and such a number does not mix with others."""
    each = rows_of(x.shape[1])
    start = np.int64(number) * each
    return slice(start, min(x.shape[0], start + each))


@jit
def exps(x):
    """x becomes e^x."""
    if x.itemsize == 4:
        for k in range(wide(x.size)):
            x[k] = single_exp(np.float32(x[k]))
    else:
        for k in range(x.size):
            x[k] = math.exp(x[k])


@jit
def logs(x):
    """x becomes ln x."""
    if x.itemsize == 4:
        for k in range(wide(x.size)):
            x[k] = single_log(np.float32(x[k]))
    else:
        for k in range(x.size):
            x[k] = math.log(x[k])


@jit
def shift(x, by, out):
    for k in range(out.size):
        out[k] = x[k] - by


@jit
def greatest_of(x, lanes):
    """The greatest element; NaN anywhere but in the first places is passed over, and comes up again in the sum."""
    greatest, whole = x[0], x.size // LANES * LANES
    if whole:
        for lane in range(LANES):
            lanes[lane] = x[lane]
        for start in range(LANES, whole, LANES):
            for lane in range(LANES):
                v, best = x[start + lane], lanes[lane]
                lanes[lane] = v if v > best else best
        for lane in range(LANES):
            greatest = lanes[lane] if lanes[lane] > greatest else greatest
    for k in range(whole, x.size):
        greatest = x[k] if x[k] > greatest else greatest
    return greatest


@jit
def sum_of(x, lanes):
    total, whole = x.dtype.type(0), x.size // LANES * LANES
    if whole:
        for lane in range(LANES):
            lanes[lane] = x[lane]
        for start in range(LANES, whole, LANES):
            for lane in range(LANES):
                lanes[lane] += x[start + lane]
        for lane in range(LANES):
            total += lanes[lane]
    for k in range(whole, x.size):
        total += x[k]
    return total


@jit
def exps_of_rows(x, greatest, totals, out):
    """For each row of a block the greatest element, out = exp(x - greatest), and its sum."""
    lanes = stack_array(LANES, x)
    for n in range(x.shape[0]):
        greatest[n] = greatest_of(x[n], lanes)
        shift(x[n], greatest[n], out[n])
    exps(out.reshape(out.size))
    for n in range(x.shape[0]):
        totals[n] = sum_of(out[n], lanes)


@jit
def sums_of_exps(x, greatest, totals):
    """For each row of a block the greatest element, and the sum of exp(x - greatest)."""
    scratch, lanes, classes = stack_array(BLOCK, x), stack_array(LANES, x), x.shape[1]
    if classes <= BLOCK:
        exps_of_rows(x, greatest, totals, scratch[: x.size].reshape(x.shape))
        return
    greatest[0], totals[0] = greatest_of(x[0], lanes), 0
    for start in range(0, classes, BLOCK):
        piece = scratch[: min(BLOCK, classes - start)]
        shift(x[0, start : start + piece.size], greatest[0], piece)
        exps(piece)
        totals[0] += sum_of(piece, lanes)
