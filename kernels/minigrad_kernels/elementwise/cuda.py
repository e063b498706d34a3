"""ReLU, leaky ReLU, erf and dropout on CUDA, on flat arrays: how their kernels (cuda_kernels.py) are started.

Arrays of more than PIECE elements take several launches.
"""

import numpy as np

from ..toolchain.cuda.memory import kept
from .cuda_kernels import DROPOUT, ERF, RECTIFY, RECTIFY_GRAD

__all__ = ["dropout", "erf", "leaky_relu", "leaky_relu_grad", "relu", "relu_grad"]

PIECE = 1 << 30  # elements of a launch, whose places are 32-bit; a multiple of 4, so that no Philox block is torn
THREADS = 256


def _start(kernels, arrays, numbers=(), each=1):
    """Start the kernel of a type on arrays of one size, with the numbers that it wants besides.

    each: elements of a thread; one of several also wants the number of its first block of them
    """
    size, kernel = arrays[0].size, kernels[arrays[0].dtype]
    for start in range(0, size, PIECE):
        pieces = arrays if size <= PIECE else [array[start : start + PIECE] for array in arrays]
        count = min(PIECE, size - start)
        first = (start // each,) if each > 1 else ()
        kernel((-(-count // (each * THREADS)),), (THREADS,), (*pieces, count, *numbers, *first))


def relu(x, out):
    _start(RECTIFY, (x, out), (0.0, 0))


def relu_grad(g, out, dx):
    _start(RECTIFY_GRAD, (g, out, dx), (0.0, 0))


def leaky_relu(x, negative_slope, out):
    _start(RECTIFY, (x, out), (negative_slope, 1))


def leaky_relu_grad(g, x, negative_slope, dx):
    _start(RECTIFY_GRAD, (g, x, dx), (negative_slope, 1))


def erf(x, out):
    _start(ERF, (x, out))


def _threshold_and_scale(p, kind):
    """Words below the threshold, of 32 bits, are dropped; what is kept is scaled, in the arithmetic of its type."""
    threshold, keep = round(p * 2**32), kind(1) - kind(p)
    if threshold == 2**32:  # all are dropped
        return 2**32 - 1, 0.0
    return threshold, float(kind(1) / keep) if keep else float("inf")


def dropout(x, p, seed, step, out):
    key = seed if getattr(seed, "shape", ()) else kept(np.array([seed, 0], np.uint64), x)
    _start(DROPOUT, (x, out), (*_threshold_and_scale(p, x.dtype.type), key, int(step)), 4)
