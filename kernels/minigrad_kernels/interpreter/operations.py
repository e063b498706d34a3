"""Instructions from registers to registers: a table of what each reads, gives and computes.

A row says the types of the result and of the sources, as "t=tt", and a function of arrays of these types:

    t     the type of the opcode                            u, p  32 bits without a sign; a predicate
    w     as t, twice as wide                               b     as many bits as t, without a sign

Floats are computed at once, in float32 and float64. Those of 16 bits are converted; arithmetic on them is not known.

Source  PTX ISA: Integer, Floating Point, Comparison, Logic and Shift, and Conversion Instructions
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from . import formats
from .array import WINDOW_BITS

DTYPES: dict[str, Any] = {
    "pred": np.bool_, "b8": np.uint8, "u8": np.uint8, "s8": np.int8,
    "b16": np.uint16, "u16": np.uint16, "s16": np.int16, "f16": np.float16, "bf16": np.uint16,
    "b32": np.uint32, "u32": np.uint32, "s32": np.int32, "f32": np.float32, "tf32": np.uint32,
    "f16x2": np.uint32, "bf16x2": np.uint32,
    "b64": np.uint64, "u64": np.uint64, "s64": np.int64, "f64": np.float64,
}  # fmt: skip
FLOATS, HALVES = ("f32", "f64"), ("f16", "bf16", "tf32", "f16x2", "bf16x2")
GENERIC = {"shared": 1 << WINDOW_BITS, "local": 2 << WINDOW_BITS}  # where generic addresses of these spaces begin


class Unknown(Exception):
    """Something that the interpreter does not know; the translation adds the instruction and its line."""


class Operation(NamedTuple):
    """function takes the sources as arrays of their types and gives the result."""

    function: Callable
    result: str
    sources: list[str]


# ---- whole numbers ---------------------------------------------------------------------------------------------------


def _bits(x):
    return 8 * x.dtype.itemsize


def _unsigned(x):
    return x.view(f"u{x.dtype.itemsize}")


def _wide(x, y):
    return np.multiply(x, y, dtype=f"{x.dtype.kind}{2 * x.dtype.itemsize}")


def _high(x, y):
    """The upper half of a product."""
    if _bits(x) < 64:
        return (_wide(x, y) >> _bits(x)).astype(x.dtype)
    return (x.astype(object) * y.astype(object) >> 64).astype(x.dtype)


def _divide(x, y):
    """Quotient towards zero and remainder; the quotient by 0 has all bits set, the remainder is x."""
    a, b = _unsigned(np.abs(x)), _unsigned(np.abs(y))
    zero = b == 0
    quotient = a // np.where(zero, b.dtype.type(1), b)
    remainder = np.where(zero, a, a - quotient * b)
    if x.dtype.kind == "i":
        quotient = np.where((x < 0) != (y < 0), -quotient, quotient)
        remainder = np.where(x < 0, -remainder, remainder)
    quotient = np.where(zero, ~b.dtype.type(0), quotient)
    return quotient.view(x.dtype), remainder.view(x.dtype)


def _shifted_left(x, count):
    """Shifting by more than there are bits gives zeros, to the right copies of the sign."""
    moved = np.left_shift(x, np.minimum(count, _bits(x) - 1).astype(x.dtype))
    return np.where(count < _bits(x), moved, x.dtype.type(0))


def _shifted_right(x, count):
    moved = np.right_shift(x, np.minimum(count, _bits(x) - 1).astype(x.dtype))
    return moved if x.dtype.kind == "i" else np.where(count < _bits(x), moved, x.dtype.type(0))


def _funnel(left):
    """A shift of 64 bits, given as two halves, of which one half is the result."""

    def function(low, high, count):
        both, count = high.astype(np.uint64) << np.uint64(32) | low, (count & np.uint32(31)).astype(np.uint64)
        return (both << count >> np.uint64(32) if left else both >> count).astype(np.uint32)

    return function


def _leading_zeros(x):
    """How many bits lie above the highest one that is set; x has no sign."""
    for distance in (1, 2, 4, 8, 16, 32):
        x = x | _shifted_right(x, np.uint32(distance))
    return np.bitwise_count(~x).astype(np.uint32)


def _extracted(x, place, length):
    """A field of bits, extended by zeros or by its sign; place and length are the lowest bytes of operands."""
    spare = np.uint32(_bits(x)) - np.minimum(length & np.uint32(255), np.uint32(_bits(x)))
    return _shifted_right(_shifted_left(_shifted_right(x, place & np.uint32(255)), spare), spare)


def _inserted(x, y, place, length):
    """A field of y becomes the lowest bits of x; its place and length are the lowest bytes of operands."""
    place, length = place & np.uint32(255), length & np.uint32(255)
    mask = _shifted_left(_shifted_left(np.ones_like(x), length) - x.dtype.type(1), place)
    return y & ~mask | _shifted_left(x, place) & mask


def _permuted(x, y, choices):
    """Four bytes chosen from eight; bit 3 of a choice copies its sign over the byte."""
    both = np.stack([x, y], axis=-1).view(np.uint8)
    choice = choices[:, None] >> np.arange(0, 16, 4, dtype=np.uint32) & np.uint32(15)
    bytes_ = np.take_along_axis(both, (choice & np.uint32(7)).astype(np.int64), axis=1)
    signs = np.where(bytes_ & np.uint8(128), np.uint8(255), np.uint8(0))
    return np.where(choice & np.uint32(8), signs, bytes_).view(np.uint32)[:, 0]


WHOLE: dict[str, tuple[str, Callable]] = {
    "add": ("t=tt", np.add),
    "sub": ("t=tt", np.subtract),
    "mul.lo": ("t=tt", np.multiply),
    "mul.hi": ("t=tt", _high),
    "mul.wide": ("w=tt", _wide),
    "mad.lo": ("t=ttt", lambda x, y, z: x * y + z),
    "mad.wide": ("w=ttw", lambda x, y, z: _wide(x, y) + z),
    "div": ("t=tt", lambda x, y: _divide(x, y)[0]),
    "rem": ("t=tt", lambda x, y: _divide(x, y)[1]),
    "abs": ("t=t", np.abs),
    "neg": ("t=t", np.negative),
    "min": ("t=tt", np.minimum),
    "max": ("t=tt", np.maximum),
    "and": ("t=tt", np.bitwise_and),
    "or": ("t=tt", np.bitwise_or),
    "xor": ("t=tt", np.bitwise_xor),
    "not": ("t=t", np.invert),
    "shl": ("t=tu", _shifted_left),
    "shr": ("t=tu", _shifted_right),
    "shf.l.wrap": ("t=ttt", _funnel(True)),
    "shf.r.wrap": ("t=ttt", _funnel(False)),
    "popc": ("u=b", lambda x: np.bitwise_count(x).astype(np.uint32)),
    "clz": ("u=b", _leading_zeros),
    "bfe": ("t=tuu", _extracted),
    "bfi": ("t=ttuu", _inserted),
    "prmt": ("t=ttt", _permuted),
    "selp": ("t=ttp", lambda x, y, p: np.where(p, x, y)),
}


# ---- floats ----------------------------------------------------------------------------------------------------------


def _smaller(choose, sign_of):
    """The number where one operand is NaN, unless .NaN; -0 is smaller than +0."""

    def function(x, y):
        zero = np.where(sign_of(np.signbit(x), np.signbit(y)), x.dtype.type(-0.0), x.dtype.type(0))
        return np.where((x == 0) & (y == 0), zero, choose(x, y))

    return function


# Of float32 operands, widened to float64: two numbers whose sum is the exact result.
EXACT = {
    "add": lambda x, y: (x, y),
    "sub": lambda x, y: (x, -y),
    "mul": lambda x, y: (x * y, np.copysign(0.0, x * y)),
    "fma": lambda x, y, z: (x * y, z),
}
NEAREST = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "rcp": np.reciprocal, "sqrt": np.sqrt,
    "neg": np.negative, "abs": np.abs, "copysign": lambda x, y: np.copysign(y, x),
    "fma": formats.fused, "min": _smaller(np.fmin, np.logical_or),
    "max": _smaller(np.fmax, np.logical_and),
    "min.NaN": _smaller(np.minimum, np.logical_or),
    "max.NaN": _smaller(np.maximum, np.logical_and),
}  # fmt: skip
SOURCES = {"fma": 3, "add": 2, "sub": 2, "mul": 2, "div": 2, "min": 2, "max": 2, "copysign": 2}
ROUNDINGS = {"rn", "rz", "rm", "rp"}
MODIFIERS = ROUNDINGS | {"ftz", "sat", "approx", "full"}


def _floating(root, key, kind, flags):
    mode = next(iter(flags & ROUNDINGS), None)
    if key in formats.APPROXIMATE and mode is None:
        function, flags = (lambda x, ftz="ftz" in flags: formats.approximate(root, x, ftz)), flags - {"ftz"}
    elif mode not in (None, "rn") and key in EXACT and kind == "f32":
        function = lambda *x: formats.round_sum(*EXACT[root](*(part.astype(np.float64) for part in x)), mode)
    elif key in NEAREST and mode in (None, "rn"):
        function = NEAREST[key]
    else:
        raise Unknown("is an operation or a rounding of floats that is not known")
    if "ftz" in flags:
        function = _flushing(_after(formats.flush_subnormal, function))
    if "sat" in flags:
        function = _after(formats.clamp_unit, function)
    return Operation(function, kind, [kind] * SOURCES.get(root, 1))


def _after(last, first):
    return lambda *x: last(first(*x))


def _flushing(function):
    return lambda *x: function(*map(formats.flush_subnormal, x))


# ---- comparisons -----------------------------------------------------------------------------------------------------


def _nan(x, y):
    return np.isnan(x) | np.isnan(y)


COMPARE = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,  # of numbers without a sign
    "nan": _nan, "num": lambda x, y: ~_nan(x, y),
}  # fmt: skip


def _compare(kinds, flags):
    """On floats .eq and its like are false where one is NaN, .equ and its like are true."""
    (kind,), names = kinds, flags - {"ftz"}
    if len(names) != 1 or kind in HALVES:
        raise Unknown("is a comparison that is not known")
    (name,) = names
    if name == "ne" and kind in FLOATS:
        test = lambda x, y: np.less(x, y) | np.greater(x, y)
    elif name in COMPARE:
        test = COMPARE[name]
    else:
        test = lambda x, y: COMPARE[name[:-1]](x, y) | _nan(x, y)
    return Operation(_flushing(test) if "ftz" in flags else test, "pred", kinds * 2)


# ---- conversions -----------------------------------------------------------------------------------------------------

NARROW = {  # what float32 is rounded to, by (type, mode): to bits
    ("f16", "rn"): lambda x: x.astype(np.float16).view(np.uint16),
    ("bf16", "rn"): formats.round_to_bfloat16,
    ("tf32", "rna"): formats.round_to_tf32,
}


def _convert(kinds, flags):
    result, source = kinds
    whole, mode = next(iter(flags & formats.WHOLE.keys()), None), next(iter(flags & {"rn", "rna"}), None)
    if (result, source) == ("f32", "bf16"):
        return Operation(formats.bfloat16_to_float32, "f32", ["bf16"])
    if result in HALVES[1:] or source in HALVES[1:]:
        return _narrow(result, source, mode)
    function = _plain_conversion(result, source, whole)
    if "ftz" in flags:
        function = _flushing(function) if source == "f32" else function
        function = _after(formats.flush_subnormal, function) if result == "f32" else function
    if "sat" in flags:
        function = _after(formats.clamp_unit, function)
    if mode == "rna" or ("sat" in flags and result not in FLOATS):
        raise Unknown("is a conversion that is not known")
    return Operation(function, result, [source])


def _narrow(result, source, mode):
    """To formats that NumPy lacks; of a pair of 16-bit floats the first operand is the upper."""
    bits = NARROW.get((result.removesuffix("x2"), mode))
    if source != "f32" or bits is None:
        raise Unknown(f"converts .{source} to .{result} in a way that is not known")
    if result[-2:] != "x2":
        return Operation(bits, "b32" if result == "tf32" else "b16", ["f32"])
    return Operation(lambda high, low: bits(high).astype(np.uint32) << np.uint32(16) | bits(low), "b32", ["f32"] * 2)


def _plain_conversion(result, source, whole):
    dtype, floating = DTYPES[result], ("f16", *FLOATS)
    if source in floating and result not in floating:
        return lambda x: formats.round_to_integer(x, dtype, whole or "rzi")
    if whole:
        return lambda x: formats.WHOLE[whole](x).astype(dtype)
    if result == "f16":
        return lambda x: x.astype(np.float64).astype(dtype)  # from int64 at once NumPy may round twice
    return lambda x: x.astype(dtype)


def _convert_address(kinds, flags):
    """Generic addresses of global and constant memory are the addresses themselves."""
    spaces = [flag.partition("::")[0] for flag in flags - {"to"}]
    base = DTYPES[kinds[0]](GENERIC.get(*spaces, 0))
    return Operation(lambda x: x - base if "to" in flags else x + base, kinds[0], kinds)


# ---- the table -------------------------------------------------------------------------------------------------------

OF_TYPES = {"cvt": _convert, "cvta": _convert_address, "setp": _compare}
FLAGS = {
    "cvt": {*formats.WHOLE, "rn", "rna", "ftz", "sat"},
    "cvta": {"to", "global", "shared", "local", "const", "param", "shared::cta"},
}
ROOTS = {*OF_TYPES, *(key.partition(".")[0] for key in (*WHOLE, *NEAREST, *formats.APPROXIMATE))}


@lru_cache(maxsize=1024)
def operation(parts):
    """The Operation of an opcode, given by its parts.

    Errors  Unknown for an opcode, a modifier or a type that is not known
    """
    root, *rest = parts
    kinds = [part for part in rest if part in DTYPES]
    flags = [part for part in rest if part not in DTYPES]
    if root not in ROOTS:
        raise Unknown("is an opcode that is not known")
    if strange := set(flags) - FLAGS.get(root, set(flags)):
        raise Unknown(f"has the modifier .{min(strange)}, which is not known")
    if not kinds:
        raise Unknown("has no type that is known")
    kind = kinds[0]
    if root in OF_TYPES:
        return OF_TYPES[root](kinds, set(flags))
    if kind in HALVES:
        raise Unknown(f"computes in .{kind}, which is not known")
    if kind in FLOATS and root != "selp":
        key = ".".join([root, *(flag for flag in flags if flag not in MODIFIERS)])
        return _floating(root, key, kind, set(flags))
    key = ".".join([root, *flags])
    if key not in WHOLE:
        raise Unknown("is an operation of whole numbers that is not known")
    types, function = WHOLE[key]
    result, *sources = (_type(letter, kind) for letter in types.replace("=", ""))
    return Operation(function, result, sources)


def _type(letter, kind):
    bits = 8 * np.dtype(DTYPES[kind]).itemsize
    letters = {"t": kind, "u": "u32", "p": "pred", "b": f"u{bits}", "w": f"{kind[0]}{2 * bits}"}
    return letters[letter]
