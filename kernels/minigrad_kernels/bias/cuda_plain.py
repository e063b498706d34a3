"""The plain rung: one thread an element, or a partial sum of one column. Any shape; float32 and float64."""

import numpy as np

from ..toolchain.cuda import cuda, device, f32, f64, i32, kernel, u32

__all__ = ["ADD", "GRAD", "HEIGHT", "RELU", "SUMS", "WIDTH"]

SHORT = 16  # rows that are summed before their sum is added: so a long sum loses little
WIDTH, HEIGHT = 32, 32  # threads of a block of `add`


@device
def thread():
    """The number of this thread in the whole grid."""
    return i32(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)


def _relu(kind):
    @kernel(f"{kind}* x, {kind}* bias, {kind}* out, i32 size, u32 columns", threads=256, variant=kind)
    def relu_plain(x, bias, out, size, columns):
        """Thread i owns element i: x is read and out written once, and a number of bias is read for each element."""
        i = thread()
        if i < size:
            v = x[i] + bias[u32(u32(i) % columns)]
            zero = type(v)(0)
            out[i] = zero if v <= zero else v  # written so that NaN passes

    return relu_plain


def _sums(kind, real):
    @kernel(f"{kind}* x, {kind}* partial, i32 rows, i32 columns, i32 share, i32 count", threads=256, variant=kind)
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


def _grad(kind, real):
    arrays = f"{kind}* g, {kind}* out, {kind}* dx, {kind}* partial"

    @kernel(f"{arrays}, i32 rows, i32 columns, i32 share, i32 count", threads=256, variant=kind)
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


def _add(kind, real):
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


def _both(make):
    """{element type: kernel}"""
    return {np.dtype(np.float32): make("f32", f32), np.dtype(np.float64): make("f64", f64)}


RELU = _both(lambda kind, real: _relu(kind))
SUMS, GRAD, ADD = _both(_sums), _both(_grad), _both(_add)
