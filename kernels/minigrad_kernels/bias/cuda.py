"""The gradient of a bias with ReLU, and sums of columns, on CUDA: which rung runs, and how it is started.

Rungs: plain (cuda_plain.py), one thread a partial sum; vector (cuda_vector.py), four elements in one
access by threads that keep to their columns. Both cut sums as plan.py says, and `add` then adds the sums of the parts
where there are several.
"""

import numpy as np

from ..toolchain import elements
from ..toolchain.cuda.memory import aligned, choose
from . import cuda_plain, cuda_vector
from .cuda_plain import HEIGHT, WIDTH
from .plan import cut

THREADS = 256


def fits(x, *others):
    """Whether the vector rung takes arrays of one shape, (N, C) or (N, C, H, W); of 16 bits there is no other."""
    columns, width = x.shape[1], 4 * x.itemsize
    quads = x.size and x.size % 4 == 0 and cut(x.size // columns, columns).fold * columns % 4 == 0
    return bool(quads) and x.dtype != np.float64 and aligned(x, *others, to=width)


def rung_of(op, rung, x, *others):
    """The rung for matrices of one shape whose columns are summed; others may be None."""
    fitting = fits(x, *(array for array in others if array is not None))
    return choose(op, rung, ("plain", "vector")[: 1 + fitting])


def _sums(op, rung, matrices, out, workspace):
    """The kernels that sum columns, of cuda_plain or of cuda_vector, on (x,) or on (g, out, dx)."""
    first, relu = matrices[0], len(matrices) > 1
    if not first.size:
        out.fill(0)
        return
    columns, plan = first.shape[1], cut(*first.shape)
    several = plan.parts > 1
    partial = elements(workspace, out, out.dtype, plan.parts, columns) if several else out.reshape(1, columns)
    if rung_of(op, rung, *matrices) == "plain":
        arrays = matrices if relu else (first, None, None)
        grid = (-(-plan.parts * columns // THREADS),)
        cuda_plain.sums_plain[first.itemsize](grid, (THREADS,), (*arrays, partial, plan.rows))
    else:
        arrays = matrices if relu else (first, first, first)
        sizes = int(relu), first.size, columns, plan.fold, plan.tiles, plan.rows // plan.fold
        cuda_vector.SUMS[first.dtype.name]((plan.tiles * plan.parts,), (THREADS,), (*arrays, partial, *sizes))
    if several:  # blocks without a thread that has no part
        height = min(HEIGHT, 1 << (plan.parts - 1).bit_length())
        width = max(WIDTH, THREADS // height)
        cuda_plain.add[out.itemsize]((-(-columns // width),), (width, height), (partial, out))


def bias_relu_grad(g, out, dx, dbias, workspace, rung=None):
    _sums("bias_relu_grad", rung, (g, out, dx), dbias, workspace)


def column_sums(x, out, workspace, rung=None):
    _sums("column_sums", rung, (x,), out, workspace)
