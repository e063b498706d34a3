"""Layer norm on the CPU: every thread owns rows, which are still in cache when they are read again.

Both sums of a row take one pass. They are in float64, and of the distances from the row's first element, so that the
result is right to the last digits even where a mean is far larger than the deviation from it. Gradients of weight and
bias are added SHORT rows at a time in the element type, and what these give in float64, part by part (see plan.py).
"""

import numpy as np

from ..bias.cpu import SHORT
from ..norm.cpu_lines import flush
from ..norm.cpu_parts import run
from ..toolchain import clear, elements, jit, share, shared, stack_array
from ..toolchain.lines import LANES, lane_total
from .cpu_lines import normalize_row, row_dx, row_moments, row_products
from .plan import cut

__all__ = ["layer_norm", "layer_norm_grads", "run_parts"]

LIKE = np.zeros(1)  # the type of sums
PIECE = 512  # elements of a row whose products are summed in the element type, lane by lane


def run_parts(kernel, parts, size, *arguments):
    """Run a kernel whose threads share so many parts; with one of them no other thread is woken."""
    run(kernel, size if parts > 1 else 0, *arguments)


@jit
def row_statistics(x, start, columns, like):
    """(mean, variance) of a row, in float64."""
    sums, squares = stack_array(LANES, like), stack_array(LANES, like)
    clear(sums)
    clear(squares)
    row_moments(start, columns, x, sums, squares, x[start], 1.0)
    d = lane_total(sums) / columns
    v = lane_total(squares) / columns - d * d
    return x[start] + d, 0.0 if v < 0 else v  # written so that NaN passes


@jit
def scales(mean, variance, eps, kind):
    """(centre, scale, shift) in the element type: z = (x - centre) * scale - shift."""
    centre, scale = kind(mean), 1.0 / np.sqrt(variance + eps)
    return centre, kind(scale), kind((mean - centre) * scale)


@shared
def normalize_rows(team, x, weight, bias, eps, low, like, out, mean, variance):
    columns = weight.size
    for n in share(mean.size, team):
        start = n * columns
        mean[n], variance[n] = row_statistics(x, start, columns, like)
        centre, scale, shift = scales(mean[n], variance[n], eps, x.dtype.type)
        normalize_row(start, columns, x, out, weight, bias, centre, scale, shift, low)


def layer_norm(x, weight, bias, eps, relu, out, mean, variance):
    low = x.dtype.type(0 if relu else -np.inf)
    flat = x.reshape(-1), weight, bias, eps, low, LIKE, out.reshape(-1)
    run_parts(normalize_rows, len(x), x.size, *flat, mean, variance)


@jit
def sum_row(g, x, out, start, weight, centre, scale, shift, low, like, dw, db):
    """(the mean of h = g weight, that of h z) for a row; g and g z are added to db and dw."""
    zero = x.dtype.type(0)
    one, two = stack_array(LANES, x), stack_array(LANES, x)
    sums, products = stack_array(LANES, like), stack_array(LANES, like)
    clear(one)
    clear(two)
    clear(sums)
    clear(products)
    for first in range(0, weight.size, PIECE):
        stop = min(weight.size, first + PIECE)
        columns = weight[first:stop], dw[first:stop], db[first:stop]
        numbers = centre, scale, shift, low, zero
        row_products(start + first, stop - first, g, x, out, *columns, one, two, *numbers)
        flush(0, LANES, one, two, sums, products, zero)
    return lane_total(sums) / weight.size, lane_total(products) / weight.size


@jit
def row_grads(g, x, out, start, mean, variance, weight, eps, low, like, dx, dw, db):
    """dx of a row, and its gradients of weight and bias added to dw and db."""
    kind = x.dtype.type
    centre, scale, shift = scales(mean, variance, eps, kind)
    level, slope = sum_row(g, x, out, start, weight, centre, scale, shift, low, like, dw, db)
    numbers = centre, scale, shift, kind(level), kind(slope), low, kind(0)
    row_dx(start, weight.size, g, x, out, dx, weight, *numbers)


@shared
def grad_rows(team, g, x, out, mean, variance, weight, eps, low, like, rows, dx, short, totals):
    """short and totals: for each part the gradients of weight and bias, of a few rows and of all."""
    columns = weight.size
    for p in share(totals.shape[1], team):
        dw, db, dw_total, db_total = short[0, p], short[1, p], totals[0, p], totals[1, p]
        for vector in (dw, db):
            clear(vector)
        for vector in (dw_total, db_total):
            clear(vector)
        stop = min(mean.size, (p + 1) * rows)
        for block in range(p * rows, stop, SHORT):
            for n in range(block, min(stop, block + SHORT)):
                row_grads(g, x, out, n * columns, mean[n], variance[n], weight, eps, low, like, dx, dw, db)
            flush(0, columns, dw, db, dw_total, db_total, x.dtype.type(0))


@np.errstate(all="ignore")  # infinities and NaN are the user's
def layer_norm_grads(g, x, mean, variance, weight, eps, out, dx, dw, db, workspace):
    if not x.size:
        dw.fill(0)
        db.fill(0)
        return
    rows, parts = cut(len(x), x.shape[1], x.shape[1])
    count = 2 * parts * weight.size
    totals = elements(workspace, LIKE.dtype, count).reshape(2, parts, -1)
    short = elements(workspace[8 * (count + 1) :], x.dtype, count).reshape(2, parts, -1)
    low = x.dtype.type(np.nan if out is None else 0)
    views = (array.reshape(-1) for array in (g, x, x if out is None else out))
    settings = mean, variance, weight, eps, low, LIKE, rows
    run_parts(grad_rows, parts, x.size, *views, *settings, dx.reshape(-1), short, totals)
    dw[:], db[:] = totals.sum(1)
