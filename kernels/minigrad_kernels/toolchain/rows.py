"""The greatest element and the sum of a row, as LLVM IR: whole vectors, the last one masked.

Compilers leave such loops as they are, one element after the other, because another order would round otherwise.
"""

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from .emit import INT, Emitter, constant

__all__ = ["row_greatest", "row_sum"]


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


def _walk(emit, values, start, visit):
    """visit(total, elements, mask) -> total for each vector of a row, and what it is at the end."""
    builder, (array, at, count) = emit.builder, values
    base = emit.base(0, array, at)
    total = emit.variable(ir.Constant(emit.vector, [start] * emit.lanes))
    steps = builder.udiv(builder.add(count, constant(emit.lanes - 1)), constant(emit.lanes))
    with cgutils.for_range(builder, steps, intp=INT) as loop:
        first = builder.mul(loop.index, constant(emit.lanes))
        mask = emit.mask(builder.sub(count, first))
        elements = emit.load(emit.shifted(base, first), mask)
        builder.store(visit(builder.load(total), elements, mask), total)
    return builder.load(total)


@intrinsic
def row_greatest(typing_context, x, at, count):
    """The greatest of x[at : at + count], where x is 1-D; NaN is passed over."""

    def generate(context, builder, signature, values):
        emit = Emitter(context, builder, signature)
        least = ir.Constant(emit.vector, [float("-inf")] * emit.lanes)
        visit = lambda total, elements, mask: _greater(builder, builder.select(mask, elements, least), total)
        vector, lanes = _walk(emit, values, float("-inf"), visit), emit.lanes
        while lanes > 1:
            lanes //= 2
            vector = _greater(builder, *_halves(builder, vector, lanes))
        return builder.extract_element(vector, ir.Constant(ir.IntType(32), 0))

    return x.dtype(x, types.intp, types.intp), generate


@intrinsic
def row_sum(typing_context, x, at, count):
    """The sum of x[at : at + count], where x is 1-D: each lane of vectors by itself, then the lanes in halves."""

    def generate(context, builder, signature, values):
        emit = Emitter(context, builder, signature)
        visit = lambda total, elements, mask: builder.fadd(total, elements)
        return emit.lane_sum(_walk(emit, values, 0.0, visit))

    return x.dtype(x, types.intp, types.intp), generate
