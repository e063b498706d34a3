"""Rung 5 of the convolution and of its gradients: tensor cores, and copies that travel by themselves.

The products are as cuda_gather.py says: A is gathered, B are the filters, or g. float16, bfloat16, and float32 rounded
to TF32; channels are multiples of what 16 bytes hold.
"""

from ..matmul.cuda_async import STAGES, make_pipeline
from ..matmul.cuda_end import make_write, own_of_lane, same
from ..matmul.cuda_tensor import CORES, make_tile
from ..toolchain.cuda import cuda, device, f32, i32, i64, kernel, load4, offset, shared_address, u32, unroll
from ..toolchain.cuda.intrinsics import cp_async, global_address
from .cuda_gather import QUAD, TABLE, advance, find_step, make_gather, signature_of, split
from .cuda_walk import WEIGHT_SIZES, begin_walk, is_inside, walk_on

TILE = 128, 64  # rows, pixels or rows of dw, and columns, channels that are made or filters
WARP = 64, 32  # rows and columns of a tile that a warp owns
THREADS = 32 * (TILE[0] // WARP[0]) * (TILE[1] // WARP[1])
ROW_BLOCKS, COLUMN_BLOCKS = WARP[0] // 16, WARP[1] // 8  # of a warp's products
SUMS = 4 * ROW_BLOCKS * COLUMN_BLOCKS
CHUNKS = 4  # of 16 bytes in a line of a tile along the sums


def shared_of(kind):
    """Bytes of dynamic shared memory; tiles along the sums and across them are of one size."""
    return STAGES * sum(make_tile(CORES[kind], lines, True).bytes for lines in TILE)


def hop_of(kind):
    """Pixels from one of which a thread of the weight gradient copies a chunk to its next one."""
    return THREADS * CORES[kind].chunk // TILE[0]


@device
def of_warp(warp):
    """Where in a tile, two warps high, the rows and columns of a warp begin."""
    return i32(i32(warp & 1) * WARP[0]), i32(i32(warp >> 1) * WARP[1])


# ---- forward and input gradient --------------------------------------------------------------------------------------


def make_tensor(core, adjoint):
    """The rung of a type and a direction."""
    (rows, columns), steps, chunk = TILE, core.steps, core.chunk
    apart, across = THREADS // CHUNKS, columns // chunk
    lines = rows // apart
    b_apart = apart if adjoint else THREADS // across  # columns, or steps
    b_count = columns // apart if adjoint else steps // b_apart
    a_tile, b_tile = make_tile(core, rows, True), make_tile(core, columns, adjoint, of_b=True)
    begin, copy_taps, find_pixels, target = make_gather(adjoint, lines, THREADS, steps)
    write = make_write(core.half, 2 * ROW_BLOCKS, 2 * COLUMN_BLOCKS, QUAD, target, adjoint, True)
    a_place_of, b_place_of, a_bytes = a_tile.place, b_tile.place, a_tile.bytes
    a_hop, b_hop = apart * CHUNKS * 16, b_tile.bytes // b_count

    @device
    def copy(put, state, given, a_since, b_since):
        """Start the copies of a tile: a chunk of each pixel of this thread, and of each column (adjoint) or step.

        state       the step of A, and where the filters of this step begin; what is returned is that of the next tile
        a_since     this thread's first step of A, counted from the first of the slice; b_since: of B; before it is zero
        room        columns of the group from the first of this thread on
        """
        (step, filters), (source, taps, at, outside, a_to, b_to, room, pitch, by, reads) = state, given
        tap = load4(taps, QUAD * step[0] if a_since >= 0 else i32(0))
        a_to, b_to = u32(a_to + u32(put)), u32(b_to + u32(put))
        for j in range(lines):
            unroll(0)
            inside = a_since >= 0 and u32(outside[j] & u32(tap[1])) == u32(0)
            place = global_address(source, i64(i32(at[j] + i32(tap[0] + step[1]))))
            cp_async(u32(a_to + u32(j * a_hop)), place, u32(16) if inside else u32(0))
        here = offset(filters, i64(i32(tap[2] + step[1]))) if adjoint else filters
        for j in range(b_count):
            unroll(0)
            inside = (i32(j * b_apart) if adjoint else i32(0)) < room
            inside = inside and (b_since >= 0 if adjoint else b_since + j * b_apart >= 0)
            place = global_address(here, i64(i32(j * b_apart * pitch)))
            cp_async(u32(b_to + u32(j * b_hop)), place, u32(16) if inside else u32(0))
        return advance(step, by, reads), filters if adjoint else offset(filters, steps * pitch)

    @device
    def follow(put, state, given):
        """A tile after the first one, which is whole."""
        return copy(put, state, given, i32(0), i32(0))

    multiply = make_pipeline(core, a_tile, b_tile, ROW_BLOCKS, COLUMN_BLOCKS, follow)

    @kernel(
        signature_of(core.half.pointer), threads=THREADS, blocks=3, lowest="sm_80",
        opcodes=("HMMA", "LDGSTS.E.BYPASS", "LDSM", "STG.E.128" if core.size == 4 else "STG.E.64"),
        variant=f"{core.name}_{'input_grad' if adjoint else 'forward'}",
    )  # fmt: skip
    def tensor(
        source, filters, bias, residual, result, tables, images, source_size, source_c, result_size, result_c, reads,
        makes, groups, depth, slices, flags,
    ):  # fmt: skip
        """One idea: a warp multiplies blocks of 16 x 16 by 16 x 8 in one instruction, and copies to shared memory pass
        no register, three tiles ahead of the one that is multiplied.

        16 bytes travel at once, channels of one tap; what lies outside an image arrives as zeros.

        Traffic    the source is read once for each tap and each tile of columns, the filters once for each tile of rows
        Resources  four pairs of tiles in dynamic shared memory; one barrier a tile
        """
        memory, taps = cuda.shared.array(0, u32, alignment=128), cuda.shared.array(TABLE, i32, alignment=16)
        total, at, outside = cuda.local.array(SUMS, f32), cuda.local.array(lines, i32), cuda.local.array(lines, u32)
        thread, left, start = i32(cuda.threadIdx.x), i32(cuda.blockIdx.y * columns), shared_address(memory, 0)
        of, (group, part), (pixels, tiles, first) = begin(tables, images, reads, groups, depth, slices)
        if i32(cuda.blockIdx.x * rows) >= pixels:  # other classes have more
            return
        copy_taps(taps, tables, of)

        a_line, a_step = i32(thread >> 2), i32(i32(thread & 3) * chunk)
        channel, since = i32(group * reads), i32(first - part * depth)
        here = i32(cuda.blockIdx.x * rows + a_line)
        find_pixels(at, outside, here, apart, pixels, tables, of, source_size, channel)
        a_to = u32(start + u32(a_place_of(a_line, thread & 3)))
        if adjoint:  # a chunk of a filter are channels that are read, else channels that are made
            column, b_step, pitch = i32(left + a_line), a_step, source_c
            b_to = u32(a_to + u32(a_bytes))
            filters = offset(filters, i64(i32(column * source_c + channel)))
        else:
            b_chunk, b_step, pitch = i32(thread % across), i32(thread // across), result_c
            column = i32(left + b_chunk * chunk)
            b_to = u32(start + u32(a_bytes) + u32(b_place_of(b_step, b_chunk)))
            filters = offset(filters, i64(i32(i32(first + b_step) * result_c + i32(column + group * makes))))
        step, by = find_step(i32(first + a_step), reads), find_step(i32(steps), reads)
        given = source, taps, at, outside, a_to, b_to, i32(makes - column), pitch, by, reads
        cuda.syncthreads()
        state = copy(i32(0), (step, filters), given, i32(since + a_step), i32(since + b_step))
        row, column = of_warp(i32(thread >> 5))
        multiply(total, memory, row, column, tiles, state, given)

        own_row, own_column = own_of_lane(i32(thread & 31))
        row, left = i32(cuda.blockIdx.x * rows + i32(row + own_row)), i32(left + column + own_column)
        slice_first = i64(part) * i64(i32(images * result_size)) * i64(result_c)
        write(
            total, result, bias, residual, tables, of, row, 8, i32(group * makes + left), 16, i32(makes - left),
            pixels, (result_size, result_c, slice_first), flags,
        )  # fmt: skip

    return tensor


TENSOR = {(name, adjoint): make_tensor(core, adjoint) for name, core in CORES.items() for adjoint in (False, True)}


# ---- the weight gradient ---------------------------------------------------------------------------------------------


def make_weight_tensor(core):
    """The rung of a type."""
    (tile_rows, tile_columns), steps, chunk, hop = TILE, core.steps, core.chunk, hop_of(core.name)
    a_tile, b_tile = make_tile(core, tile_rows, False), make_tile(core, tile_columns, False, of_b=True)
    write = make_write(core.half, 2 * ROW_BLOCKS, 2 * COLUMN_BLOCKS, QUAD, same, True, True)
    a_place_of, b_place_of, a_bytes = a_tile.place, b_tile.place, a_tile.bytes
    a_across, b_across = tile_rows // chunk, tile_columns // chunk
    a_loads, b_hop = steps // hop, THREADS // b_across
    b_loads = steps // b_hop
    a_apart, b_apart = a_bytes // a_loads, b_tile.bytes // b_loads

    @device
    def gather(to, x, at, ends, step, left, sizes, walk):
        """This thread's chunks of the next tile of x, and where its walk goes on."""
        for load in range(a_loads):
            unroll(0)
            inside = i32(step + load * hop) < left and is_inside(at, sizes)
            cp_async(u32(to + u32(load * a_apart)), global_address(x, at[2]), u32(16) if inside else u32(0))
            at = walk_on(at, ends, sizes, walk)
        return at

    @device
    def copy(to, g, place, step, left, out_c):
        """This thread's chunks of the next tile of g."""
        for load in range(b_loads):
            unroll(0)
            inside = i32(step + load * b_hop) < left
            there = global_address(g, i32(place + load * b_hop * out_c))
            cp_async(u32(to + u32(load * b_apart)), there, u32(16) if inside else u32(0))

    @device
    def follow(put, state, given):
        """The state: where x is read, where g is, and how many pixels are still to be copied."""
        (at, place, left), (a_to, b_to, x, g, ends, a_step, b_step, sizes, walk, out_c) = state, given
        at = gather(u32(a_to + u32(put)), x, at, ends, a_step, left, sizes, walk)
        copy(u32(b_to + u32(put)), g, place, b_step, left, out_c)
        return at, i32(place + steps * out_c), i32(left - steps)

    multiply, kind = make_pipeline(core, a_tile, b_tile, ROW_BLOCKS, COLUMN_BLOCKS, follow), core.half.pointer

    @kernel(
        f"{kind} x, {kind} g, {kind} out, {WEIGHT_SIZES}, i32 flags", threads=THREADS, blocks=3, lowest="sm_80",
        opcodes=("HMMA", "LDGSTS.E.BYPASS", "STG.E.128" if core.size == 4 else "LDSM.16.MT88"), variant=core.name,
    )  # fmt: skip
    def weight_tensor(
        x, g, out, pixels, depth, rows, filters, channels, taps_w, in_h, in_w, in_c, out_h, out_w, out_c,
        stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, move_h, move_w, move, back_w, back_h, flags,
    ):  # fmt: skip
        """The same of the weight gradient. Its sums run over the pixels of a slice: so both operands lie across them in
        shared memory, and are transposed on their way to the registers.

        Traffic    x is read ceil(O/G / 64) times for each tap, g ceil(P*Q*C/G / 128) times
        Resources  four tiles of each in dynamic shared memory; one barrier for 32 pixels, or 16 of TF32
        """
        memory, total = cuda.shared.array(0, u32, alignment=128), cuda.local.array(SUMS, f32)
        thread, group, walk = i32(cuda.threadIdx.x), i32(cuda.blockIdx.z), (move_h, move_w, move, back_w, back_h)
        sizes, start = (in_h, in_w, in_c, out_h, out_w, stride_h, stride_w), shared_address(memory, 0)
        across, down = split(cuda.blockIdx.x, u32(u32(rows + (tile_rows - 1)) // u32(tile_rows)))
        top, left, first = i32(down * tile_rows), i32(across * tile_columns), i32(cuda.blockIdx.y * depth)
        count = min(depth, i32(pixels - first))

        a_chunk, a_step = i32(thread % a_across), i32(thread // a_across)
        row, a_to = i32(top + a_chunk * chunk), u32(start + u32(a_place_of(a_step, a_chunk)))
        at, ends = begin_walk(
            i32(first + a_step), min(row, i32(rows - chunk)), i32(group * channels), (channels, taps_w), sizes,
            (pad_h, pad_w), (dilation_h, dilation_w),
        )  # fmt: skip
        a_step = a_step if row < rows else i32(pixels)  # past every slice
        b_chunk, b_step = i32(thread % b_across), i32(thread // b_across)
        column = i32(left + b_chunk * chunk)
        g_place = i32(i32(first + b_step) * out_c + i32(group * filters + min(column, i32(filters - chunk))))
        b_to = u32(start + u32(a_bytes + b_place_of(b_step, b_chunk)))
        given = a_to, b_to, x, g, ends, a_step, b_step, sizes, walk, out_c
        state, (row, column) = follow(i32(0), (at, g_place, count), given), of_warp(i32(thread >> 5))
        multiply(total, memory, row, column, i32(u32(count + (steps - 1)) // u32(steps)), state, given)

        own_row, own_column = own_of_lane(i32(thread & 31))
        column, slice_first = i32(left + column + own_column), i64(cuda.blockIdx.y) * i64(rows) * i64(out_c)
        write(
            total, out, out, out, out, out, i32(top + row + own_row), 8, i32(group * filters + column), 16,
            i32(filters - column), rows, (rows, out_c, slice_first), flags,
        )  # fmt: skip

    return weight_tensor


WEIGHT_TENSOR = {name: make_weight_tensor(core) for name, core in CORES.items()}
