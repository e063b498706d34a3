"""Channel sums and batch normalisation on the CPU, on (rows, channels) matrices.

Sums are split by shape: the rows are cut into `pieces(rows)` pieces. A thread adds SHORT rows at a time in the
element type, and what they give in float64, which costs little and keeps the error of a sum near one rounding. The
pieces are then added pairwise.
"""

import numpy as np
from numba import prange

from ..toolchain import jit, parallel, stack_array

__all__ = ["batch_norm_grads", "batch_normalize", "batch_statistics", "channel_sum", "pieces"]

SHORT = 16  # rows added in the element type
TILE = 256  # channels whose coefficients fit on the stack


@jit
def pieces(rows):
    """How many pieces the rows are cut into: at least 64 rows each, and no more than 64 pieces."""
    return min(64, max(1, rows // 64))


@jit
def add_pairwise(partial):
    """Add partial[1:] to partial[0], in a tree whose form follows from their number alone."""
    step = 1
    while step < partial.shape[0]:
        for i in range(0, partial.shape[0] - step, 2 * step):
            for c in range(partial.shape[1]):
                partial[i, c] += partial[i + step, c]
        step *= 2


@jit
def sum_rows(x, start, stop, total):
    """The sum of rows start..stop of x, into `total`, of float64."""
    total[:] = 0.0
    short, zero = stack_array(TILE, x), x.dtype.type(0)
    for first in range(0, x.shape[1], TILE):
        width = min(TILE, x.shape[1] - first)
        for r in range(start, stop, SHORT):
            for c in range(width):
                short[c] = zero
            for s in range(r, min(stop, r + SHORT)):
                for c in range(width):
                    short[c] += x[s, first + c]
            for c in range(width):
                total[first + c] += short[c]


@jit
def square_rows(x, mean, start, stop, total):
    """The sum of (x - mean)**2 over rows start..stop, into `total`, of float64."""
    total[:] = 0.0
    short, zero = stack_array(TILE, x), x.dtype.type(0)
    for first in range(0, x.shape[1], TILE):
        width = min(TILE, x.shape[1] - first)
        for r in range(start, stop, SHORT):
            for c in range(width):
                short[c] = zero
            for s in range(r, min(stop, r + SHORT)):
                for c in range(width):
                    d = x[s, first + c] - mean[first + c]
                    short[c] += d * d
            for c in range(width):
                total[first + c] += short[c]


@jit
def product_rows(g, x, mean, start, stop, sums, products):
    """The sums of g and of g * (x - mean) over rows start..stop, into arrays of float64."""
    sums[:] = 0.0
    products[:] = 0.0
    short, other, zero = stack_array(TILE, x), stack_array(TILE, x), x.dtype.type(0)
    for first in range(0, x.shape[1], TILE):
        width = min(TILE, x.shape[1] - first)
        for r in range(start, stop, SHORT):
            for c in range(width):
                short[c] = zero
                other[c] = zero
            for s in range(r, min(stop, r + SHORT)):
                for c in range(width):
                    short[c] += g[s, first + c]
                    other[c] += g[s, first + c] * (x[s, first + c] - mean[first + c])
            for c in range(width):
                sums[first + c] += short[c]
                products[first + c] += other[c]


@parallel
def sum_pieces(x, partial):
    count = partial.shape[0]
    for piece in prange(count):
        sum_rows(x, piece * x.shape[0] // count, (piece + 1) * x.shape[0] // count, partial[piece])


@parallel
def square_pieces(x, mean, partial):
    count = partial.shape[0]
    for piece in prange(count):
        start, stop = piece * x.shape[0] // count, (piece + 1) * x.shape[0] // count
        square_rows(x, mean, start, stop, partial[piece])


@parallel
def product_pieces(g, x, mean, sums, products):
    count = sums.shape[0]
    for piece in prange(count):
        start, stop = piece * x.shape[0] // count, (piece + 1) * x.shape[0] // count
        product_rows(g, x, mean, start, stop, sums[piece], products[piece])


@jit
def fold(partial, divisor, out):
    """The sum of all pieces, and of the groups of out.size columns in them, over the divisor."""
    add_pairwise(partial)
    for c in range(out.size):
        total = 0.0
        for k in range(c, partial.shape[1], out.size):
            total += partial[0, k]
        out[c] = total / divisor


def channel_sum(x, out, partial):
    """x may be folded: several rows beside each other as one, each out.size wide."""
    sum_pieces(x, partial)
    fold(partial, 1.0, out)


def batch_statistics(x, mean, variance, partial):
    sum_pieces(x, partial)
    fold(partial, float(x.shape[0]), mean)
    square_pieces(x, mean, partial)
    fold(partial, float(x.shape[0]), variance)


@jit
def fill_scale(variance, weight, has_weight, eps, first, width, scale):
    """weight / deviation of a tile of channels."""
    one, eps = scale.dtype.type(1), scale.dtype.type(eps)
    for c in range(width):
        scale[c] = one / np.sqrt(variance[first + c] + eps)
    if has_weight:
        for c in range(width):
            scale[c] *= weight[first + c]


@jit
def normalize_rows(x, mean, variance, weight, has_weight, bias, has_bias, eps, out, start, stop):
    scale, shift, zero = stack_array(TILE, x), stack_array(TILE, x), x.dtype.type(0)
    for first in range(0, x.shape[1], TILE):
        width = min(TILE, x.shape[1] - first)
        fill_scale(variance, weight, has_weight, eps, first, width, scale)
        for c in range(width):
            shift[c] = bias[first + c] if has_bias else zero
        for r in range(start, stop):
            for c in range(width):
                out[r, first + c] = (x[r, first + c] - mean[first + c]) * scale[c] + shift[c]


@parallel
def batch_normalize(x, mean, variance, weight, has_weight, bias, has_bias, eps, out):
    count = pieces(x.shape[0])
    for piece in prange(count):
        start, stop = piece * x.shape[0] // count, (piece + 1) * x.shape[0] // count
        normalize_rows(x, mean, variance, weight, has_weight, bias, has_bias, eps, out, start, stop)


@jit
def grad_rows(g, x, mean, variance, weight, has_weight, eps, dx, dw, db, start, stop):
    """dx = scale * (g - db / rows - normal * dw / rows), where normal = (x - mean) / deviation."""
    scale, slope, shift = stack_array(TILE, x), stack_array(TILE, x), stack_array(TILE, x)
    rows = x.dtype.type(x.shape[0])
    for first in range(0, x.shape[1], TILE):
        width = min(TILE, x.shape[1] - first)
        fill_scale(variance, weight, False, eps, first, width, slope)
        fill_scale(variance, weight, has_weight, eps, first, width, scale)
        for c in range(width):
            slope[c] = slope[c] * dw[first + c] / rows
            shift[c] = db[first + c] / rows
        for r in range(start, stop):
            for c in range(width):
                centred = x[r, first + c] - mean[first + c]
                dx[r, first + c] = ((g[r, first + c] - shift[c]) - centred * slope[c]) * scale[c]


@parallel
def grad_pieces(g, x, mean, variance, weight, has_weight, eps, dx, dw, db):
    count = pieces(x.shape[0])
    for piece in prange(count):
        start, stop = piece * x.shape[0] // count, (piece + 1) * x.shape[0] // count
        grad_rows(g, x, mean, variance, weight, has_weight, eps, dx, dw, db, start, stop)


@jit
def over_deviation(dw, variance, eps):
    for c in range(dw.size):
        dw[c] = dw[c] / np.sqrt(variance[c] + dw.dtype.type(eps))


def batch_norm_grads(g, x, mean, variance, weight, has_weight, eps, dx, dw, db, sums, products):
    product_pieces(g, x, mean, sums, products)
    fold(sums, 1.0, db)
    fold(products, 1.0, dw)
    over_deviation(dw, variance, eps)
    grad_pieces(g, x, mean, variance, weight, has_weight, eps, dx, dw, db)
