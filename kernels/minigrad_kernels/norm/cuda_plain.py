"""The plain rung of batch normalisation: one thread an element, or the sums of one column of a part.

Statistics are taken about a shift, an element of each column, so that float32 keeps its digits where a mean is far
larger than the deviation from it; and the parts are joined as samples with means of their own, never by subtracting
squares of large numbers.
"""

from ..bias.cuda_plain import SHORT
from ..toolchain.cuda import cuda, device, each_float
from .cuda_parts import finite, inverse_deviation

__all__ = ["grads_plain", "normalize_plain", "products_plain", "statistics_plain"]


@device
def own_column(x, share):
    """(part, column, first row and end of the rows) that this thread owns: a column of a part of `share` rows."""
    number = cuda.grid(1)
    part, column = number // x.shape[1], number % x.shape[1]
    return part, column, part * share, min((part + 1) * share, x.shape[0])


@each_float("_[:,:] x, _[:,:] sums, _[:,:] squares, i32 share", threads=256)
def statistics_plain(x, sums, squares, share):
    """The sum of what x is above the shift, and the squares about its mean: x is read twice."""
    part, column, start, stop = own_column(x, share)
    if part < sums.shape[0]:
        shift, total, squared = finite(x[0, column]), x.dtype.type(0), x.dtype.type(0)
        for first in range(start, stop, SHORT):
            short = x.dtype.type(0)
            for r in range(first, min(first + SHORT, stop)):
                short += x[r, column] - shift
            total += short
        mean = total / x.dtype.type(stop - start)
        for first in range(start, stop, SHORT):
            short = x.dtype.type(0)
            for r in range(first, min(first + SHORT, stop)):
                d = (x[r, column] - shift) - mean
                short += d * d
            squared += short
        sums[part, column] = total
        squares[part, column] = squared


@each_float(
    "_[:,:] x, _[:] mean, _[:] variance, _[:] weight, _[:] bias, _[:,:] residual, _[:,:] out, _ eps, i32 relu",
    threads=256,
)
def normalize_plain(x, mean, variance, weight, bias, residual, out, eps, relu):
    """x and the residual are read and out is written once; up to four numbers of the channel are read for each
    element."""
    number = cuda.grid(1)
    r, c = number // x.shape[1], number % x.shape[1]
    if r < x.shape[0]:
        v = (x[r, c] - mean[c]) * inverse_deviation(variance[c], eps)
        if weight.size:
            v *= weight[c]
        if bias.size:
            v += bias[c]
        if residual.size:
            v += residual[r, c]
        out[r, c] = type(v)(0) if relu and v <= 0 else v  # written so that NaN passes


@each_float(
    "_[:,:] g, _[:,:] x, _[:,:] out, _[:] mean, _[:,:] sums, _[:,:] products, _[:,:] masked, i32 share", threads=256
)
def products_plain(g, x, out, mean, sums, products, masked, share):
    """The sums of g and of g * (x - mean), g first masked by out if there was a ReLU: each is read once, and the
    masked g is written if it is wanted."""
    part, column, start, stop = own_column(x, share)
    if part < sums.shape[0]:
        total, product = x.dtype.type(0), x.dtype.type(0)
        for first in range(start, stop, SHORT):
            short, other = x.dtype.type(0), x.dtype.type(0)
            for r in range(first, min(first + SHORT, stop)):
                v = g[r, column]
                if out.size:
                    v = x.dtype.type(0) if out[r, column] <= 0 else v
                if masked.size:
                    masked[r, column] = v
                short += v
                other += v * (x[r, column] - mean[column])
            total += short
            product += other
        sums[part, column] = total
        products[part, column] = product


@each_float(
    "_[:,:] g, _[:,:] x, _[:,:] out, _[:] mean, _[:] variance, _[:] weight, _[:] dw, _[:] db, _[:,:] dx, _ eps",
    threads=256,
)
def grads_plain(g, x, out, mean, variance, weight, dw, db, dx, eps):
    """g, x and, if there was a ReLU, out are read and dx written once; up to five numbers of the channel are read
    for each element."""
    number = cuda.grid(1)
    r, c = number // x.shape[1], number % x.shape[1]
    if r < x.shape[0]:
        scale, v, rows = inverse_deviation(variance[c], eps), g[r, c], x.dtype.type(x.shape[0])
        if out.size:
            v = x.dtype.type(0) if out[r, c] <= 0 else v
        d = (v - db[c] / rows) - (x[r, c] - mean[c]) * (scale * dw[c] / rows)
        dx[r, c] = d * (scale * weight[c]) if weight.size else d * scale
