"""Rung 5 of the matrix product: two tiles in shared memory, one that is read while the next one is on its way."""

from ..toolchain.cuda import cuda, f32, i32, i64, kernel, load4, offset, u32
from .cuda_parts import RESIDENT, SIGNATURE, operand, slice_of, steps_of
from .cuda_vector import LAYOUTS, STEPS, make_copy, make_sums

__all__ = ["BUFFERED"]


def make_buffered(rows, columns, row_sums, column_sums, a_along_k, b_along_k):
    """The rung for tiles of rows x columns, in each thread a block of row_sums x column_sums of them."""
    threads = rows // row_sums * (columns // column_sums)
    share_a, find_a, load_a, put_a, a_pitch = make_copy(rows, a_along_k)
    share_b, find_b, load_b, put_b, b_pitch = make_copy(columns, b_along_k)
    own, multiply, write = make_sums(rows, columns, row_sums, column_sums)
    a_size, b_size, sums = STEPS * a_pitch, STEPS * b_pitch, row_sums * column_sums
    a_sizes, b_sizes = 2 * a_size, 2 * b_size
    variant = f"{rows}x{columns}_{'k' if a_along_k else 'm'}{'k' if b_along_k else 'n'}"

    @kernel(SIGNATURE, threads=threads, blocks=RESIDENT // threads, opcodes=("LDG.E.128", "STG.E.128"), variant=variant)
    def buffered(a, b, bias, residual, out, m, n, k, depth, slices, a_m, a_k, b_k, b_n, a_z, b_z, out_z, flags):
        """One idea: the next tiles travel to registers while this one is multiplied, so nobody waits for memory.

        Traffic    that of the rung below
        Resources  twice its shared memory, 8 more registers; one barrier a tile

        The first tile takes what K leaves over after whole tiles: all others are whole, and need no question.
        """
        a_tile = cuda.shared.array(a_sizes, f32, alignment=16)
        b_tile = cuda.shared.array(b_sizes, f32, alignment=16)
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
        front = i32(tiles_left & 1)  # the tiles that are read; the others are written
        put_a(a_tile, i32(front * a_size) + a_place, load_a(a_next, a_step < first_steps))
        put_b(b_tile, i32(front * b_size) + b_place, load_b(b_next, b_step < first_steps))
        a_next, b_next = offset(a_next, first_steps * a_k), offset(b_next, first_steps * b_k)
        cuda.syncthreads()

        row, column = own(thread)
        for i in range(sums):
            total[i] = f32(0)
        while tiles_left > 0:
            a_four, b_four = load4(a_next, 0), load4(b_next, 0)
            a_next, b_next = offset(a_next, STEPS * a_k), offset(b_next, STEPS * b_k)
            front = i32(tiles_left & 1)
            multiply(total, a_tile, b_tile, i32(front * a_size) + row, i32(front * b_size) + column)
            tiles_left = i32(tiles_left - 1)
            front = i32(tiles_left & 1)
            put_a(a_tile, i32(front * a_size) + a_place, a_four)
            put_b(b_tile, i32(front * b_size) + b_place, b_four)
            cuda.syncthreads()
        multiply(total, a_tile, b_tile, row, column)

        row, column = i32(top + row), i32(left + column)
        place = i64(cuda.blockIdx.z) * out_z + i64(row) * i64(n) + i64(column)
        start, beside = offset(out, place), offset(residual, place)
        write(total, start, bias, beside, column, i32(m - row), i32(n - column), n, flags)

    return buffered


BUFFERED = {layout: make_buffered(128, 128, 8, 8, *layout) for layout in LAYOUTS}
