"""Transposition on the CPU in tiles of SIDE x SIDE, every thread owning rows of x; what is left at an edge is done by
a tile that overlaps its neighbour."""

from ..toolchain import flat, jit, share, shared
from ..toolchain.packing import SIDE, turn

ROWS = 256  # of x that a thread takes at once


@jit
def band(x, out, n, start, stop):
    """Columns start..stop of out[n]; tiles follow each other along rows of out, to fill cache lines."""
    rows, columns = x.shape[1], x.shape[2]
    base, source, target = n * rows * columns, flat(x), flat(out)
    if columns < SIDE or stop - start < SIDE:
        for c in range(columns):
            for r in range(start, stop):
                out[n, c, r] = x[n, r, c]
        return
    for left in range(0, columns, SIDE):
        c = min(left, columns - SIDE)
        for top in range(start, stop, SIDE):
            r = min(top, stop - SIDE)
            turn(source, base + r * columns + c, columns, target, base + c * rows + r, rows)


@shared
def transpose_bands(team, x, out):
    count = (x.shape[1] + ROWS - 1) // ROWS
    for number in share(x.shape[0] * count, team):
        n, part = number // count, number % count
        band(x, out, n, part * ROWS, min(x.shape[1], part * ROWS + ROWS))


def transpose(x, out):
    transpose_bands.over(x.size, x, out)
