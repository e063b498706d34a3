"""Rows brought to mean 0 and variance 1: a team of threads owns a row (softmax/cuda_teams.py).

Every row is taken about a shift, its first element, so that float32 keeps its digits where a mean is far larger than
the deviation from it; the sum of squares is about the mean. After the first pass rows are read from the cache.
"""

from ..softmax.cuda_teams import THREADS, of_both, own_row, shuffled, sum_of, treed
from ..toolchain.cuda import cuda, each_float
from .cuda_plain import finite, inverse_deviation


def rows_of(way, kinds, team_sum):
    """(standardize, its gradient) whose teams join in this way."""
    settings = dict(threads=THREADS, variant=way, kinds=kinds)

    @each_float("_[:,:] x, _[:,:] out, _[:] scale, _ eps", **settings)
    def standardize(x, out, scale, eps):
        """x is read three times, out written once."""
        (n, columns), lane, lanes = own_row(x), cuda.threadIdx.x, cuda.blockDim.x
        size, mean, squares = x.dtype.type(x.shape[1]), x.dtype.type(0), x.dtype.type(0)
        shift = finite(x[n, 0]) if columns else mean
        for c in range(lane, columns, lanes):
            mean += x[n, c] - shift
        mean = team_sum(mean, x) / size
        for c in range(lane, columns, lanes):
            d = (x[n, c] - shift) - mean
            squares += d * d
        factor = inverse_deviation(team_sum(squares, x) / size, eps)
        for c in range(lane, columns, lanes):
            out[n, c] = ((x[n, c] - shift) - mean) * factor
        if lane == 0 and columns:
            scale[n] = factor

    @each_float("_[:,:] g, _[:,:] out, _[:] scale, _[:,:] dx", **settings)
    def standardize_grad(g, out, scale, dx):
        """g and out are read twice, dx written once."""
        (n, columns), lane, lanes = own_row(g), cuda.threadIdx.x, cuda.blockDim.x
        size, mean, slope = g.dtype.type(g.shape[1]), g.dtype.type(0), g.dtype.type(0)
        for c in range(lane, columns, lanes):
            mean += g[n, c]
            slope += g[n, c] * out[n, c]
        mean, slope = team_sum(mean, g) / size, team_sum(slope, g) / size
        for c in range(lane, columns, lanes):
            dx[n, c] = scale[n] * ((g[n, c] - mean) - out[n, c] * slope)

    return standardize, standardize_grad


STANDARDIZE, STANDARDIZE_GRAD = of_both(rows_of, treed(sum_of), shuffled(sum_of))
