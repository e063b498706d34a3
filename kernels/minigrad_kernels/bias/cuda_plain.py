"""The plain rung: one thread a partial sum of one column. Any shape."""

from ..elementwise import formulas
from ..toolchain.cuda import cuda, device, each_float, i32

SHORT = 16  # rows that are summed before their sum is added: so a long sum loses little
WIDTH, HEIGHT = 32, 32  # of a block of `add`: columns at least, and threads for each of them at most
MOST = WIDTH * HEIGHT
passed = device(formulas.passed)


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
                    v = passed(v, out[r, column])
                    dx[r, column] = v
                short += v
            total += short
        partial[part, column] = total


@each_float("_[:,:] partial, _[:] out", threads=MOST)
def add(partial, out):
    """Row y of a block's threads, of which there are h, adds every h-th part; then the h sums of a column are added
    pairwise.

    As many rows as 32, because the loads of a thread wait for one another, and there are up to 1024 parts.
    """
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    width, height = cuda.blockDim.x, cuda.blockDim.y
    column, own = cuda.blockIdx.x * width + x, y * width + x
    sums = cuda.shared.array(MOST, out.dtype)
    total = out.dtype.type(0)
    if column < out.size:
        for p in range(y, i32(partial.shape[0]), height):
            total += partial[p, column]
    sums[own] = total
    half = height // 2
    while half:
        cuda.syncthreads()
        if y < half:
            sums[own] += sums[own + half * width]
        half //= 2
    if y == 0 and column < out.size:
        out[column] = sums[own]
