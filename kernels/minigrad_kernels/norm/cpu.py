"""Columns normalised on the CPU: the channels of a batch, and groups of channels of each image.

A matrix of (rows, columns) holds the rows of all samples, which have vectors of columns of their own; a batch is one
sample. Two kernels do all: `sum_columns` adds up what the elements of a column give, `finish` makes each element from
the numbers of its column, which NumPy works out in between.

Narrow rows are taken as many at a time as fit into TILE elements, so that innermost loops are long; a vector of
columns then repeats itself. Sums are split by shape (see bias/plan.py): a part adds SHORT such lines in the element
type and what they give in float64, which costs little and keeps the error of a sum near one rounding.

Source  Chan, Golub and LeVeque 1983, "Algorithms for computing the sample variance", section 3 (shifted data)
"""

import numpy as np

from ..bias.cpu import SHORT, SMALL, TILE, line_of
from ..bias.plan import cut
from ..toolchain import clear, elements, jit, share, shared, stack_array
from ..toolchain.lines import line
from .cpu_rows import layer_norm, layer_norm_grads, standardize, standardize_grad

__all__ = ["layer_norm", "layer_norm_grads", "standardize", "standardize_grad"]  # of cpu_rows.py

RUN = 1 << 15  # elements that a thread takes at once where nothing is summed
MOMENTS, PRODUCTS, MASKED = range(3)  # what is summed


# ---- formulas --------------------------------------------------------------------------------------------------------


@line(moving="x", fixed="centre sums others")
def add_moments(here):
    d = here.x - here.centre
    here.sums += d
    here.others += d * d


@line(moving="g x", fixed="centre sums others")
def add_products(here):
    here.sums += here.g
    here.others += here.g * (here.x - here.centre)


@line(moving="g x out masked", fixed="centre sums others", numbers="zero")
def add_masked_products(here):
    """add_products of g where out is positive, or NaN; that g is kept."""
    g = here.zero.where(here.out <= here.zero, here.g)
    here.masked = g
    here.sums += g
    here.others += g * (here.x - here.centre)


@line(moving="", fixed="sums others total other_total", numbers="zero")
def flush(here):
    """Sums of a few elements go into totals of float64."""
    here.total += here.sums
    here.other_total += here.others
    here.sums = here.zero
    here.others = here.zero


@line(moving="x out", fixed="centre scale shift", numbers="low")
def finish_line(here):
    v = (here.x - here.centre) * here.scale + here.shift
    here.out = here.low.where(v <= here.low, v)  # written so that NaN passes


@line(moving="x more out", fixed="centre scale shift gain", numbers="low")
def finish_more(here):
    v = (here.x - here.centre) * here.scale + here.shift + here.more * here.gain
    here.out = here.low.where(v <= here.low, v)


# ---- vectors of columns, along lines ---------------------------------------------------------------------------------


@jit
def repeat(filled, wide):
    """The first elements again and again, until wide is full."""
    while filled < wide.size:
        count = min(filled, wide.size - filled)
        for k in range(count):
            wide[filled + k] = wide[k]
        filled += count


@jit
def spread(vector, first, wide):
    """The elements of a vector that belong to the columns of a line from `first` on."""
    count = min(wide.size, vector.size)
    for c in range(count):
        wide[c] = vector[first + c]
    repeat(count, wide)


@jit
def gather(total, first, sums):
    """Add the columns of a line from `first` on to the sums of their channels."""
    for start in range(0, total.size, sums.size):
        for c in range(min(sums.size, total.size - start)):
            sums[first + c] += total[start + c]


@jit
def finite(value):
    """What elements are compared with: not an infinity, to which all are infinitely far."""
    return value if abs(value) < np.inf else np.float32(0)


