"""Rung 6 of the matrix product: sums in slices, for few results with long sums."""

from ..toolchain.cuda import cuda, f32, i32, i64, kernel, offset, u32, unroll
from .cuda_parts import bias_of, finish, least_of

__all__ = ["THREADS", "add"]

THREADS = 256


@kernel("f32* partial, f32* bias, f32* out, i32 size, i32 n, i32 slices, i32 flags", threads=THREADS)
def add(partial, bias, out, size, n, slices, flags):
    """One idea: slices of each sum are products of their own, and fill a GPU that the tiles alone would not.

    Any tile rung writes the products of the slices to the workspace. Here thread i adds those of result i, always in
    order, so the bits are the same every time. blockIdx.y is the matrix of the batch; size is M * N.

    Traffic    that of the tile rung; besides, slices * M * N floats are written once and read once
    """
    i = i32(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
    if i < size:
        matrix = i64(cuda.blockIdx.y)
        part = offset(partial, matrix * slices * size + i)
        total = f32(0)
        while slices > 0:
            unroll(4)  # loads that are on their way together
            total += part[0]
            part = offset(part, size)
            slices = i32(slices - 1)
        out[matrix * size + i] = finish(total, bias_of(bias, i32(u32(u32(i) % u32(n))), flags), least_of(flags))
