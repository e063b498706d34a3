"""Vector microkernels: the innermost loops of every matrix product and convolution, written as LLVM IR.

A tile of the result is held in vector registers while the sum runs; the loops around the tiles are plain Numba
(see product.py). There are three forms, all generic over float32 and float64:

gather tile   C[c_row(i) + v] = start + sum_t sum_k A[a_row(i) + a_tap(t) + k*a_step] * B[b_tap(t) + k*b_step + v]
              lanes lie over the columns v; rows i and taps t are looked up in tables of offsets
channel tile  C[c_row(i) + v] = start + sum_t sum_k A[a_row(i) + a_tap(t) + k*a_step + v] * B[b_tap(t) + k*b_step + v]
              the same, but each lane has an A of its own: depthwise convolution
dot tile      C[c_row(i) + v] = start + sum_k A[a_row(i) + k] * B[v*b_step + k]
              lanes lie over k, and are added in a fixed order at the end

Start is C itself, a bias, or zero. It is added to the sum at the end, so that a long sum in parts loses less. With
relu, what is stored is the positive part; NaN stays NaN. Rows past the last one repeat it: they compute and store the
same value. Columns past the last one are masked. The sums of a tile do not depend on the tile's shape, so neither do
the bits, except that the dot tile adds as many partial sums as a vector has lanes.

Source  K. Goto, R. van de Geijn, "Anatomy of high-performance matrix multiplication", 2008, section 5 (register tiles)
"""

import functools
import operator

from .emit import TILE, emitted


def _rows(emit, count, a, a_rows, a_offset, c, c_rows, c_offset, row, rows, bias, bias_offset, accumulate):
    """Byte addresses of a tile's rows in A and C, and where its sums start."""
    a_base, c_base = a.at(a_offset), c.at(c_offset)
    numbers = [emit.minimum(row + i, rows - 1) for i in range(count)]
    fresh = emit.zeros().where(bias.count.equals(0), bias.at(bias_offset))
    c_found = [c_base + c_rows[number] * emit.size for number in numbers]
    starts = [fresh.where(accumulate.equals(0), address) for address in c_found]
    return [a_base + a_rows[number] * emit.size for number in numbers], c_found, starts


def _floor(emit, relu):
    """What results are not below: 0 with relu, else minus infinity."""
    return emit.filled(float("-inf"), emit.element).where(relu.equals(0), 0)


def _at_least(value, floor):
    """The greater of both; a NaN of the value stays."""
    return floor.where(value <= floor, value)


def _store_gather(emit, rows, masks, taps, steps, by_lane, relu):
    """The tile itself: len(masks) vectors wide; by_lane: a channel tile."""
    (a_rows, c_rows, starts), vectors = rows, range(len(masks))
    sums = [[emit.variable(emit.filled(0)) for _ in vectors] for _ in c_rows]
    if by_lane or len(masks) > 1:
        _add_products(emit, sums, a_rows, None, masks, taps, steps, by_lane)
    else:
        between, alike = _pairs(a_rows)
        with emit.if_else(alike) as (paired, any_rows):
            with paired:
                _add_products(emit, sums, a_rows[::2], between, masks, taps, steps, False)
            with any_rows:
                _add_products(emit, sums, a_rows, None, masks, taps, steps, False)
    # All are read before any is written: a row that repeats the last one must find the same.
    across = [v * emit.lanes * emit.size for v in vectors]
    starts = [[emit.load(row + across[v], masks[v]) for v in vectors] for row in starts]
    totals = [[first[v] + line[v].get() for v in vectors] for first, line in zip(starts, sums, strict=True)]
    floor = _floor(emit, relu).splat(emit.lanes)
    for row, line in zip(c_rows, totals, strict=True):
        for v in vectors:
            emit.store(_at_least(line[v], floor), row + across[v], masks[v])


def _pairs(rows):
    """How far the second row of a pair of rows lies behind the first, and whether that is so in all pairs.

    Then half as many addresses do. One vector of columns reads a row for each product, and has no time to read an
    address too for which there was no register.
    """
    between = [second - first for first, second in zip(rows[::2], rows[1::2], strict=True)]
    return between[0], functools.reduce(operator.and_, [other.equals(between[0]) for other in between[1:]])


