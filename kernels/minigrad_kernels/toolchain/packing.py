"""Copies of blocks: as they are, turned over in vector registers, and as a panel of a product's right factor B.

A panel has rows of two vectors side by side, in the order in which a tile of vector.py reads them. A tile reads two
vectors of each row of B. Where rows lie far apart these meet in few sets of the nearest cache, each
on a page of its own; a panel has neither fault, and serves all rows of A. It also turns a B whose sums run along
memory, which no gather tile could read.
"""

from .cpu import jit
from .emit import TILE, emitted, transposed

SIDE = 16  # elements of a tile that `turn` turns over


def _copy_rows(emit, here, step, there, pitch, rows, copy):
    """copy(address of a row, of its place) for each row; step and pitch, in elements, lead to the next."""
    here, there = emit.variable(here), emit.variable(there)
    with emit.loop(rows):
        copy(here.get(), there.get())
        here.set(here.get() + step * emit.size)
        there.set(there.get() + pitch * emit.size)


@emitted
def copy_block(emit, source, start, step, target, place, pitch, rows, count):
    """Rows of so many elements, `step` apart, to places `pitch` apart.

    From a loop over few elements the compiler makes code that first asks whether the arrays overlap, too long for them.
    """

    def copy(here, there):
        move = lambda k, mask: emit.store(emit.load(here + k * emit.size, mask), there + k * emit.size, mask)
        emit.whole_vectors(count, move)

    _copy_rows(emit, source.at(start), step, target.at(place), pitch, rows, copy)


@emitted
def _copy_narrow(emit, source, start, step, target, place, rows, columns):
    """Rows of at most two vectors, `step` apart, side by side; absent columns become 0."""
    width = 2 * emit.lanes

    def copies(masks):
        def copy(here, there):
            for v, mask in enumerate(masks):
                by = v * emit.lanes * emit.size
                emit.store(emit.load(here + by, mask), there + by)

        _copy_rows(emit, source.at(start), step, target.at(place), emit.number(width), rows, copy)

    with emit.if_else(columns >= width) as (full, partial):
        with full:
            copies([None, None])
        with partial:
            copies([emit.mask(columns - v * emit.lanes) for v in (0, 1)])


@emitted
def transpose(emit, source, at, down, rows, count, target, target_at, step):
    """target[target_at + j*step + i] = source[at + i*down + j], for as many i and j as a vector has lanes.

    Rows past `rows` and columns past `count` are read as 0.
    """
    base, zeros = source.at(at), emit.zeros()

    def turn(mask):
        addresses = [(base + down * (i * emit.size)).where(rows > i, zeros) for i in range(emit.lanes)]
        for j, vector in enumerate(transposed([emit.load(address, mask) for address in addresses])):
            target.store(vector, target_at + step * j)

    emit.under_mask(count, turn)


@emitted(lanes=SIDE)
def turn(emit, x, at, step, out, out_at, out_step):
    """out[out_at + k * out_step + i] = x[at + i * step + k] for i and k from 0 to SIDE - 1; x and out are 1-D."""
    for k, column in enumerate(transposed([x.load(at + step * i) for i in range(SIDE)])):
        out.store(column, out_at + out_step * k)


@emitted
def _copy_any(emit, source, start, step, column_step, target, place, rows, columns):
    """Rows and columns that lie apart, one element after the other; places may lie before the first of the array."""
    with emit.loop(rows) as row, emit.loop(columns) as column:
        here, there = source.at(start + row * step + column * column_step), place + row * (2 * emit.lanes) + column
        emit.store(emit.load(here, kind=emit.element), target.at(there))


@jit
def pack(b, start, step, column_step, length, columns, panel, place):
    """A block of B, `length` rows by at most two vectors of columns, at a place of the panel.

    The panel needs room for as many more rows as a vector has lanes.
    """
    lanes = TILE.vector_bytes // b.itemsize
    if column_step == 1:
        _copy_narrow(b, start, step, panel, place, length, columns)
    elif step == 1:
        for row in range(0, length, lanes):
            for column in range(0, columns, lanes):
                transpose(
                    b, start + row + column * column_step, column_step, columns - column, length - row,
                    panel, place + row * 2 * lanes + column, 2 * lanes,
                )  # fmt: skip
    else:
        _copy_any(b, start, step, column_step, panel, place, length, columns)
