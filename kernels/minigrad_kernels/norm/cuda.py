"""Batch normalisation and standardised rows on CUDA: which rung runs, and how it is started.

Rungs of what belongs to channels: plain (cuda_plain.py), one thread an element or a partial sum; vector
(cuda_vector*.py), four elements in one access by threads that keep to their columns. Both cut sums as bias/plan.py
says, and cuda_totals.py adds up what the parts gave. Statistics take one pass over x: parts are joined by their means.
A team of threads owns a row (cuda_rows.py), which has no rungs.
"""

import numpy as np

from ..bias.cuda import LIMIT
from ..bias.cuda import column_sums as channel_sum
from ..bias.cuda_plain import HEIGHT, WIDTH
from ..bias.plan import LINES, cut
from ..errors import ShapeError
from ..softmax.cuda_parts import THREADS, bits_of, blocks_of
from ..toolchain.cuda.memory import VECTOR, address, aligned, choose
from . import cuda_plain, cuda_rows, cuda_totals, cuda_vector, cuda_vector_grads

__all__ = [
    "batch_norm_grads",
    "batch_normalize",
    "batch_statistics",
    "channel_sum",
    "fits",
    "standardize",
    "standardize_grad",
]


def _check_size(op, x, limit):
    if x.size >= limit:
        raise ShapeError(f"{op}: shape {x.shape} has {x.size} elements, wants less than {limit}; split it")


def fits(x, *others):
    """Whether the vector rung takes arrays of one shape, (N, C) or (N, C, H, W); of 16 bits there is no other."""
    columns, width = x.shape[1], 4 * x.itemsize
    quads = x.size and x.size % 4 == 0 and cut(x.size // columns, columns).fold * columns % 4 == 0
    return bool(quads) and x.dtype != np.float64 and aligned(x, *others, to=width)


def _rung(op, rung, x, *others):
    """The rung for matrices of one shape whose channels are columns."""
    _check_size(op, x, LIMIT)
    wish = f"float32, sizes that are multiples of 4, and addresses that are multiples of {4 * x.itemsize}"
    return choose(op, rung, {"plain": None, "vector": None if fits(x, *others) else wish})


def _partials(workspace, x, plan):
    """Two arrays of (parts, channels) in the workspace, in the type of sums."""
    start, count = -address(workspace) % VECTOR, plan.parts * x.shape[1]
    kind = np.float32 if x.itemsize == 2 else x.dtype
    space = workspace[start : start + 2 * count * np.dtype(kind).itemsize].view(kind)
    return space[:count].reshape(plan.parts, -1), space[count:].reshape(plan.parts, -1)


def _elements(size, kernels, arguments):
    """Start a plain kernel with so many threads."""
    kernels[arguments[0].itemsize]((-(-size // THREADS),), (THREADS,), arguments)


def _lines(x, kernel, arguments):
    """Start a vector kernel whose threads take LINES lines each."""
    plan = cut(*x.shape)
    groups = -(-x.shape[0] // (plan.fold * LINES))
    kernel[x.dtype.name](
        (plan.tiles * groups,), (THREADS,), (*arguments, x.size, x.shape[1], plan.fold, plan.tiles, LINES)
    )


def _parts(x, kernel, arguments):
    """Start a vector kernel that sums the columns of parts."""
    plan = cut(*x.shape)
    sizes = x.size, x.shape[1], plan.fold, plan.tiles, plan.rows // plan.fold
    kernel[x.dtype.name]((plan.tiles * plan.parts,), (THREADS,), (*arguments, *sizes))


def _totals(kernels, result, arguments):
    kernels[result.itemsize]((-(-result.size // WIDTH),), (WIDTH, HEIGHT), arguments)


def batch_statistics(x, mean, variance, workspace, running_mean, running_var, has_running, momentum, rung=None):
    rung = _rung("batch_statistics", rung, x)
    if not x.size:
        mean.fill(np.nan)
        variance.fill(np.nan)
        return
    (rows, columns), plan = x.shape, cut(*x.shape)
    partials = _partials(workspace, x, plan)
    if rung == "plain":
        _elements(plan.parts * columns, cuda_plain.statistics_plain, (x, *partials, plan.rows))
    else:
        _parts(x, cuda_vector.STATISTICS, (x, *partials))
    running = (running_mean, running_var, momentum, rows / (rows - 1)) if has_running else (None, None, 0.0, 1.0)
    shift = x[0].astype(np.float32) if x.itemsize == 2 else x[0]
    _totals(cuda_totals.total_statistics, mean, (shift, *partials, mean, variance, *running, rows, plan.rows))


def batch_normalize(x, mean, variance, weight, has_weight, bias, has_bias, eps, residual, relu, out, rung=None):
    rung = _rung("batch_normalize", rung, x, out, *([] if residual is None else [residual]))
    if not x.size:
        return
    if rung == "plain":
        affine = weight if has_weight else None, bias if has_bias else None
        _elements(x.size, cuda_plain.normalize_plain, (x, mean, variance, *affine, residual, out, eps, int(relu)))
        return
    flags = int(has_weight), int(has_bias), int(residual is not None), int(relu)
    arguments = x, mean, variance, weight, bias, x if residual is None else residual, out, eps, *flags
    _lines(x, cuda_vector.NORMALIZE, arguments)


def batch_norm_grads(
    g, x, mean, variance, weight, has_weight, eps, out, dx, dw, db, dresidual, workspace, rung=None
):  # fmt: skip
    rung = _rung("batch_norm_grads", rung, x, g, *(array for array in (out, dx, dresidual) if array is not None))
    if not x.size:
        dw.fill(0)
        db.fill(0)
        return
    (rows, columns), plan = x.shape, cut(*x.shape)
    partials = _partials(workspace, x, plan)
    relu, masked = out is not None, dresidual is not None
    if rung == "plain":
        arrays = g, x, out, mean, *partials, dresidual
        _elements(plan.parts * columns, cuda_plain.products_plain, (*arrays, plan.rows))
    else:
        arrays = g, x, out if relu else x, mean, *partials, dresidual if masked else x
        _parts(x, cuda_vector_grads.PRODUCTS, (*arrays, int(relu), int(masked)))
    _totals(cuda_totals.total_grads, dw, (*partials, variance, dw, db, eps))
    if dx is None:
        return
    if masked:
        g, out = dresidual, None
    if rung == "plain":
        arguments = g, x, out, mean, variance, weight if has_weight else None, dw, db, dx, eps
        _elements(x.size, cuda_plain.grads_plain, arguments)
        return
    numbers = eps, int(has_weight), int(out is not None), float(rows)
    _lines(
        x,
        cuda_vector_grads.GRADS,
        (g, x, x if out is None else out, mean, variance, weight, dw, db, dx, *numbers),
    )


# ---- rows --------------------------------------------------------------------------------------------------------


def _start(op, kernels, x, arguments):
    """Start the kernel of the type of x on its rows."""
    _check_size(op, x, LIMIT - THREADS)
    (rows, columns), kernel = x.shape, kernels[x.dtype.name]
    if rows:
        bits = bits_of(columns)
        kernel((blocks_of(rows, bits),), (THREADS,), (*arguments, rows, columns, bits))


def standardize(x, eps, out, scale):
    _start("standardize", cuda_rows.STANDARDIZE, x, (x, out, scale, eps))


def standardize_grad(g, out, scale, dx):
    _start("standardize_grad", cuda_rows.GRAD, g, (g, out, scale, dx))
