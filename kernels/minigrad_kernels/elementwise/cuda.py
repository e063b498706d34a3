"""ReLU, leaky ReLU, erf and dropout on CUDA, on flat arrays: how their kernels (cuda_kernels.py) are started."""

import numpy as np

from ..toolchain.cuda.memory import kept
from . import cuda_kernels

__all__ = ["dropout", "erf", "leaky_relu", "leaky_relu_grad", "relu", "relu_grad"]

THREADS = 256


def _start(kernels, arrays, numbers=(), each=1):
    """Start the kernel of a type on arrays of one size, with the numbers that it wants besides; each: of a thread."""
    if arrays[0].size:
        kernels[arrays[0].itemsize]((-(-arrays[0].size // (each * THREADS)),), (THREADS,), (*arrays, *numbers))


def relu(x, out):
    _start(cuda_kernels.rectify, (x, None, out), (0.0, 0))


def relu_grad(g, out, dx):
    _start(cuda_kernels.rectify, (g, out, dx), (0.0, 0))


def leaky_relu(x, negative_slope, out):
    _start(cuda_kernels.rectify, (x, None, out), (negative_slope, 1))


def leaky_relu_grad(g, x, negative_slope, dx):
    _start(cuda_kernels.rectify, (g, x, dx), (negative_slope, 1))


def erf(x, out):
    _start(cuda_kernels.erf, (x, out))


def _threshold_and_scale(p, kind):
    """Words below the threshold, of 32 bits, are dropped; what is kept is scaled, in the arithmetic of its type."""
    threshold, keep = round(p * 2**32), kind(1) - kind(p)
    if threshold == 2**32:  # all are dropped
        return 2**32 - 1, 0.0
    return threshold, float(kind(1) / keep) if keep else float("inf")


def dropout(x, p, seed, step, out):
    key = seed if getattr(seed, "shape", ()) else kept(np.array([seed, 0], np.uint64), x)
    _start(cuda_kernels.dropout, (x, out), (*_threshold_and_scale(p, x.dtype.type), key, int(step)), 4)
