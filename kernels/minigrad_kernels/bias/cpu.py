"""Sums of columns on the CPU: gradients of biases, and what normalisation wants of its columns (norm/cpu.py).

A matrix of (rows, columns) holds the rows of all samples, each of which has sums of its own; a batch is one sample.
Narrow rows are taken as many at a time as fit into TILE elements, so that innermost loops are long; a vector of
columns then repeats itself. Sums are split by shape (see plan.py): a part adds SHORT such lines in the element type
and what they give in float64, which costs little and keeps the error of a sum near one rounding.
"""

import numpy as np

from ..toolchain import add, clear, elements, jit, share, shared, stack_array, sum_rows
from ..toolchain.lines import line
from .plan import cut

TILE = 256  # elements that are held on the stack
SHORT = 16  # lines added in the element type
DOUBLE = np.dtype(np.float64)


# ---- formulas: what an element gives to the two sums of its column -----------------------------------------------

ELEMENTS, RECTIFIED, MOMENTS, PRODUCTS, MASKED = range(5)
ARRAYS = dict(moving="g x out masked", fixed="centre sums others", numbers="zero")


@line(**ARRAYS)
def add_rectified(here):
    """g where out is positive, or NaN; that g is kept."""
    here.masked = here.zero.where(here.out <= here.zero, here.g)
    here.sums += here.masked


@line(**ARRAYS)
def add_moments(here):
    d = here.x - here.centre
    here.sums += d
    here.others += d * d


@line(**ARRAYS)
def add_products(here):
    here.sums += here.g
    here.others += here.g * (here.x - here.centre)


@line(**ARRAYS)
def add_masked_products(here):
    """add_products of g as add_rectified keeps it."""
    g = here.zero.where(here.out <= here.zero, here.g)
    here.masked = g
    here.sums += g
    here.others += g * (here.x - here.centre)


@line(moving="", fixed="sums others total other_total", numbers="zero")
def flush(here):
    """Sums of a few elements go into totals of float64."""
    here.total += here.sums
    here.other_total += here.others
    here.sums = here.zero
    here.others = here.zero


# ---- vectors of columns, along lines ---------------------------------------------------------------------------------


@jit
def line_of(columns):
    """The elements of as many rows as fit into TILE, at least one."""
    return max(1, TILE // columns) * columns


@jit
def spread(vector, first, wide):
    """The elements of a vector that belong to the columns of a line from `first` on, over and over."""
    filled = min(wide.size, vector.size)
    for c in range(filled):
        wide[c] = vector[first + c]
    while filled < wide.size:
        count = min(filled, wide.size - filled)
        for k in range(count):
            wide[filled + k] = wide[k]
        filled += count


@jit
def gather(total, first, sums):
    """Add the columns of a line from `first` on to the sums of their channels."""
    for start in range(0, total.size, sums.size):
        for c in range(min(sums.size, total.size - start)):
            sums[first + c] += total[start + c]


# ---- sums ------------------------------------------------------------------------------------------------------------


@jit
def sum_part(form, g, x, out, masked, start, stop, centres, sums, others):
    """Both sums of the columns of a part, by one of the formulas."""
    line, zero = line_of(sums.size), x.dtype.type(0)
    short = SHORT * line
    together = short if line > TILE else stop - start  # so that the pieces of a long line come from the nearest cache
    clear(sums)
    clear(others)
    for top in range(start, stop, together):
        for first in range(0, line, TILE):
            width = min(TILE, line - first)
            centre, one, two = stack_array(TILE, x, width), stack_array(TILE, x, width), stack_array(TILE, x, width)
            total, other = stack_array(TILE, sums, width), stack_array(TILE, sums, width)
            spread(centres, first, centre)
            clear(one)
            clear(two)
            clear(total)
            clear(other)
            given = g, x, out, masked, centre, one, two, zero
            for block in range(top + first, min(stop, top + together), short):
                for at in range(block, min(stop, block + short), line):
                    count = min(width, stop - at)
                    if form == ELEMENTS:
                        add(g[at : at + count], one)
                    elif form == RECTIFIED:
                        add_rectified(at, count, *given)
                    elif form == MOMENTS:
                        add_moments(at, count, *given)
                    elif form == PRODUCTS:
                        add_products(at, count, *given)
                    else:
                        add_masked_products(at, count, *given)
                if form < MOMENTS:
                    add(one, total)
                    clear(one)
                else:
                    flush(0, width, one, two, total, other, zero)
            gather(total, first, sums)
            if form >= MOMENTS:
                gather(other, first, others)


@shared
def sum_columns(team, form, g, x, out, masked, size, length, centres, sums, others):
    """sums and others: (samples, parts, columns); a sample has `size` elements, a part `length` or fewer."""
    parts = sums.shape[1]
    for p in share(sums.shape[0] * parts, team):
        n, part = p // parts, p % parts
        start = n * size + part * length
        stop = min(start + length, (n + 1) * size)
        sum_part(form, g, x, out, masked, start, stop, centres[n % len(centres)], sums[n, part], others[n, part])


def sums_of_columns(form, x, samples, workspace, centres, g=None, out=None, masked=None):
    """Both sums of each column of each part of each sample, by a formula, as (samples, parts, columns) of float64.

    The formulas below MOMENTS have one sum, which stands for both.
    x, g, out, masked: matrices, all rows; centres: (samples, columns), which moments and products are about
    """
    rows, columns, kinds = len(x) // samples, x.shape[1], 1 + (form >= MOMENTS)
    plan = cut(rows, columns)
    space = elements(workspace, x, DOUBLE, kinds, samples, plan.parts, columns)
    sums, others = space[0], space[-1]
    arrays = [x.reshape(-1) if array is None else array.reshape(-1) for array in (g, x, out, masked)]
    sum_columns.over(x.size, form, *arrays, rows * columns, plan.rows * columns, centres, sums, others)
    return sums, others


def _add_up(form, g, out, dx, result, workspace):
    if g.size:
        sums, _ = sums_of_columns(form, g, 1, workspace, g[:1], g, out, dx)
        sum_rows(sums[0], result)
    else:
        result.fill(0)


def bias_relu_grad(g, out, dx, dbias, workspace):
    _add_up(RECTIFIED, g, out, dx, dbias, workspace)


def column_sums(x, out, workspace):
    _add_up(ELEMENTS, x, None, None, out, workspace)
