"""Sums and extremes along axes that lie side by side in the memory of dense arrays of the CPU.

Such an array is A blocks of K rows of B columns: those axes are K, what lies slower in memory A, what lies faster B.
Sums are cut by the shape alone and added in a fixed order, so they have the same bits for any number of threads.

Types   float32 and float64; sums are added up in float64; float16 and bfloat16 rounded once
Errors  ValueError for a shape or layout, TypeError for an element type or kind of array
"""

from ..errors import KindError, ShapeError
from ..toolchain import alias, implementation
from ..toolchain.arguments import check_c_order, check_floats, check_one_kind, check_output
from ..toolchain.widening import widened

__all__ = ["extremes", "sums"]


def _checked(op, x, out):
    """The kernel, and what it is given."""
    kernel = implementation(__name__, op, x)
    check_one_kind(op, {"x": x, "out": out})
    check_floats(op, "x", x)
    if x.ndim != 3:
        raise ShapeError(f"{op}: x has shape {x.shape}, wants (A, K, B)")
    check_output(op, "out", out, (x.shape[0], x.shape[2]), x.dtype)
    check_c_order(op, x=x, out=out)
    return kernel, alias(x), alias(out)


@widened("x", "out")
def sums(x, out):
    """The sum over the rows of each block.

    Math    out[a, b] = x[a, 0, b] + ... + x[a, K - 1, b]
    Grads   linear: dx is g broadcast to x
    Shapes  x (A, K, B), out (A, B)
    """
    kernel, x, out = _checked("sums", x, out)
    kernel(x, out)


@widened("x", "out")
def extremes(x, greatest, out):
    """The greatest, else the least, of the rows of each block; NaN if there is one.

    Math    out[a, b] = max or min over k of x[a, k, b]
    Grads   dx is g where x is the extreme
    Shapes  x (A, K, B) with K at least 1, out (A, B)
    """
    kernel, x, out = _checked("extremes", x, out)
    if not x.shape[1]:
        raise ShapeError(f"extremes: x has shape {x.shape}, wants a row in each block")
    if type(greatest) is not bool:
        raise KindError(f"extremes: greatest is {greatest!r}, wants True or False")
    kernel(x, greatest, out)
