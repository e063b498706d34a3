"""How arrays lie in memory.

Shapes are always read as (N, C, H, W) for activations and (O, C, P, Q) for convolution weights. In memory, 4-D
activations lie channels last (the order N H W C) and convolution weights lie H W I O, so that neighbouring lanes of
a vector, and neighbouring threads of a warp, hold neighbouring channels.
"""

from functools import lru_cache

__all__ = ["CHANNELS_LAST", "FILTER", "c_order", "is_dense", "strides_of"]

CHANNELS_LAST = (0, 2, 3, 1)  # axes of (N, C, H, W), slowest in memory first
FILTER = (2, 3, 1, 0)  # axes of (O, C, P, Q), slowest in memory first


@lru_cache(maxsize=None)
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
