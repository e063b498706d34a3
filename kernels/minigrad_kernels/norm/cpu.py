"""Columns normalised on the CPU: the channels of a batch, and groups of channels of each image.

A matrix of (rows, columns) holds the rows of all samples, which have vectors of columns of their own; a batch is one
sample, each of its columns a group. Two kernels do all: `sum_columns` (bias/cpu.py) adds up what the elements of a
column give, `finish` makes each element from the numbers of its column. In between, `join_moments`, `normal_table` and
`join_products` make these numbers. Moments are about pivots, so that they lose no digits to a mean that is far from 0.

Source  Chan, Golub and LeVeque 1983, "Algorithms for computing the sample variance", section 3 (shifted data)
"""

import numpy as np

from ..bias.cpu import MASKED, MOMENTS, PRODUCTS, TILE, line_of, spread, sums_of_columns
from ..toolchain import add, copy, jit, share, shared, stack_array
from ..toolchain.lines import line
from .cpu_rows import layer_norm, layer_norm_grads  # noqa: F401 (launchers look here)

RUN = 1 << 15  # elements that a thread takes at once where nothing is summed


# ---- formulas --------------------------------------------------------------------------------------------------------


@line(moving="x out", fixed="centre scale shift", numbers="low")
def finish_line(here):
    v = (here.x - here.centre) * here.scale + here.shift
    here.out = here.low.where(v <= here.low, v)  # written so that NaN passes


@line(moving="x more out", fixed="centre scale shift gain", numbers="low")
def finish_more(here):
    v = (here.x - here.centre) * here.scale + here.shift + here.more * here.gain
    here.out = here.low.where(v <= here.low, v)


# ---- numbers of columns: a sample has groups of `width` neighbouring columns -----------------------------------------


@jit
def add_parts(sums):
    """Add the sums of all parts of a sample to those of its first one."""
    for n in range(len(sums)):
        for part in range(1, sums.shape[1]):
            add(sums[n, part], sums[n, 0])


