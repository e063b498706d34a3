"""Ops with random numbers.

Types   floating; out as input
Errors  ValueError for a probability out of range, TypeError for other element types
Source  Srivastava and others 2014, "Dropout"; Salmon and others 2011, "Parallel random numbers: as easy as 1, 2, 3"
"""

from minigrad_kernels import elementwise as kernels
from minigrad_kernels.errors import ShapeError

from .. import device
from ..core.check import flag_of, floats_of, number_of
from ..core.primitive import primitive
from ..core.tensor import Tensor, tensor_of

__all__ = ["dropout", "dropout1d", "dropout2d"]


@primitive
def _dropout(input, p, key, order):
    """input times a mask that is a pure function of key and of the position in memory, so it is its own adjoint."""
    x = device.contiguous(input, order)
    out = device.empty(x.shape, x.dtype, order, x)
    kernels.dropout(x, p, *key, out)
    return out


_dropout.grads(input=lambda g, p, key, order: _dropout(g, p, key, order))


def _settings(op, input, p, training):
    """(p, whether anything is to be dropped)."""
    tensor_of(op, "input", input)
    p = float(number_of(op, "p", p, 0, 1))
    active = flag_of(op, "training", training) and p > 0
    if active:
        floats_of(op, "input", input.array)
    return p, active


def dropout(input, p=0.5, training=True, inplace=False):
    """Each element set to 0 with probability p, the others scaled up so that the expectation stays.

    Math    out = input * mask / (1 - p), mask = 1 with probability 1 - p; not training: out = input
    Grads   dinput = g * mask / (1 - p)
    Shapes  out as input
    """
    p, active = _settings("dropout", input, p, training)
    if not active:
        return input
    return _dropout(input, p, device.generator().next_key(), device.order_of(input.array))


def _of_channels(input, p, shape):
    """The input with the elements dropped together that one element of this shape stands for."""
    ones = Tensor.made(device.full(shape, 1, input.dtype, like=input.array))
    return input * _dropout(ones, p, device.generator().next_key(), tuple(range(len(shape))))


def dropout1d(input, p=0.5, training=True, inplace=False):
    """Whole channels of sequences set to 0 with probability p, the others scaled up so that the expectation stays.

    Math    out = input * mask / (1 - p), mask = 1 with probability 1 - p for each n and c; not training: out = input
    Grads   dinput = g * mask / (1 - p)
    Shapes  (N, C, L) or (C, L), out alike
    """
    p, active = _settings("dropout1d", input, p, training)
    if input.ndim not in (2, 3):
        raise ShapeError(f"dropout1d: input has shape {input.shape}, wanted (N, C, L) or (C, L)")
    return _of_channels(input, p, (*input.shape[:-1], 1)) if active else input


def dropout2d(input, p=0.5, training=True, inplace=False):
    """Whole channels of images set to 0 with probability p, the others scaled up so that the expectation stays.

    Math    out = input * mask / (1 - p), mask = 1 with probability 1 - p for each n and c; not training: out = input
    Grads   dinput = g * mask / (1 - p)
    Shapes  (N, C, H, W), out alike; three dimensions are (N, C, L), as in PyTorch
    """
    p, active = _settings("dropout2d", input, p, training)
    if input.ndim not in (3, 4):
        raise ShapeError(f"dropout2d: input has shape {input.shape}, wanted (N, C, H, W) or (N, C, L)")
    return _of_channels(input, p, (*input.shape[:2], *(1,) * (input.ndim - 2))) if active else input
