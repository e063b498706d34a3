"""e^x and ln x of a float32, as arithmetic without calls or branches, so that loops over them become vectors.

The C library's functions would be called once for each element. These are within 2 units in the last place of the
exact result, denormal results too, and give what PyTorch's give at infinities and NaN. Where a product and
a sum are rounded once, fma says so: the bits do not follow from how a loop was compiled.

Source  Cody and Waite 1980, "Software manual for the elementary functions"; coefficients of Moshier's Cephes library
"""

import numpy as np

from ..toolchain import jit
from ..toolchain.emit import fma

__all__ = ["exp", "log"]

f32, i32 = np.float32, np.int32
ZERO, HALF, ONE = f32(0), f32(0.5), f32(1)


@jit
def polynomial(coefficients, t):
    """Horner's rule, the coefficient of the highest power first."""
    value = coefficients[0]
    for k in range(1, len(coefficients)):
        value = fma(value, t, coefficients[k])
    return value


# ---- exponentials ----------------------------------------------------------------------------------------------------

# x = n ln 2 + r. Adding MAGIC leaves no bits behind the point, so that n is what its last bits count; ln 2 in two
# parts, of which the first has so few bits that n times it is exact.
INVERSE, HIGH, LOW, MAGIC = f32(1.44269504), f32(0.693359375), f32(-2.12194440e-4), f32(12582912.0)
FARTHEST = f32(104)  # e^-104 rounds to 0
SERIES = tuple(map(f32, (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 0.5)))


@jit
def reduced(x):
    """(r, n) of x = n ln 2 + r with |r| <= ln 2 / 2."""
    x = FARTHEST if x > FARTHEST else -FARTHEST if x < -FARTHEST else x  # written so that NaN passes
    shifted = fma(x, INVERSE, MAGIC)
    n = shifted - MAGIC
    return fma(n, -LOW, fma(n, -HIGH, x)), i32(f32(shifted).view(np.int32) - i32(0x4B400000))


@jit
def minus_one(r):
    """e^r - 1 for a small r."""
    return fma(polynomial(SERIES, r), r * r, r)


@jit
def power_of_two(n):
    return i32(i32(n + i32(127)) << i32(23)).view(np.float32)


@jit
def exp(x):
    """e^x. The power of two comes in two factors, because one would not reach the denormals."""
    r, n = reduced(x)
    half = i32(n >> i32(1))
    return (minus_one(r) + ONE) * power_of_two(half) * power_of_two(i32(n - half))


# ---- logarithms ------------------------------------------------------------------------------------------------------

ROOT = i32(0x3F3504F3)  # the bits of 1 / sqrt(2)
LOGARITHM = tuple(
    map(
        f32,
        (7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1)
        + (2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1),
    )
)
SMALLEST, LIFT = f32(1.17549435e-38), f32(8388608.0)  # 2^-126, 2^23
NOTHING, ENDLESS = f32(np.nan), f32(np.inf)


@jit
def log(x):
    """ln x: the exponent times ln 2, and a polynomial in a mantissa from 1 / sqrt(2) to sqrt(2)."""
    tiny = x < SMALLEST
    lifted = x * LIFT if tiny else x
    bits = f32(lifted).view(np.int32) - ROOT
    exponent = f32(i32(bits >> i32(23)) - (i32(23) if tiny else i32(0)))
    m = i32(i32(bits & i32(0x7FFFFF)) + ROOT).view(np.float32) - ONE
    square = m * m
    tail = fma(polynomial(LOGARITHM, m), m * square, fma(exponent, LOW, -HALF * square))
    value = fma(exponent, HIGH, m + tail)
    value = -ENDLESS if x == ZERO else value if x > ZERO else NOTHING
    return x if x == ENDLESS else value
