"""Elementwise arithmetic, functions and activations on the CPU: loops over float32, in maths.py what they call."""

import numpy as np

from ..toolchain.loops import loop
from ..toolchain.scalars import wide
from . import cpu_losses, maths
from .maths import HALF, ONE, ZERO

__all__ = ["one", "total", "two"]

f32 = np.float32
THREE, CUBIC = f32(3), f32(0.044715)
ROOT_HALF, DENSITY, INNER = f32(np.sqrt(0.5)), f32(1 / np.sqrt(2 * np.pi)), f32(np.sqrt(2 / np.pi))

# The functions that loops call, under names that are not those of loops.
erf, exp, expm1, magnitude = maths.erf, maths.exp, maths.expm1, maths.magnitude
natural_log, natural_log1p, small_log1p = maths.log, maths.log1p, maths.small_log1p
logistic, hyperbolic = maths.sigmoid, maths.tanh


# ---- arithmetic ------------------------------------------------------------------------------------------------------


@loop
def add(x, y, out, count, p, q):
    for k in range(wide(count)):
        out[k] = x[k] + y[k]


@loop
def sub(x, y, out, count, p, q):
    for k in range(wide(count)):
        out[k] = x[k] - y[k]


@loop
def mul(x, y, out, count, p, q):
    for k in range(wide(count)):
        out[k] = x[k] * y[k]


@loop
def div(x, y, out, count, p, q):
    for k in range(wide(count)):
        out[k] = x[k] / y[k]


@loop
def maximum(x, y, out, count, p, q):
    for k in range(wide(count)):
        v, w = x[k], y[k]
        out[k] = v if v >= w or v != v else w  # written so that NaN passes


@loop
def minimum(x, y, out, count, p, q):
    for k in range(wide(count)):
        v, w = x[k], y[k]
        out[k] = v if v <= w or v != v else w


@loop
def add_number(x, y, out, count, p, q):
    for k in range(wide(count)):
        out[k] = x[k] + p


@loop
def mul_number(x, y, out, count, p, q):
    for k in range(wide(count)):
        out[k] = x[k] * p


@loop
def div_number(x, y, out, count, p, q):
    for k in range(wide(count)):
        out[k] = x[k] / p


# ---- functions -------------------------------------------------------------------------------------------------------


@loop
def exponential(x, y, out, count, p, q):
    for k in range(wide(count)):
        out[k] = exp(x[k])


@loop
def log(x, y, out, count, p, q):
    for k in range(wide(count)):
        out[k] = natural_log(x[k])


@loop
def log1p(x, y, out, count, p, q):
    for k in range(wide(count)):
        out[k] = natural_log1p(x[k])


@loop
def exponential_minus_one(x, y, out, count, p, q):
    for k in range(wide(count)):
        out[k] = expm1(x[k])


@loop
def sqrt(x, y, out, count, p, q):
    for k in range(wide(count)):
        out[k] = np.sqrt(x[k])


@loop
def absolute(x, y, out, count, p, q):
    for k in range(wide(count)):
        out[k] = magnitude(x[k])


@loop
def negative(x, y, out, count, p, q):
    for k in range(wide(count)):
        out[k] = -x[k]


@loop
def tanh(x, y, out, count, p, q):
    for k in range(wide(count)):
        out[k] = hyperbolic(x[k])


@loop
def tanh_grad(g, out, dx, count, p, q):
    for k in range(wide(count)):
        dx[k] = g[k] * (ONE - out[k] * out[k])


@loop
def sigmoid(x, y, out, count, p, q):
    for k in range(wide(count)):
        out[k] = logistic(x[k])


@loop
def sigmoid_grad(g, out, dx, count, p, q):
    for k in range(wide(count)):
        dx[k] = g[k] * out[k] * (ONE - out[k])


# ---- activations -----------------------------------------------------------------------------------------------------


@loop
def elu(x, y, out, count, alpha, q):
    for k in range(wide(count)):
        v = x[k]
        out[k] = v if v > ZERO else expm1(v) * alpha


@loop
def elu_grad(g, x, dx, count, alpha, q):
    for k in range(wide(count)):
        v, slope = x[k], g[k]
        low = slope * (alpha * exp(v))
        dx[k] = slope if v > ZERO else low


@loop
def silu(x, y, out, count, p, q):
    for k in range(wide(count)):
        out[k] = x[k] * logistic(x[k])


@loop
def silu_grad(g, x, dx, count, p, q):
    for k in range(wide(count)):
        share = logistic(x[k])
        dx[k] = g[k] * (share * (ONE + x[k] * (ONE - share)))


@loop
def softplus(x, y, out, count, beta, threshold):
    for k in range(wide(count)):
        v = x[k]
        scaled = v * beta
        positive = ZERO if scaled < ZERO else scaled
        soft = (positive + small_log1p(exp(-magnitude(scaled)))) / beta
        out[k] = v if scaled > threshold else soft


@loop
def softplus_grad(g, x, dx, count, beta, threshold):
    for k in range(wide(count)):
        scaled, slope = x[k] * beta, g[k]
        low = slope * logistic(scaled)
        dx[k] = slope if scaled > threshold else low


@loop
def gelu(x, y, out, count, p, q):
    for k in range(wide(count)):
        out[k] = (x[k] * HALF) * (ONE + erf(x[k] * ROOT_HALF))


@loop
def gelu_grad(g, x, dx, count, p, q):
    for k in range(wide(count)):
        v = x[k]
        below = HALF * (ONE + erf(v * ROOT_HALF))
        density = exp(-HALF * (v * v)) * DENSITY
        dx[k] = g[k] * (below + v * density)


@loop
def gelu_tanh(x, y, out, count, p, q):
    for k in range(wide(count)):
        v = x[k]
        bend = hyperbolic((v * v * v * CUBIC + v) * INNER)
        out[k] = (v * HALF) * (ONE + bend)


@loop
def gelu_tanh_grad(g, x, dx, count, p, q):
    for k in range(wide(count)):
        v = x[k]
        square = v * v
        bend = hyperbolic(INNER * (v + CUBIC * (square * v)))
        slope = INNER * (ONE + THREE * CUBIC * square)
        dx[k] = g[k] * (HALF * (ONE + bend) + HALF * v * (ONE - bend * bend) * slope)


LOOPS = {name: value for name, value in (globals() | vars(cpu_losses)).items() if isinstance(value, loop)}
LOOPS |= {"abs": absolute, "exp": exponential, "expm1": exponential_minus_one, "neg": negative}


def one(x, op, p, q, out):
    LOOPS[op](x, x, p, q, out)


def two(x, y, op, p, q, out):
    LOOPS[op](x, y, p, q, out)


def total(x, y, op, p, q, divisor, out, workspace):
    LOOPS[op].total(x, y, p, q, divisor, out, workspace)
