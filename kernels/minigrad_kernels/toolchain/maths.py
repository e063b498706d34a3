"""e^x in formulas over lines (lines.py): of float32 as arithmetic on whole vectors; and fused sums for the interpreter.

The C library's function would be called once for each element, as it is for float64. This one is within 2 units in the
last place of the exact result, denormal results too, and gives what PyTorch's gives at infinities and NaN.

Source  Cody and Waite 1980, "Software manual for the elementary functions"; coefficients of Moshier's Cephes library
"""

from llvmlite import ir
from numba.core import cgutils

from .cpu import jit
from .emit import Value, instruction_set
from .lines import LANES, line

FUSED = instruction_set() != "sse"  # elsewhere it would be a call for each element

# x = n ln 2 + r. Adding MAGIC leaves no bits behind the point, so that n is what its last bits count; ln 2 in two
# parts, of which the first has so few bits that n times it is exact.
INVERSE, HIGH, LOW, MAGIC = 1.44269504, 0.693359375, -2.12194440e-4, 12582912.0
MAGIC_BITS, MANTISSA, BIAS = 0x4B400000, 23, 127
FARTHEST = 104.0  # e^-104 rounds to 0
SERIES = 1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 0.5


def _call(name, *vectors):
    """A function of LLVM on vectors of one type."""
    builder, kind = vectors[0].builder, vectors[0].value.type
    name += f".v{LANES}f{64 if kind.element == ir.DoubleType() else 32}"
    function = ir.FunctionType(kind, [kind] * len(vectors))
    function = cgutils.get_or_insert_function(builder.module, function, name)
    return Value(builder, builder.call(function, [vector.value for vector in vectors]))


def exp(x):
    """e^x of a Value.

    Math    x = n ln 2 + r with |r| <= ln 2 / 2;  e^x = 2^n e^r, where 2^n comes in two factors, because one would not
            reach the denormals
    """
    builder, kind = x.builder, x.value.type
    if kind.element == ir.DoubleType():
        return _call("llvm.exp", x)
    words = ir.VectorType(ir.IntType(32), LANES)
    real = lambda value: Value(builder, ir.Constant(kind, [value] * LANES))
    whole = lambda value: ir.Constant(words, [value] * LANES)

    def fma(a, b, c):
        """a * b + c rounded once, so that the bits do not follow from how a loop was compiled."""
        return _call("llvm.fma", a, b, c) if FUSED else a * b + c

    def power_of_two(n):
        bits = builder.shl(builder.add(n, whole(BIAS)), whole(MANTISSA))
        return Value(builder, builder.bitcast(bits, kind))

    x = real(FARTHEST).where(real(FARTHEST) <= x, x)  # written so that NaN passes
    x = real(-FARTHEST).where(x <= real(-FARTHEST), x)
    shifted = fma(x, real(INVERSE), real(MAGIC))
    n = shifted - real(MAGIC)
    r = fma(n, real(-LOW), fma(n, real(-HIGH), x))
    series = real(SERIES[0])
    for coefficient in SERIES[1:]:
        series = fma(series, r, real(coefficient))
    power = builder.sub(builder.bitcast(shifted.value, words), whole(MAGIC_BITS))
    half = builder.ashr(power, whole(1))
    return (fma(series, r * r, r) + real(1.0)) * power_of_two(half) * power_of_two(builder.sub(power, half))


@line(moving="x y z out")
def fma_line(here):
    here.out = _call("llvm.fma", here.x, here.y, here.z)


@jit
def fma(x, y, z, out):
    """out = x * y + z of flat arrays, rounded once."""
    fma_line(0, out.size, x, y, z, out)
