"""The fully connected layer."""

import math

from .. import ops
from ..core.check import flag_of, integer_of
from . import init
from .module import Module
from .parameter import parameter

__all__ = ["Linear"]


class Linear(Module):
    """x W^T + b: weight (out_features, in_features), bias (out_features,).

    Both start even in +-1 / sqrt(in_features), as PyTorch's do.
    Shapes  (..., in_features) -> (..., out_features)
    """

    def __init__(self, in_features, out_features, bias=True, device=None, dtype=None):
        self.in_features = integer_of("Linear", "in_features", in_features, 0)
        self.out_features = integer_of("Linear", "out_features", out_features, 0)
        self.weight = parameter("Linear", (self.out_features, self.in_features), device, dtype)
        vector = parameter("Linear", (self.out_features,), device, dtype) if flag_of("Linear", "bias", bias) else None
        self.register_parameter("bias", vector)
        self.reset_parameters()

    def reset_parameters(self, generator=None):
        """Draw the parameters anew."""
        init_affine(self, generator)

    def forward(self, input):
        return ops.linear(input, self.weight, self.bias)

    def extra_repr(self):
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


def init_affine(layer, generator):
    """PyTorch's start of linear and convolutional layers; with a = sqrt(5) the bound is 1 / sqrt(fan_in)."""
    init.kaiming_uniform_(layer.weight, a=math.sqrt(5), generator=generator)
    if layer.bias is not None:
        fan_in = init.fans(type(layer).__name__, layer.weight)[0]
        bound = 1 / math.sqrt(fan_in) if fan_in else 0.0
        init.uniform_(layer.bias, -bound, bound, generator)
