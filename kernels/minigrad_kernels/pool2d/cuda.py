"""Pooling on CUDA: which rung runs, and how it is started. Every thread gathers what belongs to its part of the result.

Rungs of greatest elements: plain (cuda_plain.py), one thread an element; vector (cuda_vector.py), one thread four
channels in one access. Averages have the plain rung alone. Arrays are C-contiguous (N, H, W, C) views.
"""

from functools import lru_cache

import numpy as np

from ..bias.cuda import bias_relu_grad
from ..toolchain import elements
from ..toolchain.cuda.memory import address, aligned, choose, kept
from . import cuda_plain, cuda_vector
from .cuda_vector import by

THREADS = 256


def fits(channels, positions, x, *others):
    """Whether the vector rung takes arrays of these channels, of which others may be None; of 16 bits there is no other
    rung."""
    bytes_fit = positions.dtype == np.uint8 and address(positions) % 4 == 0
    arrays = [array for array in others if array is not None]
    return bytes_fit and channels % 4 == 0 and x.dtype != np.float64 and aligned(x, *arrays, to=4 * x.itemsize)


def _rung(op, rung, positions, *arrays):
    """The rung for floating arrays, and positions beside them."""
    return choose(op, rung, ("plain", "vector")[: 1 + fits(positions.shape[3], positions, *arrays)])


def _vector(kernel, arrays, result, image, output, geometry, divisors=()):
    """Start a kernel of the vector rung with a thread for each four channels of the result.

    divisors: what it divides by, besides the sizes of the result
    """
    if result.size:
        _, rows, columns, channels = result.shape
        numbers = (result.size, *image.shape[1:], *output.shape[1:3], *geometry)
        divisors = (by(d) for d in (channels // 4, columns, rows, *divisors))
        kernel((-(-result.size // 4 // THREADS),), (THREADS,), (*arrays, *numbers, *divisors))


def _plain(kernels, result, arguments):
    """Start a kernel of the plain rung with a thread for each element of the result."""
    if result.size:
        kernels[result.itemsize]((-(-result.size // THREADS),), (THREADS,), arguments)


def _bytes(positions):
    return positions.view(np.uint8).reshape(*positions.shape, positions.itemsize)


def max_forward(x, kernel_size, stride, padding, dilation, out, positions, rung=None):
    geometry = *kernel_size, *stride, *padding, *dilation
    if _rung("max_forward", rung, positions, x, out) == "plain":
        _plain(cuda_plain.max_forward_plain, out, (x, out, _bytes(positions), *geometry))
    else:
        _vector(cuda_vector.FORWARD[x.dtype.name], (x, out, positions), out, x, out, geometry)


def _rectified(g, out, dbias, workspace):
    """g where out is positive, or NaN, in a workspace; and its sums."""
    masked = elements(workspace, g, g.dtype, *g.shape)
    matrices = (array.reshape(-1, g.shape[3]) for array in (g, out, masked))
    bias_relu_grad(*matrices, dbias, workspace)
    return masked


def max_input_grad(g, out, positions, kernel_size, stride, padding, dilation, dx, dbias, workspace, rung=None):
    geometry = *kernel_size, *stride, *padding, *dilation
    g = g if out is None else _rectified(g, out, dbias, workspace)
    if _rung("max_input_grad", rung, positions, g, dx) == "plain":
        _plain(cuda_plain.max_input_grad_plain, dx, (g, _bytes(positions), dx, *geometry))
    else:
        _vector(cuda_vector.INPUT_GRAD[g.dtype.name], (g, positions, dx), dx, dx, g, geometry, (*stride, *dilation))


@lru_cache(256)
def _covering(table, size):
    """(size, 2) int32: for each element along an axis the first window that holds it, and one past the last.

    table: the bytes of a table of windows, neither whose starts nor whose ends ever fall
    """
    starts, ends, _ = np.frombuffer(table, np.int64).reshape(-1, 3).T
    place = np.arange(size)
    found = np.searchsorted(ends, place, "right"), np.searchsorted(starts, place, "right")
    return np.stack(found, axis=1).astype(np.int32)


def average_forward(x, rows, columns, out):
    _plain(cuda_plain.average_forward_plain, out, (x, out, kept(rows, x), kept(columns, x)))


def average_input_grad(g, rows, columns, dx):
    sides = zip((rows, columns), dx.shape[1:3], strict=True)
    covering = [kept(_covering(table.tobytes(), size), g) for table, size in sides]
    _plain(cuda_plain.average_input_grad_plain, dx, (g, dx, *covering, kept(rows, g), kept(columns, g)))
