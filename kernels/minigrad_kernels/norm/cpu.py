"""Channel sums and batch normalisation on the CPU, on matrices of (rows, channels): threads own runs of whole rows.

Narrow rows are taken as many at a time as fit into TILE elements, so that innermost loops are long; a vector of
channels then repeats itself. Sums are split by shape (see bias/plan.py): a part adds SHORT such lines in the element
type and what they give in float64, which costs little and keeps the error of a sum near one rounding.
"""

import numpy as np
from numba import prange

from ..bias.cpu import SHORT, TILE, line_of
from ..bias.cpu import column_sums as channel_sum
from ..bias.plan import cut
from ..toolchain import jit, parallel, stack_array
from .cpu_lines import add_products, flush, grad_line, normalize_add_line, normalize_line, rectified_products
from .cpu_parts import add_parts, gather, partials, run, spread, spread_scale
from .cpu_rows import standardize, standardize_grad
from .cpu_statistics import batch_statistics

__all__ = [
    "batch_norm_grads",
    "batch_normalize",
    "batch_statistics",
    "channel_sum",
    "standardize",
    "standardize_grad",
]

RUN = 1 << 15  # elements that a thread takes at once where nothing is summed


# ---- normalisation -----------------------------------------------------------------------------------------------


@jit
def run_of(columns):
    """The elements of a run: whole rows, and so many that the coefficients cost little."""
    return max(RUN // columns, 16) * columns


@jit
def normalize_run(x, mean, variance, weight, has_weight, bias, has_bias, eps, residual, has_residual, low, out, start):
    columns = mean.size
    line, stop = line_of(columns), min(x.size, start + run_of(columns))
    for first in range(0, line, TILE):
        width = min(TILE, line - first)
        centre, scale, shift = stack_array(TILE, x)[:width], stack_array(TILE, x)[:width], stack_array(TILE, x)[:width]
        spread(mean, first, centre)
        spread_scale(variance, weight, has_weight, eps, first, scale)
        shift[:] = 0
        if has_bias:
            spread(bias, first, shift)
        for at in range(start + first, stop, line):
            if has_residual:
                normalize_add_line(at, min(width, stop - at), x, residual, out, centre, scale, shift, low)
            else:
                normalize_line(at, min(width, stop - at), x, out, centre, scale, shift, low)


@parallel
def normalize(x, mean, variance, weight, has_weight, bias, has_bias, eps, residual, has_residual, low, out):
    affine, size = (weight, has_weight, bias, has_bias), run_of(mean.size)
    for r in prange((x.size + size - 1) // size):
        normalize_run(x, mean, variance, *affine, eps, residual, has_residual, low, out, np.int64(r) * size)


def batch_normalize(x, mean, variance, weight, has_weight, bias, has_bias, eps, residual, relu, out):
    has_residual = residual is not None
    low = x.dtype.type(0 if relu else -np.inf)
    views = x.reshape(-1), (residual if has_residual else x).reshape(-1), out.reshape(-1)
    vectors = mean, variance, weight, has_weight, bias, has_bias
    run(normalize, x.size, views[0], *vectors, eps, views[1], has_residual, low, views[2])


# ---- gradients ---------------------------------------------------------------------------------------------------


@jit
def part_products(g, x, mean, out, rectified, masked, start, stop, sums, products):
    """The sums of g and of g * (x - mean) for the columns of a part, into float64; masked: see grads."""
    line, zero = line_of(sums.size), x.dtype.type(0)
    sums[:] = 0
    products[:] = 0
    for first in range(0, line, TILE):
        width = min(TILE, line - first)
        centre, one, two = stack_array(TILE, x)[:width], stack_array(TILE, x)[:width], stack_array(TILE, x)[:width]
        total, other = stack_array(TILE, sums)[:width], stack_array(TILE, sums)[:width]
        spread(mean, first, centre)
        one[:] = 0
        two[:] = 0
        total[:] = 0
        other[:] = 0
        for block in range(start + first, stop, SHORT * line):
            for at in range(block, min(stop, block + SHORT * line), line):
                if rectified:
                    rectified_products(at, min(width, stop - at), g, x, out, masked, centre, one, two, zero)
                else:
                    add_products(at, min(width, stop - at), g, x, centre, one, two)
            flush(0, width, one, two, total, other, zero)
        gather(total, first, sums)
        gather(other, first, products)


@jit
def finish_sums(sums, products, variance, eps, dw, db):
    add_parts(sums)
    add_parts(products)
    for c in range(dw.size):
        db[c] = sums[0, c]
        dw[c] = products[0, c] / np.sqrt(variance[c] + eps)


@jit
def grad_run(g, x, mean, variance, weight, has_weight, eps, dx, dw, db, start):
    """dx = scale * (g - db / count - normal * dw / count), where normal = (x - mean) / deviation."""
    columns = mean.size
    count, line, stop = x.dtype.type(x.size // columns), line_of(columns), min(x.size, start + run_of(columns))
    for first in range(0, line, TILE):
        width = min(TILE, line - first)
        centre, scale = stack_array(TILE, x)[:width], stack_array(TILE, x)[:width]
        slope, shift = stack_array(TILE, x)[:width], stack_array(TILE, x)[:width]
        spread(mean, first, centre)
        spread(db, first, shift)
        spread_scale(variance, dw, True, eps, first, slope)
        spread_scale(variance, weight, has_weight, eps, first, scale)
        for c in range(width):
            slope[c] /= count
            shift[c] /= count
        for at in range(start + first, stop, line):
            grad_line(at, min(width, stop - at), g, x, dx, centre, scale, slope, shift)


@parallel
def grads(g, x, mean, variance, weight, has_weight, eps, out, rectified, masked, dx, dw, db, size, sums, products):
    """Where rectified, g is first masked by out, and kept in `masked` for the second pass."""
    for p in prange(sums.shape[0]):
        start = np.int64(p) * size
        stop = min(x.size, start + size)
        part_products(g, x, mean, out, rectified, masked, start, stop, sums[p], products[p])
    finish_sums(sums, products, variance, eps, dw, db)
    source, length = masked if rectified else g, run_of(mean.size)
    for r in prange((x.size + length - 1) // length):
        grad_run(source, x, mean, variance, weight, has_weight, eps, dx, dw, db, np.int64(r) * length)


def batch_norm_grads(g, x, mean, variance, weight, has_weight, eps, out, dx, dw, db, dresidual, workspace):
    if not x.size:
        dw.fill(0)
        db.fill(0)
        return
    plan = cut(*x.shape)
    parts = partials(workspace, plan.parts, mean.size)
    rectified, masked = out is not None, dx if dresidual is None else dresidual
    g, x, out, masked, dx = (array.reshape(-1) for array in (g, x, out if rectified else x, masked, dx))
    vectors, size = (mean, variance, weight, has_weight, eps), plan.rows * mean.size
    run(grads, x.size, g, x, *vectors, out, rectified, masked, dx, dw, db, size, *parts)
