"""Channel sums and batch normalisation on the CPU, on matrices of (rows, channels): threads own runs of whole rows.

Narrow rows are taken as many at a time as fit into TILE elements, so that innermost loops are long; a vector of
channels then repeats itself. Sums are split by shape (see bias/plan.py): a part adds SHORT such lines in the element
type and what they give in float64, which costs little and keeps the error of a sum near one rounding.
"""

import numpy as np

from ..bias.cpu import SHORT, TILE, line_of
from ..bias.cpu import column_sums as channel_sum
from ..bias.plan import cut
from ..toolchain import clear, jit, share, shared, stack_array
from .cpu_lines import add_products, flush, grad_line, normalize_add_line, normalize_line, rectified_products
from .cpu_parts import gather, partials, run, spread, spread_scale
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
        centre, scale, shift = stack_array(TILE, x, width), stack_array(TILE, x, width), stack_array(TILE, x, width)
        spread(mean, first, centre)
        spread_scale(variance, weight, has_weight, eps, first, scale)
        clear(shift)
        if has_bias:
            spread(bias, first, shift)
        for at in range(start + first, stop, line):
            if has_residual:
                normalize_add_line(at, min(width, stop - at), x, residual, out, centre, scale, shift, low)
            else:
                normalize_line(at, min(width, stop - at), x, out, centre, scale, shift, low)


@shared
def normalize(team, x, mean, variance, weight, has_weight, bias, has_bias, eps, residual, has_residual, low, out):
    affine, size = (weight, has_weight, bias, has_bias), run_of(mean.size)
    for r in share((x.size + size - 1) // size, team):
        normalize_run(x, mean, variance, *affine, eps, residual, has_residual, low, out, r * size)


def batch_normalize(x, mean, variance, weight, has_weight, bias, has_bias, eps, residual, relu, out):
    has_residual = residual is not None
    low = x.dtype.type(0 if relu else -np.inf)
    views = x.reshape(-1), (residual if has_residual else x).reshape(-1), out.reshape(-1)
    vectors = mean, variance, weight, has_weight, bias, has_bias
    run(normalize, x.size, views[0], *vectors, eps, views[1], has_residual, low, views[2])


# ---- gradients ---------------------------------------------------------------------------------------------------


@jit
def part_products(g, x, mean, out, rectified, masked, start, stop, sums, products):
    """The sums of g and of g * (x - mean) for the columns of a part, into float64; masked: see grad_sums."""
    line, zero = line_of(sums.size), x.dtype.type(0)
    clear(sums)
    clear(products)
    for first in range(0, line, TILE):
        width = min(TILE, line - first)
        centre, one, two = stack_array(TILE, x, width), stack_array(TILE, x, width), stack_array(TILE, x, width)
        total, other = stack_array(TILE, sums, width), stack_array(TILE, sums, width)
        spread(mean, first, centre)
        clear(one)
        clear(two)
        clear(total)
        clear(other)
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
def grad_run(g, x, mean, variance, weight, has_weight, eps, dx, dw, db, start):
    """dx = scale * (g - db / count - normal * dw / count), where normal = (x - mean) / deviation."""
    columns = mean.size
    count, line, stop = x.dtype.type(x.size // columns), line_of(columns), min(x.size, start + run_of(columns))
    for first in range(0, line, TILE):
        width = min(TILE, line - first)
        centre, scale = stack_array(TILE, x, width), stack_array(TILE, x, width)
        slope, shift = stack_array(TILE, x, width), stack_array(TILE, x, width)
        spread(mean, first, centre)
        spread(db, first, shift)
        spread_scale(variance, dw, True, eps, first, slope)
        spread_scale(variance, weight, has_weight, eps, first, scale)
        for c in range(width):
            slope[c] /= count
            shift[c] /= count
        for at in range(start + first, stop, line):
            grad_line(at, min(width, stop - at), g, x, dx, centre, scale, slope, shift)


@shared
def grad_sums(team, g, x, mean, out, rectified, masked, size, sums, products):
    """Where rectified, g is first masked by out, and kept in `masked` for the second pass."""
    for p in share(sums.shape[0], team):
        start = p * size
        stop = min(x.size, start + size)
        part_products(g, x, mean, out, rectified, masked, start, stop, sums[p], products[p])


@shared
def grad_runs(team, g, x, mean, variance, weight, has_weight, eps, dx, dw, db):
    length = run_of(mean.size)
    for r in share((x.size + length - 1) // length, team):
        grad_run(g, x, mean, variance, weight, has_weight, eps, dx, dw, db, r * length)


@np.errstate(all="ignore")  # infinities and NaN are the user's
def batch_norm_grads(g, x, mean, variance, weight, has_weight, eps, out, dx, dw, db, dresidual, workspace):
    if not x.size:
        dw.fill(0)
        db.fill(0)
        return
    plan = cut(*x.shape)
    parts = partials(workspace, plan.parts, mean.size)
    rectified, wanted = out is not None, dx is not None
    masked = next(array for array in (dresidual, dx, g[:0]) if array is not None)
    g, x, out, masked = (array.reshape(-1) for array in (g, x, out if rectified else x, masked))
    run(grad_sums, x.size, g, x, mean, out, rectified, masked, plan.rows * mean.size, *parts)
    sums, products = parts.sum(1)
    db[:], dw[:] = sums, products / np.sqrt(variance + np.float64(eps))
    if wanted:
        source = masked if rectified else g
        run(grad_runs, x.size, source, x, mean, variance, weight, has_weight, eps, dx.reshape(-1), dw, db)
