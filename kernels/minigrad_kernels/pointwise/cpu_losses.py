"""Losses of numbers, limits, and their gradients on the CPU: loops over float32, as in cpu.py."""

from ..toolchain.loops import loop
from ..toolchain.scalars import wide
from . import maths
from .maths import HALF, ONE, ZERO

exp, magnitude, natural_log, small_log1p, logistic = (
    maths.exp,
    maths.magnitude,
    maths.log,
    maths.small_log1p,
    maths.sigmoid,
)


# ---- losses of an input x and a target y, and their gradients for x times a number ----------------------------------


@loop
def squared_error(x, y, out, count, p, q):
    for k in range(wide(count)):
        d = x[k] - y[k]
        out[k] = d * d


@loop
def scaled_difference(x, y, out, count, p, q):
    for k in range(wide(count)):
        out[k] = (x[k] - y[k]) * p


@loop
def absolute_error(x, y, out, count, p, q):
    for k in range(wide(count)):
        out[k] = magnitude(x[k] - y[k])


@loop
def absolute_error_grad(x, y, dx, count, p, q):
    for k in range(wide(count)):
        d = x[k] - y[k]
        dx[k] = p if d > ZERO else -p if d < ZERO else p * ZERO


@loop
def huber(x, y, out, count, delta, divisor):
    for k in range(wide(count)):
        d = x[k] - y[k]
        limited = -delta if d < -delta else delta if d > delta else d
        out[k] = (d - HALF * limited) * limited / divisor


@loop
def huber_grad(x, y, dx, count, delta, factor):
    for k in range(wide(count)):
        d = x[k] - y[k]
        dx[k] = (-delta if d < -delta else delta if d > delta else d) * factor


@loop
def logistic_loss(x, y, out, count, p, q):
    for k in range(wide(count)):
        v, t = x[k], y[k]
        high, low = ZERO if v < ZERO else v, v if v < ZERO else ZERO
        out[k] = ((ONE - t) * high - t * low) + small_log1p(exp(-magnitude(v)))


@loop
def logistic_loss_grad(x, y, dx, count, p, q):
    for k in range(wide(count)):
        dx[k] = (logistic(x[k]) - y[k]) * p


@loop
def divergence(x, y, out, count, p, q):
    for k in range(wide(count)):
        t = y[k]
        own = t * natural_log(t)
        out[k] = (ZERO if t == ZERO else own) - t * x[k]


# ---- bends -----------------------------------------------------------------------------------------------------------


@loop
def limit(x, y, out, count, low, high):
    for k in range(wide(count)):
        v = x[k]
        v = low if v < low else v  # written so that NaN passes
        out[k] = high if v > high else v


@loop
def limit_grad(g, x, dx, count, low, high):
    for k in range(wide(count)):
        v, slope = x[k], g[k]
        dx[k] = slope if low < v and v < high else ZERO


@loop
def abs_grad(g, x, dx, count, p, q):
    for k in range(wide(count)):
        v, slope = x[k], g[k]
        sign = ONE if v > ZERO else -ONE if v < ZERO else ZERO
        dx[k] = slope * sign
