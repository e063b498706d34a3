"""The plain rung of batch normalisation: one thread an element, or the sums of one column of a part. float32, float64.

Statistics are taken about a shift, an element of each column, so that float32 keeps its digits where a mean is far
larger than the deviation from it; and the parts are joined as samples with means of their own, never by subtracting
squares of large numbers.
"""

import numpy as np

from ..bias.cuda_plain import SHORT, thread
from ..toolchain.cuda import device, f32, f64, i32, kernel, u32
from .cuda_parts import finite, inverse_deviation

__all__ = ["GRADS", "NORMALIZE", "PRODUCTS", "STATISTICS", "both"]


def both(make):
    """{element type: kernel}"""
    return {np.dtype(np.float32): make("f32", f32), np.dtype(np.float64): make("f64", f64)}


@device
def own_column(rows, columns, share, i):
    """(column, first row, number of rows) that thread i owns: one column of a part of `share` rows."""
    part = i32(u32(u32(i) // u32(columns)))
    first = i32(part * share)
    return i32(i - part * columns), first, min(share, i32(rows - first))


def _statistics(kind, real):
    arrays = f"{kind}* x, {kind}* sums, {kind}* squares"

    @kernel(f"{arrays}, i32 rows, i32 columns, i32 share, i32 count", threads=256, variant=kind)
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


def _normalize(kind, real):
    arrays = f"{kind}* x, {kind}* mean, {kind}* variance, {kind}* weight, {kind}* bias, {kind}* out"

    @kernel(f"{arrays}, {kind} eps, i32 has_weight, i32 has_bias, i32 size, u32 columns", threads=256, variant=kind)
    def normalize_plain(x, mean, variance, weight, bias, out, eps, has_weight, has_bias, size, columns):
        """x is read and out written once; up to four numbers of the channel are read for each element."""
        i = thread()
        if i < size:
            c = u32(u32(i) % columns)
            v = (x[i] - mean[c]) * inverse_deviation(variance[c], eps)
            if has_weight:
                v *= weight[c]
            if has_bias:
                v += bias[c]
            out[i] = v

    return normalize_plain


def _products(kind, real):
    arrays = f"{kind}* g, {kind}* x, {kind}* mean, {kind}* sums, {kind}* products"

    @kernel(f"{arrays}, i32 rows, i32 columns, i32 share, i32 count", threads=256, variant=kind)
    def products_plain(g, x, mean, sums, products, rows, columns, share, count):
        """The sums of g and of g * (x - mean): g and x are read once."""
        i = thread()
        if i < count:
            column, first, own = own_column(rows, columns, share, i)
            k, centre, r = i32(first * columns + column), mean[column], i32(0)
            total, product = real(0), real(0)
            while r < own:
                end, short, other = i32(r + min(SHORT, i32(own - r))), real(0), real(0)
                while r < end:
                    v = g[k]
                    short += v
                    other += v * (x[k] - centre)
                    k = i32(k + columns)
                    r = i32(r + 1)
                total += short
                product += other
            sums[i] = total
            products[i] = product

    return products_plain


def _grads(kind, real):
    arrays = f"{kind}* g, {kind}* x, {kind}* mean, {kind}* variance, {kind}* weight, {kind}* dw, {kind}* db, {kind}* dx"

    @kernel(f"{arrays}, {kind} eps, i32 has_weight, i32 size, u32 columns, i32 rows", threads=256, variant=kind)
    def grads_plain(g, x, mean, variance, weight, dw, db, dx, eps, has_weight, size, columns, rows):
        """g and x are read and dx written once; up to five numbers of the channel are read for each element."""
        i = thread()
        if i < size:
            c = u32(u32(i) % columns)
            scale = inverse_deviation(variance[c], eps)
            d = (g[i] - db[c] / real(rows)) - (x[i] - mean[c]) * (scale * dw[c] / real(rows))
            dx[i] = d * (scale * weight[c]) if has_weight else d * scale

    return grads_plain


STATISTICS, NORMALIZE, PRODUCTS, GRADS = both(_statistics), both(_normalize), both(_products), both(_grads)
