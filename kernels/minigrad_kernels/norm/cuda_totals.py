"""What the parts gave, added up, for both rungs of batch normalisation, in the type of the parts.

Each block owns 32 columns: row y of its threads takes every 32nd part, then the 32 results are joined pairwise. So
many, because the loads of a thread wait for one another, and there are up to 1024 parts.
"""

from ..bias.cuda_plain import HEIGHT, WIDTH
from ..toolchain.cuda import cuda, each_float
from .cuda_parts import finite, inverse_deviation, joined

__all__ = ["total_grads", "total_statistics"]


@each_float(
    "_[:] shift, _[:,:] sums, _[:,:] squares, _[:] mean, _[:] variance, _[:] running_mean, _[:] running_var, "
    "_ momentum, _ unbiased, i64 rows, i64 share",
    threads=WIDTH * HEIGHT,
)
def total_statistics(
    shift, sums, squares, mean, variance, running_mean, running_var, momentum, unbiased, rows, share
):  # fmt: skip
    """Sums about the shift, the first row, and squares about means of their own, of parts of `share` rows, the last of
    fewer.

    Running statistics, if there are any, are moved a share, momentum, of the way to the mean and to the unbiased
    variance.
    """
    lane, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, real = cuda.blockIdx.x * WIDTH + lane, mean.dtype.type
    counts = cuda.shared.array((HEIGHT, WIDTH), mean.dtype)
    s = cuda.shared.array((HEIGHT, WIDTH), mean.dtype)  # lines of their own: the simulator tells arrays by their line
    q = cuda.shared.array((HEIGHT, WIDTH), mean.dtype)
    n, total, squared = real(0), real(0), real(0)
    if column < mean.size:
        for p in range(y, sums.shape[0], HEIGHT):
            own = real(min(share, rows - p * share))
            n, total, squared = joined(n, total, squared, own, sums[p, column], squares[p, column])
    counts[y, lane], s[y, lane], q[y, lane] = n, total, squared
    half = HEIGHT // 2
    while half:
        cuda.syncthreads()
        if y < half:
            n, total, squared = joined(n, total, squared, counts[y + half, lane], s[y + half, lane], q[y + half, lane])
            counts[y, lane], s[y, lane], q[y, lane] = n, total, squared
        half //= 2
    if y == 0 and column < mean.size:
        m, v = finite(shift[column]) + total / real(rows), squared / real(rows)
        mean[column], variance[column] = m, v
        if running_mean.size:
            kept = real(1) - momentum
            running_mean[column] = kept * running_mean[column] + momentum * m
            running_var[column] = kept * running_var[column] + momentum * (unbiased * v)


@each_float("_[:,:] sums, _[:,:] products, _[:] variance, _[:] dw, _[:] db, _ eps", threads=WIDTH * HEIGHT)
def total_grads(sums, products, variance, dw, db, eps):
    """db, the sum of g, and dw, that of g * (x - mean) over the deviation."""
    lane, y = cuda.threadIdx.x, cuda.threadIdx.y
    column = cuda.blockIdx.x * WIDTH + lane
    s = cuda.shared.array((HEIGHT, WIDTH), dw.dtype)
    q = cuda.shared.array((HEIGHT, WIDTH), dw.dtype)
    total, product = dw.dtype.type(0), dw.dtype.type(0)
    if column < dw.size:
        for p in range(y, sums.shape[0], HEIGHT):
            total += sums[p, column]
            product += products[p, column]
    s[y, lane], q[y, lane] = total, product
    half = HEIGHT // 2
    while half:
        cuda.syncthreads()
        if y < half:
            s[y, lane] += s[y + half, lane]
            q[y, lane] += q[y + half, lane]
        half //= 2
    if y == 0 and column < dw.size:
        db[column] = s[0, lane]
        dw[column] = q[0, lane] * inverse_deviation(variance[column], eps)
