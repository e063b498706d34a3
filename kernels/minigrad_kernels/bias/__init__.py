"""The gradient of a bias on the columns of a matrix together with ReLU, and sums of columns.

Matrices are (N, C) arrays in C order, or (N, C, H, W) arrays that lie channels last: their columns are the C channels
and their rows everything else. Sums are cut into parts by the shape alone and added in a fixed order, so they have
the same bits every time.

Types   float32 and float64; matrices also float16 and bfloat16, beside which vectors are float32
Errors  ValueError for a shape, layout or workspace, TypeError for an element type or a kind of array
"""

from ..launcher import SUMS, launcher, matrix, reads, writes
from ..toolchain import backend, implementation

__all__ = ["bias_relu_grad", "column_sums"]

MATRIX = "N C+ | N C+ H W"


def in_halves(x, *others):
    """Whether there are CUDA kernels for such a matrix of 16 bits, and for those of the others that have its shape."""
    alike = [array for array in others if getattr(array, "shape", None) == x.shape]
    return backend(x) == "cuda" and implementation(__name__, "fits", x)(x, *alike)


@launcher(
    reads("g out", MATRIX, counted=True),
    writes("dx", MATRIX),
    writes("dbias", "C", SUMS),
    view=matrix,
    native=in_halves,
)
def bias_relu_grad(g, out, dx, dbias, workspace):
    """The gradients of out = max(x + bias, 0). Where out is NaN, g passes, as in PyTorch.

    Math    dx = 0 where out <= 0, else g;  dbias[c] = sum of dx over all axes but 1
    Grads   linear in g
    Shapes  g, out and dx (N, C) or (N, C, H, W); dbias (C,)
    """


@launcher(reads("x", MATRIX, counted=True), writes("out", "C", SUMS), view=matrix, native=in_halves)
def column_sums(x, out, workspace):
    """The sum of each column: the gradient of a bias.

    Math    out[c] = sum of x over all axes but 1
    Grads   linear: dx is g broadcast to x
    Shapes  x (N, C) or (N, C, H, W); out (C,)
    """
