"""The gradient of a bias with ReLU, and sums of columns, on the CPU: every thread owns runs of whole rows.

Narrow rows are taken as many at a time as fit into TILE elements, so that innermost loops are long; the vector of
columns then repeats itself. A part (see plan.py) adds SHORT such lines in the element type and what they give in
float64, which costs little and keeps the error of a sum near one rounding.
"""

import functools

import numpy as np

from ..elementwise.cpu import rectify_run
from ..launcher import Call
from ..toolchain import add, clear, copy, elements, jit, share, shared, stack_array
from ..toolchain.product import flat
from .plan import ALIGNMENT, cut

SMALL = 1 << 14  # elements; below it a second thread costs more than it brings
TILE = 256  # elements that are held on the stack
DOUBLE = np.dtype(np.float64)
FEW = 256  # columns, whose sums take less time to allocate than to find in a workspace
SHORT = 16  # lines added in the element type


# ---- sums --------------------------------------------------------------------------------------------------------


@jit
def line_of(columns):
    """The elements of as many rows as fit into TILE, at least one."""
    return max(1, TILE // columns) * columns


@jit
def add_lines(x, line, total):
    """Add lines, the last perhaps shorter, to a total in float64."""
    for first in range(0, line, TILE):
        short = stack_array(TILE, x, min(TILE, line - first))
        clear(short)
        for start in range(first, x.size, line):
            add(x[start : min(start + short.size, x.size)], short)
        add(short, total[first:])


@jit
def fold(total, sums):
    """Add the repetitions of the columns."""
    for start in range(0, total.size, sums.size):
        add(total[start : start + sums.size], sums)


@jit
def sum_part(g, out, dx, relu, sums):
    """The sums of the columns of a part of g, in float64.

    With relu of dx, which is made SHORT lines at a time: they are still in cache when they are summed.
    """
    line = line_of(sums.size)
    total = stack_array(TILE, sums, line) if line <= TILE else sums
    clear(sums)
    clear(total)
    for start in range(0, g.size, SHORT * line):
        here = slice(start, min(g.size, start + SHORT * line))
        if relu:
            rectify_run(g[here], out[here], dx[here])
        add_lines(dx[here], line, total)
    if line <= TILE:
        fold(total, sums)


@shared
def sum_parts(team, g, out, dx, relu, size, partial, sums):
    """Where there is one part, its sums go to the result at once."""
    for p in share(partial.shape[0], team):
        here = slice(p * size, min(g.size, p * size + size))
        sum_part(g[here], out[here], dx[here], relu, partial[p])
        if partial.shape[0] == 1:
            copy(partial[p], sums)


@functools.lru_cache(maxsize=1024)
def ready(rows, columns):
    """The Call for arrays without gaps that are matrices of so many rows and columns."""
    if not rows:
        return Call(0, _clear)
    plan = cut(rows, columns)
    shape = plan.parts, columns
    kernel = sum_parts.alone if rows * columns < SMALL else sum_parts
    few = plan.parts == 1 and columns <= FEW
    wanted = 0 if few else DOUBLE.itemsize * plan.parts * columns + ALIGNMENT - 1
    return Call(wanted, functools.partial(_sum, kernel, plan.rows * columns, shape, few))


@np.errstate(all="ignore")  # infinities and NaN are the user's
def _sum(kernel, size, shape, few, *arrays):
    *matrices, out, workspace = arrays
    matrices, relu = list(map(flat, matrices)), len(matrices) > 1
    partial = np.empty(shape) if few else elements(workspace, DOUBLE, shape[0] * shape[1]).reshape(shape)
    kernel(*(matrices if relu else 3 * matrices), relu, size, partial, out)
    if shape[0] > 1:
        out[:] = np.add.reduce(partial)


def _clear(*arrays):
    arrays[-2].fill(0)


def bias_relu_grad(g, out, dx, dbias, workspace):
    ready(*g.shape).run(g, out, dx, dbias, workspace)


def column_sums(x, out, workspace):
    ready(*x.shape).run(x, out, workspace)
