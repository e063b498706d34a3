"""Dropout: noise in training that keeps units from relying on each other.

`inplace` is PyTorch's and changes nothing: a Tensor is a value, and the output a new one.
"""

from .. import ops
from ..core.check import number_of
from .module import Module

__all__ = ["Dropout", "Dropout1d", "Dropout2d"]


class Dropout(Module):
    """In training, each element set to 0 with probability p and the others scaled by 1 / (1 - p)."""

    def __init__(self, p=0.5, inplace=False):
        self.p, self.inplace = number_of(type(self).__name__, "p", p, 0, 1), inplace

    def forward(self, input):
        return ops.dropout(input, self.p, self.training)

    def extra_repr(self):
        return f"p={self.p}, inplace={self.inplace}"


class Dropout1d(Dropout):
    """In training, whole channels of (N, C, L) set to 0 with probability p and the others scaled by 1 / (1 - p)."""

    def forward(self, input):
        return ops.dropout1d(input, self.p, self.training)


class Dropout2d(Dropout):
    """In training, whole channels of (N, C, H, W) set to 0 with probability p and the others scaled by 1 / (1 - p)."""

    def forward(self, input):
        return ops.dropout2d(input, self.p, self.training)
