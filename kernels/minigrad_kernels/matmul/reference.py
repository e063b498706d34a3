"""Matrix product, by definition: sums of products in float64."""

import numpy as np


def forward(a, b, bias=None, relu=False, xp=np, residual=None):
    """out[..., m, n] = bias[n] + sum_k a[..., m, k] * b[..., k, n] + residual[..., m, n], with relu the positive part

    Shapes  a (..., M, K), b (..., K, N), bias None or (N,), out (..., M, N)
    """
    a, b = xp.array(a, dtype=np.float64), xp.array(b, dtype=np.float64)
    out = xp.sum(a[..., :, :, None] * b[..., None, :, :], axis=-2)
    out = out if bias is None else out + xp.array(bias, dtype=np.float64)
    out = out if residual is None else out + xp.array(residual, dtype=np.float64)
    return xp.where(out <= 0, 0.0, out) if relu else out
