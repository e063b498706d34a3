"""Square tiles turned over in vector registers, as LLVM IR: rows become columns without a detour through memory."""

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from .emit import constant, load, merged, store

__all__ = ["SIDE", "turn"]

SIDE = 16  # elements


@intrinsic
def turn(typing_context, x, at, step, out, out_at, out_step):
    """out[out_at + k * out_step + i] = x[at + i * step + k] for i and k from 0 to SIDE - 1; x and out are 1-D."""

    def generate(context, builder, signature, values):
        source, target = (context.make_array(signature.args[i])(context, builder, values[i]).data for i in (0, 3))
        at, step, out_at, out_step = (values[i] for i in (1, 2, 4, 5))
        vector = ir.VectorType(context.get_value_type(x.dtype), SIDE)
        align = x.dtype.bitwidth // 8

        def place(data, start, by, row):
            offset = builder.add(start, builder.mul(by, constant(row)))
            return builder.bitcast(builder.gep(data, [offset]), vector.as_pointer())

        rows = [load(builder, place(source, at, step, row), align) for row in range(SIDE)]
        # Each pass halves the distance of two elements of a column, so that the last one leaves columns.
        for _ in range(SIDE.bit_length() - 1):
            pairs = [(rows[k], rows[k + SIDE // 2]) for k in range(SIDE // 2)]
            rows = [merged(builder, *pair, part) for pair in pairs for part in range(2)]
        for row, value in enumerate(rows):
            store(builder, value, place(target, out_at, out_step, row), align)
        return context.get_dummy_value()

    places = types.intp
    return types.void(x, places, places, out, places, places), generate
