"""Activations.

`inplace` is PyTorch's and changes nothing: a Tensor is a value, and the output a new one.
"""

from minigrad_kernels.errors import ShapeError

from .. import ops
from .module import Module
from .options import flag_of, integer_of, number_of, one_of

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


class _Rectifier(Module):
    """An activation whose last option is inplace."""

    def __init__(self, inplace=False):
        self.inplace = flag_of(type(self).__name__, "inplace", inplace)

    def extra_repr(self):
        return "inplace=True" if self.inplace else ""


class ReLU(_Rectifier):
    """max(x, 0)."""

    def forward(self, input):
        return ops.relu(input)


class LeakyReLU(_Rectifier):
    """x above 0, negative_slope x below."""

    def __init__(self, negative_slope=0.01, inplace=False):
        super().__init__(inplace)
        self.negative_slope = number_of("LeakyReLU", "negative_slope", negative_slope)

    def forward(self, input):
        return ops.leaky_relu(input, self.negative_slope)

    def extra_repr(self):
        return ", ".join(filter(None, (f"negative_slope={self.negative_slope}", super().extra_repr())))


class Hardtanh(_Rectifier):
    """x between min_val and max_val, these beyond them."""

    def __init__(self, min_val=-1.0, max_val=1.0, inplace=False):
        super().__init__(inplace)
        self.min_val = number_of("Hardtanh", "min_val", min_val)
        self.max_val = number_of("Hardtanh", "max_val", max_val)
        if not self.min_val < self.max_val:
            raise ShapeError(f"Hardtanh: min_val is {min_val} and max_val {max_val}, wanted min_val < max_val")

    def forward(self, input):
        return ops.hardtanh(input, self.min_val, self.max_val)

    def extra_repr(self):
        limits = f"min_val={self.min_val}, max_val={self.max_val}"
        return ", ".join(filter(None, (limits, super().extra_repr())))


class ReLU6(_Rectifier):
    """max(x, 0), but 6 at most."""

    def forward(self, input):
        return ops.relu6(input)


class ELU(_Rectifier):
    """x above 0, alpha (e^x - 1) below."""

    def __init__(self, alpha=1.0, inplace=False):
        super().__init__(inplace)
        self.alpha = number_of("ELU", "alpha", alpha)

    def forward(self, input):
        return ops.elu(input, self.alpha)

    def extra_repr(self):
        return ", ".join(filter(None, (f"alpha={self.alpha}", super().extra_repr())))


class SiLU(_Rectifier):
    """x sigmoid(x)."""

    def forward(self, input):
        return ops.silu(input)


class GELU(Module):
    """x times the probability that a normal number is below x; approximate 'none', or 'tanh' for a formula near it."""

    def __init__(self, approximate="none"):
        self.approximate = one_of("GELU", "approximate", approximate, ("none", "tanh"))

    def forward(self, input):
        return ops.gelu(input, approximate=self.approximate)

    def extra_repr(self):
        return f"approximate={self.approximate!r}"


class Softplus(Module):
    """ln(1 + e^(beta x)) / beta; x itself where beta x is above the threshold."""

    def __init__(self, beta=1.0, threshold=20.0):
        self.beta = number_of("Softplus", "beta", beta)
        self.threshold = number_of("Softplus", "threshold", threshold)

    def forward(self, input):
        return ops.softplus(input, self.beta, self.threshold)

    def extra_repr(self):
        return f"beta={self.beta}, threshold={self.threshold}"


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


class Softmax(Module):
    """Exponentials along dimension dim, which must be given, scaled so that they sum to 1."""

    def __init__(self, dim):
        self.dim = integer_of(type(self).__name__, "dim", dim)

    def forward(self, input):
        return ops.softmax(input, self.dim)

    def extra_repr(self):
        return f"dim={self.dim}"


class LogSoftmax(Softmax):
    """The logarithm of Softmax."""

    def forward(self, input):
        return ops.log_softmax(input, self.dim)
