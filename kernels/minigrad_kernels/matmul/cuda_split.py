"""Beside the ladder of the matrix product: sums in slices, for few results with long sums."""

from ..toolchain.cuda import bits, cuda, f32, i32, i64, kernel, offset, u16, u32, unroll
from ..toolchain.cuda.halves import BF16, F16, SINGLE
from .cuda_end import BIAS, RESIDUAL, SUMS, finish, least_of

__all__ = ["ADD", "WIDTH", "block_of"]

WIDTH, HEIGHT = 32, 8  # of a block of threads: results at least, and threads for each of them at most
THREADS = WIDTH * HEIGHT


def block_of(slices):
    """(results, threads for each of them) of a block that adds so many slices: no thread without a slice of its own."""
    height = min(HEIGHT, 1 << (slices - 1).bit_length())
    return THREADS // height, height


def make_add(half):
    pointer, single, widen, narrow = half.pointer, half is SINGLE, half.widen, half.narrow
    arrays = ", ".join(f"{pointer} {name}" for name in ("bias", "residual", "out"))
    signature = f"f32* partial, {arrays}, i32 size, i32 n, i32 slices, i64 out_z, i32 flags"

    @kernel(signature, threads=THREADS, lowest=half.lowest, variant="" if single else half.name)
    def add(partial, bias, residual, out, size, n, slices, out_z, flags):
        """One idea: slices of each sum are products of their own, and fill a GPU that the tiles alone would not.

        Any tile rung writes the products of the slices to the workspace. Here row y of a block's threads, of which
        there are h, adds every h-th slice; then the h sums of a result are added pairwise. That order follows from the
        number of slices alone, and so do the bits. blockIdx.y is the matrix of the batch; size is M * N, and out_z how
        far the matrices of out lie apart.

        Traffic    that of the tile rung; besides, slices * M * N floats are written once and read once
        """
        sums = cuda.shared.array(THREADS, f32)
        y, height = i32(cuda.threadIdx.y), i32(cuda.blockDim.y)
        i = i32(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
        matrix, total = i64(cuda.blockIdx.y), f32(0)
        if i < size:
            part = offset(partial, (matrix * slices + y) * size + i)
            while y < slices:
                unroll(4)  # loads that are on their way together
                total += part[0]
                part = offset(part, height * i64(size))
                y = i32(y + height)
        own = i32(cuda.threadIdx.y * cuda.blockDim.x + cuda.threadIdx.x)
        sums[own] = total
        y, half = i32(cuda.threadIdx.y), i32(height >> 1)
        while half:
            cuda.syncthreads()
            if y < half:
                sums[own] += sums[i32(own + half * cuda.blockDim.x)]
            half = i32(half >> 1)
        if y == 0 and i < size:
            column, place = i32(u32(u32(i) % u32(n))), matrix * out_z + i
            added = widen(bias[column]) if flags & BIAS else f32(0)
            more = widen(residual[place]) if flags & RESIDUAL else f32(0)
            found = finish(sums[own] + added, more, least_of(flags))
            if not single and flags & SUMS:
                word = bits(found)
                out[2 * place] = u16(word & u32(0xFFFF))
                out[2 * place + 1] = u16(word >> u32(16))
            else:
                out[place] = narrow(found)

    return add


ADD = {half.name: make_add(half) for half in (SINGLE, F16, BF16)}  # by the type of bias and out
