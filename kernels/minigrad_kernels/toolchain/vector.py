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
from typing import NamedTuple

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from .emit import TILE, Emitter, constant, hidden
from .jobs import LOW_ROWS

__all__ = ["channel_tile", "dot_tile", "low_tile", "narrow_tile", "wide_tile"]


class _Rows(NamedTuple):
    """Byte addresses of a tile's rows in A and C, and where its sums start."""

    a: list
    c: list
    start: list


def _rows(emit, count, values, accumulate):
    """Look up the rows; `values` are (a, a_rows, a_offset, c, c_rows, c_offset, row, rows, bias, bias_offset)."""
    a, a_rows, a_offset, c, c_rows, c_offset, row, rows, bias, bias_offset = values
    builder = emit.builder
    a, c = emit.base(0, a, a_offset), emit.base(3, c, c_offset)
    a_rows, c_rows = emit.array(1, a_rows).data, emit.array(4, c_rows).data
    last = builder.sub(rows, constant(1))
    numbers = [emit.minimum(builder.add(row, constant(i)), last) for i in range(count)]
    a = [emit.shifted(a, emit.entry(a_rows, number)) for number in numbers]
    c = [emit.shifted(c, emit.entry(c_rows, number)) for number in numbers]
    zeros = emit.zeros()
    absent = builder.icmp_signed("==", emit.array(8, bias).nitems, constant(0))
    fresh = builder.select(absent, zeros, emit.base(8, bias, bias_offset))
    accumulate = builder.icmp_signed("!=", accumulate, constant(0))
    return _Rows(a, c, [builder.select(accumulate, address, fresh) for address in c]), absent, accumulate


def _floor(emit, relu):
    """What results are not below: 0 with relu, else minus infinity."""
    zero, lowest = (ir.Constant(emit.element, value) for value in (0.0, float("-inf")))
    return emit.builder.select(emit.builder.icmp_signed("!=", relu, constant(0)), zero, lowest)


def _emit_gather(emit, rows, masks, taps, steps, by_lane, relu):
    """The tile itself: len(masks) vectors wide; by_lane: a channel tile."""
    builder, vectors = emit.builder, range(len(masks))
    sums = [[emit.variable(ir.Constant(emit.vector, None)) for _ in vectors] for _ in rows.c]
    if by_lane or len(masks) > 1:
        _emit_sum(emit, sums, rows.a, None, masks, taps, steps, by_lane)
    else:
        between, alike = _pairs(emit, rows.a)
        with builder.if_else(alike) as (paired, any_rows):
            with paired:
                _emit_sum(emit, sums, rows.a[::2], between, masks, taps, steps, False)
            with any_rows:
                _emit_sum(emit, sums, rows.a, None, masks, taps, steps, False)
    # All are read before any is written: a row that repeats the last one must find the same.
    starts = [[emit.load(emit.shifted(row, constant(v * emit.lanes)), masks[v]) for v in vectors] for row in rows.start]
    totals = [
        [builder.fadd(*pair) for pair in zip(first, map(builder.load, line), strict=True)]
        for first, line in zip(starts, sums, strict=True)
    ]
    floor = emit.splat(_floor(emit, relu))
    for row, line in zip(rows.c, totals, strict=True):
        for v in vectors:
            emit.store(emit.at_least(line[v], floor), emit.shifted(row, constant(v * emit.lanes)), masks[v])


def _pairs(emit, rows):
    """How far the second row of a pair of rows lies behind the first, and whether that is so in all pairs.

    Then half as many addresses do. One vector of columns reads a row for each product, and has no time to read an
    address too for which there was no register.
    """
    builder = emit.builder
    between = [builder.sub(second, first) for first, second in zip(rows[::2], rows[1::2], strict=True)]
    equal = [builder.icmp_signed("==", other, between[0]) for other in between[1:]]
    return between[0], functools.reduce(builder.and_, equal)


def _emit_sum(emit, sums, rows, between, masks, taps, steps, by_lane):
    """Adds to the sums of rows, or of pairs of rows that lie so far apart."""
    builder, vectors = emit.builder, range(len(masks))
    a_taps, b_taps, tap, tap_end, b = taps
    length, a_step, b_step = steps
    with cgutils.for_range(builder, builder.sub(tap_end, tap)) as outer:
        number = builder.add(tap, outer.index)
        shift = emit.variable(builder.mul(emit.entry(a_taps, number), constant(emit.size)))
        position = emit.variable(emit.shifted(b, emit.entry(b_taps, number)))
        with cgutils.for_range(builder, length):
            here, there = builder.load(position), hidden(builder, builder.load(shift))
            right = [emit.load(emit.shifted(here, constant(v * emit.lanes)), masks[v]) for v in vectors]
            if between is None:
                places = [builder.add(row, there) for row in rows]
            else:
                second = hidden(builder, builder.add(there, between))
                places = [builder.add(row, start) for row in rows for start in (there, second)]
            for line, place in zip(sums, places, strict=True):
                shared = None if by_lane else emit.splat(emit.scalar(place))
                for v in vectors:
                    left = shared or emit.load(emit.shifted(place, constant(v * emit.lanes)), masks[v])
                    emit.multiply_add(left, right[v], line[v])
                emit.fence(line)
            builder.store(builder.add(here, b_step), position)
            builder.store(builder.add(there, a_step), shift)


