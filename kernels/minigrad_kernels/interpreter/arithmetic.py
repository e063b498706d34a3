"""Integer arithmetic: sums, products, quotients, extended precision with a carry."""

import numpy as np

from . import floating
from .operations import DTYPES, Operation, Unknown, bits_of, is_float, opcode, signed

WIDE = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}
CARRIES = {"add": (), "addc": ("in",), "sub": (), "subc": ("in",), "mad": (), "madc": ("in",)}


def _carry(name, flags):
    return CARRIES[name] + (("out",) if "cc" in flags else ())


def _clip(function, kind):
    limits = np.iinfo(DTYPES[kind])

    def saturated(*sources):
        exact = function(*(source.astype(np.int64) for source in sources))
        return np.clip(exact, limits.min, limits.max).astype(limits.dtype)

    return saturated


def _add_with_carry(carry):
    def function(x, y, *c):
        total = x + y
        over = total < x
        if c:
            result = total + c[0].astype(x.dtype)
            over |= result < total
            total = result
        return (total, over) if "out" in carry else total

    return function


def _subtract_with_carry(carry):
    """The carry of a difference is a borrow."""

    def function(x, y, *c):
        total = x - y
        under = x < y
        if c:
            result = total - c[0].astype(x.dtype)
            under |= result > total
            total = result
        return (total, under) if "out" in carry else total

    return function


@opcode("add", "addc", "sub", "subc", flags="sat cc rn rz rm rp ftz")
def add_or_subtract(name, kinds, flags):
    (kind,) = kinds
    if is_float(kind):
        return floating.add_or_subtract(name, kind, flags)
    carry = _carry(name, flags)
    plain = np.add if name.startswith("add") else np.subtract
    if carry:
        kind = f"u{bits_of(kind)}"
        function = _add_with_carry(carry) if name.startswith("add") else _subtract_with_carry(carry)
    else:
        function = _clip(plain, kind) if "sat" in flags else plain
    return Operation(function, (kind,), (kind, kind), carry)


def high(kind):
    """The upper half of a product."""
    dtype, bits = DTYPES[kind], bits_of(kind)
    if bits < 64:
        wide = DTYPES[WIDE[kind]]
        return lambda x, y: (np.multiply(x, y, dtype=wide) >> wide(bits)).astype(dtype)

    def function(x, y):
        a, b = x.view(np.uint64), y.view(np.uint64)
        low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
        cross = (a >> shift) * (b & low) + ((a & low) * (b & low) >> shift)
        other = (a & low) * (b >> shift) + (cross & low)
        top = (a >> shift) * (b >> shift) + (cross >> shift) + (other >> shift)
        if signed(kind):  # a negative factor counts as 2**64 more than it is
            top = top - np.where(x < 0, b, np.uint64(0)) - np.where(y < 0, a, np.uint64(0))
        return top.view(dtype)

    return function


def _product(kind, flags):
    """(function, type of the product)"""
    if "wide" in flags:
        wide = DTYPES[WIDE[kind]]
        return (lambda x, y: np.multiply(x, y, dtype=wide)), WIDE[kind]
    if "hi" in flags:
        return high(kind), kind
    if "lo" in flags:
        return np.multiply, kind
    raise Unknown("lacks .lo, .hi or .wide")


@opcode("mul", flags="lo hi wide rn rz rm rp ftz sat")
def multiply(name, kinds, flags):
    (kind,) = kinds
    if is_float(kind):
        return floating.multiply(kind, flags)
    function, result = _product(kind, flags)
    return Operation(function, (result,), (kind, kind))


@opcode("mad", "madc", flags="lo hi wide cc sat rn rz rm rp ftz")
def multiply_add(name, kinds, flags):
    (kind,) = kinds
    if is_float(kind):
        return floating.fused(name, kinds, flags)
    carry = _carry(name, flags)
    if carry:
        kind = kind if "hi" in flags and signed(kind) else f"u{bits_of(kind)}"
    product, result = _product(kind, flags)
    if carry:
        total = _add_with_carry(carry)
        as_unsigned = f"u{bits_of(result)}"
        dtype = DTYPES[as_unsigned]
        function = lambda x, y, *rest: total(product(x, y).view(dtype), *rest)
        return Operation(function, (as_unsigned,), (kind, kind, as_unsigned), carry)
    if "sat" in flags:
        return Operation(_clip(lambda x, y, z: (x * y >> 32) + z, kind), (kind,), (kind, kind, kind))
    return Operation(lambda x, y, z: product(x, y) + z, (result,), (kind, kind, result))


@opcode("mul24", "mad24", flags="lo hi")
def multiply_24(name, kinds, flags):
    (kind,) = kinds
    shift = 16 if "hi" in flags else 0
    place = np.int64(40)  # moves bit 23 to the sign

    def product(x, y):
        x, y = x.astype(np.int64), y.astype(np.int64)
        if signed(kind):
            x, y = x << place >> place, y << place >> place
        else:
            x, y = x & 0xFFFFFF, y & 0xFFFFFF
        return (x * y >> np.int64(shift)).astype(DTYPES[kind])

    if name == "mul24":
        return Operation(product, (kind,), (kind, kind))
    return Operation(lambda x, y, z: product(x, y) + z, (kind,), (kind, kind, kind))


def _divide(x, y):
    """Quotient towards zero and remainder; the quotient by 0 has all bits set, the remainder is x."""
    a, b = _magnitude(x), _magnitude(y)
    zero = b == 0
    quotient = a // np.where(zero, b.dtype.type(1), b)
    remainder = np.where(zero, a, a - quotient * b)
    if x.dtype.kind == "i":
        quotient = np.where((x < 0) != (y < 0), -quotient, quotient)
        remainder = np.where(x < 0, -remainder, remainder)
    quotient = np.where(zero, ~b.dtype.type(0), quotient)
    return quotient.view(x.dtype), remainder.view(x.dtype)


def _magnitude(x):
    """The absolute value, unsigned."""
    return np.abs(x).view(f"u{x.dtype.itemsize}")


@opcode("div", flags="rn rz rm rp ftz approx full")
def divide(name, kinds, flags):
    (kind,) = kinds
    if is_float(kind):
        return floating.divide(kind, flags)
    return Operation(lambda x, y: _divide(x, y)[0], (kind,), (kind, kind))


@opcode("rem")
def remainder(name, kinds, flags):
    (kind,) = kinds
    return Operation(lambda x, y: _divide(x, y)[1], (kind,), (kind, kind))


@opcode("abs", "neg", flags="ftz")
def absolute_or_negative(name, kinds, flags):
    (kind,) = kinds
    if is_float(kind):
        return floating.change_sign(name, kind, flags)
    return Operation(np.abs if name == "abs" else np.negative, (kind,), (kind,))


@opcode("min", "max", flags="ftz NaN")
def smaller_or_larger(name, kinds, flags):
    (kind,) = kinds
    if is_float(kind):
        return floating.smaller_or_larger(name, kind, flags)
    return Operation(np.minimum if name == "min" else np.maximum, (kind,), (kind, kind))


@opcode("sad")
def absolute_difference(name, kinds, flags):
    (kind,) = kinds
    result = f"u{bits_of(kind)}"
    function = lambda x, y, z: (np.maximum(x, y) - np.minimum(x, y)).view(z.dtype) + z
    return Operation(function, (result,), (kind, kind, result))
