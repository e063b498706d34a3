"""Ops with random numbers.

Types   float32 or float64; out as input
Errors  ValueError for a probability out of range, TypeError for other element types
Source  Srivastava and others 2014, "Dropout"; Salmon and others 2011, "Parallel random numbers: as easy as 1, 2, 3"
"""

from minigrad_kernels import elementwise as kernels
from minigrad_kernels.errors import KindError, ShapeError

from .. import device
from ..primitive import primitive
from .arguments import number_of, tensor_of

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
    tensor_of("dropout", "input", input)
    if not device.is_floating(input.dtype):
        raise KindError(f"dropout: input has elements {input.dtype}, wanted floating ones")
    if not 0 <= number_of("dropout", "p", p) <= 1:
        raise ShapeError(f"dropout: p is {p}, wanted a probability from 0 to 1")
    if not training or p == 0:
        return input
    return _dropout(input, float(p), device.default_generator.next_key(), device.order_of(input.data))
