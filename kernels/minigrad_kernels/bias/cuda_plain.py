"""The plain rung: one thread a partial sum of one column. Any shape."""

import numpy as np

from ..toolchain.cuda import cuda, device, i32, kernel, u32
from ..toolchain.cuda.halves import DOUBLE, SINGLE, each

__all__ = ["ADD", "HEIGHT", "SHORT", "SUMS", "WIDTH", "thread"]

SHORT = 16  # rows that are summed before their sum is added: so a long sum loses little
WIDTH, HEIGHT = 32, 32  # of a block of `add`: columns at least, and threads for each of them at most
MOST = WIDTH * HEIGHT


@device
def thread():
    """The number of this thread in the whole grid."""
    return i32(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)


def _sums(half):
    real = half.real

    @half.plain("_* g, _* out, _* dx, real* partial, i32 relu, i32 rows, i32 columns, i32 share, i32 count")
    def sums_plain(g, out, dx, partial, relu, rows, columns, share, count):
        """Thread i owns one column of a part, which is `share` rows: g is read once, one number written a thread.

        With relu, of what goes to dx: out is read and dx written once as well.
        """
        i = thread()
        if i < count:
            r = i32(i32(u32(u32(i) // u32(columns))) * share)
            k = i32(r * columns + i32(u32(u32(i) % u32(columns))))
            stop = i32(r + min(share, i32(rows - r)))
            zero = real(0)
            total = zero
            while r < stop:
                end, short = i32(r + min(SHORT, i32(stop - r))), zero
                while r < end:
                    v = g[k]  # read in any case, so that no load waits for the other
                    if relu:
                        v = zero if out[k] <= zero else v
                        dx[k] = v
                    short += v
                    k = i32(k + columns)
                    r = i32(r + 1)
                total += short
            partial[i] = total

    return sums_plain


def _add(half):
    kind, real = half.kind, half.real

    @kernel(f"{kind}* partial, {kind}* out, i32 parts, i32 columns", threads=MOST, variant=kind)
    def add(partial, out, parts, columns):
        """Row y of a block's threads, of which there are h, adds every h-th part; then the h sums of a column are added
        pairwise.

        As many rows as 32, because the loads of a thread wait for one another, and there are up to 1024 parts.
        """
        x, y = i32(cuda.threadIdx.x), i32(cuda.threadIdx.y)
        width, height = i32(cuda.blockDim.x), i32(cuda.blockDim.y)
        column, own = i32(cuda.blockIdx.x * width + x), i32(y * width + x)
        sums = cuda.shared.array(MOST, real)
        total = real(0)
        if column < columns:
            for p in range(y, parts, height):
                total += partial[i32(i32(p) * columns + column)]
        sums[own] = total
        half = i32(height >> 1)
        while half:
            cuda.syncthreads()
            if y < half:
                sums[own] += sums[i32(own + half * width)]
            half = i32(half >> 1)
        if y == 0 and column < columns:
            out[column] = sums[own]

    return add


SUMS = each(_sums, SINGLE, DOUBLE)
ADD = {np.dtype(name): add for name, add in each(_add, SINGLE, DOUBLE).items()}  # by the type of sums
