"""The table of operations from registers to registers: each opcode has a builder that says what it computes.

A builder gets the types and the other modifiers of an opcode ("add.ftz.f32": types ("f32",), flags {"ftz"}) and gives
an Operation: pure functions on arrays, which arithmetic.py, bits.py, floating.py, compare.py and convert.py define.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

__all__ = ["DTYPES", "OPCODES", "Operation", "Unknown", "bits_of", "is_float", "opcode", "signed", "unsigned"]

DTYPES: dict[str, Any] = {
    "pred": np.bool_, "b8": np.uint8, "u8": np.uint8, "s8": np.int8,
    "b16": np.uint16, "u16": np.uint16, "s16": np.int16, "f16": np.float16, "bf16": np.uint16,
    "b32": np.uint32, "u32": np.uint32, "s32": np.int32, "f32": np.float32, "tf32": np.uint32,
    "f16x2": np.uint32, "bf16x2": np.uint32,
    "b64": np.uint64, "u64": np.uint64, "s64": np.int64, "f64": np.float64,
}  # fmt: skip
OPCODES: dict[str, tuple[Callable, frozenset[str]]] = {}


class Unknown(Exception):
    """Something that the interpreter does not know; the translation adds the instruction and its line."""


class Operation(NamedTuple):
    """function takes the sources as arrays of their types and gives the result, or a tuple of results.

    Operations with a carry take it (bool) as the last source (carry "in") and give it as the last result ("out").
    A packed operation runs once for each half of 32-bit registers.
    """

    function: Callable
    results: tuple[str, ...]
    sources: tuple[str, ...]
    carry: tuple[str, ...] = ()
    packed: bool = False


def opcode(*names, flags=""):
    """Enter a builder for opcodes; flags: the modifiers that it knows besides types."""

    def enter(builder):
        for name in names:
            OPCODES[name] = builder, frozenset(flags.split())
        return builder

    return enter


def bits_of(kind):
    return np.dtype(DTYPES[kind]).itemsize * 8


def is_float(kind):
    return kind in ("f16", "f32", "f64", "bf16", "f16x2", "bf16x2")


def signed(kind):
    return kind[0] == "s"


def unsigned(bits):
    return np.dtype(f"u{bits // 8}")
