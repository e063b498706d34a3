"""Rung 4 of the convolution and of its input gradient: products on tensor cores, for float16 and bfloat16.

As in all tile rungs, the product is as cuda_parts.py says: A is gathered from the source, B are the filters.
"""

from ..matmul.cuda_fragments import CORES, make_ends, make_products, make_tile
from ..matmul.cuda_split import SUMS
from ..toolchain.cuda import cuda, device, f32, i32, i64, kernel, load4, offset, u16, u32, unroll
from .cuda_parts import BIAS, NOTHING, QUAD, RESIDUAL, TABLE, advance, least_of, make_parts, signature_of, split

__all__ = ["TENSOR", "make_write"]

SIDE, WARP = 64, 32  # rows and columns of a tile, and of what a warp owns: two warps by two
THREADS = 32 * (SIDE // WARP) ** 2
BLOCKS = WARP // 16, WARP // 8  # of a warp's sums, down and across


def _make_join(widen, row_blocks, column_blocks, target):
    """A function that adds bias and residual to the sums, so that nothing is to be added later."""
    biases = 2 * column_blocks

    @device
    def join(total, bias, residual, row, channel, left, pixels, vertical, horizontal, sizes, flags):
        """row, channel: of this lane's first sum; it has pairs of neighbours, 8 rows and 8 channels apart."""
        added = cuda.local.array(biases, f32)
        for j in range(biases):
            unroll(0)
            along = j // 2 * 8 + j % 2
            added[j] = f32(0)
            if flags & BIAS and along < left:
                added[j] = widen(bias[i32(channel + along)])
        for i in range(2 * row_blocks):
            unroll(0)
            number = i32(row + 8 * i)
            if number < pixels:
                found = target(number, vertical, horizontal, sizes)
                here = offset(residual, i64(i32(found * sizes[2])) + i64(channel))
                for j in range(biases):
                    unroll(0)
                    at, along = (i // 2 * column_blocks + j // 2) * 4 + i % 2 * 2 + j % 2, j // 2 * 8 + j % 2
                    if along < left:
                        total[at] = total[at] + added[j] + widen(here[along])

    return join


def make_write(core, row_blocks, column_blocks, target, adjoint):
    """A function that writes the sums of a warp as cuda_fragments.py lays them out, by the target of make_parts.

    Forward may add a residual.
    """
    (column_of, write_row), widen, biases = make_ends(core, column_blocks), core.half.widen, 2 * column_blocks
    join = _make_join(widen, row_blocks, column_blocks, target)

    @device
    def write(
        total, result, bias, residual, lane, row, column, place, makes, pixels, vertical, horizontal, sizes, flags
    ):  # fmt: skip
        """row, column: of the warp's first sum among the pixels of the class and the channels of the group.

        place: group and slice; sizes: height, width, channels and images of the result
        """
        row, first = i32(row + (lane >> 2)), i32(column + 2 * (lane & 3))
        column, group = i32(column + column_of(lane)), i32(place[0] * makes)
        channel = i32(group + column)
        if not adjoint and flags & RESIDUAL:
            left = i32(makes - first)
            join(total, bias, residual, row, i32(group + first), left, pixels, vertical, horizontal, sizes, flags)
        scale = i64(2 if flags & SUMS else 1)
        elements = i64(i32(i32(sizes[3] * sizes[0]) * sizes[1])) * i64(sizes[2])
        start, least = offset(result, i64(i64(place[1]) * elements + i64(channel)) * scale), least_of(flags)
        added, left = cuda.local.array(biases, f32), i32(makes - column)
        for j in range(biases):
            unroll(0)
            along = j // QUAD * 16 + j % QUAD
            added[j] = f32(NOTHING)
            if flags & BIAS and not flags & RESIDUAL and along < left:
                added[j] = widen(bias[i32(channel + along)])
        for i in range(row_blocks):
            unroll(0)
            for half in range(2):
                unroll(0)
                number = i32(row + (16 * i + 8 * half))
                found = target(min(number, i32(pixels - 1)), vertical, horizontal, sizes)
                here, first = offset(start, i64(i32(found * sizes[2])) * scale), 4 * i * column_blocks + 2 * half
                write_row(total, first, lane, here, i32(0), left, added, least, number < pixels, flags)

    return write


def make_tensor(core, adjoint):
    """The rung of a type, for tiles of SIDE x SIDE."""
    steps, pointer, (row_blocks, column_blocks) = core.steps, core.half.pointer, BLOCKS
    apart = THREADS // steps  # threads lie along the sums, as channels do in memory
    lines = SIDE // apart
    b_apart = apart if adjoint else THREADS // SIDE  # columns or steps; filters of out lie along its channels
    b_count = SIDE // apart if adjoint else steps // b_apart
    a_tile, b_tile = make_tile(core, SIDE, True), make_tile(core, SIDE, adjoint)
    prepare, write_taps, find_pixels, target = make_parts(adjoint, SIDE, lines, apart, THREADS, steps)
    multiply = make_products(core, a_tile, b_tile, row_blocks, column_blocks)
    write = make_write(core, row_blocks, column_blocks, target, adjoint)
    a_place_of, b_place_of, a_rows, b_columns = a_tile.place, b_tile.place, a_tile.rows, b_tile.columns
    a_bytes, elements, sums = a_tile.bytes, (a_tile.bytes + b_tile.bytes) // 2, 4 * row_blocks * column_blocks

    @device
    def copy_source(memory, line, step, source, further, at, outside, bits, exists):
        """One step of each pixel of this thread, zeros outside the image."""
        for j in range(lines):
            unroll(0)
            inside = exists and u32(outside[j] & u32(bits)) == u32(0)
            place = i32(a_place_of(i32(line + j * apart), step >> 3) >> 1)
            memory[u32(place + (step & 7))] = source[i64(i32(at[j] + further))] if inside else u16(0)

    @device
    def copy_filters(memory, line, along, filters, columns_left, steps_left, pitch):
        """This thread's elements of the filters; those outside are zeros. line: of the tile, along: from there."""
        for j in range(b_count):
            unroll(0)
            there = i32(line + j * b_apart)
            inside = there < columns_left and along < steps_left if adjoint else there < steps_left
            inside = inside and (adjoint or along < columns_left)
            place = i32(a_bytes + b_place_of(there, along >> 3)) >> 1
            memory[u32(place + (along & 7))] = filters[i64(i32(j * b_apart * pitch))] if inside else u16(0)

    variant = f"{core.name}_{'input_grad' if adjoint else 'forward'}"

    @kernel(
        signature_of(pointer), threads=THREADS, blocks=3, lowest="sm_80", opcodes=("HMMA", "LDSM", "STG.E.64"),
        variant=variant,
    )  # fmt: skip
    def tensor(
        source, filters, bias, residual, result, images, source_h, source_w, source_c, result_h, result_w, result_c,
        filter_h, filter_w, stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w, groups, depth, slices,
        flags,
    ):  # fmt: skip
        """One idea: a warp multiplies blocks of 16 x 16 by 16 x 8 in one instruction, and adds in float32.

        Elements travel one by one, so that channels may be any number: images have one or three.

        Traffic    the source is read once for each tap and each tile of columns, the filters once for each tile of rows
        Resources  two tiles in shared memory, 32 sums in registers; two barriers a tile
        """
        memory, taps = cuda.shared.array(elements, u16, alignment=128), cuda.shared.array(TABLE, i32, alignment=16)
        total, at, outside = cuda.local.array(sums, f32), cuda.local.array(lines, i32), cuda.local.array(lines, u32)
        thread, left = i32(cuda.threadIdx.x), i32(cuda.blockIdx.y * SIDE)
        vertical, horizontal, place, (reads, makes), (pixels, tiles, first) = prepare(
            images, (result_h, result_w), (filter_h, filter_w), (stride_h, stride_w), (padding_h, padding_w),
            (dilation_h, dilation_w), (source_c, result_c), groups, depth, slices,
        )  # fmt: skip
        if i32(cuda.blockIdx.x * SIDE) >= pixels:  # other classes have more
            return
        apart_filters = i32(makes * source_c) if adjoint else i32(0)
        write_taps(taps, vertical, horizontal, source_w, source_c, filter_w, apart_filters)

        a_line, a_step = i32(thread // steps), i32(thread % steps)
        begin, channel = i32(place[1] * depth), i32(place[0] * reads)
        count = i32(i32(first + tiles * steps) - begin)  # steps that are left; here the last tile is cut short
        step, by = split(i32(begin + a_step), reads), split(i32(steps), reads)
        find_pixels(at, outside, a_line, pixels, vertical, horizontal, (source_h, source_w), source_c, channel)
        if adjoint:
            b_line, b_along, pitch = a_line, a_step, source_c
            filters = offset(filters, i64(i32(i32(left + b_line) * source_c + channel)))
        else:
            b_line, b_along, pitch = i32(thread // SIDE), i32(thread % SIDE), result_c
            column = i32(left + b_along + place[0] * makes)
            filters = offset(filters, i64(i32(i32(begin + b_line) * result_c + column)))
        cuda.syncthreads()

        lane, warp = i32(thread & 31), i32(thread >> 5)
        row, b_column = i32(i32(warp & 1) * WARP), i32(i32(warp >> 1) * WARP)
        a_from, b_from = a_rows(lane, row), i32(a_bytes + b_columns(lane, b_column))
        for i in range(sums):
            total[i] = f32(0)
        while tiles > 0:
            exists = a_step < count
            tap = load4(taps, QUAD * step[0] if exists else i32(0))
            copy_source(memory, a_line, a_step, source, i32(tap[0] + step[1]), at, outside, tap[1], exists)
            next_filters = offset(filters, i64(i32(tap[2] + step[1]))) if adjoint else filters
            copy_filters(memory, b_line, b_along, next_filters, i32(makes - left), count, pitch)
            cuda.syncthreads()
            multiply(total, memory, a_from, b_from)
            cuda.syncthreads()
            step = advance(step, by, reads)
            if not adjoint:
                filters = offset(filters, i64(steps * result_c))
            count, tiles = i32(count - steps), i32(tiles - 1)

        sizes, row = (result_h, result_w, result_c, images), i32(cuda.blockIdx.x * SIDE + row)
        column = i32(left + b_column)
        write(
            total, result, bias, residual, lane, row, column, place, makes, pixels, vertical, horizontal, sizes, flags
        )  # fmt: skip

    return tensor


TENSOR = {
    (name, SIDE, SIDE, adjoint): make_tensor(CORES[name], adjoint)
    for name in ("float16", "bfloat16")
    for adjoint in (False, True)
}
