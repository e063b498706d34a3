"""The plain rung: one thread an element, or a partial sum of one column. Any shape."""

import numpy as np

from ..toolchain.cuda import cuda, device, i32, kernel, u32
from ..toolchain.cuda.halves import DOUBLE, SINGLE, each

__all__ = ["ADD", "GRAD", "HEIGHT", "RELU", "SHORT", "SUMS", "WIDTH", "thread"]

SHORT = 16  # rows that are summed before their sum is added: so a long sum loses little
WIDTH, HEIGHT = 32, 32  # threads of a block of `add`


@device
def thread():
    """The number of this thread in the whole grid."""
    return i32(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)


def _relu(half):
    @half.plain("_* x, real* bias, _* out, i32 size, u32 columns")
    def relu_plain(x, bias, out, size, columns):
        """Thread i owns element i: x is read and out written once, and a number of bias is read for each element."""
        i = thread()
        if i < size:
            v = x[i] + bias[u32(u32(i) % columns)]
            zero = type(v)(0)
            out[i] = zero if v <= zero else v  # written so that NaN passes

    return relu_plain


def _sums(half):
    real = half.real

    @half.plain("_* x, real* partial, i32 rows, i32 columns, i32 share, i32 count")
    def sums_plain(x, partial, rows, columns, share, count):
        """Thread i owns one column of a part, which is `share` rows: x is read once, one number written a thread."""
        i = thread()
        if i < count:
            r = i32(i32(u32(u32(i) // u32(columns))) * share)
            k = i32(r * columns + i32(u32(u32(i) % u32(columns))))
            stop = i32(r + min(share, i32(rows - r)))
            total = real(0)
            while r < stop:
                end, short = i32(r + min(SHORT, i32(stop - r))), real(0)
                while r < end:
                    short += x[k]
                    k = i32(k + columns)
                    r = i32(r + 1)
                total += short
            partial[i] = total

    return sums_plain


def _grad(half):
    real = half.real

    @half.plain("_* g, _* out, _* dx, real* partial, i32 rows, i32 columns, i32 share, i32 count")
    def grad_plain(g, out, dx, partial, rows, columns, share, count):
        """As sums_plain, of what goes to dx: g and out are read and dx written once."""
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
                    v = zero if out[k] <= zero else v
                    dx[k] = v
                    short += v
                    k = i32(k + columns)
                    r = i32(r + 1)
                total += short
            partial[i] = total

    return grad_plain


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


RELU, SUMS, GRAD = (each(make, SINGLE, DOUBLE) for make in (_relu, _sums, _grad))
ADD = {np.dtype(name): add for name, add in each(_add, SINGLE, DOUBLE).items()}  # by the type of sums
