"""What the parts gave, added up, for both rungs of batch normalisation, in the type of the parts.

Each block owns 32 columns: row y of its threads takes every 32nd part, then the 32 results are joined pairwise. So
many, because the loads of a thread wait for one another, and there are up to 1024 parts.
"""

from ..bias.cuda_plain import HEIGHT, WIDTH
from ..toolchain.cuda import cuda, i32, kernel
from ..toolchain.cuda.halves import BF16, DOUBLE, F16, SINGLE, each
from .cuda_parts import finite, inverse_deviation, joined

__all__ = ["GRADS", "STATISTICS"]


def _statistics(half):
    kind, real, widen = half.kind, half.real, half.widen
    arrays = f"{half.pointer} x, {kind}* sums, {kind}* squares, {kind}* mean, {kind}* variance"
    running = f"{kind}* running_mean, {kind}* running_var, i32 has_running, {kind} momentum, {kind} unbiased"
    sizes = "i32 rows, i32 share, i32 parts, i32 columns"

    @kernel(f"{arrays}, {running}, {sizes}", threads=WIDTH * HEIGHT, lowest=half.lowest, variant=half.short)
    def total_statistics(
        x, sums, squares, mean, variance, running_mean, running_var, has_running, momentum, unbiased,
        rows, share, parts, columns,
    ):  # fmt: skip
        """Sums about the shift and squares about means of their own, of parts of `share` rows, the last of fewer.

        Running statistics are moved a share, momentum, of the way to the mean and to the unbiased variance.
        """
        column, y = i32(cuda.blockIdx.x * WIDTH + cuda.threadIdx.x), i32(cuda.threadIdx.y)
        lane = i32(cuda.threadIdx.x)
        counts = cuda.shared.array((HEIGHT, WIDTH), real)
        s, q = cuda.shared.array((HEIGHT, WIDTH), real), cuda.shared.array((HEIGHT, WIDTH), real)
        n, total, squared = real(0), real(0), real(0)
        if column < columns:
            for p in range(y, parts, HEIGHT):
                k, own = i32(i32(p) * columns + column), min(share, i32(rows - i32(p) * share))
                n, total, squared = joined(n, total, squared, real(own), sums[k], squares[k])
        counts[y, lane], s[y, lane], q[y, lane] = n, total, squared
        half = i32(HEIGHT // 2)
        while half:
            cuda.syncthreads()
            if y < half:
                n, total, squared = joined(
                    n, total, squared, counts[y + half, lane], s[y + half, lane], q[y + half, lane]
                )
                counts[y, lane], s[y, lane], q[y, lane] = n, total, squared
            half = i32(half >> 1)
        if y == 0 and column < columns:
            m, v = finite(widen(x[column])) + total / real(rows), squared / real(rows)
            mean[column], variance[column] = m, v
            if has_running:
                kept = real(1) - momentum
                running_mean[column] = kept * running_mean[column] + momentum * m
                running_var[column] = kept * running_var[column] + momentum * (unbiased * v)

    return total_statistics


def _grads(half):
    kind, real = half.kind, half.real
    arrays = f"{kind}* sums, {kind}* products, {kind}* variance, {kind}* dw, {kind}* db"

    @kernel(f"{arrays}, {kind} eps, i32 parts, i32 columns", threads=WIDTH * HEIGHT, variant=kind)
    def total_grads(sums, products, variance, dw, db, eps, parts, columns):
        """db, the sum of g, and dw, that of g * (x - mean) over the deviation."""
        column, y = i32(cuda.blockIdx.x * WIDTH + cuda.threadIdx.x), i32(cuda.threadIdx.y)
        lane = i32(cuda.threadIdx.x)
        s, q = cuda.shared.array((HEIGHT, WIDTH), real), cuda.shared.array((HEIGHT, WIDTH), real)
        total, product = real(0), real(0)
        if column < columns:
            for p in range(y, parts, HEIGHT):
                k = i32(i32(p) * columns + column)
                total += sums[k]
                product += products[k]
        s[y, lane], q[y, lane] = total, product
        half = i32(HEIGHT // 2)
        while half:
            cuda.syncthreads()
            if y < half:
                s[y, lane] += s[y + half, lane]
                q[y, lane] += q[y + half, lane]
            half = i32(half >> 1)
        if y == 0 and column < columns:
            db[column] = s[0, lane]
            dw[column] = q[0, lane] * inverse_deviation(variance[column], eps)

    return total_grads


STATISTICS, GRADS = each(_statistics, SINGLE, DOUBLE, F16, BF16), each(_grads, SINGLE, DOUBLE)
