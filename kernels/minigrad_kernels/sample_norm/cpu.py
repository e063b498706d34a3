"""Normalisation of samples on the CPU: groups of channels of images here, rows in norm/cpu_rows.py.

Images lie channels last, each a matrix with a column for each channel; norm/cpu.py sums their columns, and makes the
results. What the channels of a group have in common, NumPy works out in between.
"""

import numpy as np

from ..norm.cpu import PRODUCTS, column_statistics, column_sums, finish
from ..norm.cpu_rows import layer_norm, layer_norm_grads

__all__ = ["group_norm", "group_norm_grads", "layer_norm", "layer_norm_grads"]


def _averaged(columns, groups):
    """The averages over the columns of each group, (samples, groups, 1), of numbers of (samples, columns)."""
    return columns.reshape(len(columns), groups, -1).mean(2, keepdims=True)


def _spread(numbers, columns):
    """Numbers of (samples, groups) for each column, (samples, columns)."""
    return np.repeat(numbers, columns // numbers.shape[1], axis=1)


@np.errstate(all="ignore")  # infinities and NaN are the user's
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
