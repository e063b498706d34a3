"""Rung 4 of the convolution and of its gradients: tiles of both factors, 128-bit loads, two buffers.

The products are as cuda_gather.py says: A is gathered, B are the filters, or g.
"""

from ..matmul.cuda_buffered import STEPS, make_copy, make_multiply
from ..matmul.cuda_end import WIDE, make_own, make_write, same
from ..toolchain.cuda import cuda, device, f32, i32, i64, kernel, load4, offset, store4, u32, unroll
from ..toolchain.cuda.halves import SINGLE
from .cuda_gather import QUAD, TABLE, advance, find_step, make_gather, signature_of, split
from .cuda_walk import WEIGHT_SIZES, begin_walk, is_inside, walk_on


def make_vector(rows, columns, row_sums, column_sums, adjoint):
    """The rung for tiles of rows x columns, in each thread a block of row_sums x column_sums of them."""
    down, across = rows // row_sums, columns // column_sums
    threads = down * across
    apart = threads // (STEPS // QUAD)
    lines = rows // apart  # that a thread copies, so far apart
    share_a, _, load, _, a_pitch = make_copy(rows, True)
    share_b, _, _, put_b, b_pitch = make_copy(columns, adjoint)
    begin, copy_taps, find_pixels, target = make_gather(adjoint, lines, threads, STEPS)
    own, multiply = make_own(columns, column_sums), make_multiply(rows, columns, row_sums, column_sums)
    write = make_write(SINGLE, row_sums, column_sums, down * QUAD, target, adjoint)
    a_size, b_size, sums, words = STEPS * a_pitch, STEPS * b_pitch, row_sums * column_sums, lines * QUAD
    a_sizes, b_sizes, copiers = 2 * a_size, 2 * b_size, columns * STEPS // QUAD
    everyone = copiers == threads
    last_line = 1 if adjoint else QUAD  # before the end of the group

    @device
    def fetch(found, source, further, at, outside, bits, exists):
        """Four channels of each pixel of this thread, zeros outside the image."""
        for j in range(lines):
            unroll(0)
            four = load(offset(source, i64(i32(at[j] + further))), exists and u32(outside[j] & u32(bits)) == u32(0))
            found[4 * j], found[4 * j + 1], found[4 * j + 2], found[4 * j + 3] = four

    @device
    def put_a(tile, place, found):
        for j in range(lines):
            unroll(0)
            for i in range(QUAD):
                unroll(0)
                tile[u32(place) + (i * a_pitch + j * apart)] = found[QUAD * j + i]

    @kernel(
        signature_of("f32*"), threads=threads, blocks=512 // threads, opcodes=("LDG.E.128", "STG.E.128"),
        variant=f"{rows}x{columns}_{'input_grad' if adjoint else 'forward'}",
    )  # fmt: skip
    def vector(
        source, filters, bias, residual, result, tables, images, source_size, source_c, result_size, result_c, reads,
        makes, groups, depth, slices, flags,
    ):  # fmt: skip
        """One idea: tiles of both factors are in shared memory, and four channels travel at once, to the next tile
        while this one is multiplied.

        The tap and channel of a step follow from those of the last one by additions.

        Traffic    the source is read once for each tap and each tile of columns, the filters once for each tile of rows
        Resources  two pairs of tiles in shared memory, row_sums * column_sums sums in registers; one barrier a tile
        """
        a_tile, b_tile = cuda.shared.array(a_sizes, f32, alignment=16), cuda.shared.array(b_sizes, f32, alignment=16)
        taps = cuda.shared.array(TABLE, i32, alignment=16)
        total, found = cuda.local.array(sums, f32), cuda.local.array(words, f32)
        at, outside = cuda.local.array(lines, i32), cuda.local.array(lines, u32)
        thread, left = u32(cuda.threadIdx.x), i32(cuda.blockIdx.y * columns)
        of, (group, part), (pixels, tiles, first) = begin(tables, images, reads, groups, depth, slices)
        if i32(cuda.blockIdx.x * rows) >= pixels:  # other classes have more
            return
        copy_taps(taps, tables, of)

        a_line, a_step = share_a(thread)
        b_line, b_step = share_b(thread)
        copies, least = everyone or thread < u32(copiers), i32(part * depth)
        step, by = find_step(i32(first + a_step), reads), find_step(i32(STEPS), reads)
        here = i32(cuda.blockIdx.x * rows + a_line)
        find_pixels(at, outside, here, apart, pixels, tables, of, source_size, i32(group * reads))
        a_place, b_place = i32(a_step * a_pitch + a_line), i32(b_step * b_pitch + b_line)
        column = min(i32(left + b_line), i32(makes - last_line))
        if adjoint:  # neighbours of a filter are channels that are read, else channels that are made
            filters = offset(filters, i64(i32(column * source_c + group * reads)))
        else:
            filters = offset(filters, i64(i32(i32(first + b_step) * result_c + i32(column + group * makes))))
        cuda.syncthreads()
        exists = i32(first + a_step) >= least
        tap = load4(taps, QUAD * step[0] if exists else i32(0))
        fetch(found, source, i32(tap[0] + step[1]), at, outside, tap[1], exists)
        b_next = offset(filters, i64(i32(tap[2] + step[1]))) if adjoint else filters
        b_found = load(b_next, copies and i32(first + b_step) >= least)
        tiles = i32(tiles - 1)  # that are still to come
        front = i32(tiles & 1)  # the tiles that are read; the others are written
        put_a(a_tile, i32(front * a_size) + a_place, found)
        if copies:
            put_b(b_tile, i32(front * b_size) + b_place, b_found)
        cuda.syncthreads()

        row, column = own(thread)
        for i in range(sums):
            total[i] = f32(0)
        while tiles > 0:
            step = advance(step, by, reads)
            tap = load4(taps, QUAD * step[0])
            fetch(found, source, i32(tap[0] + step[1]), at, outside, tap[1], True)
            b_next = offset(filters, i64(i32(tap[2] + step[1]))) if adjoint else offset(b_next, STEPS * result_c)
            b_found = load(b_next, copies)
            front = i32(tiles & 1)
            multiply(total, a_tile, b_tile, i32(front * a_size) + row, i32(front * b_size) + column)
            tiles = i32(tiles - 1)
            front = i32(tiles & 1)
            put_a(a_tile, i32(front * a_size) + a_place, found)
            if copies:
                put_b(b_tile, i32(front * b_size) + b_place, b_found)
            cuda.syncthreads()
        multiply(total, a_tile, b_tile, row, column)

        row, left = i32(cuda.blockIdx.x * rows + row), i32(left + column)
        slice_first = i64(part) * i64(i32(images * result_size)) * i64(result_c)
        write(
            total, result, bias, residual, tables, of, row, 1, i32(group * makes + left), across * QUAD,
            i32(makes - left), pixels, (result_size, result_c, slice_first), flags,
        )  # fmt: skip

    return vector


