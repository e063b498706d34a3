"""The gradient of a bias on the columns of a matrix together with ReLU, and sums of columns.

Matrices are (N, C) arrays in C order, or (N, C, H, W) arrays that lie channels last: their columns are the C channels
and their rows everything else. Sums are cut into parts by the shape alone and added in a fixed order, so they have
the same bits every time.

Workspaces are bytes, or a function (bytes, array) that gives so many for calls with such arrays, as a pool does.

Types   float32 and float64; matrices also float16 and bfloat16, beside which vectors are float32
Errors  ValueError for a shape, layout or workspace, TypeError for an element type or a kind of array
"""

import functools
import math

from ..launcher import SUMS, Call, launcher, matrix, reads, writes
from ..toolchain import implementation
from .plan import ALIGNMENT, cut

__all__ = ["bias_relu_grad", "column_sums", "workspace"]

MATRIX = "N C+ | N C+ H W"


@functools.lru_cache(maxsize=1024)
def workspace(shape):
    """The bytes that column_sums and bias_relu_grad want for matrices of this shape, (N, C) or (N, C, H, W)."""
    columns, count = shape[1], math.prod(shape)
    # Room for float64, which the CPU sums in, and to move to a multiple of ALIGNMENT.
    return 8 * cut(count // columns, columns).parts * columns + ALIGNMENT - 1 if count else 0


_bytes = workspace  # the argument of that name hides it


@launcher(reads("g out", MATRIX, counted=True), writes("dx", MATRIX), writes("dbias", "C", SUMS), view=matrix)
def bias_relu_grad(g, out, dx, dbias, workspace):
    """The gradients of out = max(x + bias, 0). Where out is NaN, g passes, as in PyTorch.

    Math    dx = 0 where out <= 0, else g;  dbias[c] = sum of dx over all axes but 1
    Grads   linear in g
    Shapes  g, out and dx (N, C) or (N, C, H, W); dbias (C,); workspace: workspace(g.shape) bytes
    """
    return Call(_bytes(g.shape), implementation(__name__, "bias_relu_grad", g))


@launcher(reads("x", MATRIX, counted=True), writes("out", "C", SUMS), view=matrix)
def column_sums(x, out, workspace):
    """The sum of each column: the gradient of a bias.

    Math    out[c] = sum of x over all axes but 1
    Grads   linear: dx is g broadcast to x
    Shapes  x (N, C) or (N, C, H, W); out (C,); workspace: workspace(x.shape) bytes
    """
    return Call(_bytes(x.shape), implementation(__name__, "column_sums", x))
