"""ReLU, sums with a residual, leaky ReLU, erf and dropout on the CPU, on flat arrays: a thread owns a run of each."""

import math

import numpy as np

from ..toolchain import copy, jit, share, shared, stack_array
from ..toolchain.draws import BLOCKS, drop
from . import formulas

DRAWN = 4 * BLOCKS  # elements that are drawn for at a time

passed, leaked = jit(formulas.passed), jit(formulas.leaked)


@jit
def run_of(size, team):
    """The elements of a share. Loops over a slice of them count from 0, which lets the compiler use vectors."""
    mine = share(size, team)
    return slice(mine.start, mine.stop)


# ---- ReLU ------------------------------------------------------------------------------------------------------------


@shared
def rectify(team, out, v, y, slope, leaky):
    here, slope = run_of(out.size, team), out.dtype.type(slope)
    v, y, out = v[here], y[here], out[here]
    for k in range(out.size):
        out[k] = leaked(v[k], y[k], slope) if leaky else passed(v[k], y[k])


@shared
def add_residual_runs(team, x, residual, relu):
    here = run_of(x.size, team)
    x, residual = x[here], residual[here]
    for k in range(x.size):
        v = x[k] + residual[k]
        x[k] = passed(v, v) if relu else v


def relu(x, out):
    rectify.over(out.size, out, x, x, 0.0, False)


def relu_grad(g, out, dx):
    rectify.over(dx.size, dx, g, out, 0.0, False)


def leaky_relu(x, negative_slope, out):
    rectify.over(out.size, out, x, x, negative_slope, True)


def leaky_relu_grad(g, x, negative_slope, dx):
    rectify.over(dx.size, dx, g, x, negative_slope, True)


def add_residual(x, residual, relu):
    """x += residual for flat arrays, then ReLU in the same pass: the end of a convolution or product."""
    add_residual_runs.over(x.size, x, residual, relu)


# ---- erf -------------------------------------------------------------------------------------------------------------

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
def erf_runs(team, out, x):
    here = run_of(out.size, team)
    if x.itemsize == 4:
        erf_single_run(x[here], out[here])
    else:
        erf_run(x[here], out[here])


def erf(x, out):
    erf_runs.over(out.size, out, x)


# ---- dropout ---------------------------------------------------------------------------------------------------------


@jit
def drop_rest(x, block, step, seed, threshold, scale, out):
    """As drop, for fewer elements."""
    held = stack_array(DRAWN, x)
    copy(x, held)
    drop(held, 0, block, step, seed, threshold, scale, held)
    copy(held[: x.size], out)


@shared
def drop_runs(team, out, x, threshold, scale, seed, step):
    threshold, scale = np.uint64(threshold), out.dtype.type(scale)
    for part in share((x.size + DRAWN - 1) // DRAWN, team):
        start, block = part * DRAWN, np.uint64(part * BLOCKS)
        if start + DRAWN <= x.size:
            drop(x, start, block, step, seed, threshold, scale, out)
        else:
            drop_rest(x[start:], block, step, seed, threshold, scale, out[start:])


def dropout(x, threshold, scale, seed, step, out):
    drop_runs.over(out.size, out, x, threshold, scale, seed, step)
