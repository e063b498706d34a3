"""What a compiled loop over elements asks of the processor that plain Python cannot say."""

from numba.core import types
from numba.extending import intrinsic

from .emit import instruction_set

__all__ = ["fma", "wide"]

FUSED = instruction_set() not in ("sse", "plain")  # elsewhere it would be a call for each element


@intrinsic
def fma(typing_context, a, b, c):
    """a * b + c of float32, rounded once; where the instruction set has no such instruction, twice.

    So the bits follow from the instruction set alone, and not from how a loop was compiled.
    """

    def generate(context, builder, signature, values):
        return builder.fma(*values) if FUSED else builder.fadd(builder.fmul(*values[:2]), values[2])

    return types.float32(types.float32, types.float32, types.float32), generate


@intrinsic
def wide(typing_context, count):
    """The count, an integer; loops of the function that asks for it use the widest vectors that there are.

    Compilers prefer half of AVX-512's, which pays only where a program has little to compute.
    """

    def generate(context, builder, signature, values):
        # llvmlite knows the attributes that are words, but not those that are texts.
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')
        return values[0]

    return count(count), generate
