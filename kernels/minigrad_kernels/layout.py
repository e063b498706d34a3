"""How arrays lie in memory.

Shapes are always read as (N, C, H, W) for activations and (O, C, P, Q) for convolution weights. In memory, 4-D
activations lie channels last (the order N H W C) and convolution weights lie H W I O, so that neighbouring lanes of
a vector, and neighbouring threads of a warp, hold neighbouring channels.
"""

from functools import cache, lru_cache

CHANNELS_LAST = (0, 2, 3, 1)  # axes of (N, C, H, W), slowest in memory first
FILTER = (2, 3, 1, 0)  # axes of (O, C, P, Q), slowest in memory first


@cache
def c_order(dimensions):
    """The axis order of a C-contiguous array with that many dimensions."""
    return tuple(range(dimensions))


@lru_cache(maxsize=4096)
def strides_of(shape, order, itemsize):
    """Byte strides of a dense array of this shape whose axes lie in this order, slowest first."""
    strides, step = [0] * len(shape), itemsize
    for axis in reversed(order):
        strides[axis] = step
        step *= max(shape[axis], 1)
    return tuple(strides)


def is_dense(array, order):
    """Whether the elements lie without gaps in this order of axes; axes of size 1 may have any stride."""
    return array.transpose(order).flags.c_contiguous


def order_of(array):
    """The order of the axes in memory, slowest first: the array's own if it is dense, else that of its strides."""
    if array.flags.c_contiguous:
        return c_order(array.ndim)
    return _order_of(array.shape, array.strides, array.itemsize)


@lru_cache(maxsize=4096)
def _order_of(shape, strides, itemsize):
    if len(shape) == 4:
        dense = strides_of(shape, CHANNELS_LAST, itemsize)
        if all(n == 1 or a == b for n, a, b in zip(shape, strides, dense, strict=True)):
            return CHANNELS_LAST
    return tuple(sorted(range(len(shape)), key=lambda axis: (-abs(strides[axis]), axis)))


def in_memory_order(out, *arrays):
    """Views of arrays of one shape whose axes stand in the order that those of `out` have in memory.

    NumPy looks for that order by itself. CuPy takes the axes as they stand: its threads, and so the bytes that
    neighbours read, would lie apart by a row of channels.
    """
    if out.flags.c_contiguous:
        return out, *arrays
    order = order_of(out)
    return out.transpose(order), *(array.transpose(order) for array in arrays)
