"""Rung 2 of the matrix product: tiles in shared memory."""

from ..toolchain.cuda import cuda, f32, kernel, unroll
from .cuda_plain import finish

TILE = 32
PITCH = TILE + 1  # of a row in shared memory: a column of the tile then lies in 32 different banks


@kernel("f32[:,:,:] a, f32[:,:,:] b, f32[:] bias, f32[:,:,:] residual, f32[:,:,:] out, i32 relu", threads=TILE * TILE)
def tiled(a, b, bias, residual, out, relu):
    """One idea: a block copies 32 x 32 tiles of a and b to shared memory, and each element serves 32 sums from there.

    Traffic    a is read ceil(N / 32) times, b ceil(M / 32) times
    Resources  8.25 KB of shared memory; two barriers for 32 steps of k

    Threads copy a tile along whichever of its axes lies along memory, so that a warp reads 128 bytes side by side.
    """
    a_tile = cuda.shared.array((TILE, PITCH), f32)
    b_tile = cuda.shared.array((TILE, PITCH), f32)
    z, x, y = cuda.blockIdx.z, cuda.threadIdx.x, cuda.threadIdx.y
    top, left = cuda.blockIdx.x * TILE, cuda.blockIdx.y * TILE
    rows, columns = out.shape[1:]
    # The row and the column of each tile that this thread copies.
    a_row, a_column = (x, y) if abs(a.strides[1]) < abs(a.strides[2]) else (y, x)
    b_row, b_column = (x, y) if abs(b.strides[1]) < abs(b.strides[2]) else (y, x)

    total = f32(0)
    for first in range(0, a.shape[2], TILE):
        i, k = top + a_row, first + a_column
        a_tile[a_row, a_column] = a[z, i, k] if i < rows and k < a.shape[2] else f32(0)
        k, j = first + b_row, left + b_column
        b_tile[b_row, b_column] = b[z, k, j] if k < a.shape[2] and j < columns else f32(0)
        cuda.syncthreads()
        for k in range(TILE):
            unroll(0)
            total += a_tile[y, k] * b_tile[k, x]
        cuda.syncthreads()
    i, j = top + y, left + x
    if i < rows and j < columns:
        finish(out, (z, i, j), total, bias, j, residual, relu)
