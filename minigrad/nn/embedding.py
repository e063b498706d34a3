"""The table of learned vectors."""

from minigrad_kernels.errors import ShapeError

from .. import ops
from ..engine import write
from ..ops.arguments import tensor_of
from . import init
from .module import Module
from .options import at_least, flag_of, integer_of, number_of, parameter
from .parameter import Parameter

__all__ = ["Embedding"]


class Embedding(Module):
    """A vector for each integer below num_embeddings, a row of weight (num_embeddings, embedding_dim).

    padding_idx         a number whose vector is 0 at the start and gets no gradient
    scale_grad_by_freq  divide the gradient of a vector by how often the input names it
    max_norm, norm_type, sparse     are PyTorch's, of which only None, any number and False are supported
    _weight, _freeze    a weight to share memory with, and whether it is to stay as it is
    Weight starts normal with variance 1, as PyTorch's does.
    Shapes  integers (...) -> (..., embedding_dim)
    """

    def __init__(
        self,
        num_embeddings,
        embedding_dim,
        padding_idx=None,
        max_norm=None,
        norm_type=2.0,
        scale_grad_by_freq=False,
        sparse=False,
        _weight=None,
        _freeze=False,
        device=None,
        dtype=None,
    ):
        self.num_embeddings = at_least("Embedding", "num_embeddings", num_embeddings, 0)
        self.embedding_dim = at_least("Embedding", "embedding_dim", embedding_dim, 0)
        self.padding_idx = self._row(padding_idx)
        if max_norm is not None or flag_of("Embedding", "sparse", sparse):
            raise ShapeError(f"Embedding: max_norm is {max_norm}, sparse {sparse}; wanted None and False")
        self.max_norm, self.norm_type, self.sparse = None, number_of("Embedding", "norm_type", norm_type), False
        self.scale_grad_by_freq = flag_of("Embedding", "scale_grad_by_freq", scale_grad_by_freq)
        shape = (self.num_embeddings, self.embedding_dim)
        if _weight is None:
            self.weight = parameter("Embedding", shape, device, dtype)
            self.reset_parameters()
        elif tensor_of("Embedding", "_weight", _weight).shape != shape:
            raise ShapeError(f"Embedding: _weight has shape {_weight.shape}, wanted {shape}")
        else:
            self.weight = Parameter(_weight)
        self.weight.requires_grad_(not flag_of("Embedding", "_freeze", _freeze))

    def _row(self, index):
        """The index counted from the front, or None."""
        if index is None:
            return None
        if not -self.num_embeddings <= integer_of("Embedding", "padding_idx", index) < self.num_embeddings:
            raise ShapeError(f"Embedding: padding_idx is {index}, wanted one of {self.num_embeddings} rows")
        return index % self.num_embeddings

    @classmethod
    def from_pretrained(
        cls,
        embeddings,
        freeze=True,
        padding_idx=None,
        max_norm=None,
        norm_type=2.0,
        scale_grad_by_freq=False,
        sparse=False,
    ):
        """An Embedding whose weight is this Tensor; freeze: it is not trained."""
        if tensor_of("Embedding", "embeddings", embeddings).ndim != 2:
            raise ShapeError(f"Embedding: embeddings has shape {embeddings.shape}, wanted two dimensions")
        options = (padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
        return cls(*embeddings.shape, *options, embeddings, freeze)

    def reset_parameters(self, generator=None):
        """Draw the weight anew."""
        init.normal_(self.weight, generator=generator)
        if self.padding_idx is not None:
            write(self.weight)[self.padding_idx] = 0

    def forward(self, input):
        options = (self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse)
        return ops.embedding(input, self.weight, self.padding_idx, *options)

    def extra_repr(self):
        parts = [f"{self.num_embeddings}, {self.embedding_dim}"]
        parts += [f"padding_idx={self.padding_idx}"] if self.padding_idx is not None else []
        parts += [f"norm_type={self.norm_type}"] if self.norm_type != 2 else []
        parts += ["scale_grad_by_freq=True"] if self.scale_grad_by_freq else []
        return ", ".join(parts)
