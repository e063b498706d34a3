"""Rung 3 of the convolution and of its input gradient: 128-bit loads, and two buffers.

As one rung below, the product is as cuda_parts.py says: A is gathered from the source, B are the filters.
"""

from ..matmul.cuda_vector import make_copy, make_sums
from ..toolchain.cuda import cuda, device, f32, i32, i64, kernel, load4, offset, u32, unroll
from .cuda_parts import QUAD, SIGNATURE, STEPS, TABLE, advance, find_step, make_own, make_parts, make_write

__all__ = ["VECTOR"]


def make_vector(rows, columns, row_sums, column_sums, adjoint):
    """The rung for tiles of rows x columns, in each thread a block of row_sums x column_sums of them."""
    down, across = rows // row_sums, columns // column_sums
    threads = down * across
    apart = threads // (STEPS // QUAD)
    lines = rows // apart  # that a thread copies, so far apart
    share_a, _, load, _, a_pitch = make_copy(rows, True)
    share_b, _, _, put_b, b_pitch = make_copy(columns, adjoint)
    prepare, write_taps, find_pixels, target = make_parts(adjoint, rows, lines, apart, threads)
    own, (_, multiply, _) = make_own(columns, column_sums), make_sums(rows, columns, row_sums, column_sums)
    write = make_write(row_sums, column_sums, down * QUAD, target, adjoint)
    a_size, b_size, sums, words = STEPS * a_pitch, STEPS * b_pitch, row_sums * column_sums, lines * QUAD
    a_sizes, b_sizes, copiers = 2 * a_size, 2 * b_size, columns * STEPS // QUAD
    everyone = copiers == threads

    @device
    def fetch(fours, source, further, at, outside, bits, exists):
        """Four channels of each pixel of this thread, zeros outside the image."""
        for j in range(lines):
            unroll(0)
            four = load(offset(source, i64(i32(at[j] + further))), exists and u32(outside[j] & u32(bits)) == u32(0))
            fours[4 * j], fours[4 * j + 1], fours[4 * j + 2], fours[4 * j + 3] = four

    @device
    def put_a(tile, place, fours):
        for j in range(lines):
            unroll(0)
            for i in range(QUAD):
                unroll(0)
                tile[u32(place) + (i * a_pitch + j * apart)] = fours[QUAD * j + i]

    variant = f"{rows}x{columns}_{'input_grad' if adjoint else 'forward'}"

    @kernel(SIGNATURE, threads=threads, blocks=512 // threads, opcodes=("LDG.E.128", "STG.E.128"), variant=variant)
    def vector(
        source, filters, bias, residual, result, images, source_h, source_w, source_c, result_h, result_w, result_c,
        filter_h, filter_w, stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w, groups, depth, slices,
        flags,
    ):  # fmt: skip
        """One idea: four channels in one 128-bit load or store, and the next tile travels while this one is multiplied.

        Traffic    that of the rung below, in a quarter of the instructions
        Resources  two pairs of tiles in shared memory; one barrier a tile

        The first tile takes what the sums leave over after whole tiles: all others are whole.
        """
        a_tile, b_tile = cuda.shared.array(a_sizes, f32, alignment=16), cuda.shared.array(b_sizes, f32, alignment=16)
        taps = cuda.shared.array(TABLE, i32, alignment=16)
        total, fours = cuda.local.array(sums, f32), cuda.local.array(words, f32)
        at, outside = cuda.local.array(lines, i32), cuda.local.array(lines, u32)
        thread, left = u32(cuda.threadIdx.x), i32(cuda.blockIdx.y * columns)
        vertical, horizontal, place, (reads, makes), (pixels, tiles, first) = prepare(
            images, (result_h, result_w), (filter_h, filter_w), (stride_h, stride_w), (padding_h, padding_w),
            (dilation_h, dilation_w), (source_c, result_c), groups, depth, slices,
        )  # fmt: skip
        if i32(cuda.blockIdx.x * rows) >= pixels:  # other classes have more
            return
        apart = i32(makes * source_c) if adjoint else i32(0)
        write_taps(taps, vertical, horizontal, source_w, source_c, filter_w, apart)

        a_line, a_step = share_a(thread)
        b_line, b_step = share_b(thread)
        copies, begin = everyone or thread < u32(copiers), i32(place[1] * depth)
        step, by = find_step(i32(first + a_step), reads), find_step(i32(STEPS), reads)
        size, channel = (source_h, source_w), i32(place[0] * reads)
        find_pixels(at, outside, a_line, pixels, vertical, horizontal, size, source_c, channel)
        a_place, b_place = i32(a_step * a_pitch + a_line), i32(b_step * b_pitch + b_line)
        if adjoint:  # four neighbours of a filter are channels that are read, else channels that are made
            column = min(i32(left + b_line), i32(makes - 1))
            filters = offset(filters, i64(i32(column * source_c + channel)))
        else:
            column = i32(min(i32(left + b_line), i32(makes - QUAD)) + place[0] * makes)
            filters = offset(filters, i64(i32(i32(first + b_step) * result_c + column)))
        cuda.syncthreads()
        exists = i32(first + a_step) >= begin
        tap = load4(taps, QUAD * step[0] if exists else i32(0))
        fetch(fours, source, i32(tap[0] + step[1]), at, outside, tap[1], exists)
        b_next = offset(filters, i64(i32(tap[2] + step[1]))) if adjoint else filters
        b_four = load(b_next, copies and i32(first + b_step) >= begin)
        tiles = i32(tiles - 1)  # that are still to come
        front = i32(tiles & 1)  # the tiles that are read; the others are written
        put_a(a_tile, i32(front * a_size) + a_place, fours)
        if copies:
            put_b(b_tile, i32(front * b_size) + b_place, b_four)
        cuda.syncthreads()

        row, column = own(thread)
        for i in range(sums):
            total[i] = f32(0)
        while tiles > 0:
            step = advance(step, by, reads)
            tap = load4(taps, QUAD * step[0])
            fetch(fours, source, i32(tap[0] + step[1]), at, outside, tap[1], True)
            if adjoint:
                b_next = offset(filters, i64(i32(tap[2] + step[1])))
            else:
                b_next = offset(b_next, STEPS * result_c)
            b_four = load(b_next, copies)
            front = i32(tiles & 1)
            multiply(total, a_tile, b_tile, i32(front * a_size) + row, i32(front * b_size) + column)
            tiles = i32(tiles - 1)
            front = i32(tiles & 1)
            put_a(a_tile, i32(front * a_size) + a_place, fours)
            if copies:
                put_b(b_tile, i32(front * b_size) + b_place, b_four)
            cuda.syncthreads()
        multiply(total, a_tile, b_tile, row, column)

        row, column = i32(cuda.blockIdx.x * rows + row), i32(left + column)
        channel = i32(place[0] * makes + column)
        start = offset(result, i64(place[1]) * i64(i32(i32(images * result_h) * result_w)) * i64(result_c) + channel)
        sizes = result_h, result_w, result_c
        left = i32(makes - column)
        write(
            total, start, bias, offset(residual, channel), row, 1, channel, across * QUAD, pixels, left, vertical,
            horizontal, sizes, flags,
        )  # fmt: skip

    return vector


SUMS = {(128, 64): (8, 8), (128, 16): (8, 4)}
VECTOR = {
    (*tile, adjoint): make_vector(*tile, *sums, adjoint) for tile, sums in SUMS.items() for adjoint in (False, True)
}
