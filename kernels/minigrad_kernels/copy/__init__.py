"""Elements copied between arrays that lie differently, by several threads.

Types   any element type
Errors  ValueError for a shape, TypeError for an element type or kind of array
"""

from ..toolchain import alias, implementation
from ..toolchain.arguments import check_array, check_one_kind, check_output
from ..toolchain.widening import widened

__all__ = ["copy"]


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
