"""Number formats of PTX: rounding, conversion, fused multiply-add and approximate functions on NumPy arrays.

Rounding modes carry their PTX names: rn (nearest, ties to even), rz (towards zero), rm (down), rp (up); rni, rzi, rmi,
rpi round to whole numbers. NumPy's warnings are for the caller to turn off: GPUs raise no flags.

Source  PTX ISA: cvt, fma, and the approximate instructions rcp, sqrt, rsqrt, sin, cos, lg2, ex2, tanh
"""

import numpy as np

FIRST_NORMAL = {np.dtype(t): np.finfo(t).smallest_normal for t in (np.float16, np.float32, np.float64)}
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
    """x + y of float64 numbers, exact products of float32 among them, rounded once to float32: not to nearest."""
    total = x + y
    part = total - x
    error = (x - (total - part)) + (y - part)  # of the sum, exactly; NaN where that is not finite
    if mode == "rm":  # numbers that cancel leave -0
        total = np.where((total == 0) & (np.signbit(x) | np.signbit(y)), -0.0, total)
    nearest = total.astype(np.float32)
    same = nearest == total
    low, high = (nearest < total) | same & (error > 0), (nearest > total) | same & (error < 0)
    outside = np.where(nearest > 0, high, (nearest < 0) & low)
    wrong, side = {"rz": (outside, 0), "rm": (high, -np.inf), "rp": (low, np.inf)}[mode]
    return np.where(wrong, np.nextafter(nearest, np.float32(side)), nearest)


def fused(x, y, z):
    """x * y + z, rounded once to nearest, as the processor does it."""
    from ..toolchain.maths import fma  # which imports Numba

    arrays = [array if array.flags.carray else np.array(array) for array in (x, y, z)]
    fma.entry(*arrays, out := np.empty_like(arrays[0]))
    return out


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
