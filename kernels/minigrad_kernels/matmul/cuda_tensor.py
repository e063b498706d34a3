"""Rung 5 of the matrix product: tensor cores; and what all kernels on tensor cores share: types, tiles, products.

This rung takes operands of 16 bits, which may lie in memory in any way.

A tile holds a part of an operand for some steps of the sums, 64 bytes of them: 32 of 16 bits, or 16 of TF32. It lies
along the sums, a line for each row of A or column of B, or across them, a line for each step. Lines are cut into chunks
of 16 bytes, what one asynchronous copy brings, and the chunks of a line change places by the number of the line, so
that the eight that are read at once always lie in different banks, and so do those that are written at once.

A warp multiplies blocks of 16 rows by blocks of 8 columns. What a lane holds of either is as in the PTX manual.

Source  NVIDIA, "Parallel Thread Execution ISA", Matrix Fragments for mma.m16n8k16 and mma.m16n8k8, ldmatrix
"""

from collections.abc import Callable
from typing import NamedTuple

from ..toolchain.cuda import cuda, device, f32, from_bits, i32, i64, kernel, offset, shared_address, u16, u32, unroll
from ..toolchain.cuda.halves import BF16, F16, SINGLE, Half
from ..toolchain.cuda.intrinsics import ldmatrix, ldmatrix_trans, mma_bf16, mma_f16, mma_tf32, tf32
from .cuda_end import make_write, own_of_lane
from .cuda_register import make_copy, operand, signature_of, slice_of, steps_of

LINE = 64  # bytes of the sums in a tile
GROUP = 8  # rows of tiles that blocks work through together, so that what they read stays in the second cache


class Core(NamedTuple):
    """A type of operands on tensor cores."""

    name: str
    half: Half  # what lies in memory
    size: int  # bytes of an element
    steps: int  # of the sums in a tile
    chunk: int  # elements in 16 bytes
    mma: Callable


