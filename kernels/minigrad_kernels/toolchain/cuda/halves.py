"""Elements of 16 bits in CUDA kernels, float16 and bfloat16: 16 bits in memory, float32 in registers and sums.

In a signature both are `u16*`. What lies between memory and arithmetic is a Half, and a kernel is made for each by a
function around it, which gives the functions of the Half names of their own, as Numba wants:

    def _make_double(half):
        load4, store4 = half.load4, half.store4

        @kernel(f"{half.pointer} x, {half.pointer} out, i32 n", threads=256, lowest=half.lowest, variant=half.name)
        def double(x, out, n):
            ...
            v0, v1, v2, v3 = load4(x, i)
            store4(out, i, (v0 + v0, v1 + v1, v2 + v2, v3 + v3))

        return double

float32 has the same face in SINGLE, whose pointers are `f32*`, so that one text can serve all three.
`half.vector("_* x, _* out, i32 n")` is `kernel(...)` with what a Half says of pointers, architectures, opcodes and
names.
Rounding is to nearest, ties to even; what is too large becomes infinite; NaN stays NaN.

Source  NVIDIA, "Parallel Thread Execution ISA", cvt
"""

from collections.abc import Callable
from typing import NamedTuple

from .intrinsics import (
    bf16x2,
    device,
    f16x2,
    f32,
    from_bits,
    load2_words,
    load4,
    narrow_f16,
    store2_words,
    store4,
    u16,
    u32,
    widen_f16,
)
from .kernel import kernel


class Half(NamedTuple):
    """An element type of kernels; the functions are for kernels."""

    name: str  # as in NumPy: float16, bfloat16, float32
    pointer: str  # of a signature
    lowest: str  # the oldest architecture that converts it
    widen: Callable  # (element): as a float32
    narrow: Callable  # (float32): the nearest element
    load4: Callable  # (pointer, n): elements n to n + 3 as floats, in one access, from a multiple of its size on
    store4: Callable  # (pointer, n, four floats): rounded, in one access
    short: str  # for names of kernels

    @property
    def words(self):
        """The machine instructions of load4 and store4."""
        width = 64 if self in HALVES else 128
        return f"LDG.E.{width}", f"STG.E.{width}"

    def vector(self, signature):
        """`kernel` for a rung that loads and stores four at a time: in the signature `_*` points to elements.

        The name for float32 has no ending.
        """
        signature = signature.replace("_*", self.pointer)
        variant = "" if self.name == "float32" else self.short
        return kernel(signature, threads=256, lowest=self.lowest, opcodes=self.words, variant=variant)


@device
def _same(x):
    return x


@device
def _widen_bf16(x):
    return from_bits(u32(u32(x) << u32(16)))


@device
def _narrow_bf16(x):
    return u16(bf16x2(f32(0), x) & u32(0xFFFF))


@device
def _pair_f16(word):
    return widen_f16(u16(word & u32(0xFFFF))), widen_f16(u16(word >> u32(16)))


@device
def _pair_bf16(word):
    return from_bits(u32(word << u32(16))), from_bits(u32(word & u32(0xFFFF0000)))


def _accesses(pair, pack):
    """load4 and store4 of a type whose pairs lie in a word."""

    @device
    def load(pointer, n):
        low, high = load2_words(pointer, n)
        return pair(low) + pair(high)

    @device
    def store(pointer, n, four):
        store2_words(pointer, n, (pack(four[1], four[0]), pack(four[3], four[2])))

    return load, store


_load_f16, _store_f16 = _accesses(_pair_f16, f16x2)
_load_bf16, _store_bf16 = _accesses(_pair_bf16, bf16x2)
F16 = Half("float16", "u16*", "sm_80", widen_f16, narrow_f16, _load_f16, _store_f16, "f16")
BF16 = Half("bfloat16", "u16*", "sm_80", _widen_bf16, _narrow_bf16, _load_bf16, _store_bf16, "bf16")
SINGLE = Half("float32", "f32*", "sm_75", _same, _same, load4, store4, "f32")
HALVES = (F16, BF16)
