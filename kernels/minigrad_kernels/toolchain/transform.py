"""Winograd's transforms F(m x m, r x r) as LLVM IR, m + r = 7: a small square of vectors in, one of another size out.

All are two-sided: with L a matrix of transform_rules.py, result = L square L^T, for a vector of neighbouring channels
at a time.

Math    spread_input     V = B^T x B    6x6 pixels to 6x6 frequencies
        spread_filter    U = G w G^T    r x r taps to 6x6 frequencies
        gather_output    y = A^T M A    6x6 frequencies, M = sum of V U over channels, to m x m pixels
        spread_gradient  M = A g A^T    m x m pixels to 6x6 frequencies
        gather_filter    w = G^T U G    6x6 frequencies, U = sum of V M over tiles, to r x r taps

Arrays are one-dimensional float32; `at`, steps and counts are in elements. `taps` is a tuple of r integers, whose
number alone matters: its type says it to the compiler. Of a window (r0, r1, c0, c1) the places with r0 <= row < r1 and
c0 <= column < c1 are read, others are 0; or written, others go to a spare place of one vector. `count` is how many
channels are left, at least 1: lanes past it are read as 0 and not written, except that frequencies are always written
as whole vectors.
Source  A. Lavin, S. Gray, "Fast algorithms for convolutional neural networks", 2016, section 4
"""

from functools import partial

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from .emit import INT, Emitter, constant, fetch
from .transform_rules import Arithmetic, filter_rule, gradient_rule, input_rule, output_rule, taps_rule

__all__ = ["gather_filter", "gather_output", "spread_filter", "spread_gradient", "spread_input", "transpose"]

FREQUENCIES = 6  # along one axis
INTEGER = types.int64
WINDOW = types.UniTuple(INTEGER, 4)


# ---- squares of vectors ----------------------------------------------------------------------------------------------


class _Square:
    """Where a square of vectors lies: addresses, of which those outside a window are replaced by a spare one."""

    def __init__(self, emit, base, steps, window=None, spare=None):
        self.builder, self.base, self.spare = emit.builder, base, spare
        self.steps = [emit.builder.mul(step, constant(emit.size)) for step in steps]
        self.window = window and [emit.builder.extract_value(window, k) for k in range(4)]

    def _inside(self, index, axis):
        low, high = self.window[2 * axis : 2 * axis + 2]
        after = self.builder.icmp_signed(">=", constant(index), low)
        return self.builder.and_(after, self.builder.icmp_signed("<", constant(index), high))

    def address(self, row, column):
        places = [self.builder.mul(step, constant(k)) for step, k in zip(self.steps, (row, column), strict=True)]
        address = self.builder.add(self.base, self.builder.add(*places))
        if self.window is None:
            return address
        inside = self.builder.and_(self._inside(row, 0), self._inside(column, 1))
        return self.builder.select(inside, address, self.spare)


def _transformed(emit, rule, size, load, store):
    """store(row, column, vector) for the whole result; load(row, column) for a source of that size."""
    arithmetic = Arithmetic(emit)
    columns = [rule(arithmetic, [load(row, column) for row in range(size)]) for column in range(size)]
    for row in range(len(columns[0])):
        for column, vector in enumerate(rule(arithmetic, [line[row] for line in columns])):
            store(row, column, vector)


def _spread(rule, size, arguments):
    """Signature and code of what reads a square of pixels or taps of that size and writes frequencies."""

    def generate(context, builder, signature, values):
        emit = Emitter(context, builder, signature)
        source, at, down, right, window, count, target, target_at, step = values[:9]
        pixels = _Square(emit, emit.base(0, source, at), (down, right), window, emit.zeros())
        steps = builder.mul(step, constant(FREQUENCIES)), step
        result = _Square(emit, emit.base(6, target, target_at), steps)

        def body(mask):
            load = lambda row, column: emit.load(pixels.address(row, column), mask)
            store = lambda row, column, vector: emit.store(vector, result.address(row, column))
            _transformed(emit, rule, size, load, store)

        emit.under_mask(count, body)
        return context.get_dummy_value()

    source, target, *more = arguments
    return types.void(source, INTEGER, INTEGER, INTEGER, WINDOW, INTEGER, target, INTEGER, INTEGER, *more), generate


def _tile(taps):
    """Pixels of a tile along an axis."""
    return FREQUENCIES + 1 - taps.count


@intrinsic
def spread_input(typing_context, x, at, down, right, window, count, v, v_at, step):
    """Frequencies of 6x6 pixels."""
    return _spread(input_rule, FREQUENCIES, (x, v))


@intrinsic
def spread_gradient(typing_context, g, at, down, right, window, count, m, m_at, step, taps):
    """Frequencies of a tile of an output gradient."""
    return _spread(gradient_rule, _tile(taps), (g, m, taps))


@intrinsic
def spread_filter(typing_context, w, at, down, right, window, count, u, u_at, step, taps):
    """Frequencies of taps."""
    return _spread(filter_rule, taps.count, (w, u, taps))