def _signature(arguments):
    """Arrays as they come, everything else as int64."""
    return types.void(*(kind if isinstance(kind, types.Array) else types.int64 for kind in arguments))


# The tiles take their arguments in one order: first where the rows lie (_rows), then the sum.


def _gather_tile(vectors, by_lane=False, count=TILE.rows):
    """A gather or channel tile of `count` rows, that many vectors wide; only its last vector may be partial."""

    def generate(context, builder, signature, values):
        emit = Emitter(context, builder, signature)
        b, a_taps, b_taps, b_offset, tap, tap_end, length, a_step, b_step, columns, accumulate, relu = values[10:]
        rows, _, _ = _rows(emit, count, values[:10], accumulate)
        tables = emit.array(11, a_taps).data, emit.array(12, b_taps).data
        taps = (*tables, tap, tap_end, emit.base(10, b, b_offset))
        a_step, b_step = (builder.mul(step, constant(emit.size)) for step in (a_step, b_step))
        steps, full = (length, a_step, b_step), [None] * (vectors - 1)
        remaining = builder.sub(columns, constant((vectors - 1) * emit.lanes))
        emit.under_mask(remaining, lambda mask: _emit_gather(emit, rows, [*full, mask], taps, steps, by_lane, relu))
        return context.get_dummy_value()

    @intrinsic
    def tile(
        typing_context, a, a_rows, a_offset, c, c_rows, c_offset, row, rows, bias, bias_offset,
        b, a_taps, b_taps, b_offset, tap, tap_end, length, a_step, b_step, columns, accumulate, relu,
    ):  # fmt: skip
        rows_of = a, a_rows, a_offset, c, c_rows, c_offset, row, rows, bias, bias_offset
        sum_of = b, a_taps, b_taps, b_offset, tap, tap_end, length, a_step, b_step, columns, accumulate, relu
        return _signature((*rows_of, *sum_of)), generate

    return tile


wide_tile = _gather_tile(2)  # for more columns than one vector has lanes
low_tile = _gather_tile(2, count=LOW_ROWS)  # the same, for the rows that whole tiles leave
narrow_tile = _gather_tile(1)  # for at most as many columns as a vector has lanes
channel_tile = _gather_tile(1, by_lane=True)  # so is this


def _emit_dot(emit, rows, columns, length):
    """Sums of a dot tile, one vector each: over whole vectors of k, then over the masked rest."""
    builder = emit.builder
    zero = ir.Constant(emit.vector, None)
    sums = [[emit.variable(zero) for _ in columns] for _ in rows]

    def step(k, mask):
        right = [emit.load(emit.shifted(column, k), mask) for column in columns]
        for row, line in zip(rows, sums, strict=True):
            left = emit.load(emit.shifted(row, k), mask)
            for slot, vector in zip(line, right, strict=True):
                emit.multiply_add(left, vector, slot)

    whole = builder.sdiv(length, constant(emit.lanes))
    with cgutils.for_range(builder, whole) as loop:
        step(builder.mul(loop.index, constant(emit.lanes)), None)
    done = builder.mul(whole, constant(emit.lanes))
    with builder.if_then(builder.icmp_signed("<", done, length)):
        step(done, emit.mask(builder.sub(length, done)))
    return [[emit.lane_sum(builder.load(slot)) for slot in line] for line in sums]


@intrinsic
def dot_tile(
    typing_context, a, a_rows, a_offset, c, c_rows, c_offset, row, rows, bias, bias_offset,
    b, b_offset, length, b_step, column, columns, accumulate, relu,
):  # fmt: skip
    """A dot tile from a row and a column on."""

    def generate(context, builder, signature, values):
        emit = Emitter(context, builder, signature)
        b, b_offset, length, b_step, column, columns, accumulate, relu = values[10:]
        found, no_bias, accumulate = _rows(emit, TILE.dot_rows, values[:10], accumulate)
        b, last = emit.base(10, b, b_offset), builder.sub(columns, constant(1))
        numbers = [emit.minimum(builder.add(column, constant(j)), last) for j in range(TILE.dot_columns)]
        addresses = [emit.shifted(b, builder.mul(number, b_step)) for number in numbers]
        sums, floor = _emit_dot(emit, found.a, addresses, length), _floor(emit, relu)
        at_zero = builder.and_(no_bias, builder.not_(accumulate))
        starts = [builder.select(at_zero, constant(0), number) for number in numbers]
        starts = [[emit.scalar(emit.shifted(line, number)) for number in starts] for line in found.start]
        for line, c_row, start in zip(sums, found.c, starts, strict=True):
            for value, number, first in zip(line, numbers, start, strict=True):
                total = emit.at_least(builder.fadd(first, value), floor)
                address = builder.inttoptr(emit.shifted(c_row, number), emit.element.as_pointer())
                builder.store(total, address).align = emit.size
        return context.get_dummy_value()

    arguments = (a, a_rows, a_offset, c, c_rows, c_offset, row, rows, bias, bias_offset)
    return _signature((*arguments, b, b_offset, length, b_step, column, columns, accumulate, relu)), generate
