"""Normalisation of samples on the CPU: group norm here, layer norm in cpu_rows.py.

Images lie channels last, each a matrix with a column for each channel. Every thread owns images, which are still in
cache when they are read a second time. Narrow rows are taken as many at a time as fit into TILE elements, so that
innermost loops are long; a vector of columns then repeats itself. The columns of an image are summed as in norm/cpu.py:
SHORT lines in the element type, and what they give in float64. What a group has in common comes from the sums of its
columns, and gradients of weight and bias are added up part by part (see plan.py).
"""

import numpy as np

from ..bias.cpu import SHORT, TILE, line_of
from ..norm.cpu_lines import add_moments, flush, normalize_line
from ..norm.cpu_parts import gather, spread
from ..norm.cpu_statistics import finite
from ..toolchain import clear, elements, jit, share, shared, stack_array
from .cpu_lines import add_masked_products, images_dx, scale_columns, weigh_columns
from .cpu_rows import layer_norm, layer_norm_grads, run_parts
from .plan import SCRATCH, cut

__all__ = ["group_norm", "group_norm_grads", "layer_norm", "layer_norm_grads"]


# ---- statistics ------------------------------------------------------------------------------------------------------


@jit
def median(a, b, c):
    low, high = min(a, b), max(a, b)
    return finite(low if c < low else high if c > high else c)