def _add_products(emit, sums, rows, between, masks, taps, steps, by_lane):
    """Adds to the sums of rows, or of pairs of rows that lie so far apart."""
    a_taps, b_taps, tap, tap_end, b = taps
    length, a_step, b_step = steps
    across = [v * emit.lanes * emit.size for v in range(len(masks))]
    with emit.loop(tap_end - tap) as index:
        number = tap + index
        shift = emit.variable(a_taps[number] * emit.size)
        position = emit.variable(b + b_taps[number] * emit.size)
        with emit.loop(length):
            here, there = position.get(), emit.hidden(shift.get())
            right = [emit.load(here + by, mask) for by, mask in zip(across, masks, strict=True)]
            if between is None:
                places = [row + there for row in rows]
            else:
                second = emit.hidden(there + between)
                places = [row + start for row in rows for start in (there, second)]
            for line, place in zip(sums, places, strict=True):
                shared = None if by_lane else emit.load(place, kind=emit.element).splat(emit.lanes)
                for v, (by, mask) in enumerate(zip(across, masks, strict=True)):
                    left = shared or emit.load(place + by, mask)
                    line[v].set(line[v].get() + left * right[v])
                emit.fence(line)
            position.set(here + b_step)
            shift.set(there + a_step)


# The tiles take their arguments in one order: first where the rows lie (_rows), then the sum.


def _gather_tile(vectors, by_lane=False, count=TILE.rows):
    """A gather or channel tile of `count` rows, that many vectors wide; only its last vector may be partial."""

    @emitted(contract=True)
    def tile(
        emit, a, a_rows, a_offset, c, c_rows, c_offset, row, rows, bias, bias_offset,
        b, a_taps, b_taps, b_offset, tap, tap_end, length, a_step, b_step, columns, accumulate, relu,
    ):  # fmt: skip
        where = a, a_rows, a_offset, c, c_rows, c_offset, row, rows, bias, bias_offset
        found = _rows(emit, count, *where, accumulate)
        taps, steps = (a_taps, b_taps, tap, tap_end, b.at(b_offset)), (length, a_step * emit.size, b_step * emit.size)
        full = [None] * (vectors - 1)
        emit.under_mask(
            columns - (vectors - 1) * emit.lanes,
            lambda mask: _store_gather(emit, found, [*full, mask], taps, steps, by_lane, relu),
        )

    return tile


wide_tile = _gather_tile(2)  # for more columns than one vector has lanes
low_tile = _gather_tile(2, count=TILE.low_rows)  # the same, for the rows that whole tiles leave
narrow_tile = _gather_tile(1)  # for at most as many columns as a vector has lanes
channel_tile = _gather_tile(1, by_lane=True)  # so is this


@emitted(contract=True)
def dot_tile(
    emit, a, a_rows, a_offset, c, c_rows, c_offset, row, rows, bias, bias_offset,
    b, b_offset, length, b_step, column, columns, accumulate, relu,
):  # fmt: skip
    """A dot tile from a row and a column on: one vector of sums for each result."""
    where = a, a_rows, a_offset, c, c_rows, c_offset, row, rows, bias, bias_offset
    lefts, results, firsts = _rows(emit, TILE.dot_rows, *where, accumulate)
    numbers = [emit.minimum(column + j, columns - 1) for j in range(TILE.dot_columns)]
    addresses = [b.at(b_offset) + number * b_step * emit.size for number in numbers]
    sums = [[emit.variable(emit.filled(0)) for _ in numbers] for _ in lefts]

    def step(k, mask):
        right = [emit.load(address + k * emit.size, mask) for address in addresses]
        for row, line in zip(lefts, sums, strict=True):
            left = emit.load(row + k * emit.size, mask)
            for slot, vector in zip(line, right, strict=True):
                slot.set(slot.get() + left * vector)

    emit.whole_vectors(length, step)
    totals = [[slot.get().sum() for slot in line] for line in sums]
    nothing = bias.count.equals(0) & accumulate.equals(0)
    places = [emit.number(0).where(nothing, number * emit.size) for number in numbers]
    starts = [[emit.load(line + place, kind=emit.element) for place in places] for line in firsts]
    for line, c_row, start in zip(totals, results, starts, strict=True):
        for value, number, first in zip(line, numbers, start, strict=True):
            emit.store(_at_least(first + value, _floor(emit, relu)), c_row + number * emit.size)
