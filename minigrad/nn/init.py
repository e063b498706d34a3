"""Initialisers: fill a parameter with numbers drawn or given; they return it.

Numbers are drawn in float64, in the logical order of the elements, and rounded to the parameter's type: they
depend neither on the layout in memory nor on the type. They come from minigrad.default_generator unless
`generator` is another one. Shapes of weights: (out, in), or (out, in / groups, height, width) of a convolution;
fan_in = in / groups * height * width, fan_out = out * height * width.

Errors  ValueError for an option out of range or a weight with fewer than two dimensions, RuntimeError for a
        Tensor that is the result of an operation; nothing is drawn then
Source  Glorot and Bengio 2010, "Understanding the difficulty of training deep feedforward neural networks",
        eq. 16; He and others 2015, "Delving deep into rectifiers", eq. 14
"""

import math

from minigrad_kernels.errors import ShapeError, StateError

from .. import device
from ..engine import write

__all__ = [
    "calculate_gain",
    "constant_",
    "kaiming_normal_",
    "kaiming_uniform_",
    "normal_",
    "ones_",
    "uniform_",
    "xavier_normal_",
    "xavier_uniform_",
    "zeros_",
]

_GAINS = {"tanh": 5 / 3, "relu": math.sqrt(2), "selu": 3 / 4}
_GAINS |= dict.fromkeys(("linear", "conv1d", "conv2d", "conv3d", "sigmoid"), 1.0)


def calculate_gain(nonlinearity, param=None):
    """The factor that keeps the variance of activations through a nonlinearity.

    param   the negative slope of leaky_relu, 0.01 by default
    """
    if nonlinearity == "leaky_relu":
        return math.sqrt(2 / (1 + (0.01 if param is None else param) ** 2))
    if nonlinearity not in _GAINS:
        known = ", ".join(sorted((*_GAINS, "leaky_relu")))
        raise ShapeError(f"calculate_gain: nonlinearity is {nonlinearity!r}, wanted one of {known}")
    return _GAINS[nonlinearity]


def _fill(op, tensor, draw, generator):
    if tensor.node is not None:
        raise StateError(f"{op}: the Tensor was made by {tensor.node.primitive.name}, wanted a leaf")
    numbers = draw((generator or device.default_generator).numpy)
    write(tensor)[...] = device.move(numbers, tensor.device)
    return tensor


def uniform_(tensor, a=0.0, b=1.0, generator=None):
    """Numbers drawn evenly from [a, b)."""
    return _uniform("uniform_", tensor, a, b, generator)


def _uniform(op, tensor, a, b, generator):
    if not a <= b:
        raise ShapeError(f"{op}: a is {a} and b {b}, wanted a <= b")
    return _fill(op, tensor, lambda source: a + (b - a) * source.random(tensor.shape), generator)


def normal_(tensor, mean=0.0, std=1.0, generator=None):
    """Numbers drawn from the normal distribution."""
    return _normal("normal_", tensor, mean, std, generator)


def _normal(op, tensor, mean, std, generator):
    if not std >= 0:
        raise ShapeError(f"{op}: std is {std}, wanted at least 0")
    return _fill(op, tensor, lambda source: mean + std * source.standard_normal(tensor.shape), generator)


def constant_(tensor, val):
    """One value everywhere."""
    write(tensor).fill(val)
    return tensor


def zeros_(tensor):
    """0 everywhere."""
    return constant_(tensor, 0)


def ones_(tensor):
    """1 everywhere."""
    return constant_(tensor, 1)


def fans(op, tensor):
    """(fan_in, fan_out): how many numbers each output, and each gradient of an input, is summed from."""
    if tensor.ndim < 2:
        raise ShapeError(f"{op}: tensor has shape {tensor.shape}, wanted at least two dimensions, (out, in, ...)")
    out, into, *window = tensor.shape
    return into * math.prod(window), out * math.prod(window)


def _kaiming(op, tensor, a, mode, nonlinearity):
    if mode not in ("fan_in", "fan_out"):
        raise ShapeError(f"{op}: mode is {mode!r}, wanted 'fan_in' or 'fan_out'")
    fan = fans(op, tensor)[mode == "fan_out"]
    return calculate_gain(nonlinearity, a) / math.sqrt(fan or 1)  # an empty weight has fan 0 and nothing to fill


def kaiming_uniform_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu", generator=None):
    """Numbers drawn evenly from [-bound, bound), bound = gain * sqrt(3 / fan); a: the slope of leaky_relu."""
    bound = math.sqrt(3) * _kaiming("kaiming_uniform_", tensor, a, mode, nonlinearity)
    return _uniform("kaiming_uniform_", tensor, -bound, bound, generator)


def kaiming_normal_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu", generator=None):
    """Normal numbers with standard deviation gain / sqrt(fan); a: the slope of leaky_relu."""
    std = _kaiming("kaiming_normal_", tensor, a, mode, nonlinearity)
    return _normal("kaiming_normal_", tensor, 0, std, generator)


def xavier_uniform_(tensor, gain=1.0, generator=None):
    """Numbers drawn evenly from [-bound, bound), bound = gain * sqrt(6 / (fan_in + fan_out))."""
    bound = gain * math.sqrt(6 / (sum(fans("xavier_uniform_", tensor)) or 1))
    return _uniform("xavier_uniform_", tensor, -bound, bound, generator)


def xavier_normal_(tensor, gain=1.0, generator=None):
    """Normal numbers with standard deviation gain * sqrt(2 / (fan_in + fan_out))."""
    std = gain * math.sqrt(2 / (sum(fans("xavier_normal_", tensor)) or 1))
    return _normal("xavier_normal_", tensor, 0, std, generator)
