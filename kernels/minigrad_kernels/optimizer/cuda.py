"""Adam on CUDA: one launch passes over all parameters.

The elements of all tensors are cut into chunks of CHUNK, each the work of one block; tables on the device say where
the tensors lie and which chunk is which. They are kept, so that a step of training sends the coefficients alone.
Rungs: plain, one element at a time; vector, four at a time in 128-bit accesses (cuda_adam.py).
"""

import math
from collections import OrderedDict

import numpy as np

from ..errors import ShapeError
from ..toolchain.cuda.memory import address, upload
from ..toolchain.cuda.rungs import choose
from .cuda_adam import CHUNK, PLAIN, adam_vector
from .hyper import Adam

__all__ = ["adam", "tables"]

LIMIT = 1 << 31  # elements of a tensor: places are 32-bit inside kernels
THREADS = 256
KEPT = 8  # sets of tables: one for each group of parameters of a few models
_kept: "OrderedDict[tuple, tuple]" = OrderedDict()  # tables on the device, by what they hold


def tables(lists):
    """(addresses, sizes, like) from lists of arrays, those of the parameters first; `like` is one of them."""
    addresses = np.array([[address(array) for array in arrays] for arrays in lists], np.uint64)
    return addresses, np.array([array.size for array in lists[0]], np.int64), lists[0][0]


def _chunks(sizes):
    """(chunks, 3) of int32: the tensor of each chunk, its first element there, and how many it has."""
    counts = -(-sizes // CHUNK)
    tensor = np.repeat(np.arange(sizes.size), counts)
    start = (np.arange(tensor.size) - np.repeat(np.cumsum(counts) - counts, counts)) * CHUNK
    return np.stack([tensor, start, np.minimum(sizes[tensor] - start, CHUNK)], axis=1).astype(np.int32)


def _on_device(addresses, sizes, like):
    """The tables of addresses and of chunks on the device, and the number of chunks."""
    key = type(like), addresses.tobytes(), sizes.tobytes()
    found = _kept.pop(key, None)
    if found is None:
        if sizes.max() >= LIMIT:
            raise ShapeError(f"adam: a parameter has {sizes.max()} elements, wants less than {LIMIT}")
        chunks = _chunks(sizes)
        found = upload(addresses, like), upload(chunks, like), len(chunks)
    _kept[key] = found  # the last one used stands last
    while len(_kept) > KEPT:
        _kept.popitem(last=False)
    return found


def _coefficients(hyper):
    """What kernels multiply with, computed in float64, in the order of cuda_adam.py."""
    rate, beta1, beta2, eps, decay, step, decoupled, maximize = hyper[list(Adam)]
    keep = 1 - rate * decay if decoupled else 1
    rate /= 1 - beta1**step
    correction = 1 / math.sqrt(1 - beta2**step)
    sign, decay = -1 if maximize else 1, 0 if decoupled else decay
    return np.array([sign, decay, 1 - beta1, beta2, 1 - beta2, keep, rate, correction, eps])


def adam(addresses, sizes, has_greatest, hyper, like, rung=None):
    rung = choose("adam", rung, {"plain": None, "vector": None if like.dtype == np.float32 else "float32"})
    if not sizes.any():
        return
    kernel = PLAIN[like.dtype] if rung == "plain" else adam_vector
    places, chunks, count = _on_device(addresses, sizes, like)
    coefficients = upload(_coefficients(hyper).astype(like.dtype), like)
    kernel((count,), (THREADS,), (places, chunks, coefficients, sizes.size, int(has_greatest)))
