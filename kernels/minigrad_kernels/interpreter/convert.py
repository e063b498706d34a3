"""Conversions between types: cvt and, between spaces of memory, cvta."""

import numpy as np

from . import formats
from .array import WINDOW_BITS
from .operations import DTYPES, Operation, Unknown, is_float, opcode

WHOLE = ("rni", "rzi", "rmi", "rpi")
MODES = ("rn", "rna", "rz", "rm", "rp")
GENERIC = {"shared": 1 << WINDOW_BITS, "local": 2 << WINDOW_BITS}  # where generic addresses of these spaces begin


@opcode("cvt", flags="rni rzi rmi rpi rn rna rz rm rp ftz sat satfinite relu")
def convert(name, kinds, flags):
    if len(kinds) != 2:
        raise Unknown("wants two types")
    result, source = kinds
    mode = next((flag for flag in MODES if flag in flags), "rn")
    if "relu" in flags:
        raise Unknown("has .relu, which is not known")
    if result in ("f16x2", "bf16x2", "tf32") or "bf16" in kinds:
        return _narrow(result, source, mode, "satfinite" in flags)
    whole = next((flag for flag in WHOLE if flag in flags), None)
    dtype = DTYPES[result]
    if is_float(source):
        if is_float(result):
            function = _float_to_float(source, result, mode, whole, "satfinite" in flags)
        else:
            function = lambda x: formats.round_to_integer(x, dtype, whole or "rzi")
    elif is_float(result):
        function = lambda x: formats.integer_to_float(x, dtype, mode)
    elif "sat" in flags:
        function = _saturate(dtype, DTYPES[source])
    else:
        function = lambda x: x.astype(dtype)
    return Operation(_modified(function, kinds, flags), (result,), (source,))


def _modified(function, kinds, flags):
    """.ftz flushes operands and results of 32 bits; .sat clamps a float to [0, 1]."""
    result, source = kinds
    if "ftz" in flags and source == "f32":
        inner = function
        function = lambda x: inner(formats.flush_subnormal(x))
    if "ftz" in flags and result == "f32":
        middle = function
        function = lambda x: formats.flush_subnormal(middle(x))
    if "sat" in flags and is_float(result):
        outer = function
        function = lambda x: formats.clamp_unit(outer(x))
    return function


def _float_to_float(source, result, mode, whole, saturate):
    dtype = DTYPES[result]
    if whole:
        return lambda x: formats.round_to_whole(x, whole).astype(dtype)
    if DTYPES[source]().itemsize <= dtype().itemsize:
        return lambda x: x.astype(dtype)
    if result == "f32":
        return lambda x: formats.round_to_float32(x, mode)
    return lambda x: formats.round_to_float16(x, mode, saturate)


def _saturate(dtype, source):
    limits, own = np.iinfo(dtype), np.iinfo(source)
    low, high = max(limits.min, own.min), min(limits.max, own.max)
    return lambda x: np.clip(x, source(low), source(high)).astype(dtype)


def _narrow(result, source, mode, saturate):
    """Conversions to and from formats that NumPy lacks; of a pair of 16-bit floats the first operand is the upper."""
    if source == "bf16" and result == "f32":
        return Operation(formats.bfloat16_to_float32, ("f32",), ("bf16",))
    if source != "f32":
        raise Unknown(f"converts .{source} to .{result}, which is not known")
    if result == "tf32":
        return Operation(lambda x: formats.round_to_tf32(x, mode, saturate), ("b32",), ("f32",))
    if result == "bf16":
        return Operation(lambda x: formats.round_to_bfloat16(x, mode, saturate), ("b16",), ("f32",))
    if result == "f16x2":
        half = lambda x: formats.round_to_float16(x, mode, saturate).view(np.uint16)
    else:
        half = lambda x: formats.round_to_bfloat16(x, mode, saturate)

    def pair(high, low):
        return half(high).astype(np.uint32) << np.uint32(16) | half(low)

    return Operation(pair, ("b32",), ("f32", "f32"))


@opcode("cvta", flags="to global shared local const param shared:cta")
def convert_address(name, kinds, flags):
    """Generic addresses of global and constant memory are the addresses themselves."""
    (kind,) = kinds
    space = next((space for space in ("shared", "local") if any(flag.startswith(space) for flag in flags)), None)
    if space is None:
        return Operation(np.positive, (kind,), (kind,))
    move = np.subtract if "to" in flags else np.add
    base = DTYPES[kind](GENERIC[space])
    return Operation(lambda x: move(x, base), (kind,), (kind,))