@jit
def find_pivots(x, pivots):
    """For each column of each sample the median of its first, its middle and its last element, 0 for an infinity: one
    element that is far from all others does no harm."""
    samples, columns = pivots.shape
    size = x.size // samples
    for n in range(samples):
        for c in range(columns):
            start = n * size + c
            first, last, middle = x[start], x[start + size - columns], x[start + size // columns // 2 * columns]
            low, high = min(first, last), max(first, last)
            v = low if middle < low else high if middle > high else middle
            pivots[n, c] = v if abs(v) < np.inf else 0


@jit
def join_moments(sums, squares, pivots, rows, mean, variance):
    """The mean and the biased variance of each group, (samples, groups), from the moments about the pivots."""
    (samples, groups), columns = mean.shape, sums.shape[2]
    width = columns // groups
    add_parts(sums)
    add_parts(squares)
    for n in range(samples):
        means, spreads = sums[n, 0], squares[n, 0]
        for c in range(columns):
            d = means[c] / rows
            v = spreads[c] / rows - d * d
            means[c], spreads[c] = pivots[n, c] + d, 0.0 if v < 0 else v  # so that NaN passes
        for k in range(groups):
            middle, spread = 0.0, 0.0
            for c in range(k * width, k * width + width):
                middle += means[c] / width
            for c in range(k * width, k * width + width):
                spread += (spreads[c] + (means[c] - middle) * (means[c] - middle)) / width
            mean[n, k], variance[n, k] = middle, spread


@jit
def follow(kept, new, factor, momentum):
    for c in range(kept.size):
        kept[c] = (1 - momentum) * kept[c] + momentum * (factor * new[c])


@jit
def put(table, n, c, centre, scale, shift, gain):
    """The numbers of a column. What rounding takes from the centre, the shift makes up for."""
    table[0, n, c], table[1, n, c], table[3, n, c] = centre, scale, gain
    table[2, n, c] = shift - (centre - table[0, n, c]) * scale


@jit
def normal_table(mean, variance, eps, weight, bias, table):
    """What makes (x - mean) / sqrt(variance + eps) * weight + bias; a weight or bias of no elements is none."""
    columns, width = table.shape[2], table.shape[2] // mean.shape[1]
    for n in range(len(mean)):
        for c in range(columns):
            k = c // width
            scale = (weight[c] if weight.size else 1.0) / np.sqrt(variance[n, k] + eps)
            put(table, n, c, np.float64(mean[n, k]), scale, bias[c] if bias.size else 0.0, 1)


@jit
def join_products(sums, products, mean, variance, eps, weight, rows, dw, db, table):
    """From the sums of g and of g * (x - centre): dw, db, and what makes dx = (h - level - z slope) / deviation."""
    (samples, groups), columns = mean.shape, dw.size
    width = columns // groups
    add_parts(sums)
    add_parts(products)
    for n in range(samples):
        g, gz = sums[n, 0], products[n, 0]
        for k in range(groups):
            middle, scale, level, slope = np.float64(mean[n, k]), 1 / np.sqrt(variance[n, k] + eps), 0.0, 0.0
            for c in range(k * width, k * width + width):
                gz[c] = (gz[c] - (middle - table.dtype.type(middle)) * g[c]) * scale
                by = weight[c] if weight.size else 1.0
                level += by * g[c]
                slope += by * gz[c]
            each = -scale / (width * rows)
            for c in range(k * width, k * width + width):
                by = weight[c] if weight.size else 1.0
                put(table, n, c, middle, each * scale * slope, each * level, scale * by)
    for n in range(1, samples):
        add(sums[n, 0], sums[0, 0])
        add(products[n, 0], products[0, 0])
    copy(sums[0, 0], db)
    copy(products[0, 0], dw)


# ---- results ---------------------------------------------------------------------------------------------------------


@jit
def run_of(columns):
    """The elements of a run: whole rows, and so many that the numbers of the columns cost little."""
    return max(RUN // columns, 16) * columns


@shared
def finish_runs(team, x, more, has_more, table, low, out):
    samples, columns = table.shape[1:]
    size, length, line = x.size // samples, run_of(columns), line_of(columns)
    runs = (size + length - 1) // length
    for r in share(samples * runs, team):
        n = r // runs
        start = n * size + (r - n * runs) * length
        stop = min(start + length, (n + 1) * size)
        for first in range(0, line, TILE):
            width = min(TILE, line - first)
            centre, scale = stack_array(TILE, x, width), stack_array(TILE, x, width)
            shift, gain = stack_array(TILE, x, width), stack_array(TILE, x, width)
            spread(table[0, n], first, centre)
            spread(table[1, n], first, scale)
            spread(table[2, n], first, shift)
            spread(table[3, n], first, gain)
            for at in range(start + first, stop, line):
                if has_more:
                    finish_more(at, min(width, stop - at), x, more, out, centre, scale, shift, gain, low)
                else:
                    finish_line(at, min(width, stop - at), x, out, centre, scale, shift, low)


def finish(x, table, out, more=None, low=-np.inf):
    """out = (x - centre) * scale + shift [+ more * gain], or low where it is less.

    x, more, out: matrices, all rows; table: centre, scale, shift and gain, each (samples, columns)
    """
    arrays = x.reshape(-1), (x if more is None else more).reshape(-1), more is not None
    finish_runs.over(x.size, *arrays, table, x.dtype.type(low), out.reshape(-1))


# ---- the batch -------------------------------------------------------------------------------------------------------


def find_statistics(x, samples, workspace, mean, variance):
    pivots = np.empty((samples, x.shape[1]), x.dtype)
    find_pivots(x.reshape(-1), pivots)
    sums = sums_of_columns(MOMENTS, x, samples, workspace, pivots)
    join_moments(*sums, pivots, len(x) // samples, mean, variance)


def batch_statistics(x, mean, variance, workspace, running_mean, running_var, momentum):
    find_statistics(x, 1, workspace, mean[None], variance[None])
    if running_mean is not None:
        follow(running_mean, mean, 1.0, momentum)
        follow(running_var, variance, len(x) / (len(x) - 1), momentum)


def batch_normalize(x, mean, variance, weight, bias, eps, residual, relu, out):
    table = np.empty((4, 1, mean.size), x.dtype)
    weight, bias = (mean[:0] if vector is None else vector for vector in (weight, bias))
    normal_table(mean[None], variance[None], eps, weight, bias, table)
    finish(x, table, out, residual, 0 if relu else -np.inf)


def batch_norm_grads(g, x, mean, variance, weight, eps, out, dx, dw, db, dresidual, workspace):
    masked = dx if dresidual is None else dresidual
    sums = sums_of_columns(PRODUCTS if out is None else MASKED, x, 1, workspace, mean[None], g, out, masked)
    table, weight = np.empty((4, 1, mean.size), x.dtype), mean[:0] if weight is None else weight
    join_products(*sums, mean[None], variance[None], eps, weight, len(x), dw, db, table)
    finish(x, table, dx, g if out is None else masked)


# ---- groups of channels of each image --------------------------------------------------------------------------------


def group_norm(x, weight, bias, eps, out, mean, variance, workspace):
    matrix = x.reshape(-1, weight.size)
    find_statistics(matrix, len(x), workspace, mean, variance)
    table = np.empty((4, len(x), weight.size), x.dtype)
    normal_table(mean, variance, eps, weight, bias, table)
    finish(matrix, table, out)


def group_norm_grads(g, x, mean, variance, weight, eps, dx, dw, db, workspace):
    g, matrix, dx = (array.reshape(-1, weight.size) for array in (g, x, dx))
    centres = np.repeat(mean.astype(x.dtype), weight.size // mean.shape[1], axis=1)
    sums = sums_of_columns(PRODUCTS, matrix, len(x), workspace, centres, g)
    table = np.empty((4, *centres.shape), x.dtype)
    join_products(*sums, mean, variance, eps, weight, len(matrix) // len(x), dw, db, table)
    finish(matrix, table, dx, g)
