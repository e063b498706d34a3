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


def _of_channels(op, input, p, training, wanted, lead):
    """The input with all elements dropped together that stand at one place of the leading dimensions.

    lead    {a number of dimensions that the input may have: how many of them lead}
    """
    p, active = _settings(op, input, p, training)
    if input.ndim not in lead:
        raise ShapeError(f"{op}: input has shape {input.shape}, wanted {wanted}")
    if not active:
        return input
    shape = tuple([size if axis < lead[input.ndim] else 1 for axis, size in enumerate(input.shape)])
    ones = Tensor.made(device.full(shape, 1, input.dtype, like=input.array))
    return input * _dropout(ones, p, device.generator().next_key(), tuple(range(input.ndim)))


def dropout1d(input, p=0.5, training=True, inplace=False):
    """Whole channels of sequences set to 0 with probability p, the others scaled up so that the expectation stays.

    Math    out = input * mask / (1 - p), mask = 1 with probability 1 - p for each n and c; not training: out = input
    Grads   dinput = g * mask / (1 - p)
    Shapes  (N, C, L) or (C, L), out alike
    """
    return _of_channels("dropout1d", input, p, training, "(N, C, L) or (C, L)", {3: 2, 2: 1})


def dropout2d(input, p=0.5, training=True, inplace=False):
    """Whole channels of images set to 0 with probability p, the others scaled up so that the expectation stays.

    Math    out = input * mask / (1 - p), mask = 1 with probability 1 - p for each n and c; not training: out = input
    Grads   dinput = g * mask / (1 - p)
    Shapes  (N, C, H, W), out alike; three dimensions are (N, C, L), as in PyTorch
    """
    return _of_channels("dropout2d", input, p, training, "(N, C, H, W) or (N, C, L)", {4: 2, 3: 2})
