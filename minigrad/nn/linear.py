"""Layers with a matrix: of weights, or of a learned vector for each number."""

from dataclasses import InitVar

from ..core.tape import write
from . import functional as F
from . import init
from .layer import Affine, Size, Weighted


class Linear(Affine, op=F.linear):
    """x W^T + b: weight (out_features, in_features), bias (out_features,).

    Both start even in +-1 / sqrt(in_features), as PyTorch's do.
    Shapes  (..., in_features) -> (..., out_features)
    """

    in_features: Size
    out_features: Size
    bias: InitVar[bool] = True

    def shapes(self):
        return (self.out_features, self.in_features), (self.out_features,)


class Embedding(Weighted, op=F.embedding, unnamed=2):
    """A vector for each integer below num_embeddings, a row of weight (num_embeddings, embedding_dim).

    padding_idx     a number whose vector is 0 at the start and gets no gradient
    Weight starts normal with variance 1, as PyTorch's does.
    Shapes  integers (...) -> (..., embedding_dim)
    """

    num_embeddings: Size
    embedding_dim: Size
    padding_idx: int | None = None

    def shapes(self):
        return (self.num_embeddings, self.embedding_dim), None

    def reset_parameters(self):
        """Draw the weight anew."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            write(self.weight)[self.padding_idx] = 0
