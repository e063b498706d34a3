"""Number formats of PTX: rounding, conversion, fused multiply-add and approximate functions on NumPy arrays.

Rounding modes carry their PTX names: rn (nearest, ties to even), rz (towards zero), rm (down), rp (up); rni, rzi, rmi,
rpi round to whole numbers. NumPy's warnings are for the caller to turn off: GPUs raise no flags.

Source  PTX ISA: cvt, fma, and the approximate instructions rcp, sqrt, rsqrt, sin, cos, lg2, ex2, tanh
"""

from fractions import Fraction

import numpy as np

__all__ = [
    "WHOLE", "approximate", "bfloat16_to_float32", "clamp_unit", "flush_subnormal", "fma32", "fma64", "round_sum",
    "round_to_bfloat16", "round_to_integer", "round_to_tf32",
]  # fmt: skip

TIE_BITS = np.uint64(0x1FFFFFFF)  # the bits of a float64 below those of a float32, and their value half way between two
TIE = np.uint64(0x10000000)
FIRST_NORMAL = {np.dtype(t): np.finfo(t).smallest_normal for t in (np.float16, np.float32, np.float64)}
SPLITTER = float(2**27 + 1)

WHOLE = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


# ---- conversions ---------------------------------------------------------------------------------------------------


def round_to_bfloat16(x):
    """float32 to the nearest bfloat16, as bits (uint16); a tie goes to the even one, NaN becomes 0x7fff."""
    bits = x.view(np.uint32)
    half = np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))  # a carry runs into the exponent
    return np.where(np.isnan(x), np.uint32(0x7FFF), bits + half >> np.uint32(16)).astype(np.uint16)


