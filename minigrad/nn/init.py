"""Initialisers: fill a parameter with numbers drawn or given; they return it.

Numbers are drawn in float64, in the logical order of the elements, and rounded to the parameter's type: they
depend neither on the layout in memory nor on the type. They come from minigrad.default_generator unless
`generator` is another one. Shapes of weights: (out, in), or (out, in / groups, height, width) of a convolution;
fan_in = in / groups * height * width, fan_out = out * height * width.

Errors  ValueError for an option out of range or a weight with fewer than two dimensions, RuntimeError for a
        Tensor that is the result of an operation, TypeError for what is no Tensor; nothing is drawn then
Source  Glorot and Bengio 2010, "Understanding the difficulty of training deep feedforward neural networks",
        eq. 16; He and others 2015, "Delving deep into rectifiers", eq. 14; Saxe and others 2013, "Exact solutions
        to the nonlinear dynamics of learning in deep linear neural networks"
"""

import math

import numpy as np

from minigrad_kernels.errors import ShapeError

from ..core.check import float_of, one_of
from ..core.modes import no_grad
from ..core.tensor import tensor_of
from ..ops import in_place

# Fillings are updates in place, of parameters too.
_constant, _fill, _normal, _uniform = map(
    no_grad(), (in_place.constant, in_place.fill, in_place.normal, in_place.uniform)
)

_GAINS = {"tanh": 5 / 3, "relu": math.sqrt(2), "selu": 3 / 4}
_GAINS |= dict.fromkeys(("linear", "sigmoid"), 1.0)
_GAINS |= dict.fromkeys([f"conv{kind}{dims}d" for kind in ("", "_transpose") for dims in (1, 2, 3)], 1.0)


def calculate_gain(nonlinearity, param=None):
    """The factor that keeps the variance of activations through a nonlinearity.

    param   the negative slope of leaky_relu, 0.01 by default
    """
    one_of("calculate_gain", "nonlinearity", nonlinearity, (*_GAINS, "leaky_relu"))
    if nonlinearity != "leaky_relu":
        return _GAINS[nonlinearity]
    slope = 0.01 if param is None else float_of("calculate_gain", "param", param)
    return math.sqrt(2 / (1 + slope * slope))


def uniform_(tensor, a=0.0, b=1.0, generator=None):
    """Numbers drawn evenly from [a, b)."""
    return _uniform("uniform_", tensor, a, b, generator)


def normal_(tensor, mean=0.0, std=1.0, generator=None):
    """Numbers drawn from the normal distribution."""
    return _normal("normal_", tensor, mean, std, generator)


def trunc_normal_(tensor, mean=0.0, std=1.0, a=-2.0, b=2.0, generator=None):
    """Normal numbers; those outside of [a, b] are drawn again.

    Errors  also ValueError if fewer than one in a thousand would lie inside
    """
    if not (std > 0 and a <= b):
        raise ShapeError(f"trunc_normal_: std is {std}, a {a}, b {b}; wanted std > 0 and a <= b")
    low, high = (a - mean) / std, (b - mean) / std
    inside = (math.erf(high / math.sqrt(2)) - math.erf(low / math.sqrt(2))) / 2
    if inside < 1e-3:
        raise ShapeError(f"trunc_normal_: mean is {mean}, std {std}, too far from the range {a} to {b}")

    def draw(source, shape):
        numbers = source.standard_normal(shape)
        while (outside := (numbers < low) | (numbers > high)).any():
            numbers[outside] = source.standard_normal(int(outside.sum()))
        return mean + std * numbers

    return _fill("trunc_normal_", tensor, draw, generator)


def constant_(tensor, val):
    """One value everywhere."""
    return _constant("constant_", tensor, val)


def zeros_(tensor):
    """0 everywhere."""
    return _constant("zeros_", tensor, 0)


def ones_(tensor):
    """1 everywhere."""
    return _constant("ones_", tensor, 1)


def orthogonal_(tensor, gain=1, generator=None):
    """gain times an orthogonal matrix, all equally likely; the dimensions after the first are taken as one.

    Its rows, or its columns if they are fewer, are of length gain and at right angles.
    """
    columns, _ = fans("orthogonal_", tensor)
    gain, rows = float_of("orthogonal_", "gain", gain), tensor.shape[0]

    def draw(source, shape):
        normal = source.standard_normal((max(rows, columns), min(rows, columns)))
        q, r = np.linalg.qr(normal)
        q = q * np.where(np.diagonal(r) < 0, -1.0, 1.0)  # else the signs that QR prefers would be likelier
        return gain * (q if rows >= columns else q.T).reshape(tensor.shape)

    return _fill("orthogonal_", tensor, draw, generator)


def fans(op, tensor):
    """(fan_in, fan_out): how many numbers each output, and each gradient of an input, is summed from."""
    if tensor_of(op, "tensor", tensor).ndim < 2:
        raise ShapeError(f"{op}: tensor has shape {tensor.shape}, wanted at least two dimensions, (out, in, ...)")
    out, into, *window = tensor.shape
    return into * math.prod(window), out * math.prod(window)


def _kaiming(op, tensor, a, mode, nonlinearity):
    fan = fans(op, tensor)[one_of(op, "mode", mode, ("fan_in", "fan_out")) == "fan_out"]
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
    bound = float_of("xavier_uniform_", "gain", gain) * math.sqrt(6 / (sum(fans("xavier_uniform_", tensor)) or 1))
    return _uniform("xavier_uniform_", tensor, -bound, bound, generator)


def xavier_normal_(tensor, gain=1.0, generator=None):
    """Normal numbers with standard deviation gain * sqrt(2 / (fan_in + fan_out))."""
    std = float_of("xavier_normal_", "gain", gain) * math.sqrt(2 / (sum(fans("xavier_normal_", tensor)) or 1))
    return _normal("xavier_normal_", tensor, 0, std, generator)
