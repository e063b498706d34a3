"""Square tiles turned over in vector registers, as LLVM IR: rows become columns without a detour through memory."""

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

__all__ = ["SIDE", "turn"]

SIDE = 16  # elements
LANE, INT = ir.IntType(32), ir.IntType(64)


def _merged(builder, one, other, part):
    """The first or second halves of two vectors, element by element in turn."""
    first = part * SIDE // 2
    places = [place for k in range(first, first + SIDE // 2) for place in (k, k + SIDE)]
    return builder.shuffle_vector(one, other, ir.Constant(ir.VectorType(LANE, SIDE), places))


@intrinsic
def turn(typing_context, x, at, step, out, out_at, out_step):
    """out[out_at + k * out_step + i] = x[at + i * step + k] for i and k from 0 to SIDE - 1; x and out are 1-D."""

    def generate(context, builder, signature, values):
        source, target = (context.make_array(signature.args[i])(context, builder, values[i]).data for i in (0, 3))
        at, step, out_at, out_step = (values[i] for i in (1, 2, 4, 5))
        vector = ir.VectorType(context.get_value_type(x.dtype), SIDE)
        align = x.dtype.bitwidth // 8

        def place(data, start, by, row):
            offset = builder.add(start, builder.mul(by, ir.Constant(INT, row)))
            return builder.bitcast(builder.gep(data, [offset]), vector.as_pointer())

        rows = []
        for row in range(SIDE):
            rows.append(builder.load(place(source, at, step, row)))
            rows[-1].align = align
        # Each pass halves the distance of two elements of a column, so that the last one leaves columns.
        for _ in range(SIDE.bit_length() - 1):
            pairs = [(rows[k], rows[k + SIDE // 2]) for k in range(SIDE // 2)]
            rows = [_merged(builder, *pair, part) for pair in pairs for part in range(2)]
        for row, value in enumerate(rows):
            builder.store(value, place(target, out_at, out_step, row)).align = align
        return context.get_dummy_value()

    places = types.intp
    return types.void(x, places, places, out, places, places), generate