def bfloat16_to_float32(bits):
    """bfloat16 bits (uint16) to float32, exactly."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def round_to_tf32(x):
    """float32 to the nearest tf32, as bits (uint32 with 13 zeros at the end); a tie goes away from 0."""
    rounded = x.view(np.uint32) + np.uint32(0x1000) & np.uint32(0xFFFFE000)
    return np.where(np.isnan(x), np.uint32(0x7FFFE000), rounded)


def round_to_integer(x, dtype, mode):
    """Floats to integers: what lies outside becomes the nearest integer of the type.

    NaN becomes 0; from float64 or to 64 bits it becomes the integer whose highest bit alone is set.
    """
    dtype = np.dtype(dtype)
    limits = np.iinfo(dtype)
    whole = WHOLE[mode](x.astype(np.float64))
    low, high, nan = whole <= float(limits.min), whole >= float(limits.max), np.isnan(whole)
    inside = np.where(low | high | nan, 0, whole).astype(dtype)
    highest_bit = x.dtype == np.float64 or dtype.itemsize == 8
    for_nan = (limits.min or limits.max // 2 + 1) if highest_bit else 0
    return np.select([low, high, nan], [dtype.type(limits.min), dtype.type(limits.max), dtype.type(for_nan)], inside)


# ---- sums ----------------------------------------------------------------------------------------------------------


def round_sum(x, y, mode):
    """x + y of float64 numbers, products or quotients of float32, rounded once to float32."""
    total, error = _two_sum(x, y)
    if mode == "rm":  # numbers that cancel leave -0
        total = np.where((total == 0) & (np.signbit(x) | np.signbit(y)), -0.0, total)
    total = _to_odd(total, error)
    nearest = total.astype(np.float32)
    below, above = total < nearest, total > nearest
    inwards = np.where(nearest > 0, below, (nearest < 0) & above)
    wrong, side = {"rn": (False, 0), "rz": (inwards, 0), "rm": (below, -np.inf), "rp": (above, np.inf)}[mode]
    return np.where(wrong, np.nextafter(nearest, np.float32(side)), nearest)


def _two_sum(x, y):
    """The rounded sum of float64 numbers and its error, exactly (NaN where the sum is not finite)."""
    total = x + y
    part = total - x
    return total, (x - (total - part)) + (y - part)


def _to_odd(total, error):
    """A rounded sum that is not exact moved to its odd neighbour on the side of the error.

    An odd last bit is never half way between numbers of a shorter format: rounding again errs no more.
    """
    even = total.view(np.uint64) & np.uint64(1) == 0
    up, down = (error > 0) & even, (error < 0) & even
    return np.where(up, np.nextafter(total, np.inf), np.where(down, np.nextafter(total, -np.inf), total))


# ---- fused multiply-add --------------------------------------------------------------------------------------------


def fma32(x, y, z):
    """x * y + z of float32 numbers, rounded once to nearest."""
    product, z = np.multiply(x, y, dtype=np.float64), z.astype(np.float64)
    # The product is exact. Rounding the sum to float64 first does harm only where that lands half way between two
    # float32 numbers; below the normal ones half way has other bits, so all of those go the careful way.
    total = product + z
    result = total.astype(np.float32)
    doubt = (total.view(np.uint64) & TIE_BITS == TIE) | (np.abs(result) < FIRST_NORMAL[result.dtype])
    if doubt.any() and (doubt := doubt & (total != 0)).any():
        result[doubt] = round_sum(product[doubt], z[doubt], "rn")
    return result


def fma64(x, y, z):
    """x * y + z of float64 numbers, rounded once to nearest.

    Source  Boldo, Melquiond: Emulation of FMA and correctly rounded sums, IEEE Trans. Computers 57 (2008)
    """
    product = x * y
    error = _product_error(x, y, product)
    high, low = _two_sum(z, error)
    total, rest = _two_sum(product, high)
    result = total + _to_odd(*_two_sum(low, rest))
    # Where a step may overflow or underflow the error terms are not exact; where nothing is rounded none are needed.
    finite = np.isfinite(x) & np.isfinite(y) & np.isfinite(z)
    plain = ~finite | (x == 0) | (y == 0)
    biggest = np.maximum(np.maximum(np.abs(x), np.abs(y)), np.maximum(np.abs(z), np.abs(product)))
    extreme = ~plain & ((biggest > 2.0**900) | (np.abs(product) < 2.0**-900))
    added = np.where(np.isfinite(x) & np.isfinite(y) & ~np.isfinite(z), z, product + z)  # the product may overflow
    result = np.where(plain, added, result)
    for index in zip(*np.nonzero(extreme), strict=True):
        result[index] = _exact_fma(*(float(operand[index]) for operand in (x, y, z)))
    return result


def _product_error(x, y, product):
    """The exact error of a rounded float64 product, by halves of the factors (Dekker, Veltkamp)."""
    scaled_x, scaled_y = x * SPLITTER, y * SPLITTER
    x_high, y_high = scaled_x - (scaled_x - x), scaled_y - (scaled_y - y)
    x_low, y_low = x - x_high, y - y_high
    return x_low * y_low - (((product - x_high * y_high) - x_low * y_high) - x_high * y_low)


def _exact_fma(x, y, z):
    value = Fraction(x) * Fraction(y) + Fraction(z)
    if not value:
        return 0.0  # x * y is not zero, so z cancels it: +0 in every case
    try:
        return float(value)
    except OverflowError:
        return np.inf if value > 0 else -np.inf


# ---- flushing, clamping, approximate functions -----------------------------------------------------------------------


def flush_subnormal(x):
    """Subnormal numbers to zero of the same sign: .ftz."""
    return np.where(np.abs(x) < FIRST_NORMAL[x.dtype], np.copysign(x.dtype.type(0), x), x)


def clamp_unit(x):
    """Floats clamped to [0, 1], NaN to 0: .sat."""
    return np.where(x > 0, np.minimum(x, x.dtype.type(1)), x.dtype.type(0))


APPROXIMATE = {
    "ex2": np.exp2,
    "lg2": np.log2,
    "rcp": np.reciprocal,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: np.reciprocal(np.sqrt(x)),
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
}


def approximate(name, x, ftz=False):
    """The .approx functions of floats: computed in float64 and rounded to nearest, so the best possible result.

    Hardware may differ in the last bits. The errors that PTX allows for float32: ex2 2 ulp; lg2 2^-22 relative,
    within (0.5, 2) absolute; rcp 1 ulp; sqrt 2^-23, rsqrt 2^-22.9 and tanh 2^-11 relative; sin and cos 2^-20.5
    absolute within 2 pi, 2^-14.7 within 100 pi, more beyond. rcp and rsqrt with ftz in float64 read and write
    the upper 32 bits alone.
    """
    upper = ftz and x.dtype == np.float64
    if upper:
        x = _upper_half(x)
    if ftz:
        x = flush_subnormal(x)
    result = APPROXIMATE[name](x.astype(np.float64)).astype(x.dtype)
    if ftz:
        result = flush_subnormal(result)
    return _upper_half(result) if upper else result


def _upper_half(x):
    return (x.view(np.uint64) & np.uint64(0xFFFFFFFF00000000)).view(np.float64)
