"""The innermost steps of pooling as LLVM IR: LANES neighbouring channels at a time, held in vector registers.

Written as loops they would be right but slow: a loop over few channels spends its time on asking whether arrays
overlap, and on the rest that fills no vector. All arrays are C-contiguous; `at`, `source` and `corner` are offsets in
elements. `count` is how many channels are left from there on, at least 1; no more than LANES of them are used.
"""

import functools

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from .emit import INT, TILE, below, constant, fetch, hidden, load, splat, store

__all__ = ["LANES", "add_quotient", "add_windows", "max_windows", "mean_window", "place_windows"]

LANES = 16  # two or four registers where vectors are shorter


class _Emitter:
    """Emits vector code for one call of an intrinsic."""

    def __init__(self, context, builder, signature, values):
        self.context, self.builder, self.types, self.values = context, builder, signature.args, values
        self.mask = None  # which lanes are used; None: all

    def run(self, body):
        """body() under a mask; where masks cost time, once more without one, for when all lanes are used."""
        builder, count = self.builder, self.values[-1]
        if TILE.free_masks:
            self.mask = self._kept(below(builder, count, LANES))
            body()
            return
        with builder.if_else(builder.icmp_signed(">=", count, constant(LANES))) as (whole, rest):
            with whole:
                self.mask = None
                body()
            with rest:
                self.mask = below(builder, count, LANES)
                body()

    def _kept(self, mask):
        """The mask, made once: the compiler would rather compare again in each turn of a loop."""
        builder, bits = self.builder, ir.IntType(LANES)
        number = hidden(builder, builder.zext(builder.bitcast(mask, bits), INT))
        return builder.bitcast(builder.trunc(number, bits), mask.type)

    def splat(self, value):
        return splat(self.builder, value, LANES)

    def vector(self, argument):
        return ir.VectorType(self.context.get_value_type(self.types[argument].dtype), LANES)

    def _place(self, argument, offset):
        """A pointer to the vector at an offset of an array argument, and the size of its elements."""
        kind = self.types[argument]
        data = self.context.make_array(kind)(self.context, self.builder, self.values[argument]).data
        pointer = self.builder.gep(data, [offset])
        return self.builder.bitcast(pointer, self.vector(argument).as_pointer()), kind.dtype.bitwidth // 8

    def load(self, argument, offset):
        return load(self.builder, *self._place(argument, offset), self.mask)

    def store(self, vector, argument, offset):
        store(self.builder, vector, *self._place(argument, offset), self.mask)

    def fetch(self, argument, offset):
        """Ask for the cache line that holds an element, to write into it soon."""
        data = self.context.make_array(self.types[argument])(self.context, self.builder, self.values[argument]).data
        fetch(self.builder, self.builder.ptrtoint(self.builder.gep(data, [offset]), INT), True)

    def variable(self, value):
        """A variable, which LLVM keeps in a register."""
        slot = cgutils.alloca_once(self.builder, value.type)
        self.builder.store(value, slot)
        return slot

    def window(self, taps, steps, corner, visit):
        """visit(offset, p, q) for all taps p0 <= p < p1 and q0 <= q < q1; windows of 2x2 have no loop."""
        builder = self.builder
        p0, p1, q0, q1 = (builder.extract_value(taps, k) for k in range(4))
        down, right = (builder.extract_value(steps, k) for k in range(2))
        bounds = zip((p0, p1, q0, q1), (0, 2, 0, 2), strict=True)
        usual = [builder.icmp_signed("==", bound, constant(value)) for bound, value in bounds]
        with builder.if_else(functools.reduce(builder.and_, usual)) as (two_by_two, other):
            with two_by_two:
                for p in (0, 1):
                    row = builder.add(corner, down) if p else corner
                    for q in (0, 1):
                        visit(builder.add(row, right) if q else row, constant(p), constant(q))
            with other, cgutils.for_range(builder, p1, start=p0, intp=INT) as rows:
                row = builder.add(corner, builder.mul(rows.index, down))
                with cgutils.for_range(builder, q1, start=q0, intp=INT) as columns:
                    visit(builder.add(row, builder.mul(columns.index, right)), rows.index, columns.index)

    def each(self, count, places, visit):
        """visit(place...) so many times; places: (first, step) of each place."""
        builder = self.builder
        slots = [self.variable(first) for first, _ in places]
        with cgutils.for_range(builder, count, intp=INT):
            here = [hidden(builder, builder.load(slot)) for slot in slots]
            visit(*here)
            for slot, place, (_, step) in zip(slots, here, places, strict=True):
                builder.store(builder.add(place, step), slot)


FOUR, THREE, TWO = (types.UniTuple(types.intp, count) for count in (4, 3, 2))


