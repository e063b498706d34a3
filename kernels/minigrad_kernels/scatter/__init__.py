"""Rows added where indices say: the adjoint of picking rows.

Types   x and out float16, bfloat16, float32 or float64; places and order int64
Errors  ValueError for a shape or layout, TypeError for an element type or a kind of array
"""

import numpy as np

from ..errors import ShapeError
from ..launcher import launcher, reads, writes

__all__ = ["add_rows"]


@launcher(reads("x", "K C", counted=True), reads("places order?", "K", "int64"), writes("out", "R C"))
def add_rows(x, places, order, out):
    """Each row of x added to the row of out that its place names; equal places add up in the order of x.

    Math    out[r, :] = sum over k with places[k] = r of x[k, :], 0 where no place names r
    Grads   linear in x: dx[k, :] = g[places[k], :]
    Shapes  x (K, C), places (K,) of 0..R-1, which are not looked at; out (R, C); order (K,): the indices that sort
            places, equal ones in their order, so that on a GPU one thread finds all that it adds; on the CPU also None
    """
    if order is None and type(x) is not np.ndarray:
        raise ShapeError("add_rows: order is None, wants the indices that sort places")
