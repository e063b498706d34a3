"""Rung 2 of the convolution: a matrix product whose left factor is gathered from the images, tile by tile."""

from ..matmul.cuda_plain import finish
from ..toolchain.cuda import cuda, f32, index_of, kernel, unroll
from .cuda_plain import SETTINGS

TILE = 16


@kernel(
    f"f32[:,:,:,:] x, f32[:,:,:,:] w, f32[:] bias, f32[:,:,:,:] residual, f32[:,:,:,:] out, {SETTINGS}, i32 relu",
    threads=TILE * TILE,
)
def tiled(x, w, bias, residual, out, stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w, relu):
    """One idea: out is a product of matrices, a row for each pixel (n, i, j), a column for each channel o, and sums
    over the steps (p, q, c). A block copies 16 x 16 tiles of both factors to shared memory, and each element serves 16
    sums. The left factor, what each pixel reads, is nowhere in global memory as a whole.

    Traffic    x is read ceil(O / 16) times for each tap, w ceil(N*I*J / 16) times
    Resources  2 KB of shared memory; two barriers for 16 steps
    """
    a_tile = cuda.shared.array((TILE, TILE), f32)
    b_tile = cuda.shared.array((TILE, TILE), f32)
    row, column = cuda.threadIdx.y, cuda.threadIdx.x
    pixel, o = cuda.blockIdx.x * TILE + row, cuda.blockIdx.y * TILE + column
    n, i, j, _ = index_of(pixel, out.shape[2], out.shape[3], 1)
    channels, across = w.shape[1], w.shape[3]
    steps = channels * w.shape[2] * across

    total = f32(0)
    for first in range(0, steps, TILE):
        step = first + column  # neighbouring threads read neighbouring channels
        p, q, c = step // channels // across, step // channels % across, step % channels
        h, v = i * stride_h + p * dilation_h - padding_h, j * stride_w + q * dilation_w - padding_w
        inside = n < x.shape[0] and step < steps and 0 <= h < x.shape[2] and 0 <= v < x.shape[3]
        a_tile[row, column] = x[n, c, h, v] if inside else f32(0)
        step = first + row
        p, q, c = step // channels // across, step // channels % across, step % channels
        b_tile[row, column] = w[o, c, p, q] if step < steps and o < w.shape[0] else f32(0)
        cuda.syncthreads()
        for k in range(TILE):
            unroll(0)
            total += a_tile[row, k] * b_tile[k, column]
        cuda.syncthreads()
    if n < x.shape[0] and o < w.shape[0]:
        finish(out, (n, o, i, j), total, bias, o, residual, relu)
