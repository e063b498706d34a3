"""Operations on the bits of registers: logic, shifts, fields, counts, permutations of bytes."""

import numpy as np

from .operations import DTYPES, Operation, Unknown, bits_of, opcode, signed, unsigned

LOGIC = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


@opcode("and", "or", "xor")
def logic(name, kinds, flags):
    (kind,) = kinds
    return Operation(LOGIC[name], (kind,), (kind, kind))


@opcode("not", "cnot")
def invert(name, kinds, flags):
    (kind,) = kinds
    if name == "not":
        return Operation(np.invert, (kind,), (kind,))
    return Operation(lambda x: (x == 0).astype(x.dtype), (kind,), (kind,))


@opcode("lop3")
def table_of_three(name, kinds, flags):
    """Any function of three bits: bit 4a + 2b + c of the table."""

    def function(x, y, z, table):
        result = np.zeros_like(x)
        for row in range(8):
            here = (x if row & 4 else ~x) & (y if row & 2 else ~y) & (z if row & 1 else ~z)
            result |= np.where(table >> np.uint32(row) & np.uint32(1), here, np.uint32(0))
        return result

    return Operation(function, ("b32",), ("b32", "b32", "b32", "u32"))


@opcode("shl", "shr")
def shift(name, kinds, flags):
    """Shifting by more than there are bits gives zeros, or copies of the sign."""
    (kind,) = kinds
    move = np.left_shift if name == "shl" else np.right_shift
    dtype, most = DTYPES[kind], bits_of(kind) - 1

    def function(x, count):
        moved = move(x, np.minimum(count, np.uint32(most)).astype(dtype))
        if signed(kind) and name == "shr":
            return moved
        return np.where(count > most, dtype(0), moved)

    return Operation(function, (kind,), (kind, "u32"))


@opcode("shf", flags="l r wrap clamp")
def funnel_shift(name, kinds, flags):
    """A shift of 64 bits, given as two halves, of which one half is the result."""

    def function(low, high, count):
        both = high.astype(np.uint64) << np.uint64(32) | low
        count = count & np.uint32(31) if "wrap" in flags else np.minimum(count, np.uint32(32))
        if "l" in flags:
            return (both << count.astype(np.uint64) >> np.uint64(32)).astype(np.uint32)
        return (both >> count.astype(np.uint64)).astype(np.uint32)

    return Operation(function, ("b32",), ("b32", "b32", "u32"))


def highest(x):
    """The number of the highest bit that is set, -1 if none is; x is unsigned."""
    if x.dtype.itemsize < 8:
        return np.frexp(x.astype(np.float64))[1].astype(np.int32) - 1
    upper, lower = (x >> np.uint64(32)).astype(np.uint32), x.astype(np.uint32)
    return np.where(upper > 0, highest(upper) + 32, highest(lower))


@opcode("popc", "clz", "brev")
def count_or_reverse(name, kinds, flags):
    (kind,) = kinds
    kind, width = f"u{bits_of(kind)}", bits_of(kind)
    if name == "popc":
        return Operation(lambda x: np.bitwise_count(x).astype(np.uint32), ("u32",), (kind,))
    if name == "clz":
        return Operation(lambda x: (width - 1 - highest(x)).astype(np.uint32), ("u32",), (kind,))
    return Operation(reverse, (kind,), (kind,))


def reverse(x):
    """The bits in the opposite order."""
    every_other = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333), np.uint64(0x0F0F0F0F0F0F0F0F)
    for distance, wide_mask in zip((1, 2, 4), every_other, strict=True):
        mask, distance = wide_mask.astype(x.dtype), x.dtype.type(distance)
        x = (x & mask) << distance | x >> distance & mask
    return x.byteswap()


@opcode("bfind", flags="shiftamt")
def find_highest(name, kinds, flags):
    """The highest bit that differs from the sign; all bits set if there is none."""
    (kind,) = kinds
    width = bits_of(kind)

    def function(x):
        place = highest(np.where(x < 0, ~x, x).view(unsigned(width)))
        if "shiftamt" in flags:
            place = np.where(place < 0, place, width - 1 - place)
        return place.astype(np.int32).view(np.uint32)

    return Operation(function, ("u32",), (kind,))


@opcode("bfe", "bfi")
def field(name, kinds, flags):
    """Extract or insert a field of bits: its place and its length are the lowest bytes of operands."""
    (kind,) = kinds
    width = bits_of(kind)
    dtype = unsigned(width)

    def span(place, length):
        """Place and length within the register, and a mask with as many bits as the length."""
        place, length = place & np.uint32(255), length & np.uint32(255)
        mask = np.where(length >= width, ~dtype.type(0), _up(dtype.type(1), length, width) - dtype.type(1))
        return place, length, mask

    def extract(x, place, length):
        place, length, mask = span(place, length)
        bits = _down(x.view(dtype), place, width) & mask
        if not signed(kind):
            return bits
        last = np.minimum(place + length - np.uint32(1), np.uint32(width - 1))
        sign = (length > 0) & (_down(x.view(dtype), last, width) & dtype.type(1) > 0)
        # Bits that are sign: above the field, and those of the field that lie above the register.
        kept = np.minimum(length, np.where(place < width, width - place, 0).astype(np.uint32))
        above = np.where(kept >= width, dtype.type(0), ~(_up(dtype.type(1), kept, width) - dtype.type(1)))
        return np.where(sign, bits | above, bits).astype(dtype).view(x.dtype)

    def insert(x, y, place, length):
        place, length, mask = span(place, length)
        mask = _up(mask, place, width)
        return y & ~mask | _up(x, place, width) & mask

    if name == "bfe":
        return Operation(extract, (kind,), (kind, "u32", "u32"))
    return Operation(insert, (kind,), (kind, kind, "u32", "u32"))


def _up(x, count, width):
    moved = np.left_shift(x, np.minimum(count, width - 1).astype(x.dtype))
    return np.where(count >= width, x.dtype.type(0), moved)


def _down(x, count, width):
    moved = np.right_shift(x, np.minimum(count, width - 1).astype(x.dtype))
    return np.where(count >= width, x.dtype.type(0), moved)


@opcode("prmt", flags="f4e b4e rc8 ecl ecr rc16")
def permute_bytes(name, kinds, flags):
    """Four bytes chosen from eight; bit 3 of a choice copies its sign over the byte."""
    if flags:
        raise Unknown("has a mode that is not known; only the general one is")

    def function(x, y, choices):
        both = y.astype(np.uint64) << np.uint64(32) | x
        result = np.zeros(both.shape, np.uint32)
        for place in range(4):
            choice = choices >> np.uint32(4 * place)
            byte = (both >> (np.uint64(8) * (choice & np.uint32(7)).astype(np.uint64)) & np.uint64(255)).astype(
                np.uint32
            )
            sign = np.where(byte & np.uint32(128), np.uint32(255), np.uint32(0))
            result |= np.where(choice & np.uint32(8), sign, byte) << np.uint32(8 * place)
        return result

    return Operation(function, ("b32",), ("b32", "b32", "u32"))
