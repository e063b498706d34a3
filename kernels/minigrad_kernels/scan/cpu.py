"""Running sums on the CPU: threads own rows where sums run along them, else columns.

One sum after the other waits for the one before it, so several run side by side: those of ROWS rows, or of COLUMNS
neighbouring columns, which are whole vectors. Each is added up in order, whatever runs beside it.
"""

import numpy as np

from ..toolchain import clear, flat, jit, share, shared, stack_array

__all__ = ["cumsum"]

ROWS = 4
COLUMNS = 256
SMALL = 1 << 15  # elements; below it a second thread costs more than it brings
LIKE = np.zeros(1)  # the type of sums


@jit
def four_rows(x, start, count, first, step, out):
    """Four rows of `count` elements from `start` on, one behind the other."""
    one, two, three, four = 0.0, 0.0, 0.0, 0.0
    k = start + first
    for _ in range(count):
        one += x[k]
        two += x[k + count]
        three += x[k + 2 * count]
        four += x[k + 3 * count]
        out[k] = one
        out[k + count] = two
        out[k + 2 * count] = three
        out[k + 3 * count] = four
        k += step


@jit
def one_row(x, start, count, first, step, out):
    total, k = 0.0, start + first
    for _ in range(count):
        total += x[k]
        out[k] = total
        k += step


@shared
def sum_rows(team, x, reverse, out):
    rows, count = x.shape[0], x.shape[1]
    first, step = (count - 1, -1) if reverse else (0, 1)
    source, target = flat(x), flat(out)
    for block in share((rows + ROWS - 1) // ROWS, team):
        start, stop = block * ROWS, min(rows, block * ROWS + ROWS)
        if stop - start == ROWS:
            four_rows(source, start * count, count, first, step, target)
        else:
            for n in range(start, stop):
                one_row(source, n * count, count, first, step, target)


@jit
def sum_lines(x, out, totals, reverse, like):
    """Sums along the first axis."""
    clear(totals)
    for number in range(x.shape[0]):
        k = x.shape[0] - 1 - number if reverse else number
        line, sums = x[k], out[k]
        for c in range(totals.size):
            totals[c] += line[c]
            sums[c] = totals[c]


@shared
def sum_columns(team, x, reverse, like, out):
    room, columns = stack_array(COLUMNS, like), x.shape[2]
    blocks = (columns + COLUMNS - 1) // COLUMNS
    for number in share(x.shape[0] * blocks, team):
        n, start = number // blocks, number % blocks * COLUMNS
        stop = min(columns, start + COLUMNS)
        sum_lines(x[n, :, start:stop], out[n, :, start:stop], room[: stop - start], reverse, like)


def cumsum(x, reverse, out):
    if x.shape[2] == 1:
        rows = sum_rows.alone if x.size < SMALL else sum_rows
        rows(x, reverse, out)
    else:
        columns = sum_columns.alone if x.size < SMALL else sum_columns
        columns(x, reverse, LIKE, out)
