"""What all kernels on tensor cores share: types, tiles in shared memory, products of fragments, the end.

A tile holds a part of an operand for some steps of the sums, 64 bytes of them: 32 of 16 bits, or 16 of TF32. It lies
along the sums, a line for each row of A or column of B, or across them, a line for each step. Lines are cut into chunks
of 16 bytes, what one asynchronous copy brings, and the chunks of a line change places by the number of the line, so
that the eight that are read at once always lie in different banks, and so do those that are written at once.

A warp multiplies blocks of 16 rows by blocks of 8 columns. What a lane holds of either is as in the PTX manual.

Source  NVIDIA, "Parallel Thread Execution ISA", Matrix Fragments for mma.m16n8k16 and mma.m16n8k8, ldmatrix
"""

from collections.abc import Callable
from typing import NamedTuple

from ..toolchain.cuda import (
    bits,
    cuda,
    device,
    from_bits,
    i32,
    ldmatrix,
    ldmatrix_trans,
    mma_bf16,
    mma_f16,
    mma_tf32,
    shared_address,
    store4_words,
    tf32,
    u16,
    u32,
    unroll,
)
from ..toolchain.cuda.halves import BF16, F16, SINGLE, Half
from .cuda_parts import WIDE, finish
from .cuda_split import SUMS

__all__ = ["CORES", "LINE", "Core", "Tile", "make_ends", "make_products", "make_tile"]

LINE = 64  # bytes of the sums in a tile
ALL = 0xFFFFFFFF


class Core(NamedTuple):
    """A type of operands on tensor cores."""

    name: str
    half: Half  # what lies in memory
    size: int  # bytes of an element
    mma: Callable

    @property
    def steps(self):
        """Of the sums in a tile."""
        return LINE // self.size

    @property
    def chunk(self):
        """Elements in 16 bytes."""
        return 16 // self.size


CORES = {
    "float16": Core("float16", F16, 2, mma_f16),
    "bfloat16": Core("bfloat16", BF16, 2, mma_bf16),
    "tf32": Core("tf32", SINGLE, 4, mma_tf32),
}


class Tile(NamedTuple):
    """A tile of one operand; the functions are for kernels. Places are in bytes.

    place     (line, chunk): where a chunk lies in the tile
    rows      (lane, row): from where a lane reads A, if the first row of its warp is this one
    columns   (lane, column): the same of B
    a_block   (memory, place, i, k): four words of A, for rows from 16i on and the half k of the steps
    b_blocks  (memory, place, j, k): two words of B for columns from 16j on, then two for the next 8
    """

    bytes: int
    place: Callable
    rows: Callable
    columns: Callable
    a_block: Callable
    b_blocks: Callable


@device
def _rounded(words):
    """Four floats, by their bits, to the nearest TF32."""
    return tf32(from_bits(words[0])), tf32(from_bits(words[1])), tf32(from_bits(words[2])), tf32(from_bits(words[3]))


@device
def _same(words):
    return words


