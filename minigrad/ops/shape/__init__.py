"""Ops that rearrange elements: views, joins, selections."""

from .joins import cat, pad, stack
from .select import getitem, put_along_dim, take_along_dim
from .views import expand, flatten, permute, reshape, squeeze, transpose, unsqueeze

__all__ = [
    "cat",
    "expand",
    "flatten",
    "getitem",
    "pad",
    "permute",
    "put_along_dim",
    "reshape",
    "squeeze",
    "stack",
    "take_along_dim",
    "transpose",
    "unsqueeze",
]
