"""Floating-point arithmetic. Results are rounded once, as PTX wants; approximate functions are as good as they get."""

import numpy as np

from . import formats
from .operations import DTYPES, Operation, Unknown, opcode

ROUNDINGS = ("rn", "rz", "rm", "rp")
PACKED = {"f16x2": "f16", "bf16x2": "bf16"}


def rounding(flags, default="rn"):
    return next((mode for mode in ROUNDINGS if mode in flags), default)


def make(function, kind, count, flags=frozenset()):
    """An Operation on `count` sources of one floating type, with what .ftz and .sat add to it."""
    packed = kind in PACKED
    kind = PACKED.get(kind, kind)
    if kind == "bf16":
        exact = function
        function = lambda *x: formats.round_to_bfloat16(exact(*map(formats.bfloat16_to_float32, x)))
    function = flush_and_clamp(function, flags)
    return Operation(function, (kind,), (kind,) * count, packed=packed)


def flush_and_clamp(function, flags):
    if "ftz" in flags:
        plain = function
        function = lambda *x: formats.flush_subnormal(plain(*map(formats.flush_subnormal, x)))
    if "sat" in flags:
        free = function
        function = lambda *x: formats.clamp_unit(free(*x))
    return function


def _directed(function, kind, mode):
    """Sums and products in the other rounding modes, from the exact result as a sum of two float64."""
    if kind not in ("f32", "f16"):
        raise Unknown(f"rounds with .{mode}, which is known for f32 alone")
    dtype = DTYPES[kind]
    return lambda *x: formats.round_sum(*function(*(operand.astype(np.float64) for operand in x)), dtype, mode)


def add_or_subtract(name, kind, flags):
    mode = rounding(flags)
    if mode != "rn":
        exact = (lambda x, y: (x, y)) if name == "add" else (lambda x, y: (x, -y))
        return make(_directed(exact, kind, mode), kind, 2, flags)
    if name not in ("add", "sub") or "cc" in flags:
        raise Unknown("is no operation on floats")
    return make(np.add if name == "add" else np.subtract, kind, 2, flags)


def multiply(kind, flags):
    mode = rounding(flags)
    if mode != "rn":
        return make(_directed(lambda x, y: (x * y, np.full_like(x, -0.0)), kind, mode), kind, 2, flags)
    return make(np.multiply, kind, 2, flags)


@opcode("fma", flags="rn rz rm rp ftz sat relu")
def fused(name, kinds, flags):
    (kind,) = kinds
    mode = rounding(flags)
    scalar = PACKED.get(kind, kind)
    if scalar == "f64":
        if mode != "rn":
            raise Unknown(f"rounds with .{mode}, which is not known for f64")
        function = formats.fma64
    elif scalar == "bf16":
        return _fused_bfloat16(kind, flags)
    else:
        routine = formats.fma32 if scalar == "f32" else formats.fma16
        function = routine if mode == "rn" else (lambda x, y, z: routine(x, y, z, mode))
    return make(_relu(function) if "relu" in flags else function, kind, 3, flags)


def _fused_bfloat16(kind, flags):
    """Rounded once: the float32 in between is rounded to odd by way of float64, whose product is exact."""
    if flags - {"rn"}:
        raise Unknown("has a modifier that is not known for bfloat16")

    def function(x, y, z):
        x, y, z = (formats.bfloat16_to_float32(part) for part in (x, y, z))
        low, high = formats.fma32(x, y, z, "rm"), formats.fma32(x, y, z, "rp")
        odd = np.where(low.view(np.uint32) & np.uint32(1) > 0, low, high)
        return formats.round_to_bfloat16(np.where(low == high, high, odd))

    return Operation(function, ("bf16",), ("bf16",) * 3, packed=kind in PACKED)


def _relu(function):
    def clamped(*x):
        result = function(*x)
        return np.where(result < 0, result.dtype.type(0), result)

    return clamped


def divide(kind, flags):
    if flags & {"approx", "full"}:
        return make(np.divide, kind, 2, flags)
    mode = rounding(flags)
    if mode != "rn" and kind == "f32":
        function = lambda x, y: formats.round_to_float32(np.divide(x, y, dtype=np.float64), mode)
        return make(function, kind, 2, flags)
    if mode != "rn":
        raise Unknown(f"rounds with .{mode}, which is known for f32 alone")
    return make(np.divide, kind, 2, flags)


@opcode("rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh", flags="approx rn rz rm rp ftz")
def function_of_one(name, kinds, flags):
    (kind,) = kinds
    mode = rounding(flags, None)
    if mode is None:
        scalar = PACKED.get(kind, kind)
        ftz = "ftz" in flags and scalar != "bf16"
        return make(lambda x: formats.approximate(name, x, ftz), kind, 1)
    exact = {"rcp": np.reciprocal, "sqrt": np.sqrt}.get(name)
    if exact is None or (mode != "rn" and kind != "f32"):
        raise Unknown(f"rounds with .{mode}, which is not known for it")
    if mode == "rn":
        return make(exact, kind, 1, flags)
    return make(lambda x: formats.round_to_float32(exact(x.astype(np.float64)), mode), kind, 1, flags)


def change_sign(name, kind, flags):
    """On the bits, so that NaN changes its sign too."""
    kind_bits = {"f16": "b16", "bf16": "b16", "f16x2": "b32", "bf16x2": "b32", "f32": "b32", "f64": "b64"}[kind]
    dtype = DTYPES[kind_bits]
    sign = {"b16": 0x8000, "b32": 0x80000000, "b64": 1 << 63}[kind_bits] | (0x8000 if kind in PACKED else 0)
    if name == "neg":
        function = lambda x: x ^ dtype(sign)
    else:
        function = lambda x: x & ~dtype(sign)
    if "ftz" in flags:
        return make(np.negative if name == "neg" else np.abs, kind, 1, flags)
    return Operation(function, (kind_bits,), (kind_bits,))


def smaller_or_larger(name, kind, flags):
    """The number where one operand is NaN, unless .NaN; -0 is smaller than +0."""
    if "NaN" in flags:
        choose = np.minimum if name == "min" else np.maximum
    else:
        choose = np.fmin if name == "min" else np.fmax

    def function(x, y):
        zeros = (x == 0) & (y == 0)
        sign = np.signbit(x) | np.signbit(y) if name == "min" else np.signbit(x) & np.signbit(y)
        zero = np.where(sign, x.dtype.type(-0.0), x.dtype.type(0))
        return np.where(zeros, zero, choose(x, y))

    return make(function, kind, 2, flags)


@opcode("copysign")
def copy_sign(name, kinds, flags):
    """The sign of the first, the rest of the second."""
    (kind,) = kinds
    return Operation(lambda x, y: np.copysign(y, x), (kind,), (kind, kind))


@opcode("testp", flags="finite infinite number notanumber normal subnormal")
def classify(name, kinds, flags):
    (kind,) = kinds
    (test,) = flags
    smallest = formats.FIRST_NORMAL[np.dtype(DTYPES[kind])]
    tests = {
        "finite": np.isfinite,
        "infinite": np.isinf,
        "number": lambda x: ~np.isnan(x),
        "notanumber": np.isnan,
        "normal": lambda x: np.isfinite(x) & (np.abs(x) >= smallest),
        "subnormal": lambda x: (x != 0) & (np.abs(x) < smallest),
    }
    return Operation(tests[test], ("pred",), (kind,))
