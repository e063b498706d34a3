"""ReLU and dropout on the CPU, on flat arrays: every thread owns runs of RUN elements."""

import numpy as np
from numba import prange

from ..toolchain import jit, parallel

__all__ = ["RUN", "dropout", "philox", "relu", "relu_grad"]

RUN = 16384  # elements; a multiple of 4, so that no Philox block is torn


@jit
def relu_run(x, out, start, stop):
    zero = out.dtype.type(0)
    for k in range(start, stop):
        v = x[k]
        out[k] = zero if v <= zero else v  # written so that NaN passes


@parallel
def relu(x, out):
    for run in prange((x.size + RUN - 1) // RUN):
        relu_run(x, out, run * RUN, min(x.size, run * RUN + RUN))


@jit
def relu_grad_run(g, out, dx, start, stop):
    zero = dx.dtype.type(0)
    for k in range(start, stop):
        dx[k] = zero if out[k] <= zero else g[k]


@parallel
def relu_grad(g, out, dx):
    for run in prange((g.size + RUN - 1) // RUN):
        relu_grad_run(g, out, dx, run * RUN, min(g.size, run * RUN + RUN))


@jit
def philox(c0, c1, c2, c3, k0, k1):
    """Philox4x32-10: 32-bit words held in uint64, which is what the products need."""
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    for _ in range(10):
        a = np.uint64(0xD2511F53) * c0
        b = np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = (b >> half) ^ c1 ^ k0, b & low, (a >> half) ^ c3 ^ k1, a & low
        k0 = (k0 + np.uint64(0x9E3779B9)) & low
        k1 = (k1 + np.uint64(0xBB67AE85)) & low
    return c0, c1, c2, c3


@jit
def dropout_run(x, threshold, scale, seed, step, out, start, stop):
    zero = out.dtype.type(0)
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    k0, k1, c2, c3 = seed & low, seed >> half, step & low, step >> half
    whole = start + (stop - start) // 4 * 4
    for k in range(start, whole, 4):
        block = np.uint64(k // 4)
        a, b, c, d = philox(block & low, block >> half, c2, c3, k0, k1)
        out[k] = x[k] * (scale if a >= threshold else zero)
        out[k + 1] = x[k + 1] * (scale if b >= threshold else zero)
        out[k + 2] = x[k + 2] * (scale if c >= threshold else zero)
        out[k + 3] = x[k + 3] * (scale if d >= threshold else zero)
    if whole < stop:
        block = np.uint64(whole // 4)
        words = philox(block & low, block >> half, c2, c3, k0, k1)
        for k in range(whole, stop):
            out[k] = x[k] * (scale if words[k - whole] >= threshold else zero)


@parallel
def dropout(x, p, seed, step, out):
    one = out.dtype.type(1)
    keep = one - out.dtype.type(p)
    scale = one / keep if p < 1 else out.dtype.type(0)
    threshold = np.uint64(np.round(p * 4294967296.0))
    for run in prange((x.size + RUN - 1) // RUN):
        dropout_run(x, threshold, scale, seed, step, out, run * RUN, min(x.size, run * RUN + RUN))
