"""ReLU, leaky ReLU, erf and dropout on CUDA, on flat arrays: which rung runs, and how it is started.

Rungs: plain (cuda_plain.py), one thread an element; vector (cuda_vector.py), one thread four elements in one access.
Arrays of 16 bits have the vector rung alone: those that do not begin where its accesses may are moved there first.
Arrays of more than PIECE elements take several launches.
"""

import numpy as np

from ..toolchain.cuda.memory import VECTOR, aligned, kept
from ..toolchain.cuda.rungs import choose
from . import cuda_plain, cuda_vector

__all__ = ["dropout", "erf", "leaky_relu", "leaky_relu_grad", "relu", "relu_grad"]

PIECE = 1 << 30  # elements of a launch, whose places are 32-bit; a multiple of 4, so that no Philox block is torn
QUAD = 8  # bytes of four elements of 16 bits
THREADS = 256


def _rung(op, rung, arrays):
    """The rung for arrays of one type."""
    dtype = arrays[0].dtype
    if dtype.itemsize == 2:
        wish = f"addresses that are multiples of {QUAD}"
        return choose(op, rung, {"plain": "float32 or float64", "vector": None if aligned(*arrays, to=QUAD) else wish})
    wish = f"float32, and addresses that are multiples of {VECTOR}"
    return choose(op, rung, {"plain": None, "vector": None if dtype == np.float32 and aligned(*arrays) else wish})


def _start(op, rung, arrays, numbers=()):
    """Start the kernel of a function on arrays of one size, with the numbers that it wants besides."""
    size, dtype = arrays[0].size, arrays[0].dtype
    if dtype.itemsize == 2 and rung is None and not aligned(*arrays, to=QUAD):
        moved = [array.copy() for array in arrays]
        _start(op, rung, moved, numbers)
        arrays[-1][...] = moved[-1]
        return
    if _rung(op, rung, arrays) == "plain":
        kernel, share = cuda_plain.KERNELS[op][dtype], 1
    else:
        kernel, share = cuda_vector.KERNELS[op][dtype.name], 4
    for start in range(0, size, PIECE):
        pieces = arrays if size <= PIECE else [array[start : start + PIECE] for array in arrays]
        count = min(PIECE, size - start)
        first = (start // 4,) if op == "dropout" else ()  # the number of its first Philox block
        kernel((-(-count // (share * THREADS)),), (THREADS,), (*pieces, count, *numbers, *first))


def relu(x, out, rung=None):
    _start("relu", rung, (x, out))


def relu_grad(g, out, dx, rung=None):
    _start("relu_grad", rung, (g, out, dx))


def leaky_relu(x, negative_slope, out, rung=None):
    _start("leaky_relu", rung, (x, out), (negative_slope,))


def leaky_relu_grad(g, x, negative_slope, dx, rung=None):
    _start("leaky_relu_grad", rung, (g, x, dx), (negative_slope,))


def erf(x, out, rung=None):
    _start("erf", rung, (x, out))


def _threshold_and_scale(p, kind):
    """Words below the threshold, of 32 bits, are dropped; what is kept is scaled, in the arithmetic of its type."""
    threshold, keep = round(p * 2**32), kind(1) - kind(p)
    if threshold == 2**32:  # all are dropped
        return 2**32 - 1, 0.0
    return threshold, float(kind(1) / keep) if keep else float("inf")


def dropout(x, p, seed, step, out, rung=None):
    kind = np.float32 if x.dtype.itemsize == 2 else x.dtype.type
    key = seed if getattr(seed, "shape", ()) else kept(np.array([seed, 0], np.uint64), x)
    _start("dropout", rung, (x, out), (*_threshold_and_scale(p, kind), key, int(step)))
