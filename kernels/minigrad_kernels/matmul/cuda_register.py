"""Rung 3 of the matrix product: a block of sums in the registers of each thread.

Below, a line is a row of a or a column of b: both operands are copied by the same code.
"""

from ..toolchain.cuda import (
    cuda,
    device,
    f32,
    i32,
    i64,
    kernel,
    offset,
    u32,
    unroll,
)
from .cuda_parts import RESIDENT, SIGNATURE, bias_of, finish_beside, least_of, operand, slice_of, steps_of

__all__ = ["REGISTER"]


def make_copy(lines, steps, threads):
    """Functions that share a tile of so many lines and steps of k out among threads, and copy it to shared memory.

    Neighbouring threads take neighbours in memory: they count along k, or along the lines. That is chosen at
    run time, as it only sets the distances between the elements of a thread.
    """
    count = lines * steps // threads
    pitch = lines + 32 // steps  # from one k to the next; lines that lie along k then go to 32 different banks
    lines_apart, steps_apart = threads // steps, threads // lines

    @device
    def share(thread, along_k):
        """This thread's first line and first k."""
        line = i32(thread // u32(steps)) if along_k else i32(thread % u32(lines))
        step = i32(thread % u32(steps)) if along_k else i32(thread // u32(lines))
        return line, step

    @device
    def distances(along_k, line_apart, k_apart):
        """How far this thread's elements lie apart in memory, and in the tile."""
        apart = i32(lines_apart * line_apart) if along_k else i32(steps_apart * k_apart)
        return apart, i32(lines_apart) if along_k else i32(steps_apart * pitch)

    @device
    def inside(along_k, lines_left, steps_left):
        """How many of this thread's elements, its first ones, lie inside the matrix."""
        if along_k:
            many = i32(u32(max(lines_left, 0) + (lines_apart - 1)) // u32(lines_apart))
            return many if steps_left > 0 else i32(0)
        many = i32(u32(max(steps_left, 0) + (steps_apart - 1)) // u32(steps_apart))
        return many if lines_left > 0 else i32(0)

    @device
    def copy(source, apart, many, tile, place, place_apart):
        for j in range(count):
            unroll(0)
            tile[u32(place)] = source[0] if i32(j) < many else f32(0)  # unsigned: no subscript counts from the end
            source, place = offset(source, apart), i32(place + place_apart)

    return share, distances, inside, copy, pitch


def make_register(rows, columns, steps, row_sums, column_sums):
    """The rung for tiles of rows x columns, in each thread a block of row_sums x column_sums of them."""
    down, across = rows // row_sums, columns // column_sums
    threads = down * across
    share_a, distances_a, inside_a, copy_a, a_pitch = make_copy(rows, steps, threads)
    share_b, distances_b, inside_b, copy_b, b_pitch = make_copy(columns, steps, threads)
    a_size, b_size, sums = steps * a_pitch, steps * b_pitch, row_sums * column_sums
    resident = 2 * RESIDENT if sums <= 16 else RESIDENT  # few sums leave registers for more threads

    @kernel(SIGNATURE, threads=threads, blocks=resident // threads, variant=f"{rows}x{columns}")
    def register(a, b, bias, residual, out, m, n, k, depth, slices, a_m, a_k, b_k, b_n, a_z, b_z, out_z, flags):
        """One idea: a thread owns several rows and columns, so each float from shared memory serves several sums.

        Traffic    a is read ceil(N / columns) times, b ceil(M / rows) times; of each step of k, a warp reads
                   row_sums + column_sums words of shared memory a thread, for row_sums * column_sums products
        Resources  two tiles in shared memory, row_sums * column_sums sums in registers; two barriers a tile

        The first tile takes what K leaves over after whole tiles: so only lines matter to all others.
        """
        a_tile, b_tile = cuda.shared.array(a_size, f32), cuda.shared.array(b_size, f32)
        total = cuda.local.array(sums, f32)
        thread, part = u32(cuda.threadIdx.x), slice_of(slices)
        left_over = steps_of(k, depth, part)
        top, left = i32(cuda.blockIdx.x * rows), i32(cuda.blockIdx.y * columns)
        here = i32(i32(left_over - 1) % steps + 1)  # steps of this tile

        a_along_k, b_along_k = abs(a_k) <= abs(a_m), abs(b_k) <= abs(b_n)
        a_line, a_step = share_a(thread, a_along_k)
        b_line, b_step = share_b(thread, b_along_k)
        a_apart, a_places = distances_a(a_along_k, a_m, a_k)
        b_apart, b_places = distances_b(b_along_k, b_n, b_k)
        a_next = offset(operand(a, part, a_z, i64(depth) * a_k), i64(top + a_line) * a_m + a_step * a_k)
        b_next = offset(operand(b, part, b_z, i64(depth) * b_k), i64(left + b_line) * b_n + b_step * b_k)
        a_place, b_place = i32(a_step * a_pitch + a_line), i32(b_step * b_pitch + b_line)
        a_lines, b_lines = i32(m - top - a_line), i32(n - left - b_line)
        a_many, b_many = inside_a(a_along_k, a_lines, here - a_step), inside_b(b_along_k, b_lines, here - b_step)
        a_whole, b_whole = inside_a(a_along_k, a_lines, steps), inside_b(b_along_k, b_lines, steps)

        row, column = i32(thread // u32(across)), i32(thread % u32(across))
        for i in range(sums):
            total[i] = f32(0)
        while left_over > 0:
            copy_a(a_next, a_apart, a_many, a_tile, a_place, a_places)
            copy_b(b_next, b_apart, b_many, b_tile, b_place, b_places)
            cuda.syncthreads()
            for step in range(steps):
                unroll(0)
                for i in range(row_sums):
                    unroll(0)
                    value = a_tile[row + (step * a_pitch + i * down)]
                    for j in range(column_sums):
                        unroll(0)
                        other = b_tile[column + (step * b_pitch + j * across)]
                        total[i * column_sums + j] += value * other
            cuda.syncthreads()
            a_next, b_next = offset(a_next, here * a_k), offset(b_next, here * b_k)
            left_over = i32(left_over - here)
            here, a_many, b_many = i32(steps), a_whole, b_whole
        place = i64(cuda.blockIdx.z) * out_z + i64(top + row) * i64(n) + i64(left + column)
        start, beside = offset(out, place), offset(residual, place)
        rows_left, columns_left, least = i32(m - top - row), i32(n - left - column), least_of(flags)
        added = cuda.local.array(column_sums, f32)
        for j in range(column_sums):
            unroll(0)
            added[j] = bias_of(bias, left + column + j * across, flags) if j * across < columns_left else f32(0)
        for i in range(row_sums):
            unroll(0)
            for j in range(column_sums):
                unroll(0)
                if i * down < rows_left and j * across < columns_left:
                    found = total[i * column_sums + j]
                    start[j * across] = finish_beside(found, added[j], least, beside, j * across, flags)
            start, beside = offset(start, down * n), offset(beside, down * n)

    return register


# Tiles for large layers, and for smaller ones, which would leave most multiprocessors without a 128x128 tile.
REGISTER = {(128, 128): make_register(128, 128, 8, 8, 8), (64, 64): make_register(64, 64, 16, 4, 4)}