SUMS = {(128, 64): (8, 8), (128, 16): (8, 4)}
VECTOR = {
    tile: {adjoint: make_vector(*tile, *sums, adjoint) for adjoint in (False, True)} for tile, sums in SUMS.items()
}


# ---- the weight gradient ---------------------------------------------------------------------------------------------

WEIGHT_ROWS, WEIGHT_HOP = 96, 4  # rows of a tile: those of 32 channels and more under 3x3 taps fill such tiles
THREADS = WEIGHT_ROWS // QUAD * WEIGHT_HOP  # each gathers a quad of two pixels of a tile, WEIGHT_HOP pixels apart
LOADERS = 64  # the threads that load g: a quad of one or two pixels each


def _weight_vector(columns, column_sums, resident):
    """The rung for tiles of 96 x columns of dw."""
    own, multiply = make_own(columns, column_sums), make_multiply(WEIGHT_ROWS, columns, 8, column_sums)
    write = make_write(SINGLE, 8, column_sums, WEIGHT_ROWS // 2, same, True)
    a_pitch, b_pitch, sums = WEIGHT_ROWS + QUAD, columns + QUAD, 8 * column_sums
    a_size, b_size, b_quads = STEPS * a_pitch, STEPS * b_pitch, columns // QUAD
    a_sizes, b_sizes = 2 * a_size, 2 * b_size
    _, _, load_four, _, _ = make_copy(columns, False)
    hop = LOADERS // b_quads  # pixels from the first quad of g that a thread loads to its second
    twice = hop < STEPS

    @device
    def gather(x, at, ends, step, pixels_left, sizes, walk):
        """This thread's two quads of the next tile of x, and where its walk goes on."""
        one = load_four(offset(x, at[2]), step < pixels_left and is_inside(at, sizes))
        at = walk_on(at, ends, sizes, walk)
        two = load_four(offset(x, at[2]), i32(step + WEIGHT_HOP) < pixels_left and is_inside(at, sizes))
        return one, two, walk_on(at, ends, sizes, walk)

    @device
    def load(g, place, step, out_c, pixels_left):
        """This thread's quads of the next tile of g."""
        second = twice and i32(step + hop) < pixels_left
        return load_four(offset(g, place), step < pixels_left), load_four(offset(g, i32(place + hop * out_c)), second)

    @device
    def put(a_tile, b_tile, a_place, b_place, one, two, fours, loads):
        store4(a_tile, a_place, one)
        store4(a_tile, a_place + WEIGHT_HOP * a_pitch, two)
        if loads:
            store4(b_tile, b_place, fours[0])
            if twice:
                store4(b_tile, b_place + hop * b_pitch, fours[1])

    @kernel(
        f"f32* x, f32* g, f32* out, {WEIGHT_SIZES}", threads=THREADS, blocks=resident,
        opcodes=("LDG.E.128", "STG.E.128"), variant=f"{WEIGHT_ROWS}x{columns}",
    )  # fmt: skip
    def weight_vector(
        x, g, out, pixels, depth, rows, filters, channels, taps_w, in_h, in_w, in_c, out_h, out_w, out_c,
        stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, move_h, move_w, move, back_w, back_h,
    ):  # fmt: skip
        """The same of the weight gradient: a block owns a tile of dw, and its sums run over the pixels of a slice.

        Four channels of x are neighbours among the rows of dw: they go to shared memory in one store.

        Traffic    x is read ceil(O/G / columns) times for each tap, g ceil(P*Q*C/G / 96) times
        Resources  two tiles of each in shared memory; one barrier for 8 pixels
        """
        a_tile, b_tile = cuda.shared.array(a_sizes, f32, alignment=16), cuda.shared.array(b_sizes, f32, alignment=16)
        total, thread, group = cuda.local.array(sums, f32), u32(cuda.threadIdx.x), i32(cuda.blockIdx.z)
        sizes, walk = (in_h, in_w, in_c, out_h, out_w, stride_h, stride_w), (move_h, move_w, move, back_w, back_h)
        across, down = split(cuda.blockIdx.x, u32(u32(rows + (WEIGHT_ROWS - 1)) // u32(WEIGHT_ROWS)))
        top, left, first = i32(down * WEIGHT_ROWS), i32(across * columns), i32(cuda.blockIdx.y * depth)
        pixels_left = min(depth, i32(pixels - first))

        a_line, a_step = i32(thread % u32(WEIGHT_ROWS // QUAD)) * QUAD, i32(thread // u32(WEIGHT_ROWS // QUAD))
        at, ends = begin_walk(
            i32(first + a_step), min(top + a_line, rows - QUAD), i32(group * channels), (channels, taps_w), sizes,
            (pad_h, pad_w), (dilation_h, dilation_w),
        )  # fmt: skip
        b_line, b_step = i32(thread % u32(b_quads)) * QUAD, i32(thread // u32(b_quads))
        b_next = i32(i32(first + b_step) * out_c + i32(group * filters + min(left + b_line, filters - QUAD)))
        a_place, b_place = i32(a_step * a_pitch + a_line), i32(b_step * b_pitch + b_line)
        loads = thread < u32(LOADERS)
        b_step = b_step if loads else i32(pixels)  # past every slice

        one, two, at = gather(x, at, ends, a_step, pixels_left, sizes, walk)
        fours = load(g, b_next, b_step, out_c, pixels_left)
        put(a_tile, b_tile, a_place, b_place, one, two, fours, loads)
        cuda.syncthreads()
        row, column = own(thread)
        for i in range(sums):
            total[i] = f32(0)
        front = i32(0)  # the tiles that are read; the others are written
        while pixels_left > STEPS:
            pixels_left, b_next = i32(pixels_left - STEPS), i32(b_next + STEPS * out_c)
            one, two, at = gather(x, at, ends, a_step, pixels_left, sizes, walk)
            fours = load(g, b_next, b_step, out_c, pixels_left)
            multiply(total, a_tile, b_tile, i32(front * a_size) + row, i32(front * b_size) + column)
            front = i32(1 - front)
            put(a_tile, b_tile, i32(front * a_size) + a_place, i32(front * b_size) + b_place, one, two, fours, loads)
            cuda.syncthreads()
        multiply(total, a_tile, b_tile, i32(front * a_size) + row, i32(front * b_size) + column)

        row, column = i32(top + row), i32(left + column)
        slice_first = i64(cuda.blockIdx.y) * i64(rows) * i64(out_c)
        write(
            total, out, out, out, out, out, row, 1, i32(group * filters + column), columns // column_sums * QUAD,
            i32(filters - column), rows, (rows, out_c, slice_first), i32(WIDE),
        )  # fmt: skip

    return weight_vector


# Blocks that share a multiprocessor: four leave each thread 168 registers, for 64 sums; five leave it 128.
WEIGHT_VECTOR = {64: _weight_vector(64, 8, 4), 32: _weight_vector(32, 4, 5)}
