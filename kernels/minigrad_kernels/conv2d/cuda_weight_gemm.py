"""Rung 2 of the weight gradient: a product of matrices whose left one is gathered from the input on the way."""

from ..matmul.cuda_parts import RESIDENT
from ..matmul.cuda_vector import QUAD, STEPS, make_sums
from ..toolchain.cuda import cuda, f32, i32, kernel, offset, u32, unroll
from .cuda_weight_parts import SIZES, WALK, advance, lead, origin, output, place_of, split

__all__ = ["COLUMNS", "HOP", "ROWS", "weight_gemm"]

ROWS, COLUMNS = 64, 32  # of a tile of dw
ROW_SUMS, COLUMN_SUMS = 8, 4  # of a thread
THREADS = ROWS // ROW_SUMS * (COLUMNS // COLUMN_SUMS)
HOP = THREADS // ROWS  # pixels from one that a thread gathers to its next one
A_HOP, B_HOP = HOP, THREADS // COLUMNS
A_PITCH, B_PITCH, SUMS = ROWS + QUAD, COLUMNS + QUAD, ROW_SUMS * COLUMN_SUMS
A_SIZE, B_SIZE, A_LOADS, B_LOADS = STEPS * A_PITCH, STEPS * B_PITCH, STEPS // A_HOP, STEPS // B_HOP
own, multiply, write = make_sums(ROWS, COLUMNS, ROW_SUMS, COLUMN_SUMS)


@kernel(f"f32* x, f32* g, f32* out, {SIZES}, {WALK}", threads=THREADS, blocks=RESIDENT // THREADS)
def weight_gemm(
    x, g, out, pixels, depth, rows, columns, channels, taps_w, in_h, in_w, in_c, out_h, out_w, out_c,
    stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, move_h, move_w, move, back_w, back_h,
):  # fmt: skip
    """One idea: a block owns a tile of dw, which it multiplies from tiles of x and g in shared memory.

    Each thread gathers one row of the tile of x: it takes its tap apart once, and walks over the pixels without
    a division. What it would read outside the input, or behind the slice, is 0.

    Traffic    x is read ceil(O/G / columns of a tile) times for each tap, g ceil(P*Q*C/G / rows of a tile) times
    Resources  a tile of each in shared memory, 32 sums in registers; two barriers for 8 pixels
    """
    a_tile = cuda.shared.array(A_SIZE, f32, alignment=16)
    b_tile = cuda.shared.array(B_SIZE, f32, alignment=16)
    total = cuda.local.array(SUMS, f32)
    thread, group, walk = u32(cuda.threadIdx.x), i32(cuda.blockIdx.z), (move_h, move_w, move, back_w, back_h)
    across, down = split(cuda.blockIdx.x, u32(u32(rows + (ROWS - 1)) // u32(ROWS)))
    top, left = i32(down * ROWS), i32(across * COLUMNS)
    first = i32(cuda.blockIdx.y * depth)
    pixels_left = min(depth, i32(pixels - first))

    a_line, a_step = i32(thread % u32(ROWS)), i32(thread // u32(ROWS))
    below, right, c = lead(min(top + a_line, rows - 1), channels, taps_w, dilation_h, dilation_w, pad_h, pad_w)
    n, h, w = origin(i32(first + a_step), out_h, out_w, stride_h, stride_w)
    h, w, h_end, w_end = (
        i32(h + below),
        i32(w + right),
        i32(out_h * stride_h + below),
        i32(out_w * stride_w + right),
    )
    place = place_of(n, h, w, i32(group * channels + c), in_h, in_w, in_c)
    b_line, b_step = i32(thread % u32(COLUMNS)), i32(thread // u32(COLUMNS))
    b_place = i32(i32(first + b_step) * out_c + i32(group * columns + min(left + b_line, columns - 1)))

    row, column = own(thread)
    for i in range(SUMS):
        total[i] = f32(0)
    while pixels_left > 0:
        for load in range(A_LOADS):
            unroll(0)
            value = f32(0)
            if i32(a_step + load * A_HOP) < pixels_left and u32(h) < u32(in_h) and u32(w) < u32(in_w):
                value = x[place]
            a_tile[u32(i32(a_step + load * A_HOP) * A_PITCH + a_line)] = value
            h, w, place = advance(h, w, place, h_end, w_end, out_h, out_w, stride_h, stride_w, walk)
        for load in range(B_LOADS):
            unroll(0)
            value = f32(0)
            if i32(b_step + load * B_HOP) < pixels_left:
                value = g[b_place]
            b_tile[u32(i32(b_step + load * B_HOP) * B_PITCH + b_line)] = value
            b_place = i32(b_place + B_HOP * out_c)
        cuda.syncthreads()
        multiply(total, a_tile, b_tile, row, column)
        cuda.syncthreads()
        pixels_left = i32(pixels_left - STEPS)
    row, column = i32(top + row), i32(left + column)
    start = offset(output(out, rows, out_c), i32(row * out_c + i32(group * columns + column)))
    write(total, start, out, out, column, i32(rows - row), i32(columns - column), out_c, i32(0))
