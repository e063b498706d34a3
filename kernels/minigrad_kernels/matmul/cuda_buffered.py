"""Rung 4 of the matrix product: loads of 128 bits, and two tiles in shared memory.

As one rung below, a line is a row of a or a column of b. How an operand lies in memory, along k or along its lines,
decides here which instructions copy it: there is a kernel for each of three layouts.
"""

from ..toolchain.cuda import cuda, device, f32, i32, i64, kernel, load4, offset, outer_product, store4, u32, unroll
from ..toolchain.cuda.halves import SINGLE
from .cuda_end import QUAD, make_own, make_write
from .cuda_register import RESIDENT, operand, signature_of, slice_of, steps_of

STEPS = 8  # of k in a tile
LAYOUTS = ((True, True), (True, False), (False, False))  # whether a and b lie along k; no gradient asks for the fourth


def make_copy(lines, along_k):
    """Functions that share a tile of so many lines out, four neighbours in memory to each thread, and copy it.

    Shared memory has the lines of one k side by side, and four words that nobody reads before those of the next k:
    so a warp that writes the four k of a load writes each to 32 different banks.
    """
    pitch = lines + QUAD

    @device
    def share(thread):
        """This thread's first line and first k."""
        if along_k:
            return i32(thread // u32(STEPS // QUAD)), i32(thread % u32(STEPS // QUAD)) * QUAD
        return i32(thread % u32(lines // QUAD)) * QUAD, i32(thread // u32(lines // QUAD))

    @device
    def find(source, first, line, line_apart, lines_left):
        """Where they lie. Lines outside the matrix are its last ones: what they give is never written."""
        last = i32(lines_left - 1) if along_k else i32(lines_left - QUAD)
        return offset(source, i64(i32(first + min(line, last))) * line_apart)

    @device
    def load(source, inside):
        if inside:
            return load4(source, 0)
        return f32(0), f32(0), f32(0), f32(0)

    @device
    def put(tile, place, four):
        if along_k:
            for i in range(QUAD):
                unroll(0)
                tile[u32(place) + i * pitch] = four[i]  # unsigned: no subscript counts from the end
        else:
            store4(tile, place, four)

    return share, find, load, put, pitch


def make_words(blocks, apart):
    """A function that reads one or two blocks of four words from shared memory."""

    @device
    def one(tile, place):
        return load4(tile, place)

    @device
    def two(tile, place):
        return load4(tile, place) + load4(tile, place + apart)

    return one if blocks == 1 else two


def make_multiply(rows, columns, row_sums, column_sums):
    """A function that adds the products of two tiles to the sums of a thread, which lie in blocks of 4 x 4."""
    a_pitch, b_pitch = rows + QUAD, columns + QUAD
    a_words = make_words(row_sums // QUAD, rows * QUAD // row_sums)
    b_words = make_words(column_sums // QUAD, columns * QUAD // column_sums)

    @device
    def multiply(total, a_tile, b_tile, a_from, b_from):
        """For STEPS steps of k."""
        for step in range(STEPS):
            unroll(0)
            outer_product(total, a_words(a_tile, a_from + step * a_pitch), b_words(b_tile, b_from + step * b_pitch))

    return multiply


def make_buffered(rows, columns, row_sums, column_sums, a_along_k, b_along_k):
    """The rung for tiles of rows x columns, in each thread a block of row_sums x column_sums of them."""
    down, across = rows // row_sums, columns // column_sums
    threads = down * across
    share_a, find_a, load_a, put_a, a_pitch = make_copy(rows, a_along_k)
    share_b, find_b, load_b, put_b, b_pitch = make_copy(columns, b_along_k)
    own, multiply = make_own(columns, column_sums), make_multiply(rows, columns, row_sums, column_sums)
    write = make_write(SINGLE, row_sums, column_sums, down * QUAD)
    a_size, b_size, sums = STEPS * a_pitch, STEPS * b_pitch, row_sums * column_sums
    # Across k on both sides one array has all tiles: places in it share registers, of which there are 128 a thread.
    together, b_start = not a_along_k and not b_along_k, 2 * a_size
    a_words, b_words = (b_start + 2 * b_size, QUAD) if together else (b_start, 2 * b_size)

    @kernel(
        signature_of("f32*"), threads=threads, blocks=RESIDENT // threads, opcodes=("LDG.E.128", "STG.E.128"),
        variant=f"{rows}x{columns}_{'k' if a_along_k else 'm'}{'k' if b_along_k else 'n'}",
    )  # fmt: skip
    def buffered(a, b, bias, residual, out, m, n, k, depth, slices, a_m, a_k, b_k, b_n, a_z, b_z, out_z, flags):
        """Two ideas: one load takes 128 bits, and the next tile travels while this one is multiplied.

        What one rung below takes four loads or stores is one here. The next tiles wait in registers, so that nobody
        waits for memory.

        Traffic    that of the rung below, in a quarter of the instructions; 4 products for each word of shared memory
        Resources  16.5 KB of shared memory, 64 sums, 16 operands and 8 words that travel in registers; one barrier a
                   tile

        The first tile takes what K leaves over after whole tiles: all others are whole, and need no question.
        """
        a_tile, b_tile = cuda.shared.array(a_words, f32, alignment=16), cuda.shared.array(b_words, f32, alignment=16)
        total = cuda.local.array(sums, f32)
        thread, part = u32(cuda.threadIdx.x), slice_of(slices)
        steps = steps_of(k, depth, part)
        top, left = i32(cuda.blockIdx.x * rows), i32(cuda.blockIdx.y * columns)
        tiles_left = i32(i32(max(steps, 1) - 1) // STEPS)
        first_steps = i32(steps - i32(tiles_left * STEPS))

        a_line, a_step = share_a(thread)
        b_line, b_step = share_b(thread)
        a_next = find_a(operand(a, part, a_z, i64(depth) * a_k), top, a_line, a_m, i32(m - top))
        b_next = find_b(operand(b, part, b_z, i64(depth) * b_k), left, b_line, b_n, i32(n - left))
        a_next, b_next = offset(a_next, a_step * a_k), offset(b_next, b_step * b_k)
        a_place, b_place = i32(a_step * a_pitch + a_line), i32(b_step * b_pitch + b_line)
        if together:
            b_tile, b_place = a_tile, i32(b_place + b_start)
        front = i32(tiles_left & 1)  # the tiles that are read; the others are written
        put_a(a_tile, i32(front * a_size) + a_place, load_a(a_next, a_step < first_steps))
        put_b(b_tile, i32(front * b_size) + b_place, load_b(b_next, b_step < first_steps))
        a_next, b_next = offset(a_next, first_steps * a_k), offset(b_next, first_steps * b_k)
        cuda.syncthreads()

        row, column = own(thread)
        b_from = i32(column + b_start) if together else column
        for i in range(sums):
            total[i] = f32(0)
        while tiles_left > 0:
            a_four, b_four = load4(a_next, 0), load4(b_next, 0)
            a_next, b_next = offset(a_next, STEPS * a_k), offset(b_next, STEPS * b_k)
            front = i32(tiles_left & 1)
            multiply(total, a_tile, b_tile, i32(front * a_size) + row, i32(front * b_size) + b_from)
            tiles_left = i32(tiles_left - 1)
            front = i32(tiles_left & 1)
            put_a(a_tile, i32(front * a_size) + a_place, a_four)
            put_b(b_tile, i32(front * b_size) + b_place, b_four)
            cuda.syncthreads()
        multiply(total, a_tile, b_tile, row, b_from)

        row, column, sizes = i32(top + row), i32(left + column), (m, n, i64(cuda.blockIdx.z) * out_z)
        write(total, out, bias, residual, out, 0, row, 1, column, across * QUAD, i32(n - column), m, sizes, flags)

    return buffered


BUFFERED = {layout: make_buffered(128, 128, 8, 8, *layout) for layout in LAYOUTS}
