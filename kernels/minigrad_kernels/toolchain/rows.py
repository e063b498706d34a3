"""The greatest element and the sum of a row, and a row less a number, as LLVM IR.

Whole vectors, the last one masked. Compilers leave loops that add up as they are, one element after the other,
because another order would round otherwise. Of a row less a number they take several vectors at a time, and what is
left, all of a short row, one by one.
"""

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from .emit import INT, Emitter, constant

__all__ = ["row_greatest", "row_shift", "row_sum"]

ABREAST = 4  # totals, each of one vector, that do not wait for each other


def _halves(builder, vector, lanes):
    index = ir.VectorType(ir.IntType(32), lanes)
    return [
        builder.shuffle_vector(
            vector, ir.Constant(vector.type, ir.Undefined), ir.Constant(index, list(range(first, first + lanes)))
        )
        for first in (0, lanes)
    ]


def _greater(builder, a, b):
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def _filled(emit, value):
    return ir.Constant(emit.vector, [value] * emit.lanes)


def _walk(emit, values, beginning, visit):
    """visit(total, elements) -> total for each vector of a row, and what it is at the end.

    The total begins, and lanes outside are, as in the vector `beginning`.

    Vectors that follow each other go into ABREAST totals of their own, so that none waits for the one before.
    """
    builder, (array, at, count) = emit.builder, values
    base = emit.base(0, array, at)
    totals = [emit.variable(beginning) for _ in range(ABREAST)]
    group = constant(ABREAST * emit.lanes)
    groups = builder.udiv(count, group)
    with cgutils.for_range(builder, groups, intp=INT) as loop:
        first = builder.mul(loop.index, group)
        for k, total in enumerate(totals):
            elements = emit.load(emit.shifted(base, builder.add(first, constant(k * emit.lanes))))
            builder.store(visit(builder.load(total), elements), total)
    done = builder.mul(groups, group)
    left = builder.sub(count, done)
    steps = builder.udiv(builder.add(left, constant(emit.lanes - 1)), constant(emit.lanes))
    with cgutils.for_range(builder, steps, intp=INT) as loop:
        first = builder.mul(loop.index, constant(emit.lanes))
        mask = emit.mask(builder.sub(left, first))
        elements = emit.load(emit.shifted(base, builder.add(done, first)), mask)
        builder.store(visit(builder.load(totals[0]), builder.select(mask, elements, beginning)), totals[0])
    found = [builder.load(total) for total in totals]
    while len(found) > 1:
        found = [visit(one, other) for one, other in zip(found[::2], found[1::2], strict=True)]
    return found[0]


def _across(emit, vector, visit):
    """One of the lanes, from all of them in halves."""
    lanes = emit.lanes
    while lanes > 1:
        lanes //= 2
        vector = visit(*_halves(emit.builder, vector, lanes))
    return emit.builder.extract_element(vector, ir.Constant(ir.IntType(32), 0))


@intrinsic
def row_greatest(typing_context, x, at, count):
    """The greatest of x[at : at + count], where x is 1-D; NaN is passed over."""

    def generate(context, builder, signature, values):
        emit = Emitter(context, builder, signature)
        visit = lambda total, elements: _greater(builder, elements, total)
        return _across(emit, _walk(emit, values, _filled(emit, float("-inf")), visit), visit)

    return x.dtype(x, types.intp, types.intp), generate


@intrinsic
def row_sum(typing_context, x, at, count):
    """The sum of x[at : at + count], where x is 1-D.

    Each lane of ABREAST vectors by itself, then these in pairs, then the lanes in halves.
    """

    def generate(context, builder, signature, values):
        emit = Emitter(context, builder, signature)
        visit = lambda total, elements: builder.fadd(total, elements)
        return emit.lane_sum(_walk(emit, values, _filled(emit, 0.0), visit))

    return x.dtype(x, types.intp, types.intp), generate


@intrinsic
def row_shift(typing_context, x, by, further, out):
    """out = (x - by) - further, for each element of out; both are 1-D."""

    def generate(context, builder, signature, values):
        emit = Emitter(context, builder, signature)
        by, further = emit.splat(values[1]), emit.splat(values[2])
        source, target = emit.base(0, values[0], constant(0)), emit.base(3, values[3], constant(0))
        lanes, count = constant(emit.lanes), emit.array(3, values[3]).nitems

        def move(first, mask=None):
            elements = emit.load(emit.shifted(source, first), mask)
            result = builder.fsub(builder.fsub(elements, by), further)
            emit.store(result, emit.shifted(target, first), mask)

        steps = builder.udiv(count, lanes)
        with cgutils.for_range(builder, steps, intp=INT) as loop:
            move(builder.mul(loop.index, lanes))
        done = builder.mul(steps, lanes)
        left = builder.sub(count, done)
        with builder.if_then(builder.icmp_unsigned("!=", left, constant(0))):
            move(done, emit.mask(left))
        return context.get_dummy_value()

    return types.void(x, x.dtype, x.dtype, out), generate