@intrinsic
def max_windows(typing_context, x, corner, taps, steps, width, out, positions, at, run, count):
    """The greatest elements of a run of windows, and their taps p * width + q.

    Tap (p, q) of a window is x[corner + p * steps[0] + q * steps[1]]; those with p0 <= p < p1 and q0 <= q < q1
    count, where taps is (p0, p1, q0, q1). The first greatest wins; a NaN wins, the last one if there are several.
    run is (how many windows, from a corner to the next, from a result to the next).
    """

    def generate(context, builder, signature, values):
        emit = _Emitter(context, builder, signature, values)
        corner, taps, steps, width, at, run = (values[k] for k in (1, 2, 3, 4, 7, 8))
        windows, across, along = (builder.extract_value(run, k) for k in range(3))
        number = context.get_value_type(positions.dtype)

        def tap(p, q):
            index = builder.add(builder.mul(p, width), q)
            return emit.splat(index if number.width == INT.width else builder.trunc(index, number))

        def greatest(corner, at):
            best = emit.variable(ir.Constant(emit.vector(0), [float("-inf")] * LANES))
            chosen = emit.variable(tap(builder.extract_value(taps, 0), builder.extract_value(taps, 2)))

            def visit(offset, p, q):
                v, old = emit.load(0, offset), builder.load(best)
                take = builder.or_(builder.fcmp_ordered(">", v, old), builder.fcmp_unordered("uno", v, v))
                builder.store(builder.select(take, v, old), best)
                builder.store(builder.select(take, tap(p, q), builder.load(chosen)), chosen)

            emit.window(taps, steps, corner, visit)
            emit.store(builder.load(best), 5, at)
            emit.store(builder.load(chosen), 6, at)

        emit.run(lambda: emit.each(windows, ((corner, across), (at, along)), greatest))
        return context.get_dummy_value()

    ints = types.intp
    return types.void(x, ints, FOUR, TWO, ints, out, positions, ints, THREE, ints), generate


@intrinsic
def mean_window(typing_context, x, corner, taps, steps, divisor, out, at, count):
    """The sum of a window, see max_windows, over a divisor of the element type."""

    def generate(context, builder, signature, values):
        emit = _Emitter(context, builder, signature, values)
        corner, taps, steps, divisor, at = (values[k] for k in (1, 2, 3, 4, 6))

        def body():
            total = emit.variable(ir.Constant(emit.vector(0), None))

            def visit(offset, p, q):
                builder.store(builder.fadd(builder.load(total), emit.load(0, offset)), total)

            emit.window(taps, steps, corner, visit)
            emit.store(builder.fdiv(builder.load(total), emit.splat(divisor)), 5, at)

        emit.run(body)
        return context.get_dummy_value()

    ints = types.intp
    return types.void(x, ints, FOUR, TWO, x.dtype, out, ints, ints), generate


def _place(adds):
    """place_windows, see below, and for windows that overlap add_windows."""

    def generate(context, builder, signature, values):
        emit = _Emitter(context, builder, signature, values)
        rectified, at, taps, steps, width, corner, run, wanted, first = (
            values[k] for k in (2, 4, 5, 6, 7, 9, 10, 12, 13)
        )
        windows, across, along = (builder.extract_value(run, k) for k in range(3))
        number, nothing = emit.vector(3).element, ir.Constant(emit.vector(0), None)
        total = emit.variable(ir.Constant(emit.vector(11), None))

        def one(corner, at):
            closed = builder.fcmp_ordered("<=", emit.load(1, at), nothing)
            share = emit.load(0, at)
            share = builder.select(builder.and_(closed, emit.splat(rectified)), nothing, share)
            chosen = emit.load(3, at)

            def visit(offset, p, q):
                tap = builder.add(builder.mul(p, width), q)
                tap = emit.splat(tap if number.width == INT.width else builder.trunc(tap, number))
                here = builder.select(builder.icmp_signed("==", chosen, tap), share, nothing)
                emit.store(builder.fadd(emit.load(8, offset), here) if adds else here, 8, offset)

            emit.window(taps, steps, corner, visit)
            if not adds:  # else they have just been read
                ahead(corner)
            wide = share if share.type == emit.vector(11) else builder.fpext(share, emit.vector(11))
            builder.store(builder.fadd(builder.load(total), wide), total)

        def ahead(corner):
            """Writes of parts of lines wait for what is not in the nearest cache: ask for two rows of windows later."""
            down = builder.extract_value(steps, 0)
            later = builder.add(corner, builder.mul(builder.shl(builder.extract_value(taps, 1), constant(1)), down))
            emit.fetch(8, later)
            emit.fetch(8, builder.add(later, down))

        def body():
            with builder.if_then(wanted):
                builder.store(emit.load(11, first), total)
            emit.each(windows, ((corner, across), (at, along)), one)
            with builder.if_then(wanted):
                emit.store(builder.load(total), 11, first)

        emit.run(body)
        return context.get_dummy_value()

    @intrinsic
    def place(
        typing_context, g, out, rectified, positions, at, taps, steps, width, dx, corner, run, sums, wanted, first,
        count,
    ):  # fmt: skip
        ints, flag = types.intp, types.boolean
        found = g, g, flag, positions, ints, FOUR, TWO, ints, dx, ints, THREE, sums, flag, ints, ints
        return types.void(*found), generate

    return place


# Into the taps of a run of windows, see max_windows, g[at:] where positions[at:] is the tap, and 0 elsewhere. Where
# rectified, g counts as 0 where out[at:] is not positive; where wanted, sums[first:] += g, in float64.
place_windows = _place(adds=False)
add_windows = _place(adds=True)  # the same for windows that overlap: it adds


@intrinsic
def add_quotient(typing_context, g, source, divisor, dx, at, count):
    """dx[at:] += g[source:] / divisor, a number of the element type."""

    def generate(context, builder, signature, values):
        emit = _Emitter(context, builder, signature, values)

        def body():
            share = builder.fdiv(emit.load(0, values[1]), emit.splat(values[2]))
            emit.store(builder.fadd(emit.load(3, values[4]), share), 3, values[4])

        emit.run(body)
        return context.get_dummy_value()

    ints = types.intp
    return types.void(g, ints, g.dtype, dx, ints, ints), generate
