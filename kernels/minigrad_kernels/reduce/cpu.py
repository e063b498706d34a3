"""Sums and extremes of rows on the CPU: lines (see plan.py) are combined element by element, in vectors.

A line of several rows repeats the columns; in the end the repetitions are folded, by halves while they are many. The
results of the parts of a block lie one behind the other and are combined once all are there.
"""

import numpy as np

from ..toolchain import add, clear, copy, flat, jit, share, shared, stack_array
from ..toolchain.rows import add_lines, row_extreme, row_sum
from .plan import TILE, cut

__all__ = ["extremes", "sums"]

SMALL = 1 << 15  # elements; below it a second thread costs more than it brings
SHORT = 16  # lines that are added up in the element type; what they give is added in float64
RUN = 1024  # elements of a single column of which the same holds
FEW = 16  # elements of a single column that are compared one by one


@jit
def piece(x, number, line, width, tiles, parts):
    """(block, part, its first column, first element, behind the last): lines begin at the first and `line` further."""
    rows, columns = x.shape[1], x.shape[2]
    if parts * tiles == 1:
        return number, 0, 0, number * rows * columns, (number + 1) * rows * columns
    block, rest = number // (parts * tiles), number % (parts * tiles)
    part, left = rest // tiles, rest % tiles * width
    row, behind = part * rows // parts, (part + 1) * rows // parts
    return block, part, left, (block * rows + row) * columns + left, (block * rows + behind) * columns


@jit
def half(size, columns):
    """Where the second half of a line begins, which is not larger than the first; both are whole rows."""
    return (size // columns + 1) // 2 * columns


# ---- sums ------------------------------------------------------------------------------------------------------------


@jit
def column_sum(x, start, stop):
    """The sum of x[start:stop], in float64 of what RUN elements at a time give in the element type."""
    total = 0.0
    for first in range(start, stop, RUN):
        total += row_sum(x, first, min(RUN, stop - first))
    return total


@jit
def sum_lines(x, start, stop, line, columns, total):
    """The sums of columns of x[start:stop] into the first elements of a total, which has room for a line."""
    clear(total)
    size = total.size
    lines = (stop - start - size) // line + 1
    for first in range(0, lines, SHORT):
        add_lines(x, start + first * line, line, min(SHORT, lines - first), size, total)
    if start + lines * line < stop:  # a line is cut off
        add_lines(x, start + lines * line, line, 1, stop - start - lines * line, total)
    while size > columns:
        middle = half(size, columns)
        add(total[middle:size], total[: size - middle])
        size = middle


@shared
def sum_pieces(team, x, line, width, tiles, parts, partial, out):
    columns = x.shape[2]
    for number in share(x.shape[0] * parts * tiles, team):
        block, part, left, start, stop = piece(x, number, line, width, tiles, parts)
        size = min(width, columns - left)
        total = stack_array(TILE, partial)
        if columns == 1:
            total[0] = column_sum(flat(x), start, stop)
        else:
            room = size if tiles > 1 else min(width, stop - start)
            sum_lines(flat(x), start, stop, line, columns, total[:room])
        if parts > 1:
            copy(total[:size], partial[block, part, left:])
        else:
            copy(total[:size], out[block, left:])


def sums(x, out):
    if not x.size:
        out.fill(0)
        return
    plan = cut(*x.shape)
    kernel = sum_pieces.alone if x.size < SMALL else sum_pieces
    partial = np.empty((x.shape[0] if plan.parts > 1 else 0, plan.parts, x.shape[2]))
    kernel(x, *plan, partial, out)
    if plan.parts > 1:
        out[...] = partial.sum(1)


# ---- extremes --------------------------------------------------------------------------------------------------------


@jit
def extreme(x, greatest, total):
    """The greater, or the lesser, of each pair; NaN wins."""
    if greatest:
        for k in range(x.size):
            v, w = x[k], total[k]
            total[k] = v if v > w or v != v else w
    else:
        for k in range(x.size):
            v, w = x[k], total[k]
            total[k] = v if v < w or v != v else w


@jit
def short_extreme(x, greatest):
    best = x[0]
    for k in range(1, x.size):
        v = x[k]
        if (v > best if greatest else v < best) or v != v:
            best = v
    return best


@shared
def extreme_pieces(team, x, line, width, tiles, parts, greatest, out):
    columns = x.shape[2]
    for number in share(x.shape[0] * parts * tiles, team):
        block, part, left, start, stop = piece(x, number, line, width, tiles, parts)
        if columns == 1:
            if x.shape[1] > FEW:
                out[block, part, 0] = row_extreme(flat(x), start, stop - start, greatest)
            else:
                out[block, part, 0] = short_extreme(flat(x)[start:stop], greatest)
            continue
        size = min(width, columns - left if tiles > 1 else stop - start)
        total = stack_array(TILE, x, size)
        copy(flat(x)[start : start + size], total)
        for first in range(start + line, stop, line):
            extreme(flat(x)[first : min(stop, first + size)], greatest, total)
        while size > columns:
            middle = half(size, columns)
            extreme(total[middle:size], greatest, total[: size - middle])
            size = middle
        copy(total[:size], out[block, part, left:])


def extremes(x, greatest, out):
    if not x.size:
        return
    plan = cut(*x.shape)
    kernel = extreme_pieces.alone if x.size < SMALL else extreme_pieces
    shape = x.shape[0], plan.parts, x.shape[2]
    partial = out.reshape(shape) if plan.parts == 1 else np.empty(shape, x.dtype)
    kernel(x, *plan, greatest, partial)
    if plan.parts > 1:
        out[...] = partial.max(1) if greatest else partial.min(1)
