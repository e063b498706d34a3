"""ReLU, leaky ReLU, erf and dropout on CUDA, on flat arrays: how their kernels are started.

All have the plain rung (cuda_plain.py), one thread an element. Dropout has the vector rung (cuda_vector.py) as well,
which draws four random words at once. Arrays of more than PIECE elements take several launches.
"""

import numpy as np

from ..toolchain.cuda.memory import VECTOR, aligned, kept
from ..toolchain.cuda.rungs import choose
from . import cuda_plain
from .cuda_vector import dropout_vector

__all__ = ["dropout", "erf", "leaky_relu", "leaky_relu_grad", "relu", "relu_grad"]

PIECE = 1 << 30  # elements of a launch, whose places are 32-bit; a multiple of 4, so that no Philox block is torn
THREADS = 256


def _start(kernel, arrays, numbers=(), each=1, blocks=False):
    """Start a kernel on arrays of one size, with the numbers that it wants besides.

    each: elements of a thread; blocks: whether it also wants the number of the first Philox block
    """
    size = arrays[0].size
    for start in range(0, size, PIECE):
        pieces = arrays if size <= PIECE else [array[start : start + PIECE] for array in arrays]
        count = min(PIECE, size - start)
        first = (start // 4,) if blocks else ()
        kernel((-(-count // (each * THREADS)),), (THREADS,), (*pieces, count, *numbers, *first))


def relu(x, out):
    _start(cuda_plain.RELU[x.dtype], (x, out))


def relu_grad(g, out, dx):
    _start(cuda_plain.RELU_GRAD[g.dtype], (g, out, dx))


def leaky_relu(x, negative_slope, out):
    _start(cuda_plain.LEAKY_RELU[x.dtype], (x, out), (negative_slope,))


def leaky_relu_grad(g, x, negative_slope, dx):
    _start(cuda_plain.LEAKY_RELU_GRAD[g.dtype], (g, x, dx), (negative_slope,))


def erf(x, out):
    _start(cuda_plain.ERF[x.dtype], (x, out))


def _threshold_and_scale(p, kind):
    """Words below the threshold, of 32 bits, are dropped; what is kept is scaled, in the arithmetic of its type."""
    threshold, keep = round(p * 2**32), kind(1) - kind(p)
    if threshold == 2**32:  # all are dropped
        return 2**32 - 1, 0.0
    return threshold, float(kind(1) / keep) if keep else float("inf")


def dropout(x, p, seed, step, out, rung=None):
    fits = x.dtype == np.float32 and aligned(x, out)
    wish = f"float32, and addresses that are multiples of {VECTOR}"
    rung = choose("dropout", rung, {"plain": None, "vector": None if fits else wish})
    key = seed if getattr(seed, "shape", ()) else kept(np.array([seed, 0], np.uint64), x)
    kernel, each = (cuda_plain.DROPOUT[x.dtype], 1) if rung == "plain" else (dropout_vector, 4)
    _start(kernel, (x, out), (*_threshold_and_scale(p, x.dtype.type), key, int(step)), each, True)
