"""The elements of rows in order of size, all of them or the first ones; NaN counts as larger than any number.

Other devices and integers have functions of their own array modules for this.

Types   x float16, bfloat16, float32 or float64; indices int64
Errors  ValueError for a shape or layout, TypeError for an element type or kind of array
Source  Knuth 1998, "The Art of Computer Programming", volume 3, section 5.2.5, sorting by distribution
"""

import numpy as np

from ..errors import ShapeError
from ..toolchain import alias, implementation, threads
from ..toolchain.arguments import check_c_order, check_floats, check_one_kind, check_output, workspace_of
from ..toolchain.widening import widened
from .plan import row_bytes

__all__ = ["argsort", "workspace"]


def workspace(x_shape, size, dtype):
    """How many bytes argsort needs for x of this shape and element type, and the first `size` indices of each row."""
    return threads() * row_bytes(x_shape[1], size, np.dtype(dtype))


@widened("x")
def argsort(x, descending, out, workspace):
    """The first indices that put each row in order; equal elements keep theirs.

    Math    x[n, out[n, 0]] <= x[n, out[n, 1]] <= ... <= all others of the row, or >= if descending
    Grads   none
    Shapes  x (N, C), out (N, K) with K <= C, both in C order
    """
    kernel = implementation(__name__, "argsort", x)
    check_floats("argsort", "x", x)
    if x.ndim != 2 or out.ndim != 2:
        raise ShapeError(f"argsort: x has shape {x.shape}, out {out.shape}, wants (N, C) and (N, K)")
    if out.shape[1] > x.shape[1]:
        raise ShapeError(f"argsort: out has shape {out.shape}, wants no more columns than x (shape {x.shape})")
    check_output("argsort", "out", out, (len(x), out.shape[1]), np.int64)
    check_one_kind("argsort", {"x": x, "out": out})
    check_c_order("argsort", x=x, out=out)
    wanted = row_bytes(x.shape[1], out.shape[1], x.dtype)
    kernel(alias(x), bool(descending), out, workspace_of("argsort", workspace, wanted, "sort.workspace", x))
