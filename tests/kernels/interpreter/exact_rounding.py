"""Rounding by definition, in rational arithmetic: what the interpreter's number formats are compared with."""

import math
from fractions import Fraction

import numpy as np

# Bits of the significand, exponents of the smallest normal and of the largest binade.
FORMATS = {
    "bfloat16": (8, -126, 127),
    "tf32": (11, -126, 127),
    "float16": (11, -14, 15),
    "float32": (24, -126, 127),
    "float64": (53, -1022, 1023),
}


def rounded(value, target, mode):
    """A rational number in the target format, by definition: a Fraction, or an infinity."""
    precision, lowest, highest = FORMATS[target]
    size = abs(value)
    if not size:
        return value
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    quantum = Fraction(2) ** (max(exponent, lowest) - precision + 1)
    count, rest = divmod(size, quantum)
    outwards = {
        "rn": rest * 2 > quantum or (rest * 2 == quantum and count % 2 == 1),
        "rna": rest * 2 >= quantum,
        "rz": False,
        "rm": rest > 0 and value < 0,
        "rp": rest > 0 and value > 0,
    }[mode]
    result, largest = (count + outwards) * quantum, (2 - Fraction(2) ** (1 - precision)) * Fraction(2) ** highest
    if result > largest:
        stays = mode == "rz" or (mode == "rm" and value > 0) or (mode == "rp" and value < 0)
        result = largest if stays else math.inf
    return result if value > 0 else -result


def exact(number):
    return Fraction(float(number)) if np.isfinite(number) else float(number)


def assert_rounded(results, values, target, mode):
    """Every result is the rational value rounded; where that is zero the sign is the value's."""
    for result, value in zip(results, values, strict=True):
        wanted = rounded(value, target, mode)
        assert exact(result) == wanted, (target, mode, float(value), float(result))
        if value:
            assert np.signbit(result) == (value < 0)
