"""The table of learned vectors."""

from minigrad_kernels.errors import ShapeError

from .. import ops
from ..core.check import integer_of
from ..core.tape import write
from ..core.tensor import tensor_of
from . import init
from .module import Module
from .parameter import Parameter, parameter

__all__ = ["Embedding"]


class Embedding(Module):
    """A vector for each integer below num_embeddings, a row of weight (num_embeddings, embedding_dim).

    padding_idx     a number whose vector is 0 at the start and gets no gradient
    Weight starts normal with variance 1, as PyTorch's does.
    Shapes  integers (...) -> (..., embedding_dim)
    """

    def __init__(self, num_embeddings, embedding_dim, padding_idx=None, *, device=None, dtype=None):
        self.num_embeddings = integer_of("Embedding", "num_embeddings", num_embeddings, 0)
        self.embedding_dim = integer_of("Embedding", "embedding_dim", embedding_dim, 0)
        if padding_idx is not None:
            if not -num_embeddings <= integer_of("Embedding", "padding_idx", padding_idx) < num_embeddings:
                raise ShapeError(f"Embedding: padding_idx is {padding_idx}, wanted one of {num_embeddings} rows")
            padding_idx %= num_embeddings
        self.padding_idx = padding_idx
        self.weight = parameter("Embedding", (self.num_embeddings, self.embedding_dim), device, dtype)
        self.reset_parameters()

    @classmethod
    def from_pretrained(cls, embeddings, freeze=True, padding_idx=None):
        """An Embedding whose weight shares the memory of this Tensor; freeze: it is not trained."""
        if tensor_of("Embedding", "embeddings", embeddings).ndim != 2:
            raise ShapeError(f"Embedding: embeddings has shape {embeddings.shape}, wanted two dimensions")
        made = cls(0, embeddings.shape[1])
        made.num_embeddings, made.weight = len(embeddings.array), Parameter(embeddings, not freeze)
        made.padding_idx = None if padding_idx is None else padding_idx % made.num_embeddings
        return made

    def reset_parameters(self, generator=None):
        """Draw the weight anew."""
        init.normal_(self.weight, generator=generator)
        if self.padding_idx is not None:
            write(self.weight)[self.padding_idx] = 0

    def forward(self, input):
        return ops.embedding(input, self.weight, self.padding_idx)

    def extra_repr(self):
        parts = [f"{self.num_embeddings}, {self.embedding_dim}"]
        parts += [f"padding_idx={self.padding_idx}"] if self.padding_idx is not None else []
        return ", ".join(parts)
