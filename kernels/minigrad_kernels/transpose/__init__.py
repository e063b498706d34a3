"""Matrices turned over: what a change of the order of axes in memory comes to.

Types   float16, bfloat16, float32 and float64
Errors  ValueError for a shape or layout, TypeError for an element type or kind of array
"""

from ..launcher import launcher, reads, writes

__all__ = ["transpose"]


@launcher(reads("x", "N R C"), writes("out", "N C R"))
def transpose(x, out):
    """Each of N matrices with its rows as columns.

    Math    out[n, c, r] = x[n, r, c]
    Grads   dx = transpose(g)
    Shapes  x (N, R, C), out (N, C, R), in C order
    """
