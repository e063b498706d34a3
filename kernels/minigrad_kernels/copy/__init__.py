"""Elements copied, by several threads: between arrays that lie differently, and rows that indices name.

Types   any element type
Errors  ValueError for a shape, TypeError for an element type or kind of array
"""

import numpy as np

from ..errors import ShapeError
from ..toolchain import alias, implementation
from ..toolchain.arguments import check_array, check_c_order, check_one_kind, check_output
from ..toolchain.widening import widened

__all__ = ["copy", "take_rows"]


def _as_they_are(*arrays):
    """For `native`: no number is looked at, so none need be widened."""
    return True


@widened("x", "out", native=_as_they_are)
def copy(x, out):
    """The elements of an array in another one of its shape, each of which may lie in any way.

    Math    out = x
    Grads   dx = g
    Shapes  x and out alike; they share no memory
    """
    kernel = implementation(__name__, "copy", x)
    check_one_kind("copy", {"x": x, "out": out})
    check_array("copy", "x", x)
    check_output("copy", "out", out, x.shape, x.dtype)
    kernel(alias(x), out)


@widened("x", "out", native=_as_they_are)
def take_rows(x, places, out):
    """The row of x that each place names.

    Math    out[k, :] = x[places[k], :]
    Grads   dx = scatter.add_rows(g, places)
    Shapes  x (R, C), places (K,) of 0..R-1, which are not looked at; out (K, C), all in C order
    """
    kernel = implementation(__name__, "take_rows", x)
    check_one_kind("take_rows", {"x": x, "places": places, "out": out})
    check_array("take_rows", "x", x)
    check_array("take_rows", "places", places, None, np.int64)
    if x.ndim != 2 or places.ndim != 1:
        raise ShapeError(f"take_rows: x has shape {x.shape}, places {places.shape}, wants (R, C) and (K,)")
    check_output("take_rows", "out", out, (len(places), x.shape[1]), x.dtype)
    check_c_order("take_rows", x=x, places=places, out=out)
    kernel(alias(x), alias(places), out)
