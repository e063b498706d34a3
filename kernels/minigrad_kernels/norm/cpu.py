"""Channel sums and batch normalisation on the CPU, on matrices of (rows, channels).

Matrices may be folded: a few rows beside each other as one, so that the innermost loops are long. A vector of
channels then repeats itself along the columns.

Sums are split by shape: the rows are cut into pieces (see plan.py). A thread adds SHORT rows at a time in the
element type, and what they give in float64, which costs little and keeps the error of a sum near one rounding. The
pieces are then added pairwise.
"""

import numpy as np
from numba import prange

from ..toolchain import jit, parallel, stack_array
from . import plan
from .cpu_rows import standardize, standardize_grad

__all__ = [
    "batch_norm_grads",
    "batch_normalize",
    "batch_statistics",
    "channel_sum",
    "standardize",
    "standardize_grad",
]

SHORT = 16  # rows added in the element type
TILE = 256  # channels whose coefficients fit on the stack


pieces = jit(plan.pieces)


def _folded(x):
    """x with as many rows beside each other as plan.folding says."""
    rows, channels = x.shape
    fold = plan.folding(rows, channels)
    return x.reshape(rows // fold, fold * channels)


def _partials(op, workspace, x):
    """The workspace as arrays of float64, (pieces, columns) of a folded matrix."""
    shape = plan.SUMS[op], plan.pieces(x.shape[0]), x.shape[1]
    start = -workspace.ctypes.data % 8
    return workspace[start : start + 8 * shape[0] * shape[1] * shape[2]].view(np.float64).reshape(shape)


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
def clear(total):
    for c in range(total.size):
        total[c] = 0


@jit
def repeat(vector, first, wide):
    """The elements of a vector of channels that belong to the columns from `first` on."""
    for c in range(wide.size):
        wide[c] = vector[(first + c) % vector.size]


@jit
def add(row, total):
    for c in range(total.size):
        total[c] += row[c]


@jit
def add_square(row, mean, total):
    for c in range(total.size):
        d = row[c] - mean[c]
        total[c] += d * d


@jit
def add_product(g, row, mean, total):
    for c in range(total.size):
        total[c] += g[c] * (row[c] - mean[c])


@jit
def sum_rows(x, start, stop, total):
    """The sum of rows start..stop of x, into `total`, of float64."""
    clear(total)
    for first in range(0, x.shape[1], TILE):
        tile = slice(first, min(x.shape[1], first + TILE))
        short = stack_array(TILE, x)[: tile.stop - first]
        for r in range(start, stop, SHORT):
            clear(short)
            for s in range(r, min(stop, r + SHORT)):
                add(x[s, tile], short)
            add(short, total[tile])


@jit
def square_rows(x, mean, start, stop, total):
    """The sum of (x - mean)**2 over rows start..stop, into `total`, of float64."""
    clear(total)
    for first in range(0, x.shape[1], TILE):
        tile = slice(first, min(x.shape[1], first + TILE))
        short, centre = stack_array(TILE, x)[: tile.stop - first], stack_array(TILE, x)[: tile.stop - first]
        repeat(mean, first, centre)
        for r in range(start, stop, SHORT):
            clear(short)
            for s in range(r, min(stop, r + SHORT)):
                add_square(x[s, tile], centre, short)
            add(short, total[tile])


@jit
def product_rows(g, x, mean, start, stop, sums, products):
    """The sums of g and of g * (x - mean) over rows start..stop, into arrays of float64."""
    clear(sums)
    clear(products)
    for first in range(0, x.shape[1], TILE):
        tile = slice(first, min(x.shape[1], first + TILE))
        short = stack_array(TILE, x)[: tile.stop - first]
        other, centre = stack_array(TILE, x)[: tile.stop - first], stack_array(TILE, x)[: tile.stop - first]
        repeat(mean, first, centre)
        for r in range(start, stop, SHORT):
            clear(short)
            clear(other)
            for s in range(r, min(stop, r + SHORT)):
                add(g[s, tile], short)
                add_product(g[s, tile], x[s, tile], centre, other)
            add(short, sums[tile])
            add(other, products[tile])


@parallel
def sum_pieces(x, partial):
    count = partial.shape[0]
    for index in prange(count):
        piece = np.int64(index)
        sum_rows(x, piece * x.shape[0] // count, (piece + 1) * x.shape[0] // count, partial[piece])


@parallel
def square_pieces(x, mean, partial):
    count = partial.shape[0]
    for index in prange(count):
        piece = np.int64(index)
        start, stop = piece * x.shape[0] // count, (piece + 1) * x.shape[0] // count
        square_rows(x, mean, start, stop, partial[piece])


@parallel
def product_pieces(g, x, mean, sums, products):
    count = sums.shape[0]
    for index in prange(count):
        piece = np.int64(index)
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


def channel_sum(x, out, workspace):
    x = _folded(x)
    (partial,) = _partials("channel_sum", workspace, x)
    sum_pieces(x, partial)
    fold(partial, 1.0, out)


@jit
def update_running(mean, variance, count, running_mean, running_var, momentum):
    """In float64, as all sums here."""
    for c in range(mean.size):
        running_mean[c] = (1 - momentum) * running_mean[c] + momentum * mean[c]
        running_var[c] = (1 - momentum) * running_var[c] + momentum * (variance[c] * (count / (count - 1)))


def batch_statistics(x, mean, variance, workspace, running_mean, running_var, has_running, momentum):
    x = _folded(x)
    (partial,) = _partials("batch_statistics", workspace, x)
    sum_pieces(x, partial)
    fold(partial, x.size / mean.size, mean)
    square_pieces(x, mean, partial)
    fold(partial, x.size / mean.size, variance)
    if has_running:
        update_running(mean, variance, x.size / mean.size, running_mean, running_var, momentum)


@jit
def fill_scale(variance, weight, has_weight, eps, first, scale):
    """weight / deviation for the columns from `first` on."""
    one, eps = scale.dtype.type(1), scale.dtype.type(eps)
    for c in range(scale.size):
        scale[c] = one / np.sqrt(variance[(first + c) % variance.size] + eps)
    if has_weight:
        for c in range(scale.size):
            scale[c] *= weight[(first + c) % weight.size]


@jit
def normalize_row(x, centre, scale, shift, out):
    for c in range(out.size):
        out[c] = (x[c] - centre[c]) * scale[c] + shift[c]


@jit
def normalize_rows(x, mean, variance, weight, has_weight, bias, has_bias, eps, out, start, stop):
    for first in range(0, x.shape[1], TILE):
        tile = slice(first, min(x.shape[1], first + TILE))
        width = tile.stop - first
        centre, scale, shift = stack_array(TILE, x)[:width], stack_array(TILE, x)[:width], stack_array(TILE, x)[:width]
        repeat(mean, first, centre)
        fill_scale(variance, weight, has_weight, eps, first, scale)
        clear(shift)
        if has_bias:
            repeat(bias, first, shift)
        for r in range(start, stop):
            normalize_row(x[r, tile], centre, scale, shift, out[r, tile])


@parallel
def normalize_pieces(x, mean, variance, weight, has_weight, bias, has_bias, eps, out):
    count = pieces(x.shape[0])
    for index in prange(count):
        piece = np.int64(index)
        start, stop = piece * x.shape[0] // count, (piece + 1) * x.shape[0] // count
        normalize_rows(x, mean, variance, weight, has_weight, bias, has_bias, eps, out, start, stop)


def batch_normalize(x, mean, variance, weight, has_weight, bias, has_bias, eps, out):
    normalize_pieces(_folded(x), mean, variance, weight, has_weight, bias, has_bias, eps, _folded(out))


@jit
def grad_row(g, x, centre, scale, slope, shift, dx):
    for c in range(dx.size):
        dx[c] = ((g[c] - shift[c]) - (x[c] - centre[c]) * slope[c]) * scale[c]


@jit
def grad_rows(g, x, mean, variance, weight, has_weight, eps, dx, dw, db, start, stop):
    """dx = scale * (g - db / count - normal * dw / count), where normal = (x - mean) / deviation."""
    count = x.dtype.type(x.size // mean.size)
    for first in range(0, x.shape[1], TILE):
        tile = slice(first, min(x.shape[1], first + TILE))
        width = tile.stop - first
        centre, scale = stack_array(TILE, x)[:width], stack_array(TILE, x)[:width]
        slope, shift = stack_array(TILE, x)[:width], stack_array(TILE, x)[:width]
        repeat(mean, first, centre)
        repeat(db, first, shift)
        fill_scale(variance, dw, True, eps, first, slope)
        fill_scale(variance, weight, has_weight, eps, first, scale)
        for c in range(width):
            slope[c] /= count
            shift[c] /= count
        for r in range(start, stop):
            grad_row(g[r, tile], x[r, tile], centre, scale, slope, shift, dx[r, tile])


@parallel
def grad_pieces(g, x, mean, variance, weight, has_weight, eps, dx, dw, db):
    count = pieces(x.shape[0])
    for index in prange(count):
        piece = np.int64(index)
        start, stop = piece * x.shape[0] // count, (piece + 1) * x.shape[0] // count
        grad_rows(g, x, mean, variance, weight, has_weight, eps, dx, dw, db, start, stop)


@jit
def over_deviation(dw, variance, eps):
    for c in range(dw.size):
        dw[c] = dw[c] / np.sqrt(variance[c] + dw.dtype.type(eps))


def batch_norm_grads(g, x, mean, variance, weight, has_weight, eps, dx, dw, db, workspace):
    g, x, dx = _folded(g), _folded(x), _folded(dx)
    sums, products = _partials("batch_norm_grads", workspace, x)
    product_pieces(g, x, mean, sums, products)
    fold(sums, 1.0, db)
    fold(products, 1.0, dw)
    over_deviation(dw, variance, eps)
    grad_pieces(g, x, mean, variance, weight, has_weight, eps, dx, dw, db)
