"""Running sums along an axis.

Types   float16, bfloat16, float32 and float64; sums are kept in float64 and rounded when they are written
Errors  ValueError for a shape or layout, TypeError for an element type or kind of array
Source  Blelloch 1990, "Prefix sums and their applications"
"""

from ..errors import ShapeError
from ..toolchain import alias, implementation
from ..toolchain.arguments import check_c_order, check_floats, check_one_kind, check_output
from ..toolchain.widening import widened

__all__ = ["cumsum"]


@widened("x", "out")
def cumsum(x, reverse, out):
    """The sums of all elements up to each along the second axis, or from each on if reverse.

    Math    out[n, k, c] = x[n, 0, c] + ... + x[n, k, c], or x[n, K-1, c] + ... + x[n, k, c] if reverse
    Grads   dx = cumsum(g, not reverse)
    Shapes  x and out (N, K, C), in C order
    """
    kernel = implementation(__name__, "cumsum", x)
    check_one_kind("cumsum", {"x": x, "out": out})
    check_floats("cumsum", "x", x)
    if x.ndim != 3:
        raise ShapeError(f"cumsum: x has shape {x.shape}, wants (N, K, C)")
    check_output("cumsum", "out", out, x.shape, x.dtype)
    check_c_order("cumsum", x=x, out=out)
    kernel(alias(x), bool(reverse), out)
