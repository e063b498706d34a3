"""Rung 4 of the matrix product: 128-bit loads and stores, in global and in shared memory.

As one rung below, a line is a row of a or a column of b. How an operand lies in memory, along k or along its lines,
decides here which instructions copy it. This rung has one kernel, for both in C order; the one above has three.
"""

from ..toolchain.cuda import cuda, device, f32, i32, i64, kernel, load4, offset, outer_product, store4, u32, unroll
from .cuda_parts import (
    NOTHING,
    RESIDENT,
    RESIDUAL,
    SIGNATURE,
    WIDE,
    bias_of,
    finish,
    least_of,
    operand,
    residual4,
    slice_of,
    steps_of,
)

__all__ = ["LAYOUTS", "STEPS", "VECTOR", "make_copy", "make_sums"]

STEPS = 8  # of k in a tile
QUAD = 4  # floats in 128 bits
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


def make_sums(rows, columns, row_sums, column_sums):
    """Functions that add to the sums of a thread and write them; the sums lie in blocks of 4 x 4.

    Threads of a warp lie 4 x 8, so eight that read at once want one block of rows and eight of columns, side by side.
    """
    across, a_pitch, b_pitch = columns // column_sums, rows + QUAD, columns + QUAD
    warps_across, rows_apart, columns_apart = across // 8, rows * QUAD // row_sums, columns * QUAD // column_sums
    row_blocks, column_blocks = row_sums // QUAD, column_sums // QUAD

    @device
    def own(thread):
        """The first row and column of this thread in the tile."""
        warp, lane = i32(thread >> u32(5)), i32(thread & u32(31))
        row = i32(i32(warp // warps_across) * 4 + i32(lane >> 3))
        return row * QUAD, i32(i32(warp % warps_across) * 8 + i32(lane & 7)) * QUAD

    a_words, b_words = make_words(row_blocks, rows_apart), make_words(column_blocks, columns_apart)

    @device
    def multiply(total, a_tile, b_tile, a_from, b_from):
        """Add the products of the tiles' STEPS steps of k."""
        for step in range(STEPS):
            unroll(0)
            outer_product(total, a_words(a_tile, a_from + step * a_pitch), b_words(b_tile, b_from + step * b_pitch))

    @device
    def write_four(total, added, start, i, j, columns_left, least, flags):
        first, place = i * column_sums + j * QUAD, j * columns_apart
        if flags & WIDE:
            if place < columns_left:
                four = (
                    finish(total[first], added[j * QUAD], least),
                    finish(total[first + 1], added[j * QUAD + 1], least),
                    finish(total[first + 2], added[j * QUAD + 2], least),
                    finish(total[first + 3], added[j * QUAD + 3], least),
                )
                store4(start, place, four)
        else:
            for q in range(QUAD):
                unroll(0)
                if place + q < columns_left:
                    start[place + q] = finish(total[first + q], added[j * QUAD + q], least)

    @device
    def join(total, added, beside, rows_left, columns_left, n, flags):
        """Add the bias, and the residual, which begins at beside, to the sums, so that nothing is to be added later.

        Apart from the loop that writes, so that a product without a residual has not one branch more there.
        """
        for i in range(row_sums):
            unroll(0)
            for j in range(column_blocks):
                unroll(0)
                if i // QUAD * rows_apart + i % QUAD < rows_left:
                    place = j * columns_apart
                    four = residual4(beside, place, i32(columns_left - place), flags)
                    for q in range(QUAD):
                        unroll(0)
                        more = four[0] if q == 0 else four[1] if q == 1 else four[2] if q == 2 else four[3]
                        at = i * column_sums + j * QUAD + q
                        total[at] = total[at] + added[j * QUAD + q] + more
            beside = offset(beside, n if i % QUAD < QUAD - 1 else (rows_apart - QUAD + 1) * n)
        for j in range(column_sums):
            unroll(0)
            added[j] = f32(NOTHING)

    @device
    def write(total, start, bias, beside, column, rows_left, columns_left, n, flags):
        """Write the sums that begin at start, in that column; so many rows and columns are left from there."""
        least = least_of(flags)
        added = cuda.local.array(column_sums, f32)
        for j in range(column_sums):
            unroll(0)
            place = j // QUAD * columns_apart + j % QUAD
            added[j] = bias_of(bias, column + place, flags) if place < columns_left else f32(0)
        if flags & RESIDUAL:
            join(total, added, beside, rows_left, columns_left, n, flags)
        for i in range(row_sums):
            unroll(0)
            for j in range(column_blocks):
                unroll(0)
                if i // QUAD * rows_apart + i % QUAD < rows_left:
                    write_four(total, added, start, i, j, columns_left, least, flags)
            start = offset(start, n if i % QUAD < QUAD - 1 else (rows_apart - QUAD + 1) * n)

    return own, multiply, write


def make_vector(rows, columns, row_sums, column_sums, a_along_k, b_along_k):
    """The rung for tiles of rows x columns, in each thread a block of row_sums x column_sums of them."""
    threads = rows // row_sums * (columns // column_sums)
    share_a, find_a, load_a, put_a, a_pitch = make_copy(rows, a_along_k)
    share_b, find_b, load_b, put_b, b_pitch = make_copy(columns, b_along_k)
    own, multiply, write = make_sums(rows, columns, row_sums, column_sums)
    a_size, b_size, sums = STEPS * a_pitch, STEPS * b_pitch, row_sums * column_sums
    variant = f"{rows}x{columns}_{'k' if a_along_k else 'm'}{'k' if b_along_k else 'n'}"

    @kernel(SIGNATURE, threads=threads, blocks=RESIDENT // threads, opcodes=("LDG.E.128", "STG.E.128"), variant=variant)
    def vector(a, b, bias, residual, out, m, n, k, depth, slices, a_m, a_k, b_k, b_n, a_z, b_z, out_z, flags):
        """One idea: what one rung below takes four loads or stores is one of 128 bits.

        Traffic    that of the rung below, in a quarter of the instructions; 4 products for each word of shared memory
        Resources  8.25 KB of shared memory, 64 sums and 16 operands in registers; two barriers a tile
        """
        a_tile = cuda.shared.array(a_size, f32, alignment=16)
        b_tile = cuda.shared.array(b_size, f32, alignment=16)
        total = cuda.local.array(sums, f32)
        thread, part = u32(cuda.threadIdx.x), slice_of(slices)
        steps_left = steps_of(k, depth, part)
        top, left = i32(cuda.blockIdx.x * rows), i32(cuda.blockIdx.y * columns)

        a_line, a_step = share_a(thread)
        b_line, b_step = share_b(thread)
        a_next = find_a(operand(a, part, a_z, i64(depth) * a_k), top, a_line, a_m, i32(m - top))
        b_next = find_b(operand(b, part, b_z, i64(depth) * b_k), left, b_line, b_n, i32(n - left))
        a_next, b_next = offset(a_next, a_step * a_k), offset(b_next, b_step * b_k)
        row, column = own(thread)
        for i in range(sums):
            total[i] = f32(0)
        while steps_left > 0:
            put_a(a_tile, a_step * a_pitch + a_line, load_a(a_next, a_step < steps_left))
            put_b(b_tile, b_step * b_pitch + b_line, load_b(b_next, b_step < steps_left))
            cuda.syncthreads()
            multiply(total, a_tile, b_tile, row, column)
            cuda.syncthreads()
            a_next, b_next = offset(a_next, STEPS * a_k), offset(b_next, STEPS * b_k)
            steps_left = i32(steps_left - STEPS)
        row, column = i32(top + row), i32(left + column)
        place = i64(cuda.blockIdx.z) * out_z + i64(row) * i64(n) + i64(column)
        start, beside = offset(out, place), offset(residual, place)
        write(total, start, bias, beside, column, i32(m - row), i32(n - column), n, flags)

    return vector


VECTOR = {(True, False): make_vector(128, 128, 8, 8, True, False)}
