"""Softmax and cross entropy on the CPU: every thread owns rows.

The greatest element is subtracted before exp, so that nothing overflows. A row with NaN or +inf, or of -inf alone,
gives NaN, as in PyTorch. The launcher has looked at the targets, so nothing is written into `wrong`.
"""

import math

from numba import prange

from ..toolchain import jit, parallel
from .plan import SMALL

__all__ = [
    "cross_entropy",
    "cross_entropy_grad",
    "cross_entropy_total",
    "cross_entropy_total_grad",
    "cross_entropy_with_grad",
    "log_softmax",
    "log_softmax_grad",
    "softmax",
    "softmax_grad",
]

SHORT = 1024  # losses that are added one by one


@jit
def greatest_of(x):
    greatest = x[0]
    for k in range(1, x.size):
        if x[k] > greatest:
            greatest = x[k]
    return greatest


@jit
def greatest_and_sum(x):
    """The greatest element of a row, and the sum of exp(x - greatest)."""
    greatest, total = greatest_of(x), x.dtype.type(0)
    for k in range(x.size):
        total += math.exp(x[k] - greatest)
    return greatest, total


@jit
def softmax_row(x, out):
    greatest, total = greatest_of(x), x.dtype.type(0)
    for k in range(x.size):
        out[k] = math.exp(x[k] - greatest)
        total += out[k]
    for k in range(x.size):
        out[k] /= total


@parallel
def softmax(x, out):
    for n in prange(x.shape[0]):
        softmax_row(x[n], out[n])


@jit
def softmax_grad_row(g, out, dx):
    inner = g.dtype.type(0)
    for k in range(g.size):
        inner += g[k] * out[k]
    for k in range(g.size):
        dx[k] = out[k] * (g[k] - inner)


@parallel
def softmax_grad(g, out, dx):
    for n in prange(g.shape[0]):
        softmax_grad_row(g[n], out[n], dx[n])


@jit
def log_softmax_row(x, out):
    greatest, total = greatest_and_sum(x)
    log_total = math.log(total)
    for k in range(x.size):
        out[k] = x[k] - greatest - log_total


@parallel
def log_softmax(x, out):
    for n in prange(x.shape[0]):
        log_softmax_row(x[n], out[n])


@jit
def log_softmax_grad_row(g, out, dx):
    total = g.dtype.type(0)
    for k in range(g.size):
        total += g[k]
    for k in range(g.size):
        dx[k] = g[k] - math.exp(out[k]) * total


@parallel
def log_softmax_grad(g, out, dx):
    for n in prange(g.shape[0]):
        log_softmax_grad_row(g[n], out[n], dx[n])


@jit
def cross_entropy_row(x, target, ignore_index, losses, logsumexp, n):
    greatest, total = greatest_and_sum(x)
    log_total = math.log(total)
    logsumexp[n] = greatest + log_total
    # Not logsumexp - x[target]: that would round the logarithm to the size of the logits first.
    losses[n] = losses.dtype.type(0) if target == ignore_index else (greatest - x[target]) + log_total


@parallel
def cross_entropy(x, target, ignore_index, losses, logsumexp, wrong):
    for n in prange(x.shape[0]):
        cross_entropy_row(x[n], target[n], ignore_index, losses, logsumexp, n)


@jit
def cross_entropy_grad_row(g, x, target, ignored, logsumexp, dx):
    if ignored:
        for k in range(x.size):
            dx[k] = dx.dtype.type(0)
        return
    one = dx.dtype.type(1)
    for k in range(x.size):
        p = math.exp(x[k] - logsumexp)
        dx[k] = g * (p - one if k == target else p)


@parallel
def cross_entropy_grad(g, x, target, ignore_index, logsumexp, dx, wrong):
    for n in prange(x.shape[0]):
        cross_entropy_grad_row(g[n], x[n], target[n], target[n] == ignore_index, logsumexp[n], dx[n])


@parallel
def cross_entropy_total_grad(g, divisor, x, target, ignore_index, logsumexp, dx, wrong):
    weight = g[()] / divisor[()]
    for n in prange(x.shape[0]):
        cross_entropy_grad_row(weight, x[n], target[n], target[n] == ignore_index, logsumexp[n], dx[n])


@jit
def add_losses(losses, target, ignore_index, mean, out, divisor):
    """In float64; every SHORT of them first by themselves, so that a long sum of float64 loses little."""
    total, count = 0.0, 0
    for start in range(0, losses.size, SHORT):
        short = 0.0
        for n in range(start, min(start + SHORT, losses.size)):
            short += losses[n]
            count += target[n] != ignore_index
        total += short
    divisor[()] = count if mean else 1
    out[()] = total / divisor[()]


def cross_entropy_total(x, target, ignore_index, mean, out, divisor, logsumexp, workspace, wrong):
    start, rows = -workspace.ctypes.data % out.itemsize, x.shape[0]
    losses = workspace[start : start + rows * out.itemsize].view(out.dtype)
    kernel = cross_entropy.serial if x.size < SMALL else cross_entropy
    kernel(x, target, ignore_index, losses, logsumexp, wrong)
    add_losses(losses, target, ignore_index, mean, out, divisor)


@jit
def cross_entropy_with_grad_row(x, target, ignored, scale, losses, dx, n):
    if ignored:
        losses[n] = 0
        dx[:] = 0
        return
    greatest, total, one = greatest_of(x), x.dtype.type(0), dx.dtype.type(1)
    for k in range(x.size):
        dx[k] = math.exp(x[k] - greatest)
        total += dx[k]
    losses[n] = (greatest - x[target]) + math.log(total)
    for k in range(x.size):
        p = dx[k] / total
        dx[k] = scale * (p - one if k == target else p)


@parallel
def cross_entropy_with_grad(x, target, ignore_index, scale, losses, dx, wrong):
    factor = dx.dtype.type(scale)
    for n in prange(x.shape[0]):
        cross_entropy_with_grad_row(x[n], target[n], target[n] == ignore_index, factor, losses, dx[n], n)
