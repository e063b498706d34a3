"""What the kernels of norm/ share on the CPU: lines of whole rows, vectors of channels that repeat along them, sums."""

import numpy as np

from ..bias.cpu import SMALL
from ..toolchain import elements, jit

__all__ = ["gather", "partials", "repeat", "run", "spread", "spread_scale"]


def run(kernel, size, *arguments):
    (kernel.alone if size < SMALL else kernel)(*arguments)


def partials(workspace, parts, columns):
    """Two arrays of float64, (parts, columns)."""
    return elements(workspace, np.dtype(np.float64), 2 * parts * columns).reshape(2, parts, columns)


@jit
def repeat(filled, wide):
    """The first elements again and again, until wide is full."""
    while filled < wide.size:
        count = min(filled, wide.size - filled)
        for k in range(count):
            wide[filled + k] = wide[k]
        filled += count


@jit
def spread(vector, first, wide):
    """The elements of a vector of channels that belong to the columns of a line from `first` on."""
    count = min(wide.size, vector.size)
    for c in range(count):
        wide[c] = vector[first + c]
    repeat(count, wide)


@jit
def spread_scale(variance, weight, has_weight, eps, first, wide):
    """weight / deviation, likewise."""
    one, eps, count = wide.dtype.type(1), wide.dtype.type(eps), min(wide.size, variance.size)
    for c in range(count):
        wide[c] = one / np.sqrt(variance[first + c] + eps)
    if has_weight:
        for c in range(count):
            wide[c] *= weight[first + c]
    repeat(count, wide)


@jit
def gather(total, first, sums):
    """Add the columns of a line from `first` on to the sums of their channels."""
    for start in range(0, total.size, sums.size):
        for c in range(min(sums.size, total.size - start)):
            sums[first + c] += total[start + c]
