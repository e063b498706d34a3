"""Rows added where indices say: the adjoint of picking rows.

Types   x and out float16, bfloat16, float32 or float64; places and order int64
Errors  ValueError for a shape or layout, TypeError for an element type or a kind of array
"""

import numpy as np

from ..errors import ShapeError
from ..toolchain import alias, implementation
from ..toolchain.arguments import check_array, check_c_order, check_floats, check_one_kind, check_output
from ..toolchain.widening import widened

__all__ = ["add_rows"]


@widened("x", "out")
def add_rows(x, places, order, out):
    """Each row of x added to the row of out that its place names; equal places add up in the order of x.

    Math    out[r, :] = sum over k with places[k] = r of x[k, :], 0 where no place names r
    Grads   linear in x: dx[k, :] = g[places[k], :]
    Shapes  x (K, C), places (K,) of 0..R-1, which are not looked at; out (R, C); order (K,): the indices that sort
            places, equal ones in their order, so that on a GPU one thread finds all that it adds; on the CPU also None
    """
    op = "add_rows"
    kernel = implementation(__name__, op, x)
    check_floats(op, "x", x)
    if x.ndim != 2 or out.ndim != 2:
        raise ShapeError(f"{op}: x has shape {x.shape}, out {out.shape}, wants (K, C) and (R, C)")
    check_output(op, "out", out, (len(out), x.shape[1]), x.dtype)
    for name, array in (("places", places), ("order", order)):
        if array is not None:
            check_array(op, name, array, x.shape[:1], np.int64)
    check_one_kind(op, {"x": x, "places": places, "order": order, "out": out})
    if order is None and type(x) is not np.ndarray:
        raise ShapeError(f"{op}: order is None, wants the indices that sort places")
    check_c_order(op, x=x, places=places, order=order, out=out)
    kernel(alias(x), alias(places), order, out)