CORES = {
    "float16": Core("float16", F16, 2, LINE // 2, 8, mma_f16),
    "bfloat16": Core("bfloat16", BF16, 2, LINE // 2, 8, mma_bf16),
    "tf32": Core("tf32", SINGLE, 4, LINE // 4, 4, mma_tf32),
}


class Tile(NamedTuple):
    """A tile of one operand; the functions are for kernels. Places are in bytes.

    place   (line, chunk): where a chunk lies in the tile
    first   (lane, line): from where a lane reads, if this is the first line of its warp
    block   (memory, place, i, k): four words for lines from 16i on and the half k of the steps: as A wants them, two
            for eight lines and the next eight, then their further steps; or as B does, all steps of eight lines first
    """

    bytes: int
    place: Callable
    first: Callable
    block: Callable


def make_tile(core, width, along, of_b=False):
    """The Tile of so many rows of A, or columns of B, along or across the sums. width: a multiple of 32."""
    pitch = LINE if along else width * core.size
    narrow, single = pitch == LINE, core.size == 4
    words, crossed = single and not along, along == of_b

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
    def first(lane, line):
        if words:  # a lane's lines are lane // 4 and 8 further, its steps lane % 4 and 4 further
            return i32(place(lane & 3, i32((line >> 2) + (lane >> 4))) + i32((lane >> 2) & 3) * 4)
        inner, outer = lane & 15, lane >> 4
        if crossed:
            inner, outer = (lane & 7) + ((lane >> 4) << 3), (lane >> 3) & 1
        if along:
            return place(i32(line + inner), outer)
        return place(i32(inner), i32((line >> 3) + outer))

    @device
    def word(memory, place, turn, line):
        return memory[u32(u32(i32(place) ^ i32(32 * turn)) >> u32(2)) + u32(pitch // 4 * line)]

    @device
    def block(memory, place, i, k):
        if words:
            one, two = word(memory, place, 2 * i, 8 * k), word(memory, place, 2 * i + 1, 8 * k)
            far, further = word(memory, place, 2 * i, 8 * k + 4), word(memory, place, 2 * i + 1, 8 * k + 4)
            found = (one, far, two, further) if of_b else (one, two, far, further)
        elif along:
            found = ldmatrix(u32(shared_address(memory, 0) + u32(i32(place) ^ i32(32 * k)) + u32(16 * LINE * i)))
        else:
            start = u32(shared_address(memory, 0) + u32(i32(place) ^ i32(32 * i)))
            found = ldmatrix_trans(u32(start + u32(16 * pitch * k)))
        if single:  # to the nearest TF32
            return (
                tf32(from_bits(found[0])), tf32(from_bits(found[1])), tf32(from_bits(found[2])),
                tf32(from_bits(found[3])),
            )  # fmt: skip
        return found

    return Tile((width if along else core.steps) * pitch, place, first, block)


def make_products(core, a_tile, b_tile, row_blocks, column_blocks):
    """A function that adds the products of two tiles to the sums of a warp, row_blocks of 16 by column_blocks of 8."""
    a_block, b_block, mma = a_tile.block, b_tile.block, core.mma
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
                b[4 * j], b[4 * j + 1], b[4 * j + 2], b[4 * j + 3] = b_block(memory, b_place, j, k)
            for i in range(row_blocks):
                unroll(0)
                for j in range(column_blocks):
                    unroll(0)
                    n = 4 * (i * column_blocks + j)
                    left, right = (a[4 * i], a[4 * i + 1], a[4 * i + 2], a[4 * i + 3]), (b[2 * j], b[2 * j + 1])
                    four = mma(left, right, (total[n], total[n + 1], total[n + 2], total[n + 3]))
                    total[n], total[n + 1], total[n + 2], total[n + 3] = four

    return multiply


@device
def tile_of(m, n, rows, columns):
    """The first row and column of this block's tile.

    blockIdx.x counts down GROUP tiles, then through the columns, then on to the next GROUP rows of tiles: so blocks
    that run at the same time read few different rows and columns.
    """
    down, across = u32(u32(m + (rows - 1)) // u32(rows)), u32(u32(n + (columns - 1)) // u32(columns))
    number, area = u32(cuda.blockIdx.x), u32(across * u32(GROUP))
    group = u32(number // area)
    rest, first = u32(number - u32(group * area)), u32(group * u32(GROUP))
    height = min(u32(down - first), u32(GROUP))
    column = u32(rest // height)
    row = u32(first + u32(rest - u32(column * height)))
    return i32(row * u32(rows)), i32(column * u32(columns))


def make_end(core, row_blocks, column_blocks):
    """A function that adds bias and residual and writes the sums of a warp, whose first one has that row and column."""
    write = make_write(core.half, 2 * row_blocks, 2 * column_blocks, 4, lanes=True)

    @device
    def end(total, out, bias, residual, row, column, m, n, out_z, flags):
        """A lane has a row of every 8, and four columns of every 16."""
        own = own_of_lane(i32(cuda.threadIdx.x & 31))
        row, column, sizes = i32(row + own[0]), i32(column + own[1]), (m, n, i64(cuda.blockIdx.z) * out_z)
        write(total, out, bias, residual, out, 0, row, 8, column, 16, i32(n - column), m, sizes, flags)

    return end


# ---- the rung --------------------------------------------------------------------------------------------------------

TILE = 64  # rows and columns
THREADS = 128  # four warps, each with 32 x 32 sums
ROW_BLOCKS, COLUMN_BLOCKS = 2, 4  # of 16 rows and of 8 columns of a warp


def _make_tensor(core):
    steps, sums = core.steps, 4 * ROW_BLOCKS * COLUMN_BLOCKS
    tile, b_tile = make_tile(core, TILE, True), make_tile(core, TILE, True, of_b=True)
    a_first, b_first, place_b, place_of, chunk = tile.first, b_tile.first, tile.bytes, tile.place, core.chunk
    elements, words = tile.bytes, tile.bytes // 2  # of two tiles, and of one

    @device
    def place(line, step):
        """Of an element of 16 bits."""
        return i32(place_of(line, step // chunk) // 2 + step % chunk)

    share, inside, copy = make_copy(TILE, steps, THREADS, u16, i64, place)
    multiply = make_products(core, tile, b_tile, ROW_BLOCKS, COLUMN_BLOCKS)
    end = make_end(core, ROW_BLOCKS, COLUMN_BLOCKS)

    @kernel(
        signature_of(core.half.pointer, "i64"),
        threads=THREADS,
        blocks=3,  # a fourth would leave 128 registers a thread, too few on sm_120
        lowest="sm_80",
        opcodes=("HMMA", "LDSM"),
        variant=core.name,
    )
    def tensor(a, b, bias, residual, out, m, n, k, depth, slices, a_m, a_k, b_k, b_n, a_z, b_z, out_z, flags):
        """One idea: warps multiply on tensor cores, 16 x 8 results and 32 bytes of k in one instruction.

        Traffic    a is read ceil(N / 64) times, b ceil(M / 64) times, one element at a time
        Resources  8 KB of shared memory, 32 sums in registers; two barriers a tile

        What K leaves over after whole tiles comes first.
        """
        memory = cuda.shared.array(elements, u16, alignment=128)
        total = cuda.local.array(sums, f32)
        thread, part = u32(cuda.threadIdx.x), slice_of(slices)
        left_over = steps_of(k, depth, part)
        top, first = tile_of(m, n, TILE, TILE)
        here = i32(i32(left_over - 1) % steps + 1)  # steps of this tile

        a_next, a_own = share(operand(a, part, a_z, i64(depth) * a_k), top, thread, a_m, a_k)
        b_next, b_own = share(operand(b, part, b_z, i64(depth) * b_k), first, thread, b_n, b_k)

        warp, lane = i32(thread >> u32(5)), i32(thread & u32(31))
        row, column = i32((warp >> 1) * 32), i32((warp & 1) * 32)
        a_from, b_from = a_first(lane, row), i32(place_b + b_first(lane, column))
        for i in range(sums):
            unroll(0)
            total[i] = f32(0)
        while left_over > 0:
            copy(a_next, a_own, inside(a_own, i32(m - top), here), memory, 0)
            copy(b_next, b_own, inside(b_own, i32(n - first), here), memory, words)
            cuda.syncthreads()
            multiply(total, memory, a_from, b_from)
            cuda.syncthreads()
            a_next, b_next = offset(a_next, here * a_k), offset(b_next, here * b_k)
            left_over, here = i32(left_over - here), i32(steps)
        end(total, out, bias, residual, i32(top + row), i32(first + column), m, n, out_z, flags)

    return tensor


TENSOR = {name: _make_tensor(CORES[name]) for name in ("float16", "bfloat16")}
