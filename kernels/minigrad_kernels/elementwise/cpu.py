"""ReLU, sums with a residual, leaky ReLU, erf and dropout on the CPU, on flat arrays: a thread owns runs of RUN."""

import math

import numpy as np

from ..toolchain import jit, share, shared
from .draws import BLOCKS, drop

__all__ = ["RUN", "add_residual", "dropout", "erf", "leaky_relu", "leaky_relu_grad", "philox", "relu", "relu_grad"]

RUN = 16384  # elements; a multiple of 4, so that no Philox block is torn


@jit
def part(run, size):
    """The elements of a run. Loops over a slice of them count from 0, which lets the compiler use vectors."""
    start = run * RUN
    return slice(start, min(size, start + RUN))


@jit
def relu_run(x, out):
    zero = out.dtype.type(0)
    for k in range(out.size):
        v = x[k]
        out[k] = zero if v <= zero else v  # written so that NaN passes


@shared
def relu(team, x, out):
    for run in share((x.size + RUN - 1) // RUN, team):
        here = part(run, x.size)
        relu_run(x[here], out[here])


@jit
def add_run(x, residual, relu):
    zero = x.dtype.type(0)
    for k in range(x.size):
        v = x[k] + residual[k]
        x[k] = zero if relu and v <= zero else v


@shared
def add_residual_run(team, x, residual, relu):
    for run in share((x.size + RUN - 1) // RUN, team):
        here = part(run, x.size)
        add_run(x[here], residual[here], relu)


def add_residual(x, residual, relu):
    """x += residual for flat arrays, then ReLU in the same pass: the end of a convolution or product."""
    (add_residual_run.alone if x.size < RUN else add_residual_run)(x, residual, relu)


@jit
def relu_grad_run(g, out, dx):
    zero = dx.dtype.type(0)
    for k in range(dx.size):
        v = g[k]  # read in any case, for the sake of vectors
        dx[k] = zero if out[k] <= zero else v


@shared
def relu_grad(team, g, out, dx):
    for run in share((g.size + RUN - 1) // RUN, team):
        here = part(run, g.size)
        relu_grad_run(g[here], out[here], dx[here])


@jit
def leaky_relu_run(x, slope, out):
    zero = out.dtype.type(0)
    for k in range(out.size):
        v = x[k]
        out[k] = v if v > zero else v * slope


@shared
def leaky_relu(team, x, negative_slope, out):
    slope = out.dtype.type(negative_slope)
    for run in share((x.size + RUN - 1) // RUN, team):
        here = part(run, x.size)
        leaky_relu_run(x[here], slope, out[here])


@jit
def leaky_relu_grad_run(g, x, slope, dx):
    zero = dx.dtype.type(0)
    for k in range(dx.size):
        v = g[k]
        dx[k] = v if x[k] > zero else v * slope


@shared
def leaky_relu_grad(team, g, x, negative_slope, dx):
    slope = dx.dtype.type(negative_slope)
    for run in share((g.size + RUN - 1) // RUN, team):
        here = part(run, g.size)
        leaky_relu_grad_run(g[here], x[here], slope, dx[here])


# erf(x) / x = P(x^2) / Q(x^2) where |x| <= 4, to a relative error of 2.5e-8: least squares in that error, solved again
# with larger weights where it was large. Beyond 4, erf is 1 in float32. The highest power comes first.
NUMERATOR = (1.98677776e-06, 2.84567592e-04, 3.88340093e-03, 5.31019233e-02, 1.93546325e-01, 1.12837911e00)
DENOMINATOR = (3.74202173e-05, 1.18558563e-03, 1.52073652e-02, 1.15350530e-01, 5.04858553e-01, 1.0)
P, Q = (tuple(map(np.float32, coefficients)) for coefficients in (NUMERATOR, DENOMINATOR))
FAR, ONE = np.float32(4), np.float32(1)


@jit
def polynomial(coefficients, t):
    value = coefficients[0]
    for k in range(1, len(coefficients)):
        value = value * t + coefficients[k]
    return value


@jit
def erf_single_run(x, out):
    """float32: a loop without calls or branches, which becomes vectors and takes a tenth of the time of math.erf."""
    for k in range(out.size):
        v = x[k]
        v = FAR if v > FAR else -FAR if v < -FAR else v  # written so that NaN passes
        v = v * polynomial(P, v * v) / polynomial(Q, v * v)
        out[k] = ONE if v > ONE else -ONE if v < -ONE else v


@jit
def erf_run(x, out):
    for k in range(out.size):
        out[k] = math.erf(x[k])


@shared
def erf(team, x, out):
    for run in share((x.size + RUN - 1) // RUN, team):
        here = part(run, x.size)
        if x.itemsize == 4:
            erf_single_run(x[here], out[here])
        else:
            erf_run(x[here], out[here])


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
def dropout_rest(x, threshold, scale, seed, step, out, block):
    """The first element has word 0 of Philox block `block`."""
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    for start in range(0, x.size, 4):
        counter = np.uint64(block + start // 4)
        words = philox(counter & low, counter >> half, step & low, step >> half, seed & low, seed >> half)
        for k in range(start, min(start + 4, x.size)):
            out[k] = x[k] * (scale if words[k - start] >= threshold else out.dtype.type(0))


@jit
def dropout_run(x, threshold, scale, seed, step, out, block):
    whole = x.size // (4 * BLOCKS) * (4 * BLOCKS)
    for start in range(0, whole, 4 * BLOCKS):
        drop(x, start, np.uint64(block + start // 4), step, seed, threshold, scale, out)
    dropout_rest(x[whole:], threshold, scale, seed, step, out[whole:], block + whole // 4)


@shared
def dropout(team, x, p, seed, step, out):
    one = out.dtype.type(1)
    keep = one - out.dtype.type(p)
    scale = one / keep if p < 1 else out.dtype.type(0)
    threshold = np.uint64(np.rint(p * 4294967296.0))
    if threshold > np.uint64(0xFFFFFFFF):  # no word is as large
        scale, threshold = out.dtype.type(0), np.uint64(0xFFFFFFFF)
    for run in share((x.size + RUN - 1) // RUN, team):
        here = part(run, x.size)
        dropout_run(x[here], threshold, scale, seed, step, out[here], here.start // 4)
