"""Rung 2 of the matrix product: tiles in shared memory."""

from ..toolchain.cuda import cuda, f32, i32, i64, kernel, unroll
from .cuda_parts import SIGNATURE, bias_of, finish_beside, least_of, operand, slice_of, steps_of

__all__ = ["TILE", "tiled"]

TILE = 32
PITCH = TILE + 1  # of a row in shared memory: a column of the tile then lies in 32 different banks
SIZE = TILE * PITCH


@kernel(SIGNATURE, threads=TILE * TILE)
def tiled(a, b, bias, residual, out, m, n, k, depth, slices, a_m, a_k, b_k, b_n, a_z, b_z, out_z, flags):
    """One idea: a block copies 32 x 32 tiles of a and b to shared memory, and each element serves 32 sums from there.

    Traffic    a is read ceil(N / 32) times, b ceil(M / 32) times
    Resources  8.25 KB of shared memory; two barriers for 32 steps of k

    Threads copy a tile along whichever of its axes lies along memory, so that a warp reads 128 bytes side by side.
    """
    a_tile = cuda.shared.array(SIZE, f32)
    b_tile = cuda.shared.array(SIZE, f32)
    column, row = i32(cuda.threadIdx.x & 31), i32(cuda.threadIdx.x >> 5)
    top, left = i32(cuda.blockIdx.x * TILE), i32(cuda.blockIdx.y * TILE)
    part = slice_of(slices)
    k_left = steps_of(k, depth, part)

    # which element of each tile this thread copies
    a_row, a_column, b_row, b_column = row, column, row, column
    if abs(a_m) < abs(a_k):
        a_row, a_column = column, row
    if abs(b_k) < abs(b_n):
        b_row, b_column = column, row
    a_inside, b_inside = a_row < i32(m - top), b_column < i32(n - left)
    a_start, b_start = operand(a, part, a_z, i64(depth) * a_k), operand(b, part, b_z, i64(depth) * b_k)
    a_next = i64(top + a_row) * a_m + i64(a_column) * a_k
    b_next = i64(b_row) * b_k + i64(left + b_column) * b_n

    total = f32(0)
    while k_left > 0:
        a_tile[a_row * PITCH + a_column] = a_start[a_next] if a_inside and a_column < k_left else f32(0)
        b_tile[b_row * PITCH + b_column] = b_start[b_next] if b_inside and b_row < k_left else f32(0)
        cuda.syncthreads()
        for step in range(TILE):
            unroll(0)
            total += a_tile[row * PITCH + step] * b_tile[step * PITCH + column]
        cuda.syncthreads()
        a_next += TILE * a_k
        b_next += TILE * b_k
        k_left = i32(k_left - TILE)
    if row < i32(m - top) and column < i32(n - left):
        place = i64(cuda.blockIdx.z) * out_z + i64(top + row) * i64(n) + i64(left + column)
        added = bias_of(bias, left + column, flags)
        out[place] = finish_beside(total, added, least_of(flags), residual, place, flags)
