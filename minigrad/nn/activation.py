"""Activations.

`inplace` is PyTorch's and changes nothing: a Tensor is a value, and the output a new one.
"""

from minigrad_kernels.errors import ShapeError

from .. import ops
from ..core.check import integer_of, number_of, one_of
from .module import Module

__all__ = [
    "ELU",
    "GELU",
    "Hardtanh",
    "LeakyReLU",
    "LogSigmoid",
    "LogSoftmax",
    "ReLU",
    "ReLU6",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "Tanh",
]


class _Activation(Module):
    """An activation; shown: the options that its repr shows."""

    shown: tuple[str, ...] = ()

    def _keep(self, **numbers):
        for name, value in numbers.items():
            setattr(self, name, number_of(type(self).__name__, name, value))

    def extra_repr(self):
        parts = [f"{name}={getattr(self, name)!r}" for name in self.shown]
        return ", ".join(parts + ["inplace=True"] * bool(getattr(self, "inplace", False)))


class ReLU(_Activation):
    """max(x, 0)."""

    def __init__(self, inplace=False):
        self.inplace = inplace

    def forward(self, input):
        return ops.relu(input)


class ReLU6(ReLU):
    """max(x, 0), but 6 at most."""

    def forward(self, input):
        return ops.relu6(input)


class SiLU(ReLU):
    """x sigmoid(x)."""

    def forward(self, input):
        return ops.silu(input)


class LeakyReLU(_Activation):
    """x above 0, negative_slope x below."""

    shown = ("negative_slope",)

    def __init__(self, negative_slope=0.01, inplace=False):
        self._keep(negative_slope=negative_slope)
        self.inplace = inplace

    def forward(self, input):
        return ops.leaky_relu(input, self.negative_slope)


class Hardtanh(_Activation):
    """x between min_val and max_val, these beyond them."""

    shown = ("min_val", "max_val")

    def __init__(self, min_val=-1.0, max_val=1.0, inplace=False):
        self._keep(min_val=min_val, max_val=max_val)
        self.inplace = inplace
        if not min_val < max_val:
            raise ShapeError(f"Hardtanh: min_val is {min_val} and max_val {max_val}, wanted min_val < max_val")

    def forward(self, input):
        return ops.hardtanh(input, self.min_val, self.max_val)


class ELU(_Activation):
    """x above 0, alpha (e^x - 1) below."""

    shown = ("alpha",)

    def __init__(self, alpha=1.0, inplace=False):
        self._keep(alpha=alpha)
        self.inplace = inplace

    def forward(self, input):
        return ops.elu(input, self.alpha)


class GELU(_Activation):
    """x times the probability that a normal number is below x; approximate 'none', or 'tanh' for a formula near it."""

    shown = ("approximate",)

    def __init__(self, approximate="none"):
        self.approximate = one_of("GELU", "approximate", approximate, ("none", "tanh"))

    def forward(self, input):
        return ops.gelu(input, approximate=self.approximate)


class Softplus(_Activation):
    """ln(1 + e^(beta x)) / beta; x itself where beta x is above the threshold."""

    shown = ("beta", "threshold")

    def __init__(self, beta=1.0, threshold=20.0):
        self._keep(beta=beta, threshold=threshold)

    def forward(self, input):
        return ops.softplus(input, self.beta, self.threshold)


class LogSigmoid(Module):
    """The logarithm of Sigmoid."""

    def forward(self, input):
        return ops.logsigmoid(input)


class Sigmoid(Module):
    """1 / (1 + e^{-x})."""

    def forward(self, input):
        return ops.sigmoid(input)


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, input):
        return ops.tanh(input)


class Softmax(_Activation):
    """Exponentials along dimension dim, which must be given, scaled so that they sum to 1."""

    shown = ("dim",)

    def __init__(self, dim):
        self.dim = integer_of(type(self).__name__, "dim", dim)

    def forward(self, input):
        return ops.softmax(input, self.dim)


class LogSoftmax(Softmax):
    """The logarithm of Softmax."""

    def forward(self, input):
        return ops.log_softmax(input, self.dim)
