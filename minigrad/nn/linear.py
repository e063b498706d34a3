"""Layers with a matrix: of weights, or of a learned vector for each number."""

import math
from dataclasses import KW_ONLY, InitVar

from ..core.check import flag_of
from ..core.tape import write
from . import functional as F
from . import init
from .layer import Layer, Size
from .parameter import parameter


class Affine(Layer):
    """What Linear and convolutions have in common: a weight and a bias, and how they start."""

    transposed = False  # whether each number of the input is spread over the output

    def make_parameters(self, shape, outputs, bias, device, dtype, order=None):
        """A weight of this shape, its axes in this order in memory, and, if bias, a vector of so many outputs."""
        layer = type(self).__name__
        wanted = flag_of(layer, "bias", bias)
        self.weight = parameter(layer, shape, device, dtype, order)
        self.register_parameter("bias", parameter(layer, (outputs,), device, dtype) if wanted else None)
        self.reset_parameters()

    def reset_parameters(self):
        """Draw the parameters anew."""
        # PyTorch's start; with a = sqrt(5) the bound is 1 / sqrt(fan_in).
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init.fans(type(self).__name__, self.weight)
            bound = 1 / math.sqrt(fan_in) if fan_in else 0.0
            init.uniform_(self.bias, -bound, bound)


class Linear(Affine, op=F.linear):
    """x W^T + b: weight (out_features, in_features), bias (out_features,).

    Both start even in +-1 / sqrt(in_features), as PyTorch's do.
    Shapes  (..., in_features) -> (..., out_features)
    """

    in_features: Size
    out_features: Size
    bias: InitVar[bool] = True
    device: InitVar[object] = None
    dtype: InitVar[object] = None

    def __post_init__(self, bias, device, dtype):
        super().__post_init__()
        self.make_parameters((self.out_features, self.in_features), self.out_features, bias, device, dtype)


class Embedding(Layer, op=F.embedding, unnamed=2):
    """A vector for each integer below num_embeddings, a row of weight (num_embeddings, embedding_dim).

    padding_idx     a number whose vector is 0 at the start and gets no gradient
    Weight starts normal with variance 1, as PyTorch's does.
    Shapes  integers (...) -> (..., embedding_dim)
    """

    num_embeddings: Size
    embedding_dim: Size
    padding_idx: int | None = None
    _: KW_ONLY
    device: InitVar[object] = None
    dtype: InitVar[object] = None

    def __post_init__(self, device, dtype):
        super().__post_init__()
        self.weight = parameter("Embedding", (self.num_embeddings, self.embedding_dim), device, dtype)
        self.reset_parameters()

    def reset_parameters(self):
        """Draw the weight anew."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            write(self.weight)[self.padding_idx] = 0
