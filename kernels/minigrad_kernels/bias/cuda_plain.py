"""The plain rung: one thread a partial sum of one column. Any shape."""

import numpy as np

from ..toolchain.cuda import cuda, each_float, i32, kernel
from ..toolchain.cuda.halves import DOUBLE, SINGLE, each

__all__ = ["ADD", "HEIGHT", "SHORT", "WIDTH", "sums_plain"]

SHORT = 16  # rows that are summed before their sum is added: so a long sum loses little
WIDTH, HEIGHT = 32, 32  # threads of a block of `add`


@each_float("_[:,:] g, _[:,:] out, _[:,:] dx, _[:,:] partial, i32 share", threads=256)
def sums_plain(g, out, dx, partial, share):
    """A thread owns one column of a part, which is `share` rows: g is read once, one number written a thread.

    With dx, what goes there is summed, g masked by ReLU: out is read and dx written once as well.
    """
    number = cuda.grid(1)
    part, column = number // g.shape[1], number % g.shape[1]
    if part < partial.shape[0]:
        stop, total = min((part + 1) * share, g.shape[0]), g.dtype.type(0)
        for first in range(part * share, stop, SHORT):
            short = g.dtype.type(0)
            for r in range(first, min(first + SHORT, stop)):
                v = g[r, column]  # read in any case, so that no load waits for the other
                if dx.size:
                    v = g.dtype.type(0) if out[r, column] <= 0 else v
                    dx[r, column] = v
                short += v
            total += short
        partial[part, column] = total


def _add(half):
    kind, real = half.kind, half.real

    @kernel(f"{kind}* partial, {kind}* out, i32 parts, i32 columns", threads=WIDTH * HEIGHT, variant=kind)
    def add(partial, out, parts, columns):
        """Each block owns 32 columns: row y of its threads adds every 32nd part, then the 32 sums are added pairwise.

        So many, because the loads of a thread wait for one another, and there are up to 1024 parts.
        """
        x, y = i32(cuda.threadIdx.x), i32(cuda.threadIdx.y)
        column = i32(cuda.blockIdx.x * WIDTH + x)
        sums = cuda.shared.array((HEIGHT, WIDTH), real)
        total = real(0)
        if column < columns:
            for p in range(y, parts, HEIGHT):
                total += partial[i32(i32(p) * columns + column)]
        sums[y, x] = total
        half = i32(HEIGHT // 2)
        while half:
            cuda.syncthreads()
            if y < half:
                sums[y, x] += sums[y + half, x]
            half = i32(half >> 1)
        if y == 0 and column < columns:
            out[column] = sums[0, x]

    return add


ADD = {np.dtype(name): add for name, add in each(_add, SINGLE, DOUBLE).items()}  # by the type of sums
