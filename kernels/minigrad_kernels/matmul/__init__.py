"""Matrix product: the launchers.

Letters: M rows of a and of out, K the length of a sum, N columns of b and of out.
"""

from functools import lru_cache

import numpy as np

from ..errors import ShapeError
from ..launcher import ANY, C_ORDER, EITHER, flag, launcher, reads, wants_shape, writes
from ..toolchain import backend, implementation, threads
from ..toolchain.modes import tf32_mode as tf32

__all__ = ["forward", "output_shape"]


@lru_cache(maxsize=1024)
def output_shape(a_shape, b_shape):
    """Shape of a @ b, by NumPy's rules for at least two axes each.

    Shapes  a (..., M, K), b (..., K, N) give (..., M, N); leading axes broadcast
    Errors  ValueError if an operand has fewer than two axes, K differs, or leading axes do not broadcast
    """
    for name, shape in (("a", a_shape), ("b", b_shape)):
        if len(shape) < 2:
            raise ShapeError(f"matmul: {name} has shape {shape}, wants at least 2 axes: (..., rows, columns)")
    if a_shape[-1] != b_shape[-2]:
        raise ShapeError(
            f"matmul: a has {a_shape[-1]} columns (shape {a_shape}), b has {b_shape[-2]} rows (shape {b_shape}); "
            "they must be equal"
        )
    try:
        return *np.broadcast_shapes(a_shape[:-2], b_shape[:-2]), a_shape[-2], b_shape[-1]
    except ValueError as error:
        raise ShapeError(
            f"matmul: a has shape {a_shape}, b has shape {b_shape}: the leading axes {a_shape[:-2]} and "
            f"{b_shape[:-2]} do not broadcast; each pair of sizes must be equal, or one of them 1"
        ) from error


@launcher(
    reads("a b", None, order=ANY),
    reads("bias?", "N"),
    writes("out", "*", EITHER, C_ORDER),
    op="matmul",
    view=None,
    under=(threads, tf32),
    native=lambda a, *others: backend(a) == "cuda",
    relu=flag,
)
def forward(a, b, bias, relu, out, workspace):
    """Matrix product of two stacks of matrices, plus a bias on each row; with relu, the positive part. NaN stays NaN.

    Math    out[..., m, n] = max(bias[n] + sum_k a[..., m, k] b[..., k, n], 0), without relu the sum itself
    Grads   da = g b^T      db = a^T g      dbias = sum of g over all axes but the last;  with relu, g is 0 where out is
    Shapes  a (..., M, K) and b (..., K, N) with equal leading axes and any strides (also 0 or negative);
            bias None or (N,); out (..., M, N) in C order
    Types   float16, bfloat16, float32 or float64, one for all; beside the first two out may be float32; in the mode
            tf32, a GPU rounds operands of float32 to TF32 first
    Errors  ValueError for shapes that do not fit or a read-only out, TypeError for other types
    """
    if output_shape(a.shape, b.shape) != out.shape or a.shape[:-2] != b.shape[:-2]:
        raise ShapeError(
            f"matmul: a {a.shape} and b {b.shape} do not give out {out.shape}; wants (..., M, K), (..., K, N) and "
            "(..., M, N) with equal leading axes"
        )
    if bias is not None:
        wants_shape("matmul", "bias", bias, out.shape[-1:])
    return implementation(__name__, "ready", out)(a, b) if backend(out) == "cpu" else None
