"""Mean and variance of channels on the CPU, in one pass.

A part (see cpu.py) sums x - c and (x - c)**2, where c is the median of three of its elements, and so loses no digits
to a mean that is far from 0, or to one element that is far from all others. Its sums are then moved, in float64, to
the first row of all.

Source  Chan, Golub and LeVeque 1983, "Algorithms for computing the sample variance", section 3 (shifted data)
"""

import numpy as np

from ..bias.cpu import SHORT, TILE, line_of
from ..bias.plan import cut
from ..toolchain import clear, jit, share, shared, stack_array
from .cpu_lines import add_moments, flush
from .cpu_parts import gather, partials, repeat, run

__all__ = ["batch_statistics"]


@jit
def finite(value):
    """What elements are compared with: not an infinity, to which all are infinitely far."""
    return value if abs(value) < np.inf else np.float32(0)


@jit
def pivot(x, start, stop, columns, c):
    """The median of the first, the middle and the last element of a column of a part."""
    first, last = x[start + c], x[stop - columns + c]
    middle = x[start + (stop - start) // columns // 2 * columns + c]
    low, high = min(first, last), max(first, last)
    return finite(low if middle < low else high if middle > high else middle)


@jit
def moments_about(x, start, stop, sums, squares):
    """The sums of x - c and of (x - c)**2 for the columns of a part, c being its pivots, into float64."""
    columns = sums.size
    line = line_of(columns)
    clear(sums)
    clear(squares)
    for first in range(0, line, TILE):
        width = min(TILE, line - first)
        centre, one, two = stack_array(TILE, x, width), stack_array(TILE, x, width), stack_array(TILE, x, width)
        total, other = stack_array(TILE, sums, width), stack_array(TILE, sums, width)
        for c in range(min(columns, width)):
            centre[c] = pivot(x, start, stop, columns, first + c)
        repeat(min(columns, width), centre)
        clear(one)
        clear(two)
        clear(total)
        clear(other)
        for block in range(start + first, stop, SHORT * line):
            for at in range(block, min(stop, block + SHORT * line), line):
                add_moments(at, min(width, stop - at), x, centre, one, two)
            flush(0, width, one, two, total, other, x.dtype.type(0))
        gather(total, first, sums)
        gather(other, first, squares)


@jit
def part_moments(x, start, stop, sums, squares):
    """The same, about the first row of all."""
    moments_about(x, start, stop, sums, squares)
    count = (stop - start) // sums.size
    for c in range(sums.size):
        d = np.float64(pivot(x, start, stop, sums.size, c)) - np.float64(finite(x[c]))
        squares[c] += d * (2 * sums[c] + count * d)
        sums[c] += count * d


@shared
def moments(team, x, size, sums, squares):
    for p in share(sums.shape[0], team):
        start = p * size
        part_moments(x, start, min(x.size, start + size), sums[p], squares[p])


@np.errstate(all="ignore")  # infinities and NaN are the user's
def batch_statistics(x, mean, variance, workspace, running_mean, running_var, has_running, momentum):
    if not x.size:
        mean.fill(np.nan)
        variance.fill(np.nan)
        return
    plan = cut(*x.shape)
    parts = partials(workspace, plan.parts, mean.size)
    run(moments, x.size, x.reshape(-1), plan.rows * mean.size, *parts)
    count, first = np.float64(len(x)), x[0]
    d, squares = parts.sum(1) / count
    v = squares - d * d
    mean[:] = np.where(np.isfinite(first), first, 0) + d
    variance[:] = np.where(v < 0, 0, v)  # written so that NaN passes
    if has_running:
        for kept, new in (running_mean, mean), (running_var, variance * (count / (count - 1))):
            kept[:] = (1 - np.float64(momentum)) * kept + momentum * new
