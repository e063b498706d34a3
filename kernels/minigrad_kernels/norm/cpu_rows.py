"""Rows brought to mean 0 and variance 1 on the CPU: every thread owns rows.

Both sums of a row take one pass. They are in float64, and of the distances from the row's first element, so that the
result is right to the last digits even where a mean is far larger than the deviation from it.
"""

import numpy as np

from ..bias.cpu import SMALL
from ..toolchain import clear, jit, share, shared, stack_array
from ..toolchain.lines import LANES, lane_total
from .cpu_lines import add_row_moments, add_row_products, standardize_grad_line, standardize_line

__all__ = ["standardize", "standardize_grad"]

WIDE = 2 * LANES  # sums that run side by side


@jit
def total(sums):
    return lane_total(sums) + lane_total(sums[LANES:])


@jit
def standardize_row(x, start, stop, eps, like, out):
    sums, squares, origin = stack_array(WIDE, like), stack_array(WIDE, like), np.float64(x[start])
    clear(sums)
    clear(squares)
    for at in range(start, stop, WIDE):
        add_row_moments(at, min(WIDE, stop - at), x, sums, squares, origin)
    mean = total(sums) / (stop - start)
    variance = total(squares) / (stop - start) - mean * mean
    scale = 1.0 / np.sqrt((0.0 if variance < 0 else variance) + eps)  # written so that NaN passes
    kind = out.dtype.type
    standardize_line(start, stop - start, x, out, x[start], kind(mean), kind(scale))
    return scale


@shared
def standardize_rows(team, x, columns, eps, like, out, scale):
    for n in share(scale.size, team):
        start = n * columns
        scale[n] = standardize_row(x, start, start + columns, eps, like, out)


LIKE = np.zeros(1)  # the type of sums


def standardize(x, eps, out, scale):
    kernel = standardize_rows.alone if x.size < SMALL else standardize_rows
    kernel(x.reshape(-1), x.shape[1], eps, LIKE, out.reshape(-1), scale)


@jit
def standardize_grad_row(g, z, start, stop, scale, like, dx):
    sums, products = stack_array(WIDE, like), stack_array(WIDE, like)
    clear(sums)
    clear(products)
    for at in range(start, stop, WIDE):
        add_row_products(at, min(WIDE, stop - at), g, z, sums, products, 1.0)
    kind = dx.dtype.type
    mean, slope = kind(total(sums) / (stop - start)), kind(total(products) / (stop - start))
    standardize_grad_line(start, stop - start, g, z, dx, mean, slope, scale)


@shared
def standardize_grad_rows(team, g, z, columns, scale, like, dx):
    for n in share(scale.size, team):
        start = n * columns
        standardize_grad_row(g, z, start, start + columns, scale[n], like, dx)


def standardize_grad(g, out, scale, dx):
    kernel = standardize_grad_rows.alone if g.size < SMALL else standardize_grad_rows
    kernel(g.reshape(-1), out.reshape(-1), g.shape[1], scale, LIKE, dx.reshape(-1))
