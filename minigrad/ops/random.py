"""Ops with random numbers.

Types   floating; out as input
Errors  ValueError for a probability out of range
Source  Srivastava and others 2014, "Dropout"; Salmon and others 2011, "Parallel random numbers: as easy as 1, 2, 3"
"""

from minigrad_kernels import elementwise as kernels
from minigrad_kernels.errors import ShapeError

from .. import device
from ..primitive import primitive

__all__ = ["dropout"]


@primitive
def _dropout(input, p, key, order):
    """input times a mask that is a pure function of key and of the position in memory, so it is its own adjoint."""
    x = device.contiguous(input, order)
    out = device.empty(x.shape, x.dtype, order)
    kernels.dropout(x, p, *key, out)
    return out


_dropout.grads(input=lambda g, p, key, order: _dropout(g, p, key, order))


def dropout(input, p=0.5, training=True):
    """Each element set to 0 with probability p, the others scaled up so that the expectation stays.

    Math    out = input * mask / (1 - p), mask = 1 with probability 1 - p
    Grads   dinput = g * mask / (1 - p)
    Shapes  out as input
    """
    if not 0 <= p <= 1:
        raise ShapeError(f"dropout: p is {p}, wanted a probability from 0 to 1")
    if not training or p == 0:
        return input
    return _dropout(input, float(p), device.default_generator.next_key(), device.order_of(input.data))
