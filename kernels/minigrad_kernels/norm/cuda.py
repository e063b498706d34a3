"""Batch normalisation and standardised rows on CUDA: which rung runs, and how it is started.

Rungs of what belongs to channels: plain (cuda_plain.py), one thread an element or a partial sum; vector
(cuda_vector.py), four elements in one access by threads that keep to their columns. Both cut sums as bias/plan.py
says. A team of threads owns a row (cuda_rows.py).
"""

from ..bias.cuda import rung_of
from ..bias.cuda_plain import HEIGHT, WIDTH
from ..bias.plan import LINES, cut
from ..softmax.cuda_teams import THREADS, start
from ..toolchain import elements
from . import cuda_plain, cuda_rows, cuda_vector


def _given(like, *arrays):
    """Arrays for a vector kernel, where `like`, of the type that it takes, stands for None; whether each is there."""
    return [like if array is None else array for array in arrays], [int(array is not None) for array in arrays]


def _sums(rung, x, g, out, mean, masked, workspace):
    """Both sums of the parts of each column, see sums_plain, as arrays of (parts, channels) in the type of sums."""
    plan, columns = cut(*x.shape), x.shape[1]
    parts = [*elements(workspace, mean, mean.dtype, 2, plan.parts, columns)]
    if rung == "plain":
        grid = (-(-plan.parts * columns // THREADS),)
        cuda_plain.sums_plain[x.itemsize](grid, (THREADS,), (x, g, out, mean, *parts, masked, plan.rows))
    else:
        (g, out, masked), flags = _given(x, g, out, masked)
        sizes = x.size, columns, plan.fold, plan.tiles, plan.rows // plan.fold
        arguments = x, g, out, mean, *parts, masked, *flags, *sizes
        cuda_vector.SUMS[x.dtype.name]((plan.tiles * plan.parts,), (THREADS,), arguments)
    return parts


def _totals(kernels, result, arguments):
    kernels[result.itemsize]((-(-result.size // WIDTH),), (WIDTH, HEIGHT), arguments)


def _finish(rung, x, more, passed, mean, variance, weight, bias, dw, out, eps, relu):
    """finish_plain, or finish_vector, whose threads take LINES lines each."""
    if rung == "plain":
        arguments = x, more, passed, mean, variance, weight, bias, dw, out, eps, int(relu)
        cuda_plain.finish_plain[x.itemsize]((-(-x.size // THREADS),), (THREADS,), arguments)
        return
    (rows, columns), plan = x.shape, cut(*x.shape)
    (more, passed), elements = _given(x, more, passed)
    (weight, bias, dw), vectors = _given(mean, weight, bias, dw)
    numbers = eps, float(rows), *elements, *vectors, int(relu), x.size, columns, plan.fold, plan.tiles, LINES
    arguments = x, more, passed, mean, variance, weight, bias, dw, out, *numbers
    groups = -(-rows // (plan.fold * LINES))
    cuda_vector.FINISH[x.dtype.name]((plan.tiles * groups,), (THREADS,), arguments)


def batch_statistics(x, mean, variance, workspace, running_mean, running_var, momentum, rung=None):
    rung = rung_of("batch_statistics", rung, x)
    parts = _sums(rung, x, None, None, mean, None, workspace)
    arguments = *parts, mean, variance, running_mean, running_var, momentum, len(x)
    _totals(cuda_plain.total_statistics, mean, arguments)


def batch_normalize(x, mean, variance, weight, bias, eps, residual, relu, out, rung=None):
    rung = rung_of("batch_normalize", rung, x, out, residual)
    if x.size:
        _finish(rung, x, residual, None, mean, variance, weight, bias, None, out, eps, relu)


def batch_norm_grads(g, x, mean, variance, weight, eps, out, dx, dw, db, dresidual, workspace, rung=None):
    rung = rung_of("batch_norm_grads", rung, x, g, out, dx, dresidual)
    parts = _sums(rung, x, g, out, mean, dresidual, workspace)
    _totals(cuda_plain.total_grads, dw, (*parts, variance, dw, db, eps))
    g, out = (g, out) if dresidual is None else (dresidual, None)
    _finish(rung, x, g, out, mean, variance, weight, db, dw, dx, eps, False)


# ---- rows ------------------------------------------------------------------------------------------------------------


def standardize(x, eps, out, scale):
    start(cuda_rows.STANDARDIZE, x, (x, out, scale, eps))


def standardize_grad(g, out, scale, dx):
    start(cuda_rows.STANDARDIZE_GRAD, g, (g, out, scale, dx))