@jit
def find_pivots(x, start, stop, width, pivots):
    """For all columns of a group the median of three of its elements: with what they are compared, as sums of squares
    about 0 would lose the digits of a mean that is far from it."""
    middle = start + (stop - start) // pivots.size // 2 * pivots.size
    for first in range(0, pivots.size, width):
        pivot = median(x[start + first], x[middle + first + width // 2], x[stop - pivots.size + first + width - 1])
        for c in range(first, first + width):
            pivots[c] = pivot


@jit
def sum_moments(x, start, stop, pivots, sums, squares):
    """The sums of x - pivot and of its square for the columns of an image."""
    line = line_of(sums.size)
    clear(sums)
    clear(squares)
    for first in range(0, line, TILE):
        width = min(TILE, line - first)
        centre, one, two = stack_array(TILE, x, width), stack_array(TILE, x, width), stack_array(TILE, x, width)
        total, other = stack_array(TILE, sums, width), stack_array(TILE, sums, width)
        spread(pivots, first, centre)
        clear(one)
        clear(two)
        clear(total)
        clear(other)
        for block in range(start + first, stop, SHORT * line):
            for at in range(block, min(stop, block + SHORT * line), line):
                add_moments(at, min(width, stop - at), x, centre, one, two)
            flush(0, width, one, two, total, other, x.dtype.type(0))
        gather(total, first, sums)
        gather(other, first, squares)


@jit
def find_statistics(pivots, sums, squares, count, mean, variance):
    """Those of each group, from its columns; count: the elements of a group."""
    width = sums.size // mean.size
    for k in range(mean.size):
        total = square = 0.0
        for c in range(k * width, k * width + width):
            total += sums[c]
            square += squares[c]
        d = total / count
        v = square / count - d * d
        mean[k] = pivots[k * width] + d
        variance[k] = 0.0 if v < 0 else v  # written so that NaN passes


# ---- normalisation ---------------------------------------------------------------------------------------------------


@jit
def find_scales(mean, variance, weight, bias, eps, kind, centre, scale, shift):
    """out = (x - centre) * scale + shift, where the centre is a mean in the element type."""
    width = weight.size // mean.size
    for k in range(mean.size):
        middle, steep = kind(mean[k]), 1.0 / np.sqrt(variance[k] + eps)
        off = mean[k] - middle
        for c in range(k * width, k * width + width):
            centre[c] = middle
            scale[c] = steep
            shift[c] = off
    scale_columns(0, weight.size, scale, shift, weight, bias)


@jit
def normalize_image(x, start, stop, centres, scales, shifts, low, out):
    line = line_of(centres.size)
    for first in range(0, line, TILE):
        width = min(TILE, line - first)
        centre, scale, shift = stack_array(TILE, x, width), stack_array(TILE, x, width), stack_array(TILE, x, width)
        spread(centres, first, centre)
        spread(scales, first, scale)
        spread(shifts, first, shift)
        for at in range(start + first, stop, line):
            normalize_line(at, min(width, stop - at), x, out, centre, scale, shift, low)


@shared
def normalize_images(team, x, weight, bias, eps, low, images, out, mean, variance, space):
    size = x.size // len(mean)
    for p in share(len(space), team):
        one, two, three = space[p, 0], space[p, 1], space[p, 2]
        for n in range(p * images, min(len(mean), (p + 1) * images)):
            start, stop = n * size, (n + 1) * size
            find_pivots(x, start, stop, weight.size // mean.shape[1], one)
            sum_moments(x, start, stop, one, two, three)
            find_statistics(one, two, three, size // mean.shape[1], mean[n], variance[n])
            find_scales(mean[n], variance[n], weight, bias, eps, x.dtype.type, one, two, three)
            normalize_image(x, start, stop, one, two, three, low, out)


def _parts(x, columns, workspace):
    """Images in a part, and the vectors of each part."""
    images, parts = cut(len(x), x[0].size, columns)
    space = elements(workspace, np.dtype(np.float64), parts * SCRATCH * columns)
    return images, space.reshape(parts, SCRATCH, columns)


def group_norm(x, weight, bias, eps, relu, out, mean, variance, workspace):
    if not x.size:
        return
    images, space = _parts(x, weight.size, workspace)
    low = x.dtype.type(0 if relu else -np.inf)
    settings = weight, bias, eps, low, images
    run_parts(normalize_images, len(space), x.size, x.reshape(-1), *settings, out.reshape(-1), mean, variance, space)


# ---- gradients -------------------------------------------------------------------------------------------------------


@jit
def find_centres(mean, kind, centre):
    width = centre.size // mean.size
    for k in range(mean.size):
        for c in range(k * width, k * width + width):
            centre[c] = kind(mean[k])


@jit
def sum_products(g, x, out, low, start, stop, centres, sums, products):
    """The sums of g, where ReLU let it pass, and of g * (x - centre) for the columns of an image."""
    line, zero = line_of(sums.size), x.dtype.type(0)
    clear(sums)
    clear(products)
    for first in range(0, line, TILE):
        width = min(TILE, line - first)
        centre, one, two = stack_array(TILE, x, width), stack_array(TILE, x, width), stack_array(TILE, x, width)
        total, other = stack_array(TILE, sums, width), stack_array(TILE, sums, width)
        spread(centres, first, centre)
        clear(one)
        clear(two)
        clear(total)
        clear(other)
        for block in range(start + first, stop, SHORT * line):
            for at in range(block, min(stop, block + SHORT * line), line):
                add_masked_products(at, min(width, stop - at), g, x, out, centre, one, two, low, zero)
            flush(0, width, one, two, total, other, zero)
        gather(total, first, sums)
        gather(other, first, products)


@jit
def find_slopes(mean, variance, weight, eps, count, centre, sums, products, gain, slope, shift, dw, db):
    """dx = g * gain - shift - (x - centre) * slope; sums and products go into db and dw, and are used up."""
    width = weight.size // mean.size
    for k in range(mean.size):
        steep, off = 1.0 / np.sqrt(variance[k] + eps), mean[k] - centre[k * width]
        for c in range(k * width, k * width + width):
            slope[c] = steep
            shift[c] = off
    weigh_columns(0, weight.size, sums, products, slope, shift, weight, gain, dw, db)
    for k in range(mean.size):
        first, stop = k * width, k * width + width
        level = tilt = 0.0
        for c in range(first, stop):
            level += sums[c]
            tilt += products[c]
        level, tilt = slope[first] * level / count, slope[first] * slope[first] * tilt / count
        level -= shift[first] * tilt
        for c in range(first, stop):
            slope[c] = tilt
            shift[c] = level


@jit
def image_dx(g, x, out, low, start, stop, centres, gains, slopes, shifts, dx):
    line, zero = line_of(centres.size), x.dtype.type(0)
    for first in range(0, line, TILE):
        width = min(TILE, line - first)
        centre, gain = stack_array(TILE, x, width), stack_array(TILE, x, width)
        slope, shift = stack_array(TILE, x, width), stack_array(TILE, x, width)
        spread(centres, first, centre)
        spread(gains, first, gain)
        spread(slopes, first, slope)
        spread(shifts, first, shift)
        for at in range(start + first, stop, line):
            images_dx(at, min(width, stop - at), g, x, out, dx, centre, gain, slope, shift, low, zero)


@shared
def grad_images(team, g, x, out, mean, variance, weight, eps, low, images, dx, space):
    size = x.size // len(mean)
    for p in share(len(space), team):
        centre, sums, products, gain, slope, shift = (
            space[p, 2], space[p, 3], space[p, 4], space[p, 5], space[p, 6], space[p, 7]
        )  # fmt: skip
        dw, db = space[p, 0], space[p, 1]
        clear(dw)
        clear(db)
        for n in range(p * images, min(len(mean), (p + 1) * images)):
            start, stop, count = n * size, (n + 1) * size, size // mean.shape[1]
            find_centres(mean[n], x.dtype.type, centre)
            sum_products(g, x, out, low, start, stop, centre, sums, products)
            sides = gain, slope, shift, dw, db
            find_slopes(mean[n], variance[n], weight, eps, count, centre, sums, products, *sides)
            image_dx(g, x, out, low, start, stop, centre, gain, slope, shift, dx)


@np.errstate(all="ignore")  # infinities and NaN are the user's
def group_norm_grads(g, x, mean, variance, weight, eps, out, dx, dw, db, workspace):
    if not x.size:
        dw.fill(0)
        db.fill(0)
        return
    images, space = _parts(x, weight.size, workspace)
    low = x.dtype.type(np.nan if out is None else 0)
    views = (array.reshape(-1) for array in (g, x, x if out is None else out))
    settings = mean, variance, weight, eps, low, images
    run_parts(grad_images, len(space), x.size, *views, *settings, dx.reshape(-1), space)
    dw[:], db[:] = space[:, :2].sum(0)
