"""Rung 5 of the weight gradient: tensor cores, and copies that travel by themselves.

The sums run over pixels, so both operands lie across them in shared memory, and are transposed on their way to the
registers.
"""

from ..matmul.cuda_fragments import CORES, make_ends, make_products, make_tile
from ..matmul.cuda_parts import least_of
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
    offset,
    shared_address,
    u32,
    unroll,
)
from .cuda_weight_parts import FAR, SIZES, WALK, advance, lead, origin, place_of, split

__all__ = ["COLUMNS", "HOPS", "ROWS", "SHARED", "TENSOR"]

ROWS, COLUMNS = 128, 64  # of a tile: many rows, as each channel has one for each tap
WARP = 64, 32  # of what a warp owns: two warps by two
THREADS = 32 * (ROWS // WARP[0]) * (COLUMNS // WARP[1])
STAGES = 4  # tiles of each operand in shared memory: one that is read, three that are on their way
LINES = {name: (ROWS // core.chunk, COLUMNS // core.chunk) for name, core in CORES.items()}  # chunks of a pixel
HOPS = {name: THREADS // chunks for name, (chunks, _) in LINES.items()}  # pixels from one that a thread copies on
wait = cp_async_wait(STAGES - 2)


def _stage(core):
    return make_tile(core, ROWS, False).bytes + make_tile(core, COLUMNS, False).bytes


SHARED = {name: STAGES * _stage(core) for name, core in CORES.items()}  # bytes of dynamic shared memory


def signature_of(pointer):
    """flags: SUMS, and WIDE where rows of the result may be written four at a time"""
    return f"{pointer} x, {pointer} g, {pointer} out, {SIZES}, {WALK}, i32 flags"


def make_write(core, row_blocks, column_blocks):
    """A function that writes the sums of a warp to its slice, those of slices one behind the other, each as dw lies."""
    (column_of, write_row), zeros = make_ends(core, column_blocks), 2 * column_blocks

    @device
    def write(total, out, lane, row, column, rows, columns, out_c, flags):
        """row, column: of the warp's first sum among the rows of dw and the columns of the group."""
        row, column = i32(row + (lane >> 2)), i32(column + column_of(lane))
        first = i64(i64(cuda.blockIdx.y) * i64(rows)) * i64(out_c) + i64(i32(cuda.blockIdx.z * columns + column))
        scale, added = i64(2 if flags & SUMS else 1), cuda.local.array(zeros, f32)
        start, least, left = offset(out, first * scale), least_of(i32(0)), i32(columns - column)
        for j in range(zeros):
            unroll(0)
            added[j] = f32(0)
        for i in range(row_blocks):
            unroll(0)
            for half in range(2):
                unroll(0)
                number, place = i32(row + (16 * i + 8 * half)), 4 * i * column_blocks + 2 * half
                here = offset(start, i64(i32(number * out_c)) * scale)
                write_row(total, place, lane, here, i32(0), left, added, least, number < rows, flags)

    return write


def make_tensor(core):
    """The rung of a type."""
    steps, chunk, (a_across, b_across), hop = core.steps, core.chunk, LINES[core.name], HOPS[core.name]
    a_tile, b_tile = make_tile(core, ROWS, False), make_tile(core, COLUMNS, False)
    row_blocks, column_blocks = WARP[0] // 16, WARP[1] // 8
    multiply = make_products(core, a_tile, b_tile, row_blocks, column_blocks)
    write, sums = make_write(core, row_blocks, column_blocks), 4 * row_blocks * column_blocks
    a_place_of, b_place_of, rows_of, columns_of = a_tile.place, b_tile.place, a_tile.rows, b_tile.columns
    a_bytes, stage, stages, (warp_rows, warp_columns) = a_tile.bytes, _stage(core), SHARED[core.name], WARP
    a_loads, b_hop = steps // hop, THREADS // b_across
    b_loads = steps // b_hop
    a_apart, b_apart = a_bytes // a_loads, b_tile.bytes // b_loads

    @device
    def gather(to, x, h, w, place, h_end, w_end, step, left, sizes, walk):
        """This thread's chunks of the next tile of x, zeros outside the image, and where its walk goes on."""
        in_h, in_w, out_h, out_w, stride_h, stride_w = sizes
        for load in range(a_loads):
            unroll(0)
            inside = i32(step + load * hop) < left and u32(h) < u32(in_h) and u32(w) < u32(in_w)
            cp_async(u32(to + u32(load * a_apart)), global_address(x, place), u32(16) if inside else u32(0))
            h, w, place = advance(h, w, place, h_end, w_end, out_h, out_w, stride_h, stride_w, walk)
        return h, w, place

    @device
    def copy(to, g, place, step, left, out_c):
        """This thread's chunks of the next tile of g."""
        for load in range(b_loads):
            unroll(0)
            inside = i32(step + load * b_hop) < left
            from_there = global_address(g, i32(place + load * b_hop * out_c))
            cp_async(u32(to + u32(load * b_apart)), from_there, u32(16) if inside else u32(0))

    opcodes = "HMMA", "LDGSTS.E.BYPASS", "STG.E.128" if core.size == 4 else "LDSM.16.MT88"
    signature = signature_of(core.half.pointer)

    @kernel(signature, threads=THREADS, blocks=3, lowest="sm_80", opcodes=opcodes, variant=core.name)
    def weight_tensor(
        x, g, out, pixels, depth, rows, columns, channels, taps_w, in_h, in_w, in_c, out_h, out_w, out_c,
        stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, move_h, move_w, move, back_w, back_h, flags,
    ):  # fmt: skip
        """One idea: a warp multiplies blocks of 16 x 16 by 16 x 8 in one instruction, and copies to shared memory pass
        no register, three tiles ahead of the one that is multiplied.

        16 bytes travel at once, channels of one tap; what lies outside x, or behind the slice, arrives as zeros.

        Traffic    x is read ceil(O/G / 64) times for each tap, g ceil(P*Q*C/G / 128) times
        Resources  four tiles of each in dynamic shared memory; one barrier for 32 pixels, or 16 of TF32
        """
        memory, total = cuda.shared.array(0, u32, alignment=128), cuda.local.array(sums, f32)
        thread, group, walk = i32(cuda.threadIdx.x), i32(cuda.blockIdx.z), (move_h, move_w, move, back_w, back_h)
        sizes, start = (in_h, in_w, out_h, out_w, stride_h, stride_w), shared_address(memory, 0)
        across, down = split(cuda.blockIdx.x, u32(u32(rows + (ROWS - 1)) // u32(ROWS)))
        top, left, first = i32(down * ROWS), i32(across * COLUMNS), i32(cuda.blockIdx.y * depth)
        count = min(depth, i32(pixels - first))  # pixels that are still to be copied

        a_chunk, a_step = i32(thread % a_across), i32(thread // a_across)
        row, a_to = i32(top + a_chunk * chunk), u32(start + u32(a_place_of(a_step, a_chunk)))
        below, right, c = lead(min(row, i32(rows - chunk)), channels, taps_w, dilation_h, dilation_w, pad_h, pad_w)
        n, h, w = origin(i32(first + a_step), out_h, out_w, stride_h, stride_w)
        h_end, w_end = i32(out_h * stride_h + below), i32(out_w * stride_w + right)
        h, w = i32(h + below), i32(w + right)
        place = place_of(n, h, w, i32(group * channels + c), in_h, in_w, in_c)
        a_step = a_step if row < rows else i32(FAR)  # past every slice
        b_chunk, b_step = i32(thread % b_across), i32(thread // b_across)
        column = i32(left + b_chunk * chunk)
        g_place = i32(i32(first + b_step) * out_c + i32(group * columns + min(column, i32(columns - chunk))))
        b_to = u32(start + u32(a_bytes + b_place_of(b_step, b_chunk)))
        tiles, put = i32(u32(count + (steps - 1)) // u32(steps)), u32(0)
        for _ in range(STAGES - 1):
            unroll(0)
            if count > 0:
                h, w, place = gather(u32(a_to + put), x, h, w, place, h_end, w_end, a_step, count, sizes, walk)
                copy(u32(b_to + put), g, g_place, b_step, count, out_c)
                g_place, count, put = i32(g_place + steps * out_c), i32(count - steps), u32(put + u32(stage))
            cp_async_commit()

        lane, warp = i32(thread & 31), i32(thread >> 5)
        row, column = i32(i32(warp & 1) * warp_rows), i32(i32(warp >> 1) * warp_columns)
        a_from, b_from, get = rows_of(lane, row), i32(a_bytes + columns_of(lane, column)), i32(0)
        put = u32((STAGES - 1) * stage)
        for i in range(sums):
            total[i] = f32(0)
        while tiles > 0:
            wait()
            cuda.syncthreads()
            if count > 0:
                h, w, place = gather(u32(a_to + put), x, h, w, place, h_end, w_end, a_step, count, sizes, walk)
                copy(u32(b_to + put), g, g_place, b_step, count, out_c)
                g_place, count = i32(g_place + steps * out_c), i32(count - steps)
            cp_async_commit()
            multiply(total, memory, i32(a_from + get), i32(b_from + get))
            get, put = i32(get + stage), u32(put + u32(stage))
            get, put = i32(0) if get == stages else get, u32(0) if put == u32(stages) else put
            tiles = i32(tiles - 1)
        write(total, out, lane, i32(top + row), i32(left + column), rows, columns, out_c, flags)

    return weight_tensor


TENSOR = {name: make_tensor(core) for name, core in CORES.items()}
