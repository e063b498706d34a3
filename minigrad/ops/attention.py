"""Attention: each query takes an average of values, weighted by how well their keys fit.

Types   one floating type for all; attn_mask floating or bool
Errors  ValueError if sizes do not fit, TypeError for mixed or other types
Source  Vaswani and others 2017, "Attention is all you need", section 3.2
"""

import math

from minigrad_kernels.errors import ShapeError

from .. import device
from ..core.check import flag_of, float_of, number_of
from ..core.tensor import Tensor, floating_of, tensor_of
from .elementwise import bitwise_not, bitwise_or, eq, masked_fill
from .matmul import matmul
from .random import dropout
from .reduce import all
from .shape import transpose, triu
from .softmax import softmax

__all__ = ["scaled_dot_product_attention"]

OP = "scaled_dot_product_attention"


def _check(query, key, value, attn_mask):
    q, k, v = (floating_of(OP, *one).shape for one in (("query", query), ("key", key), ("value", value)))
    if min(len(q), len(k), len(v)) < 2 or q[-1] != k[-1] or k[-2] != v[-2]:
        raise ShapeError(f"{OP}: query has shape {q}, key {k}, value {v}; wanted (..., L, E), (..., S, E), (..., S, D)")
    if attn_mask is not None and tensor_of(OP, "attn_mask", attn_mask).dtype != bool:
        floating_of(OP, "attn_mask", attn_mask)


def _blocked(scores, attn_mask, is_causal):
    """(scores with the mask added, the places that take no part or None)."""
    blocked = None
    if attn_mask is not None:
        sizes = scores.shape[scores.ndim - attn_mask.ndim :]
        if len(sizes) != attn_mask.ndim or any(m not in (1, n) for m, n in zip(attn_mask.shape, sizes, strict=True)):
            raise ShapeError(f"{OP}: attn_mask has shape {attn_mask.shape}, wanted one for products {scores.shape}")
        numbers = attn_mask.dtype != bool
        blocked = eq(attn_mask, -math.inf) if numbers else bitwise_not(attn_mask)
        scores = scores + masked_fill(attn_mask, blocked, 0) if numbers else scores
    if is_causal:
        later = triu(Tensor.made(device.full(scores.shape[-2:], True, "bool", like=scores.array)), 1)
        blocked = later if blocked is None else bitwise_or(blocked, later)
    return scores, blocked


def attended(query, key, value, attn_mask, dropout_p, is_causal, scale=None):
    """(the averages of values, their weights, after dropout)."""
    _check(query, key, value, attn_mask)
    scale = 1 / math.sqrt(max(query.shape[-1], 1)) if scale is None else float_of(OP, "scale", scale)
    dropout_p, is_causal = number_of(OP, "dropout_p", dropout_p, 0, 1), flag_of(OP, "is_causal", is_causal)
    scores, blocked = _blocked(matmul(query * scale, transpose(key, -1, -2)), attn_mask, is_causal)
    if blocked is not None:
        # A row without any key left as it is has a softmax with finite gradients; its weights become 0 below.
        scores = masked_fill(scores, blocked & ~all(blocked, -1, True), -math.inf)
    weights = softmax(scores, -1)
    if blocked is not None:
        weights = masked_fill(weights, blocked, 0)
    weights = dropout(weights, dropout_p)
    return matmul(weights, value), weights


def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None):
    """The averages of values, weighted by the softmax of the products of queries and keys.

    attn_mask   numbers added to the products, or bools: True where a key takes part
    dropout_p   the probability with which a weight is set to 0, the others scaled by 1 / (1 - dropout_p)
    is_causal   query i takes part of the keys up to i alone
    scale       1 / sqrt(E) by default
    A query for which no key takes part gets 0.

    Math    out = softmax(scale * query @ key^T + attn_mask, -1) @ value
    Grads   P = softmax(scale * query @ key^T + attn_mask, -1)
            dattn_mask = P * (g @ value^T - sum(P * (g @ value^T), -1))
            dvalue = P^T @ g        dquery = scale * dattn_mask @ key        dkey = scale * dattn_mask^T @ query
    Shapes  query (..., L, E), key (..., S, E), value (..., S, D) -> (..., L, D); attn_mask broadcasts to (..., L, S)
    """
    return attended(query, key, value, attn_mask, dropout_p, is_causal, scale)[0]
