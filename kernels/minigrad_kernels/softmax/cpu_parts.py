"""What rows of softmax are made of on the CPU: blocks of rows, so that exp meets vectors of any number of classes."""

import math

import numpy as np

from ..toolchain import flat, jit, stack_array
from ..toolchain.emit import wide
from ..toolchain.lines import row_greatest, row_shift, row_sum
from . import maths

__all__ = ["BLOCK", "block", "blocks", "exps", "exps_of_rows", "logs", "shift", "sum_of", "sums_of_exps"]

BLOCK = 2048  # elements of a block of rows; a longer row is a block

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
    """The rows of a block."""
    each = rows_of(x.shape[1])
    start = number * each
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
    row_shift(x, by, 0, out)


@jit
def sum_of(x):
    return row_sum(x, 0, x.size)


@jit
def exps_of_rows(x, greatest, totals, out):
    """For each row of a block the greatest element, out = exp(x - greatest), and its sum; out is 1-D."""
    classes = x.shape[1]
    for n in range(x.shape[0]):
        greatest[n] = row_greatest(flat(x), n * classes, classes)
        shift(x[n], greatest[n], out[n * classes : (n + 1) * classes])
    exps(out)
    for n in range(x.shape[0]):
        totals[n] = row_sum(out, n * classes, classes)


@jit
def sums_of_exps(x, greatest, totals):
    """For each row of a block the greatest element, and the sum of exp(x - greatest)."""
    scratch, classes = stack_array(BLOCK, x), x.shape[1]
    if classes <= BLOCK:
        exps_of_rows(x, greatest, totals, scratch[: x.size])
        return
    greatest[0], totals[0] = row_greatest(x[0], 0, classes), 0
    for start in range(0, classes, BLOCK):
        piece = scratch[: min(BLOCK, classes - start)]
        shift(x[0, start : start + piece.size], greatest[0], piece)
        exps(piece)
        totals[0] += sum_of(piece)
