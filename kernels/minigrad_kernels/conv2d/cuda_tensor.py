"""Rung 4 of the convolution and of its input gradient: tensor cores, and copies that travel by themselves.

As in all tile rungs, the product is as cuda_parts.py says: A is gathered from the source, B are the filters. float16,
bfloat16, and float32 rounded to TF32; channels are multiples of what 16 bytes hold.
"""

from ..matmul.cuda_fragments import CORES, make_ends, make_products, make_tile
from ..matmul.cuda_split import SUMS
from ..toolchain.cuda import (
    cp_async,
    cp_async_commit,
    cp_async_wait,
    cuda,
    device,
    f32,
    global_address,
    i32,
    i64,
    kernel,
    load4,
    offset,
    shared_address,
    u32,
    unroll,
)
from .cuda_parts import (
    BIAS,
    NOTHING,
    QUAD,
    RESIDUAL,
    TABLE,
    advance,
    find_step,
    least_of,
    make_parts,
    signature_of,
)
from .cuda_plan import TILE_ON_CORES

__all__ = ["STAGES", "TENSOR", "shared_of"]

STAGES = 4  # tiles of each operand in shared memory: one that is read, three that are on their way
WARP = 64, 32  # rows and columns of a tile that a warp owns
CHUNKS = 4  # of 16 bytes in a line of a tile along the sums
wait = cp_async_wait(STAGES - 2)