def make_tile(core, width, along):
    """The Tile of so many rows of A, or columns of B, along or across the sums. width: a multiple of 32."""
    pitch = LINE if along else width * core.size
    narrow, words = pitch == LINE, not along and core.size == 4
    finished = _rounded if core.size == 4 else _same

    @device
    def place(line, chunk):
        if narrow:
            key = u32(u32(line >> 1) & u32(3))
        elif words:
            key = u32(u32(line & 3) << u32(1))
        else:
            key = u32(line & 7)
        return i32(u32(u32(line) * u32(pitch)) + u32(u32(u32(chunk) ^ key) << u32(4)))

    @device
    def rows(lane, row):
        if along:
            return place(i32(row + (lane & 15)), lane >> 4)
        if words:  # a lane's rows are lane // 4 and 8 further, its steps lane % 4 and 4 further
            return i32(place(lane & 3, i32((row >> 2) + (lane >> 4))) + i32((lane >> 2) & 3) * 4)
        return place(i32((lane & 7) + ((lane >> 4) << 3)), i32((row >> 3) + ((lane >> 3) & 1)))

    @device
    def columns(lane, column):
        if along:
            return place(i32(column + (lane & 7) + ((lane >> 4) << 3)), (lane >> 3) & 1)
        if words:
            return rows(lane, column)
        return place(lane & 15, i32((column >> 3) + (lane >> 4)))

    @device
    def word(memory, place, turn, line):
        return memory[u32(u32(i32(place) ^ i32(32 * turn)) >> u32(2)) + u32(pitch // 4 * line)]

    @device
    def a_block(memory, place, i, k):
        if words:
            found = (
                word(memory, place, 2 * i, 8 * k), word(memory, place, 2 * i + 1, 8 * k),
                word(memory, place, 2 * i, 8 * k + 4), word(memory, place, 2 * i + 1, 8 * k + 4),
            )  # fmt: skip
        elif along:
            found = ldmatrix(u32(shared_address(memory, 0) + u32(i32(place) ^ i32(32 * k)) + u32(16 * LINE * i)))
        else:
            start = u32(shared_address(memory, 0) + u32(i32(place) ^ i32(32 * i)))
            found = ldmatrix_trans(u32(start + u32(16 * pitch * k)))
        return finished(found)

    @device
    def b_blocks(memory, place, j, k):
        if words:
            found = (
                word(memory, place, 2 * j, 8 * k), word(memory, place, 2 * j, 8 * k + 4),
                word(memory, place, 2 * j + 1, 8 * k), word(memory, place, 2 * j + 1, 8 * k + 4),
            )  # fmt: skip
        elif along:
            found = ldmatrix(u32(shared_address(memory, 0) + u32(i32(place) ^ i32(32 * k)) + u32(16 * LINE * j)))
        else:
            start = u32(shared_address(memory, 0) + u32(i32(place) ^ i32(32 * j)))
            found = ldmatrix_trans(u32(start + u32(16 * pitch * k)))
        return finished(found)

    return Tile((width if along else core.steps) * pitch, place, rows, columns, a_block, b_blocks)


def make_products(core, a_tile, b_tile, row_blocks, column_blocks):
    """A function that adds the products of two tiles to the sums of a warp, row_blocks of 16 by column_blocks of 8."""
    a_block, b_blocks, mma = a_tile.a_block, b_tile.b_blocks, core.mma
    a_words, b_words, pairs = 4 * row_blocks, 2 * column_blocks, column_blocks // 2

    @device
    def multiply(total, memory, a_place, b_place):
        """The four sums of a block lie side by side in total, blocks of a row one after the other."""
        a, b = cuda.local.array(a_words, u32), cuda.local.array(b_words, u32)
        for k in range(2):
            unroll(0)
            for i in range(row_blocks):
                unroll(0)
                a[4 * i], a[4 * i + 1], a[4 * i + 2], a[4 * i + 3] = a_block(memory, a_place, i, k)
            for j in range(pairs):
                unroll(0)
                b[4 * j], b[4 * j + 1], b[4 * j + 2], b[4 * j + 3] = b_blocks(memory, b_place, j, k)
            for i in range(row_blocks):
                unroll(0)
                for j in range(column_blocks):
                    unroll(0)
                    n = 4 * (i * column_blocks + j)
                    left, right = (a[4 * i], a[4 * i + 1], a[4 * i + 2], a[4 * i + 3]), (b[2 * j], b[2 * j + 1])
                    four = mma(left, right, (total[n], total[n + 1], total[n + 2], total[n + 3]))
                    total[n], total[n + 1], total[n + 2], total[n + 3] = four

    return multiply


def make_ends(core, column_blocks):
    """Functions for the end of a kernel: which four columns a lane writes, and how it writes a row's.

    A lane holds pairs of neighbouring sums, of which the four in each pair of blocks are no neighbours. Neighbouring
    lanes exchange one, so that each has four in a row, and what a warp writes at once are whole sectors.
    """
    store4, narrow, single, pairs = core.half.store4, core.half.narrow, core.size == 4, column_blocks // 2

    @device
    def column_of(lane):
        """The first of a lane's four columns among the first 16; those of the next ones lie 16 further each."""
        return i32(((lane & 1) << 3) + ((lane & 2) << 1))

    @device
    def write(result, place, four, left, flags):
        """Four columns, of which so many are left in the row; with SUMS, as floats."""
        if flags & WIDE:
            if left > 0:
                if not single and flags & SUMS:
                    store4_words(result, 2 * place, (bits(four[0]), bits(four[1]), bits(four[2]), bits(four[3])))
                else:
                    store4(result, place, four)
        else:
            for e in range(4):
                unroll(0)
                if e < left:
                    value = four[0] if e == 0 else four[1] if e == 1 else four[2] if e == 2 else four[3]
                    if not single and flags & SUMS:
                        word = bits(value)
                        result[2 * (place + e)] = u16(word & u32(0xFFFF))
                        result[2 * (place + e) + 1] = u16(word >> u32(16))
                    else:
                        result[place + e] = narrow(value)

    @device
    def write_row(total, first, lane, result, place, left, added, least, inside, flags):
        """The row of a warp's sums that begins at total[first]; all lanes of the warp take part, also those outside.

        place: of this lane's first column in result; left: columns from there on; added: four biases a pair of blocks
        """
        odd = (lane & 1) != 0
        for j in range(pairs):
            unroll(0)
            n = first + 8 * j
            a, b, c, d = total[n], total[n + 1], total[n + 4], total[n + 5]
            one, two = cuda.shfl_xor_sync(ALL, a if odd else c, 1), cuda.shfl_xor_sync(ALL, b if odd else d, 1)
            four = (
                finish(one if odd else a, added[4 * j], least),
                finish(two if odd else b, added[4 * j + 1], least),
                finish(c if odd else one, added[4 * j + 2], least),
                finish(d if odd else two, added[4 * j + 3], least),
            )
            if inside:
                write(result, i32(place + 16 * j), four, i32(left - 16 * j), flags)

    return column_of, write_row
