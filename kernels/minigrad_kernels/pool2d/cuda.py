"""Pooling on CUDA: which rung runs, and how it is started. Every thread gathers what belongs to its part of the result.

Rungs: plain (cuda_plain.py, cuda_plain_average.py), one thread an element; vector (cuda_vector.py,
cuda_vector_average.py), one thread four channels in one access. Arrays are C-contiguous (N, H, W, C) views.
"""

from functools import lru_cache

import numpy as np

from ..bias.cuda import bias_relu_grad
from ..elementwise.cuda import relu_grad
from ..errors import ShapeError
from ..toolchain.cuda.memory import VECTOR, address, aligned, kept
from ..toolchain.cuda.rungs import choose
from . import cuda_plain, cuda_plain_average, cuda_vector, cuda_vector_average
from .cuda_division import by

__all__ = [
    "average_forward",
    "average_input_grad",
    "max_forward",
    "max_input_grad",
    "max_relu_input_grad",
    "max_select",
]

LIMIT = 1 << 31  # elements: places are 32-bit inside kernels
THREADS = 256


def _rung(op, rung, arrays, positions=None):
    """The rung for floating arrays, and for positions beside them."""
    for array in arrays:
        if array.size >= LIMIT:
            n, h, w, c = array.shape
            raise ShapeError(
                f"{op}: an array of shape {(n, c, h, w)}, wants less than {LIMIT} elements; split the batch"
            )
    bytes_fit = positions is None or (positions.dtype == np.uint8 and address(positions) % 4 == 0)
    dtype, channels = arrays[0].dtype, arrays[0].shape[3]
    fits = dtype != np.float64 and channels % 4 == 0 and bytes_fit and aligned(*arrays, to=4 * dtype.itemsize)
    wish = (
        "float32, a number of channels that is a multiple of 4, positions of uint8, "
        f"and addresses that are multiples of {4 * dtype.itemsize}"
    )
    return choose(op, rung, {"plain": None, "vector": None if fits else wish})


def _launch(rung, kernel, arrays, result, image, output, geometry=(), divisors=()):
    """Start a kernel with a thread for each element of the result, or for each four of its channels.

    divisors: what the vector rung divides by, besides the sizes of the result
    """
    if not result.size:
        return
    _, rows, columns, channels = result.shape
    threads, numbers = result.size, (result.size, *image.shape[1:], *output.shape[1:3], *geometry)
    if rung == "vector":
        threads //= 4
        numbers += tuple(by(d) for d in (channels // 4, columns, rows, *divisors))
    kernel((-(-threads // THREADS),), (THREADS,), (*arrays, *numbers))


def max_forward(x, kernel_size, stride, padding, dilation, out, positions, rung=None):
    rung = _rung("max_forward", rung, (x, out), positions)
    kernels = cuda_plain.FORWARD[positions.dtype.str[1:]] if rung == "plain" else cuda_vector.FORWARD
    _launch(rung, kernels[x.dtype.name], (x, out, positions), out, x, out, (*kernel_size, *stride, *padding, *dilation))


def max_select(x, positions, kernel_size, stride, padding, dilation, out, rung=None):
    rung = _rung("max_select", rung, (x, out), positions)
    plain = cuda_plain.SELECT[positions.dtype.str[1:]][x.dtype.name]
    kernel = plain if rung == "plain" else cuda_vector.max_select_vector
    geometry = *kernel_size, *stride, *padding, *dilation
    _launch(rung, kernel, (x, positions, out), out, x, out, geometry, kernel_size[1:])


def max_input_grad(g, positions, kernel_size, stride, padding, dilation, dx, rung=None):
    rung = _rung("max_input_grad", rung, (g, dx), positions)
    kernels = cuda_plain.INPUT_GRAD[positions.dtype.str[1:]] if rung == "plain" else cuda_vector.INPUT_GRAD
    geometry = *kernel_size, *stride, *padding, *dilation
    _launch(rung, kernels[g.dtype.name], (g, positions, dx), dx, dx, g, geometry, (*stride, *dilation))


def max_relu_input_grad(g, out, positions, kernel_size, stride, padding, dilation, dx, dbias, workspace, rung=None):
    start = -address(workspace) % VECTOR
    masked = workspace[start : start + g.nbytes].view(g.dtype)
    if dbias is None:
        relu_grad(g.reshape(-1), out.reshape(-1), masked)
    else:
        matrices = (array.reshape(-1, g.shape[3]) for array in (g, out, masked))
        bias_relu_grad(*matrices, dbias, workspace[start + g.nbytes :])
    max_input_grad(masked.reshape(g.shape), positions, kernel_size, stride, padding, dilation, dx, rung)


@lru_cache(256)
def _covering(table, size):
    """(size, 2) int32: for each element along an axis the first window that holds it, and one past the last.

    table: the bytes of a table of windows
    """
    if not table:
        return np.zeros((size, 2), np.int32)
    starts, ends, _ = np.frombuffer(table, np.int64).reshape(-1, 3).T
    place = np.arange(size)[:, None]
    holds = (starts <= place) & (place < ends)
    found = holds.any(axis=1)
    first = np.where(found, holds.argmax(axis=1), 0)
    last = np.where(found, len(starts) - holds[:, ::-1].argmax(axis=1), 0)
    return np.stack([first, last], axis=1).astype(np.int32)


def average_forward(x, rows, columns, out, rung=None):
    rung = _rung("average_forward", rung, (x, out))
    kernels = cuda_plain_average.FORWARD if rung == "plain" else cuda_vector_average.FORWARD
    _launch(rung, kernels[x.dtype.name], (x, out, kept(rows, x), kept(columns, x)), out, x, out)


def average_input_grad(g, rows, columns, dx, rung=None):
    rung = _rung("average_input_grad", rung, (g, dx))
    kernels = cuda_plain_average.INPUT_GRAD if rung == "plain" else cuda_vector_average.INPUT_GRAD
    sides = zip((rows, columns), dx.shape[1:3], strict=True)
    covering = [kept(_covering(table.tobytes(), size), g) for table, size in sides]
    _launch(rung, kernels[g.dtype.name], (g, dx, *covering, kept(rows, g), kept(columns, g)), dx, dx, g)
