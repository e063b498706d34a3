"""Rung 2 of the convolution and of its input gradient: a matrix product whose A is gathered from images on the way.

The product is as cuda_parts.py says: A holds what each pixel reads, B are the filters. A is never in global memory.
"""

from ..matmul.cuda_vector import make_sums
from ..toolchain.cuda import cuda, device, f32, i32, i64, kernel, load4, offset, u32, unroll
from .cuda_parts import QUAD, SIGNATURE, STEPS, TABLE, advance, find_step, make_own, make_parts, make_write

__all__ = ["GEMM", "TILE"]

TILE, ROW_SUMS, COLUMN_SUMS = (128, 16), 4, 4


def make_gemm(adjoint):
    """The rung of a direction."""
    (rows, columns), row_sums, column_sums = TILE, ROW_SUMS, COLUMN_SUMS
    down, across = rows // row_sums, columns // column_sums
    threads = down * across
    apart = threads // STEPS  # threads lie along the sums, as channels do in memory
    lines, b_count = rows // apart, columns * STEPS // threads
    b_apart = apart if adjoint else threads // columns  # columns or steps; filters of out lie along its channels
    prepare, write_taps, find_pixels, target = make_parts(adjoint, rows, lines, apart, threads)
    own, (_, multiply, _) = make_own(columns, column_sums), make_sums(rows, columns, row_sums, column_sums)
    write = make_write(row_sums, column_sums, down * QUAD, target, adjoint)
    a_pitch, b_pitch, sums = rows + QUAD, columns + QUAD, row_sums * column_sums
    a_size, b_size = STEPS * a_pitch, STEPS * b_pitch

    @device
    def copy_source(tile, place, source, further, at, outside, bits, exists):
        """One step of each pixel of this thread, zeros outside the image."""
        for j in range(lines):
            unroll(0)
            inside = exists and u32(outside[j] & u32(bits)) == u32(0)
            tile[u32(place) + j * apart] = source[i64(i32(at[j] + further))] if inside else f32(0)

    @device
    def copy_filters(tile, filters, place, begin, column, step, next_column, next_step, left):
        """This thread's elements of the filters; those outside are zeros."""
        for _ in range(b_count):
            unroll(0)
            inside = step >= begin and column < left
            tile[u32(place)] = filters[0] if inside else f32(0)
            if adjoint:
                filters, place, column = offset(filters, next_column), i32(place + b_apart), i32(column + b_apart)
            else:
                filters, place, step = offset(filters, next_step), i32(place + b_apart * b_pitch), i32(step + b_apart)

    @kernel(SIGNATURE, threads=threads, blocks=512 // threads, variant="input_grad" if adjoint else "forward")
    def gemm(
        source, filters, bias, residual, result, images, source_h, source_w, source_c, result_h, result_w, result_c,
        filter_h, filter_w, stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w, groups, depth, slices,
        flags,
    ):  # fmt: skip
        """One idea: tiles of the product in shared memory, blocks of its sums in registers.

        A thread works out once where its pixels begin and which taps lie outside; a table in shared memory says how far
        a tap lies from there. The tap and channel of a step follow from those of the last one by additions.

        Traffic    the source is read once for each tap and each tile of columns, the filters once for each tile of rows
        Resources  two tiles in shared memory, row_sums * column_sums sums in registers; two barriers a tile
        """
        a_tile, b_tile = cuda.shared.array(a_size, f32, alignment=16), cuda.shared.array(b_size, f32, alignment=16)
        total = cuda.local.array(sums, f32)
        at, outside = cuda.local.array(lines, i32), cuda.local.array(lines, u32)
        taps = cuda.shared.array(TABLE, i32, alignment=16)
        thread, left = u32(cuda.threadIdx.x), i32(cuda.blockIdx.y * columns)
        vertical, horizontal, place, (reads, makes), (pixels, tiles, first) = prepare(
            images, (result_h, result_w), (filter_h, filter_w), (stride_h, stride_w), (padding_h, padding_w),
            (dilation_h, dilation_w), (source_c, result_c), groups, depth, slices,
        )  # fmt: skip
        if i32(cuda.blockIdx.x * rows) >= pixels:  # other classes have more
            return
        apart = i32(makes * source_c) if adjoint else i32(0)
        write_taps(taps, vertical, horizontal, source_w, source_c, filter_w, apart)

        a_line, a_step = i32(thread // u32(STEPS)), i32(thread % u32(STEPS))
        b_line = a_line if adjoint else i32(thread % u32(columns))
        b_step = a_step if adjoint else i32(thread // u32(columns))
        step, by = find_step(i32(first + a_step), reads), find_step(i32(STEPS), reads)
        size, channel = (source_h, source_w), i32(place[0] * reads)
        find_pixels(at, outside, a_line, pixels, vertical, horizontal, size, source_c, channel)
        begin, column = i32(place[1] * depth), i32(left + b_line)
        a_place, b_place = i32(a_step * a_pitch + a_line), i32(b_step * b_pitch + b_line)
        if adjoint:
            filters = offset(filters, i64(i32(column * source_c + channel)))
        else:
            filters = offset(filters, i64(i32(i32(first + b_step) * result_c + column + place[0] * makes)))
        cuda.syncthreads()

        row, b_column = own(thread)
        for i in range(sums):
            total[i] = f32(0)
        while tiles > 0:
            exists = i32(first + a_step) >= begin
            tap = load4(taps, QUAD * step[0] if exists else i32(0))
            copy_source(a_tile, a_place, source, i32(tap[0] + step[1]), at, outside, tap[1], exists)
            b_next = offset(filters, i64(i32(tap[2] + step[1]))) if adjoint else filters
            b_first = i32(first + b_step)
            copy_filters(b_tile, b_next, b_place, begin, column, b_first, b_apart * source_c, b_apart * result_c, makes)
            cuda.syncthreads()
            multiply(total, a_tile, b_tile, row, b_column)
            cuda.syncthreads()
            step = advance(step, by, reads)
            if not adjoint:
                filters = offset(filters, STEPS * result_c)
            first, tiles = i32(first + STEPS), i32(tiles - 1)

        row, column = i32(cuda.blockIdx.x * rows + row), i32(left + b_column)
        channel = i32(place[0] * makes + column)
        start = offset(result, i64(place[1]) * i64(i32(i32(images * result_h) * result_w)) * i64(result_c) + channel)
        sizes = result_h, result_w, result_c
        left = i32(makes - column)
        write(
            total, start, bias, offset(residual, channel), row, 1, channel, across * QUAD, pixels, left, vertical,
            horizontal, sizes, flags,
        )  # fmt: skip

    return gemm


GEMM = {adjoint: make_gemm(adjoint) for adjoint in (False, True)}
