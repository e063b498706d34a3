"""Attention of several heads, and the layer of a transformer."""

import math

from minigrad_kernels.errors import ShapeError

from ..core.check import flag_of, function_of, integer_of, number_of
from ..core.tensor import tensor_of
from ..ops.attention import attended
from . import functional as F
from . import init
from .activation import Dropout
from .linear import Linear
from .module import Module
from .norm import LayerNorm
from .parameter import parameter

__all__ = ["MultiheadAttention", "TransformerEncoderLayer"]


class MultiheadAttention(Module):
    """Attention in num_heads subspaces of the embedding: out_proj(heads side by side).

    dropout         the probability with which a weight of attention is set to 0 in training
    batch_first     the batch is dimension 0, not 1
    in_proj_weight  (3 embed_dim, embed_dim), the maps of query, key and value one below the other; in_proj_bias

    Called as attention(query, key, value); returns (out, weights).
    attn_mask           True where a query may not take a key, or numbers that are added to their product
    key_padding_mask    the same for each key of the batch
    need_weights        return their mean over the heads too; else weights is None
    is_causal           query i takes part of the keys up to i alone; an attn_mask, where given, says it all
    Shapes  query (L, N, E), key and value (S, N, E) -> (L, N, E), weights (N, L, S); with batch_first
            (N, L, E) and (N, S, E); without a batch no N. attn_mask (L, S) or (N num_heads, L, S), key_padding_mask
            (N, S)
    Source  Vaswani and others 2017, "Attention is all you need", section 3.2.2
    """

    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=True, *, batch_first=False, device=None, dtype=None):
        layer = type(self).__name__
        self.embed_dim = integer_of(layer, "embed_dim", embed_dim, 1)
        self.num_heads = integer_of(layer, "num_heads", num_heads, 1)
        self.dropout = number_of(layer, "dropout", dropout, 0, 1)
        self.batch_first = flag_of(layer, "batch_first", batch_first)
        self.in_proj_weight = parameter(layer, (3 * embed_dim, embed_dim), device, dtype)
        self.register_parameter("in_proj_bias", parameter(layer, (3 * embed_dim,), device, dtype) if bias else None)
        self.out_proj = Linear(embed_dim, embed_dim, bias, device=device, dtype=dtype)
        self.reset_parameters()

    def reset_parameters(self):
        """Draw the parameters anew; biases are 0."""
        init.xavier_uniform_(self.in_proj_weight)
        self.out_proj.reset_parameters()
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)

    def forward(self, query, key, value, key_padding_mask=None, need_weights=True, attn_mask=None, is_causal=False):
        if query is key is value:  # one product does all three
            seen = F.chunk(F.linear(query, self.in_proj_weight, self.in_proj_bias), 3, -1)
        else:
            biases = (None,) * 3 if self.in_proj_bias is None else F.chunk(self.in_proj_bias, 3)
            maps = zip((query, key, value), F.chunk(self.in_proj_weight, 3), biases, strict=True)
            seen = [F.linear(*one) for one in maps]
        batched = query.ndim == 3
        # Now (N, L, E); then a head for each part of E.
        seen = [x if self.batch_first else F.transpose(x, 0, 1) for x in seen] if batched else [x[None] for x in seen]
        q, k, v = (F.transpose(F.unflatten(x, -1, (self.num_heads, -1)), 1, 2) for x in seen)
        mask = self._mask(attn_mask, key_padding_mask, q.shape[0], q.shape[2], k.shape[2], q.dtype)
        out, weights = attended(q, k, v, mask, self.dropout if self.training else 0.0, is_causal and attn_mask is None)
        out = F.flatten(F.transpose(out, 1, 2), 2)
        if not batched:
            out, weights = out[0], weights[0]
        elif not self.batch_first:
            out = F.transpose(out, 0, 1)
        return self.out_proj(out), F.mean(weights, -3) if need_weights else None

    def _mask(self, attn_mask, key_padding_mask, n, l, s, dtype):
        """What is to be added to the products (n, heads, l, s) of queries and keys; None for nothing."""
        shapes = {(l, s): (l, s), (n * self.num_heads, l, s): (n, self.num_heads, l, s)}
        of_pairs = self._numbers("attn_mask", attn_mask, dtype, shapes)
        of_keys = self._numbers("key_padding_mask", key_padding_mask, dtype, {(n, s): (n, 1, 1, s), (s,): (s,)})
        return of_keys if of_pairs is None else of_pairs if of_keys is None else of_pairs + of_keys

    def _numbers(self, name, mask, dtype, shapes):
        """A mask as numbers to be added, -inf for True, in the shape that its own stands for in `shapes`."""
        if mask is None:
            return None
        if tensor_of("MultiheadAttention", name, mask).shape not in shapes:
            raise ShapeError(f"MultiheadAttention: {name} has shape {mask.shape}, wanted one of {[*shapes]}")
        mask = F.masked_fill(F.to(mask, dtype), mask, -math.inf) if mask.dtype == bool else mask
        return F.reshape(mask, shapes[mask.shape])


class TransformerEncoderLayer(Module):
    """Attention of a sequence to itself, then two linear maps at each place; each is added to its input.

    dim_feedforward     outputs of the first map
    dropout             the probability of what is dropped in training: weights, and elements after each map
    activation          between the maps: "relu", "gelu" or a function
    norm_first          normalise the inputs of the two parts, which learns more steadily; else their sums
    Called as layer(src, src_mask, src_key_padding_mask, is_causal), masks as in MultiheadAttention.
    Shapes  (L, N, d_model), with batch_first (N, L, d_model), without a batch (L, d_model); out alike
    Source  Vaswani and others 2017, "Attention is all you need", section 3.1; Xiong and others 2020, "On layer
            normalization in the transformer architecture", for norm_first
    """

    def __init__(
        self,
        d_model,
        nhead,
        dim_feedforward=2048,
        dropout=0.1,
        activation=F.relu,
        layer_norm_eps=1e-5,
        batch_first=False,
        norm_first=False,
        bias=True,
        device=None,
        dtype=None,
    ):
        layer, place = type(self).__name__, {"device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, **place)
        self.linear1 = Linear(d_model, dim_feedforward, bias, **place)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, **place)
        self.norm_first = flag_of(layer, "norm_first", norm_first)
        self.norm1, self.norm2 = (LayerNorm(d_model, layer_norm_eps, bias=bias, **place) for _ in range(2))
        self.dropout1, self.dropout2 = Dropout(dropout), Dropout(dropout)
        self.activation = function_of(layer, "activation", {"relu": F.relu, "gelu": F.gelu}.get(activation, activation))

    def forward(self, src, src_mask=None, src_key_padding_mask=None, is_causal=False):
        def attend(x):
            return self.dropout1(self.self_attn(x, x, x, src_key_padding_mask, False, src_mask, is_causal)[0])

        def feed(x):
            return self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))

        if self.norm_first:
            x = src + attend(self.norm1(src))
            return x + feed(self.norm2(x))
        x = self.norm1(src + attend(src))
        return self.norm2(x + feed(x))