class _Watch:
    """Finds out whether all vectors that it has seen are finite."""

    def __init__(self, emit):
        self.emit, self.zero = emit, ir.Constant(emit.vector, None)
        self.total = emit.variable(self.zero)

    def see(self, vector):
        """Zero times infinity or NaN is NaN, and stays NaN in a sum."""
        self.emit.multiply_add(vector, self.zero, self.total)

    def finite(self):
        """1 or 0."""
        builder, total = self.emit.builder, self.emit.builder.load(self.total)
        spoilt = builder.bitcast(builder.fcmp_unordered("uno", total, total), ir.IntType(self.emit.lanes))
        return builder.zext(builder.icmp_unsigned("==", spoilt, ir.Constant(spoilt.type, 0)), INT)


def _positive(builder, vector, wanted):
    """The positive part where wanted; NaN stays."""
    zero = ir.Constant(vector.type, None)
    positive = builder.select(builder.fcmp_ordered("<=", vector, zero), zero, vector)
    return builder.select(builder.icmp_signed("!=", wanted, constant(0)), positive, vector)


@intrinsic
def gather_output(
    typing_context, m, m_at, step, bias, bias_at, relu, y, at, down, right, window, count, spare, spare_at, ahead, taps
):
    """A tile of frequencies, plus a bias unless that is of size 0, with relu the positive part.

    What lies so many elements ahead is fetched: a store that misses all caches holds up those after it. Returns 1 if
    all sums were finite before relu.
    """

    def generate(context, builder, signature, values):
        emit = Emitter(context, builder, signature)
        m, m_at, step, bias, bias_at, relu, y, at, down, right, window, count, spare, spare_at, ahead, _ = values
        source = _Square(emit, emit.base(0, m, m_at), (builder.mul(step, constant(FREQUENCIES)), step))
        pixels = _Square(emit, emit.base(6, y, at), (down, right), window, emit.base(12, spare, spare_at))
        absent = builder.icmp_signed("==", emit.array(3, bias).nitems, constant(0))
        start, watch = builder.select(absent, emit.zeros(), emit.base(3, bias, bias_at)), _Watch(emit)

        def body(mask):
            # A vector of a bias may end behind the array; without one the zeros are long enough.
            added = emit.load(start, mask)
            finish = lambda vector: _positive(builder, builder.fadd(vector, added), relu)
            _gathered(emit, partial(output_rule, size=_tile(taps)), source, pixels, (mask, watch, ahead, finish))

        emit.under_mask(count, body)
        return watch.finite()

    i = INTEGER
    return i(m, i, i, bias, i, i, y, i, i, i, WINDOW, i, spare, i, i, taps), generate


def _gathered(emit, rule, source, target, how):
    """Code from frequencies to a square; how: (mask, watch, elements ahead to fetch, what is done with a vector)."""
    mask, watch, ahead, finish = how
    ahead = emit.builder.mul(ahead, constant(emit.size))

    def store(row, column, vector):
        watch.see(vector)
        vector, address = finish(vector), target.address(row, column)
        fetch(emit.builder, emit.builder.add(address, ahead), True)
        emit.store(vector, address, mask)

    load = lambda row, column: emit.load(source.address(row, column))
    _transformed(emit, rule, FREQUENCIES, load, store)


@intrinsic
def gather_filter(
    typing_context, u, u_at, step, w, at, down, right, window, count, spare, spare_at, ahead, taps
):  # fmt: skip
    """Taps of frequencies; what lies so many elements ahead is fetched. Returns 1 if all are finite."""

    def generate(context, builder, signature, values):
        emit = Emitter(context, builder, signature)
        u, u_at, step, w, at, down, right, window, count, spare, spare_at, ahead, _ = values
        source = _Square(emit, emit.base(0, u, u_at), (builder.mul(step, constant(FREQUENCIES)), step))
        target = _Square(emit, emit.base(3, w, at), (down, right), window, emit.base(9, spare, spare_at))
        rule, watch = partial(taps_rule, size=taps.count), _Watch(emit)
        finish = lambda vector: vector
        emit.under_mask(count, lambda mask: _gathered(emit, rule, source, target, (mask, watch, ahead, finish)))
        return watch.finite()

    i = INTEGER
    return i(u, i, i, w, i, i, i, WINDOW, i, spare, i, i, taps), generate


# ---- transposition ---------------------------------------------------------------------------------------------------


@intrinsic
def transpose(typing_context, source, at, down, rows, count, target, target_at, step):
    """target[target_at + j*step + i] = source[at + i*down + j], for as many i and j as a vector has lanes.

    Rows past `rows` and columns past `count` are read as 0.
    """

    def generate(context, builder, signature, values):
        emit = Emitter(context, builder, signature)
        source, at, down, rows, count, target, target_at, step = values
        base, mask, zeros = emit.base(0, source, at), emit.mask(count), emit.zeros()
        vectors = []
        for i in range(emit.lanes):
            address = emit.shifted(base, builder.mul(down, constant(i)))
            inside = builder.icmp_signed("<", constant(i), rows)
            vectors.append(emit.load(builder.select(inside, address, zeros), mask))
        base = emit.base(5, target, target_at)
        for j, vector in enumerate(emit.transposed(vectors)):
            emit.store(vector, emit.shifted(base, builder.mul(step, constant(j))))
        return context.get_dummy_value()

    ints = types.int64
    return types.void(source, ints, ints, ints, ints, target, ints, ints), generate
