"""Activations, and dropout.

`inplace` is PyTorch's and changes nothing: a Tensor is a value, and the output a new one.
"""

from .. import ops
from .module import Module
from .options import at_least, fraction

__all__ = ["Dropout", "LogSoftmax", "ReLU", "Sigmoid", "Softmax", "Tanh"]


class ReLU(Module):
    """max(x, 0)."""

    def __init__(self, inplace=False):
        self.inplace = inplace

    def forward(self, input):
        return ops.relu(input)

    def extra_repr(self):
        return "inplace=True" if self.inplace else ""


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
        self.dim = at_least(type(self).__name__, "dim", dim, -(1 << 31))

    def forward(self, input):
        return ops.softmax(input, self.dim)

    def extra_repr(self):
        return f"dim={self.dim}"


class LogSoftmax(Softmax):
    """The logarithm of Softmax."""

    def forward(self, input):
        return ops.log_softmax(input, self.dim)


class Dropout(Module):
    """In training, each element set to 0 with probability p and the others scaled by 1 / (1 - p)."""

    def __init__(self, p=0.5, inplace=False):
        self.p, self.inplace = fraction("Dropout", "p", p), inplace

    def forward(self, input):
        return ops.dropout(input, self.p, self.training)

    def extra_repr(self):
        return f"p={self.p}, inplace={self.inplace}"
