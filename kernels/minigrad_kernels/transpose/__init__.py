"""Matrices turned over: what a change of the order of axes in memory comes to.

Types   float16, bfloat16, float32 and float64
Errors  ValueError for a shape or layout, TypeError for an element type or kind of array
"""

from ..errors import ShapeError
from ..toolchain import alias, implementation
from ..toolchain.arguments import check_c_order, check_floats, check_one_kind, check_output
from ..toolchain.widening import widened

__all__ = ["transpose"]


@widened("x", "out")
def transpose(x, out):
    """Each of N matrices with its rows as columns.

    Math    out[n, c, r] = x[n, r, c]
    Grads   dx = transpose(g)
    Shapes  x (N, R, C), out (N, C, R), in C order
    """
    kernel = implementation(__name__, "transpose", x)
    check_one_kind("transpose", {"x": x, "out": out})
    check_floats("transpose", "x", x)
    if x.ndim != 3:
        raise ShapeError(f"transpose: x has shape {x.shape}, wants (N, R, C)")
    check_output("transpose", "out", out, (x.shape[0], x.shape[2], x.shape[1]), x.dtype)
    check_c_order("transpose", x=x, out=out)
    kernel(alias(x), alias(out))