@jit
def pivot(x, start, stop, columns, c):
    """The median of the first, the middle and the last element of a column of a part: a sum of the distances from it
    loses no digits to a mean that is far from 0, or to one element that is far from all others."""
    first, last = x[start + c], x[stop - columns + c]
    middle = x[start + (stop - start) // columns // 2 * columns + c]
    low, high = min(first, last), max(first, last)
    return finite(low if middle < low else high if middle > high else middle)


# ---- sums ------------------------------------------------------------------------------------------------------------


@jit
def sum_part(form, x, g, out, masked, start, stop, centres, sums, others):
    """Moments: the sums of x - pivot and of its square for the columns of a part. Products: those of g and of
    g * (x - centre); masked: of g where out lets it pass, which goes to `masked`."""
    line, columns, zero = line_of(sums.size), sums.size, x.dtype.type(0)
    clear(sums)
    clear(others)
    for first in range(0, line, TILE):
        width = min(TILE, line - first)
        centre, one, two = stack_array(TILE, x, width), stack_array(TILE, x, width), stack_array(TILE, x, width)
        total, other = stack_array(TILE, sums, width), stack_array(TILE, sums, width)
        if form == MOMENTS:
            for c in range(min(columns, width)):
                centre[c] = pivot(x, start, stop, columns, first + c)
            repeat(min(columns, width), centre)
        else:
            spread(centres, first, centre)
        clear(one)
        clear(two)
        clear(total)
        clear(other)
        for block in range(start + first, stop, SHORT * line):
            for at in range(block, min(stop, block + SHORT * line), line):
                if form == MOMENTS:
                    add_moments(at, min(width, stop - at), x, centre, one, two)
                elif form == PRODUCTS:
                    add_products(at, min(width, stop - at), g, x, centre, one, two)
                else:
                    add_masked_products(at, min(width, stop - at), g, x, out, masked, centre, one, two, zero)
            flush(0, width, one, two, total, other, zero)
        gather(total, first, sums)
        gather(other, first, others)


@jit
def move_moments(x, begin, start, stop, sums, squares):
    """Moments about the pivots of a part become those about the first row of its sample."""
    count = (stop - start) // sums.size
    for c in range(sums.size):
        d = np.float64(pivot(x, start, stop, sums.size, c)) - np.float64(finite(x[begin + c]))
        squares[c] += d * (2 * sums[c] + count * d)
        sums[c] += count * d


@shared
def sum_columns(team, form, x, g, out, masked, size, length, centres, sums, others):
    """sums and others: (samples, parts, columns); a sample has `size` elements, a part `length` or fewer."""
    parts = sums.shape[1]
    for p in share(sums.shape[0] * parts, team):
        n, part = p // parts, p % parts
        start = n * size + part * length
        stop = min(start + length, (n + 1) * size)
        sum_part(form, x, g, out, masked, start, stop, centres[n % len(centres)], sums[n, part], others[n, part])
        if form == MOMENTS:
            move_moments(x, n * size, start, stop, sums[n, part], others[n, part])


def run(kernel, size, *arguments):
    (kernel.alone if size < SMALL else kernel)(*arguments)


def column_sums(form, x, samples, workspace, centres, g=None, out=None, masked=None):
    """Both sums of each column of each sample, see sum_part, as (samples, columns) of float64.

    x, g, out, masked: matrices, all rows; centres: (samples, columns), unless moments are wanted
    """
    rows, columns = len(x) // samples, x.shape[1]
    plan = cut(rows, columns)
    space = elements(workspace, np.dtype(np.float64), 2 * samples * plan.parts * columns)
    sums, others = space.reshape(2, samples, plan.parts, columns)
    arrays = [x.reshape(-1) if array is None else array.reshape(-1) for array in (x, g, out, masked)]
    run(sum_columns, x.size, form, *arrays, rows * columns, plan.rows * columns, centres, sums, others)
    return sums.sum(1), others.sum(1)


def column_statistics(x, samples, workspace):
    """Mean and biased variance of each column of each sample, as (samples, columns) of float64."""
    sums, squares = column_sums(MOMENTS, x, samples, workspace, x[:1])
    count, first = len(x) // samples, x[:: len(x) // samples]
    d = sums / count
    variance = squares / count - d * d
    return np.where(np.isfinite(first), first, 0) + d, np.where(variance < 0, 0, variance)  # so that NaN passes


# ---- results ---------------------------------------------------------------------------------------------------------


@jit
def run_of(columns):
    """The elements of a run: whole rows, and so many that the numbers of the columns cost little."""
    return max(RUN // columns, 16) * columns


@jit
def finish_run(x, more, has_more, start, stop, centres, scales, shifts, gains, low, out):
    line = line_of(centres.size)
    for first in range(0, line, TILE):
        width = min(TILE, line - first)
        centre, scale = stack_array(TILE, x, width), stack_array(TILE, x, width)
        shift, gain = stack_array(TILE, x, width), stack_array(TILE, x, width)
        spread(centres, first, centre)
        spread(scales, first, scale)
        spread(shifts, first, shift)
        spread(gains, first, gain)
        for at in range(start + first, stop, line):
            if has_more:
                finish_more(at, min(width, stop - at), x, more, out, centre, scale, shift, gain, low)
            else:
                finish_line(at, min(width, stop - at), x, out, centre, scale, shift, low)


@shared
def finish_runs(team, x, more, has_more, table, low, out):
    samples, columns = table.shape[1:]
    size, length = x.size // samples, run_of(columns)
    runs = (size + length - 1) // length
    for r in share(samples * runs, team):
        n = r // runs
        start = n * size + (r - n * runs) * length
        stop = min(start + length, (n + 1) * size)
        finish_run(x, more, has_more, start, stop, table[0, n], table[1, n], table[2, n], table[3, n], low, out)


def finish(x, centre, scale, shift, out, more=None, gain=1, low=-np.inf):
    """out = (x - centre) * scale + shift [+ more * gain], or low where it is less.

    x, more, out: matrices, all rows; scale: (samples, columns) of float64; centre, shift, gain broadcast to it. What
    rounding takes from the centre, the shift makes up for.
    """
    table = np.empty((4, *scale.shape), x.dtype)
    table[0], table[1], table[3] = centre, scale, gain
    table[2] = shift - (centre - table[0]) * scale
    arrays = x.reshape(-1), (x if more is None else more).reshape(-1), more is not None
    run(finish_runs, x.size, *arrays, table, x.dtype.type(low), out.reshape(-1))


# ---- the batch -------------------------------------------------------------------------------------------------------


@np.errstate(all="ignore")  # infinities and NaN are the user's
def batch_statistics(x, mean, variance, workspace, running_mean, running_var, momentum):
    if not x.size:
        mean.fill(np.nan)
        variance.fill(np.nan)
        return
    mean[:], variance[:] = (statistic[0] for statistic in column_statistics(x, 1, workspace))
    if running_mean is not None:
        for kept, new in (running_mean, mean), (running_var, variance * np.float64(len(x) / (len(x) - 1))):
            kept[:] = (1 - np.float64(momentum)) * kept + momentum * new


@np.errstate(all="ignore")
def batch_normalize(x, mean, variance, weight, bias, eps, residual, relu, out):
    scale = (1 if weight is None else weight) / np.sqrt(variance + np.float64(eps))
    finish(x, mean, scale[None], 0 if bias is None else bias, out, residual, low=0 if relu else -np.inf)


@np.errstate(all="ignore")
def batch_norm_grads(g, x, mean, variance, weight, eps, out, dx, dw, db, dresidual, workspace):
    if not x.size:
        dw.fill(0)
        db.fill(0)
        return
    masked = dx if dresidual is None else dresidual
    form = PRODUCTS if out is None else MASKED
    (sums,), (products,) = column_sums(form, x, 1, workspace, mean[None], g, out, masked)
    scale = 1 / np.sqrt(variance + np.float64(eps))
    products *= scale
    db[:], dw[:] = sums, products
    if dx is not None:
        gain = scale if weight is None else scale * weight
        each = gain / -len(x)
        finish(x, mean, (each * scale * products)[None], each * sums, dx, g if out is None else masked, gain)


# ---- groups of channels of each image: NumPy works out what they have in common --------------------------------------


def _averaged(columns, groups):
    """The averages over the columns of each group, (samples, groups, 1), of numbers of (samples, columns)."""
    return columns.reshape(len(columns), groups, -1).mean(2, keepdims=True)


def _spread(numbers, columns):
    """Numbers of (samples, groups) for each column, (samples, columns)."""
    return np.repeat(numbers, columns // numbers.shape[1], axis=1)


@np.errstate(all="ignore")
def group_norm(x, weight, bias, eps, out, mean, variance, workspace):
    if not x.size:
        return
    samples, columns = len(x), weight.size
    matrix, out = x.reshape(-1, columns), out.reshape(-1, columns)
    means, variances = column_statistics(matrix, samples, workspace)
    middle = _averaged(means, mean.shape[1])
    apart = means.reshape(*mean.shape, -1) - middle
    mean[:] = middle[:, :, 0]
    variance[:] = _averaged(variances + (apart * apart).reshape(samples, columns), mean.shape[1])[:, :, 0]
    scale = _spread(1 / np.sqrt(variance + eps), columns) * weight
    finish(matrix, _spread(mean, columns), scale, bias, out)


@np.errstate(all="ignore")
def group_norm_grads(g, x, mean, variance, weight, eps, dx, dw, db, workspace):
    if not x.size:
        dw.fill(0)
        db.fill(0)
        return
    samples, columns = len(x), weight.size
    g, matrix, dx = (array.reshape(-1, columns) for array in (g, x, dx))
    rows = len(matrix) // samples
    middle, scale = _spread(mean, columns), _spread(1 / np.sqrt(variance + eps), columns)
    centre = middle.astype(x.dtype)
    sums, products = column_sums(PRODUCTS, matrix, samples, workspace, centre, g)
    products = (products - (middle - centre) * sums) * scale  # of g z
    db[:], dw[:] = sums.sum(0), products.sum(0)
    level, slope = (_averaged(total * weight, mean.shape[1])[:, :, 0] / rows for total in (sums, products))
    slopes, shifts = -scale * scale * _spread(slope, columns), -scale * _spread(level, columns)
    finish(matrix, middle, slopes, shifts, dx, g, scale * weight)
