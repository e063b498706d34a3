"""The plain rung of batch normalisation: one thread an element, or the sums of one column of a part.

Statistics are taken about a shift, an element of each column, so that float32 keeps its digits where a mean is far
larger than the deviation from it; and the parts are joined as samples with means of their own, never by subtracting
squares of large numbers.
"""

from ..bias.cuda_plain import SHORT, thread
from ..toolchain.cuda import device, i32, u32
from ..toolchain.cuda.halves import DOUBLE, SINGLE, each
from .cuda_parts import finite, inverse_deviation

__all__ = ["GRADS", "NORMALIZE", "PRODUCTS", "STATISTICS"]


@device
def own_column(rows, columns, share, i):
    """(column, first row, number of rows) that thread i owns: one column of a part of `share` rows."""
    part = i32(u32(u32(i) // u32(columns)))
    first = i32(part * share)
    return i32(i - part * columns), first, min(share, i32(rows - first))


def _statistics(half):
    real = half.real

    @half.plain("_* x, real* sums, real* squares, i32 rows, i32 columns, i32 share, i32 count")
    def statistics_plain(x, sums, squares, rows, columns, share, count):
        """The sum of what x is above the shift, and the squares about its mean: x is read twice."""
        i = thread()
        if i < count:
            column, first, own = own_column(rows, columns, share, i)
            start, shift, r = i32(first * columns + column), finite(x[column]), i32(0)
            total, squared = real(0), real(0)
            while r < own:
                end, short = i32(r + min(SHORT, i32(own - r))), real(0)
                while r < end:
                    short += x[i32(start + r * columns)] - shift
                    r = i32(r + 1)
                total += short
            mean, r = total / real(own), i32(0)
            while r < own:
                end, short = i32(r + min(SHORT, i32(own - r))), real(0)
                while r < end:
                    d = (x[i32(start + r * columns)] - shift) - mean
                    short += d * d
                    r = i32(r + 1)
                squared += short
            sums[i] = total
            squares[i] = squared

    return statistics_plain


def _normalize(half):
    real = half.real
    arrays = "_* x, real* mean, real* variance, real* weight, real* bias, _* residual, _* out"
    numbers = "real eps, i32 has_weight, i32 has_bias, i32 has_residual, i32 relu, i32 size, u32 columns"

    @half.plain(f"{arrays}, {numbers}")
    def normalize_plain(
        x, mean, variance, weight, bias, residual, out, eps, has_weight, has_bias, has_residual, relu, size, columns
    ):
        """x and the residual are read and out is written once; up to four numbers of the channel are read for each
        element."""
        i = thread()
        if i < size:
            c = u32(u32(i) % columns)
            v = (x[i] - mean[c]) * inverse_deviation(variance[c], eps)
            if has_weight:
                v *= weight[c]
            if has_bias:
                v += bias[c]
            if has_residual:
                v += residual[i]
            out[i] = real(0) if relu and v <= real(0) else v  # written so that NaN passes

    return normalize_plain


def _products(half):
    real = half.real
    arrays = "_* g, _* x, _* out, real* mean, real* sums, real* products, _* masked"

    @half.plain(f"{arrays}, i32 has_relu, i32 has_masked, i32 rows, i32 columns, i32 share, i32 count")
    def products_plain(
        g, x, out, mean, sums, products, masked, has_relu, has_masked, rows, columns, share, count
    ):  # fmt: skip
        """The sums of g and of g * (x - mean), g first masked by out if there was a ReLU: each is read once, and the
        masked g is written if it is wanted."""
        i = thread()
        if i < count:
            column, first, own = own_column(rows, columns, share, i)
            k, centre, r = i32(first * columns + column), mean[column], i32(0)
            total, product = real(0), real(0)
            while r < own:
                end, short, other = i32(r + min(SHORT, i32(own - r))), real(0), real(0)
                while r < end:
                    v = g[k]
                    if has_relu:
                        v = real(0) if out[k] <= real(0) else v
                    if has_masked:
                        masked[k] = v
                    short += v
                    other += v * (x[k] - centre)
                    k = i32(k + columns)
                    r = i32(r + 1)
                total += short
                product += other
            sums[i] = total
            products[i] = product

    return products_plain


def _grads(half):
    real = half.real
    arrays = "_* g, _* x, _* out, real* mean, real* variance, real* weight, real* dw, real* db, _* dx"

    @half.plain(f"{arrays}, real eps, i32 has_weight, i32 has_relu, i32 size, u32 columns, i32 rows")
    def grads_plain(
        g, x, out, mean, variance, weight, dw, db, dx, eps, has_weight, has_relu, size, columns, rows
    ):  # fmt: skip
        """g, x and, if there was a ReLU, out are read and dx written once; up to five numbers of the channel are read
        for each element."""
        i = thread()
        if i < size:
            c = u32(u32(i) % columns)
            scale, v = inverse_deviation(variance[c], eps), g[i]
            if has_relu:
                v = real(0) if out[i] <= real(0) else v
            d = (v - db[c] / real(rows)) - (x[i] - mean[c]) * (scale * dw[c] / real(rows))
            dx[i] = d * (scale * weight[c]) if has_weight else d * scale

    return grads_plain


STATISTICS, NORMALIZE, PRODUCTS, GRADS = (
    each(make, SINGLE, DOUBLE) for make in (_statistics, _normalize, _products, _grads)
)
