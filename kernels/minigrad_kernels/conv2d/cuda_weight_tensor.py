"""Rung 4 of the weight gradient: products on tensor cores, for float16 and bfloat16.

The sums run over pixels, so both operands lie across them in shared memory, and are transposed on their way to the
registers.
"""

from ..matmul.cuda_fragments import CORES, make_ends, make_products, make_tile
from ..matmul.cuda_parts import least_of
from ..matmul.cuda_split import SUMS
from ..toolchain.cuda import cuda, device, f32, i32, i64, kernel, offset, u16, u32, unroll
from .cuda_weight_parts import SIZES, WALK, advance, lead, origin, place_of, split

__all__ = ["HOP", "SIDE", "TENSOR", "make_write", "signature_of"]

SIDE, WARP = 64, 32  # rows and columns of a tile, and of what a warp owns: two warps by two
THREADS = 32 * (SIDE // WARP) ** 2
HOP = THREADS // SIDE  # pixels from one that a thread gathers to its next one
BLOCKS = WARP // 16, WARP // 8  # of a warp's sums, down and across


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
    """The rung of a type, for tiles of SIDE x SIDE."""
    steps, (row_blocks, column_blocks) = core.steps, BLOCKS
    tile = make_tile(core, SIDE, False)
    multiply, write = make_products(core, tile, tile, row_blocks, column_blocks), make_write(core, *BLOCKS)
    place_in, rows_of, columns_of, size, loads = tile.place, tile.rows, tile.columns, tile.bytes, steps // HOP
    elements, sums = size, 4 * row_blocks * column_blocks  # two tiles of half as many elements

    @kernel(
        signature_of(core.half.pointer), threads=THREADS, blocks=4, lowest="sm_80",
        opcodes=("HMMA", "LDSM.16.MT88", "STG.E.64"), variant=core.name,
    )  # fmt: skip
    def weight_tensor(
        x, g, out, pixels, depth, rows, columns, channels, taps_w, in_h, in_w, in_c, out_h, out_w, out_c,
        stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, move_h, move_w, move, back_w, back_h, flags,
    ):  # fmt: skip
        """One idea: a warp multiplies blocks of 16 x 16 by 16 x 8 in one instruction, and adds in float32.

        Elements travel one by one, so that channels may be any number: images have one or three.

        Traffic    that of the rung gemm, in half the bytes
        Resources  a tile of each in shared memory, 32 sums in registers; two barriers for 32 pixels
        """
        memory, total = cuda.shared.array(elements, u16, alignment=128), cuda.local.array(sums, f32)
        thread, group, walk = i32(cuda.threadIdx.x), i32(cuda.blockIdx.z), (move_h, move_w, move, back_w, back_h)
        across, down = split(cuda.blockIdx.x, u32(u32(rows + (SIDE - 1)) // u32(SIDE)))
        top, left, first = i32(down * SIDE), i32(across * SIDE), i32(cuda.blockIdx.y * depth)
        pixels_left = min(depth, i32(pixels - first))

        line, step = i32(thread % SIDE), i32(thread // SIDE)
        below, right, c = lead(
            min(i32(top + line), i32(rows - 1)), channels, taps_w, dilation_h, dilation_w, pad_h, pad_w
        )
        n, h, w = origin(i32(first + step), out_h, out_w, stride_h, stride_w)
        h_end, w_end = i32(out_h * stride_h + below), i32(out_w * stride_w + right)
        h, w = i32(h + below), i32(w + right)
        place = place_of(n, h, w, i32(group * channels + c), in_h, in_w, in_c)
        column = i32(group * columns + min(i32(left + line), i32(columns - 1)))
        g_place = i32(i32(first + step) * out_c + column)

        lane, warp = i32(thread & 31), i32(thread >> 5)
        row, column = i32(i32(warp & 1) * WARP), i32(i32(warp >> 1) * WARP)
        a_from, b_from = rows_of(lane, row), i32(size + columns_of(lane, column))
        for i in range(sums):
            total[i] = f32(0)
        while pixels_left > 0:
            for load in range(loads):
                unroll(4)
                there = i32(step + load * HOP)
                value, to = u16(0), i32(i32(place_in(there, line >> 3) >> 1) + (line & 7))
                if there < pixels_left and u32(h) < u32(in_h) and u32(w) < u32(in_w):
                    value = x[place]
                memory[u32(to)] = value
                h, w, place = advance(h, w, place, h_end, w_end, out_h, out_w, stride_h, stride_w, walk)
                memory[u32(to + size // 2)] = g[g_place] if there < pixels_left else u16(0)
                g_place = i32(g_place + HOP * out_c)
            cuda.syncthreads()
            multiply(total, memory, a_from, b_from)
            cuda.syncthreads()
            pixels_left = i32(pixels_left - steps)
        write(total, out, lane, i32(top + row), i32(left + column), rows, columns, out_c, flags)

    return weight_tensor


TENSOR = {name: make_tensor(CORES[name]) for name in ("float16", "bfloat16")}