def shared_of(kind):
    """Bytes of dynamic shared memory."""
    return STAGES * sum(make_tile(CORES[kind], lines, True).bytes for lines in TILE_ON_CORES)


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
    """The rung of a type and a direction."""
    steps, chunk, (rows, columns), (warp_rows, warp_columns) = core.steps, core.chunk, TILE_ON_CORES, WARP
    warps_down, warps_across = rows // warp_rows, columns // warp_columns
    threads, row_blocks, column_blocks = 32 * warps_down * warps_across, warp_rows // 16, warp_columns // 8
    apart = threads // CHUNKS
    lines, across = rows // apart, columns // chunk
    b_apart = apart if adjoint else threads // across  # columns, or steps
    b_count = columns // apart if adjoint else steps // b_apart
    a_tile, b_tile = make_tile(core, rows, True), make_tile(core, columns, adjoint)
    prepare, write_taps, find_pixels, target = make_parts(adjoint, rows, lines, apart, threads, steps)
    multiply = make_products(core, a_tile, b_tile, row_blocks, column_blocks)
    write = make_write(core, row_blocks, column_blocks, target, adjoint)
    a_place_of, b_place_of, a_rows, b_columns = a_tile.place, b_tile.place, a_tile.rows, b_tile.columns
    a_bytes, stage, sums = a_tile.bytes, a_tile.bytes + b_tile.bytes, 4 * row_blocks * column_blocks
    a_hop, b_hop = apart * CHUNKS * 16, b_tile.bytes // b_count
    stages = STAGES * stage

    @device
    def copy_source(to, source, further, at, outside, bits, exists):
        """A chunk of each pixel of this thread, zeros outside the image."""
        for j in range(lines):
            unroll(0)
            inside = exists and u32(outside[j] & u32(bits)) == u32(0)
            place = global_address(source, i64(i32(at[j] + further)))
            cp_async(u32(to + u32(j * a_hop)), place, u32(16) if inside else u32(0))

    @device
    def copy_filters(to, filters, column, step, begin, makes, pitch):
        """A chunk of each column (adjoint), or of each step, of this thread; zeros outside; pitch: of the filters."""
        for j in range(b_count):
            unroll(0)
            inside = column + j * b_apart < makes if adjoint else column < makes
            inside = inside and (step >= begin if adjoint else step + j * b_apart >= begin)
            place = global_address(filters, i64(i32(j * b_apart * pitch)))
            cp_async(u32(to + u32(j * b_hop)), place, u32(16) if inside else u32(0))

    direction = "input_grad" if adjoint else "forward"

    @kernel(
        signature_of(core.half.pointer), threads=threads, blocks=256 // threads, lowest="sm_80",
        opcodes=("HMMA", "LDGSTS.E.BYPASS", "LDSM", "STG.E.128" if core.size == 4 else "STG.E.64"),
        variant=f"{core.name}_{direction}",
    )  # fmt: skip
    def tensor(
        source, filters, bias, residual, result, images, source_h, source_w, source_c, result_h, result_w, result_c,
        filter_h, filter_w, stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w, groups, depth, slices,
        flags,
    ):  # fmt: skip
        """One idea: a warp multiplies blocks of 16 x 16 by 16 x 8 in one instruction, and copies to shared memory pass
        no register, three tiles ahead of the one that is multiplied.

        16 bytes travel at once, channels of one tap; what lies outside an image arrives as zeros.

        Traffic    the source is read once for each tap and each tile of columns, the filters once for each tile of rows
        Resources  four pairs of tiles in dynamic shared memory; one barrier a tile
        """
        memory, taps = cuda.shared.array(0, u32, alignment=128), cuda.shared.array(TABLE, i32, alignment=16)
        total, at, outside = cuda.local.array(sums, f32), cuda.local.array(lines, i32), cuda.local.array(lines, u32)
        thread, left, start = i32(cuda.threadIdx.x), i32(cuda.blockIdx.y * columns), shared_address(memory, 0)
        vertical, horizontal, place, (reads, makes), (pixels, tiles, first) = prepare(
            images, (result_h, result_w), (filter_h, filter_w), (stride_h, stride_w), (padding_h, padding_w),
            (dilation_h, dilation_w), (source_c, result_c), groups, depth, slices,
        )  # fmt: skip
        if i32(cuda.blockIdx.x * rows) >= pixels:  # other classes have more
            return
        apart_filters = i32(makes * source_c) if adjoint else i32(0)
        write_taps(taps, vertical, horizontal, source_w, source_c, filter_w, apart_filters)

        a_line, a_step = i32(thread >> 2), i32(i32(thread & 3) * chunk)
        step, by = find_step(i32(first + a_step), reads), find_step(i32(steps), reads)
        begin, channel, size = i32(place[1] * depth), i32(place[0] * reads), (source_h, source_w)
        find_pixels(at, outside, a_line, pixels, vertical, horizontal, size, source_c, channel)
        a_to = u32(start + u32(a_place_of(a_line, thread & 3)))
        if adjoint:  # a chunk of a filter are channels that are read, else channels that are made
            column, b_step, pitch = i32(left + a_line), a_step, source_c
            b_to = u32(start + u32(a_bytes) + u32(b_place_of(a_line, thread & 3)))
            filters = offset(filters, i64(i32(column * source_c + channel)))
        else:
            b_chunk, b_step, pitch = i32(thread % across), i32(thread // across), result_c
            column = i32(left + b_chunk * chunk)
            b_to = u32(start + u32(a_bytes) + u32(b_place_of(b_step, b_chunk)))
            filters = offset(filters, i64(i32(i32(first + b_step) * result_c + i32(column + place[0] * makes))))
        cuda.syncthreads()
        b_step, put, more = i32(first + b_step), u32(0), tiles
        for s in range(STAGES - 1):
            unroll(0)
            if more > 0:
                exists = s > 0 or i32(first + a_step) >= begin
                tap = load4(taps, QUAD * step[0] if exists else i32(0))
                copy_source(u32(a_to + put), source, i32(tap[0] + step[1]), at, outside, tap[1], exists)
                next_filters = offset(filters, i64(i32(tap[2] + step[1]))) if adjoint else filters
                copy_filters(u32(b_to + put), next_filters, column, b_step if s == 0 else begin, begin, makes, pitch)
                step, more, put = advance(step, by, reads), i32(more - 1), u32(put + u32(stage))
                if not adjoint:
                    filters = offset(filters, steps * result_c)
            cp_async_commit()

        lane, warp = i32(thread & 31), i32(thread >> 5)
        row, b_column = i32(i32(warp % warps_down) * warp_rows), i32(i32(warp // warps_down) * warp_columns)
        a_from, b_from, get = a_rows(lane, row), i32(a_bytes + b_columns(lane, b_column)), i32(0)
        put = u32((STAGES - 1) * stage)
        for i in range(sums):
            total[i] = f32(0)
        while tiles > 0:
            wait()
            cuda.syncthreads()
            if more > 0:
                tap = load4(taps, QUAD * step[0])
                copy_source(u32(a_to + put), source, i32(tap[0] + step[1]), at, outside, tap[1], True)
                next_filters = offset(filters, i64(i32(tap[2] + step[1]))) if adjoint else filters
                copy_filters(u32(b_to + put), next_filters, column, begin, begin, makes, pitch)
                step, more = advance(step, by, reads), i32(more - 1)
                if not adjoint:
                    filters = offset(filters, steps * result_c)
            cp_async_commit()
            multiply(total, memory, i32(a_from + get), i32(b_from + get))
            get, put = i32(get + stage), u32(put + u32(stage))
            get, put = i32(0) if get == stages else get, u32(0) if put == u32(stages) else put
            tiles = i32(tiles - 1)

        sizes = result_h, result_w, result_c, images
        column = i32(left + b_column)
        row = i32(cuda.blockIdx.x * rows + row)
        write(
            total, result, bias, residual, lane, row, column, place, makes, pixels, vertical, horizontal, sizes, flags
        )  # fmt: skip

    return tensor


TENSOR = {(name, adjoint): make_tensor(core, adjoint) for name, core in CORES.items() for adjoint in (False, True)}
