"""Rung 2 of the weight gradient: a product of matrices whose left one is gathered from the input on the way."""

from ..matmul.cuda_parts import RESIDENT
from ..matmul.cuda_vector import QUAD, STEPS, make_sums
from ..toolchain.cuda import cuda, f32, i32, kernel, offset, u32, unroll
from .cuda_weight_parts import SIZES, WALK, advance, lead, origin, output, place_of, split

__all__ = ["GEMM", "HOPS", "TILES"]

TILES = (64, 64), (64, 32)  # rows and columns of dw
ROW_SUMS, COLUMN_SUMS = 8, 4  # of a thread


def _threads(rows, columns):
    return rows // ROW_SUMS * (columns // COLUMN_SUMS)


HOPS = {tile: _threads(*tile) // tile[0] for tile in TILES}  # pixels from one that a thread gathers to its next one


def _gemm(tile_rows, tile_columns):
    threads, a_hop = _threads(tile_rows, tile_columns), HOPS[tile_rows, tile_columns]
    b_hop = threads // tile_columns
    own, multiply, write = make_sums(tile_rows, tile_columns, ROW_SUMS, COLUMN_SUMS)
    a_pitch, b_pitch, sums = tile_rows + QUAD, tile_columns + QUAD, ROW_SUMS * COLUMN_SUMS
    a_size, b_size, a_loads, b_loads = STEPS * a_pitch, STEPS * b_pitch, STEPS // a_hop, STEPS // b_hop
    signature, resident = f"f32* x, f32* g, f32* out, {SIZES}, {WALK}", RESIDENT // threads

    @kernel(signature, threads=threads, blocks=resident, variant=f"{tile_rows}x{tile_columns}")
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
        a_tile = cuda.shared.array(a_size, f32, alignment=16)
        b_tile = cuda.shared.array(b_size, f32, alignment=16)
        total = cuda.local.array(sums, f32)
        thread, group, walk = u32(cuda.threadIdx.x), i32(cuda.blockIdx.z), (move_h, move_w, move, back_w, back_h)
        across, down = split(cuda.blockIdx.x, u32(u32(rows + (tile_rows - 1)) // u32(tile_rows)))
        top, left = i32(down * tile_rows), i32(across * tile_columns)
        first = i32(cuda.blockIdx.y * depth)
        pixels_left = min(depth, i32(pixels - first))

        a_line, a_step = i32(thread % u32(tile_rows)), i32(thread // u32(tile_rows))
        below, right, c = lead(min(top + a_line, rows - 1), channels, taps_w, dilation_h, dilation_w, pad_h, pad_w)
        n, h, w = origin(i32(first + a_step), out_h, out_w, stride_h, stride_w)
        h, w, h_end, w_end = (
            i32(h + below),
            i32(w + right),
            i32(out_h * stride_h + below),
            i32(out_w * stride_w + right),
        )
        place = place_of(n, h, w, i32(group * channels + c), in_h, in_w, in_c)
        b_line, b_step = i32(thread % u32(tile_columns)), i32(thread // u32(tile_columns))
        b_place = i32(i32(first + b_step) * out_c + i32(group * columns + min(left + b_line, columns - 1)))

        row, column = own(thread)
        for i in range(sums):
            total[i] = f32(0)
        while pixels_left > 0:
            for load in range(a_loads):
                unroll(0)
                value = f32(0)
                if i32(a_step + load * a_hop) < pixels_left and u32(h) < u32(in_h) and u32(w) < u32(in_w):
                    value = x[place]
                a_tile[u32(i32(a_step + load * a_hop) * a_pitch + a_line)] = value
                h, w, place = advance(h, w, place, h_end, w_end, out_h, out_w, stride_h, stride_w, walk)
            for load in range(b_loads):
                unroll(0)
                value = f32(0)
                if i32(b_step + load * b_hop) < pixels_left:
                    value = g[b_place]
                b_tile[u32(i32(b_step + load * b_hop) * b_pitch + b_line)] = value
                b_place = i32(b_place + b_hop * out_c)
            cuda.syncthreads()
            multiply(total, a_tile, b_tile, row, column)
            cuda.syncthreads()
            pixels_left = i32(pixels_left - STEPS)
        row, column = i32(top + row), i32(left + column)
        start = offset(output(out, rows, out_c), i32(row * out_c + i32(group * columns + column)))
        write(total, start, out, out, column, i32(rows - row), i32(columns - column), out_c, i32(0))

    return weight_gemm


GEMM = {tile: _gemm(*tile) for tile in TILES}
