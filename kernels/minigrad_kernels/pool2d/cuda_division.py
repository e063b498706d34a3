"""Quotients by numbers that are known before a launch: a product and a shift instead of some 20 instructions.

For 0 <= n < 2^31 and 1 <= d < 2^31, with 2^s the least power of two that is not below d and m = ceil(2^(31+s) / d),

    n // d = (n * m) >> (31 + s)

since m d exceeds 2^(31+s) by less than d <= 2^s, which moves n m / 2^(31+s) away from n / d by less than 1 / d.
m has 32 bits. With 2 n instead of n the lower half of the product of 64 bits drops out.

Source  Granlund and Montgomery 1994, "Division by invariant integers using multiplication", section 4
"""

from functools import lru_cache

from ..toolchain.cuda import device, i32, u32, u64

__all__ = ["by", "over"]


@lru_cache(1024)
def by(d):
    """What `over` wants of a divisor: m in the lower 32 bits, s above it."""
    s = (d - 1).bit_length()
    return -(-(1 << (31 + s)) // d) | s << 32


@device
def over(n, by):
    """n // d for 0 <= n < 2^31, where by = by(d)."""
    high = u32((u64(u32(n << 1)) * u64(u32(by))) >> u64(32))
    return i32(high >> u32(by >> u64(32)))
