"""Copies a block of B into a panel: rows of two vectors side by side, in the order in which a tile reads them.

A tile reads two vectors of each row of B. Where rows lie far apart these meet in few sets of the nearest cache, each
on a page of its own; a panel has neither fault, and serves all rows of A. It also turns a B whose sums run along
memory, which no gather tile could read.
"""

from numba.core import cgutils, types
from numba.extending import intrinsic

from .cpu import jit
from .emit import TILE, Emitter, constant

__all__ = ["copy_block", "pack"]


@intrinsic
def copy_block(typing_context, source, start, step, target, place, pitch, rows, count):
    """Rows of so many elements, `step` apart, to places `pitch` apart.

    From a loop over few elements the compiler makes code that first asks whether the arrays overlap, too long for them.
    """

    def generate(context, builder, signature, values):
        emit = Emitter(context, builder, signature)
        _, start, step, _, place, pitch, rows, count = values
        source, target = emit.variable(emit.base(0, values[0], start)), emit.variable(emit.base(3, values[3], place))
        steps = [(slot, builder.mul(by, constant(emit.size))) for slot, by in ((source, step), (target, pitch))]
        whole = builder.sdiv(count, constant(emit.lanes))
        done = builder.mul(whole, constant(emit.lanes))
        rest, mask = builder.icmp_signed(">", count, done), emit.mask(builder.sub(count, done))

        def copy(first, mask=None):
            vector = emit.load(emit.shifted(builder.load(source), first), mask)
            emit.store(vector, emit.shifted(builder.load(target), first), mask)

        with cgutils.for_range(builder, rows):
            with cgutils.for_range(builder, whole) as loop:
                copy(builder.mul(loop.index, constant(emit.lanes)))
            with builder.if_then(rest):
                copy(done, mask)
            for slot, by in steps:
                builder.store(builder.add(builder.load(slot), by), slot)
        return context.get_dummy_value()

    numbers = [types.int64] * 2
    return types.void(source, *numbers, target, *numbers, *numbers), generate


@intrinsic
def _copy_rows(typing_context, source, start, step, target, place, rows, columns):
    """Rows of at most two vectors, `step` apart, side by side; absent columns become 0."""

    def generate(context, builder, signature, values):
        emit = Emitter(context, builder, signature)
        _, start, step, _, place, rows, columns = values
        source, target = emit.base(0, values[0], start), emit.base(3, values[3], place)
        step = builder.mul(step, constant(emit.size))

        def copy(masks):
            here, there = emit.variable(source), emit.variable(target)
            with cgutils.for_range(builder, rows):
                for v, mask in enumerate(masks):
                    vector = emit.load(emit.shifted(builder.load(here), constant(v * emit.lanes)), mask)
                    emit.store(vector, emit.shifted(builder.load(there), constant(v * emit.lanes)))
                builder.store(builder.add(builder.load(here), step), here)
                builder.store(emit.shifted(builder.load(there), constant(2 * emit.lanes)), there)

        whole = builder.icmp_signed(">=", columns, constant(2 * emit.lanes))
        with builder.if_else(whole) as (full, partial):
            with full:
                copy([None, None])
            with partial:
                copy([emit.mask(builder.sub(columns, constant(v * emit.lanes))) for v in (0, 1)])
        return context.get_dummy_value()

    return types.void(source, types.int64, types.int64, target, *[types.int64] * 3), generate


@intrinsic
def _turn_block(typing_context, source, start, step, target, place, rows, columns):
    """Of columns, `step` apart, that many rows, which lie side by side: rows of the target, two vectors apart.

    At most as many rows and columns as a vector has lanes; of the target so many rows are written.
    """

    def generate(context, builder, signature, values):
        emit = Emitter(context, builder, signature)
        _, start, step, _, place, rows, columns = values
        source, target = emit.base(0, values[0], start), emit.base(3, values[3], place)
        step, last = builder.mul(step, constant(emit.size)), builder.sub(columns, constant(1))

        def turn(mask):
            numbers = [emit.minimum(constant(i), last) for i in range(emit.lanes)]
            lines = [emit.load(builder.add(source, builder.mul(number, step)), mask) for number in numbers]
            for i, line in enumerate(emit.transposed(lines)):
                emit.store(line, emit.shifted(target, constant(2 * i * emit.lanes)))

        emit.under_mask(rows, turn)
        return context.get_dummy_value()

    return types.void(source, types.int64, types.int64, target, *[types.int64] * 3), generate


@intrinsic
def _copy_any(typing_context, source, start, step, column_step, target, place, rows, columns):
    """Rows and columns that lie apart, one element after the other; places may lie before the first of the array."""

    def generate(context, builder, signature, values):
        emit = Emitter(context, builder, signature)
        _, start, step, column_step, _, place, rows, columns = values
        source, target = emit.base(0, values[0], start), emit.base(4, values[4], place)
        with cgutils.for_range(builder, rows) as row, cgutils.for_range(builder, columns) as column:
            here = builder.add(builder.mul(row.index, step), builder.mul(column.index, column_step))
            there = builder.add(builder.mul(row.index, constant(2 * emit.lanes)), column.index)
            pointer = builder.inttoptr(emit.shifted(target, there), emit.element.as_pointer())
            builder.store(emit.scalar(emit.shifted(source, here)), pointer).align = emit.size
        return context.get_dummy_value()

    return types.void(source, *[types.int64] * 3, target, *[types.int64] * 3), generate


@jit
def pack(b, start, step, column_step, length, columns, panel, place):
    """A block of B, `length` rows by at most two vectors of columns, at a place of the panel.

    The panel needs room for as many more rows as a vector has lanes.
    """
    lanes = TILE.vector_bytes // b.itemsize
    if column_step == 1:
        _copy_rows(b, start, step, panel, place, length, columns)
    elif step == 1:
        for row in range(0, length, lanes):
            for column in range(0, columns, lanes):
                _turn_block(
                    b, start + row + column * column_step, column_step, panel, place + row * 2 * lanes + column,
                    length - row, columns - column,
                )  # fmt: skip
    else:
        _copy_any(b, start, step, column_step, panel, place, length, columns)
