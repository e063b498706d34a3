"""Softmax and cross entropy by definition: NumPy, float64. Rows are samples, columns classes."""

import numpy


def _logsumexp(x, xp):
    """Of each row, as a column."""
    greatest = numpy.max(getattr(x, "_value", x), axis=1, keepdims=True)
    with numpy.errstate(invalid="ignore"):  # inf - inf is NaN, as it should be
        return greatest + xp.log(xp.sum(xp.exp(x - greatest), axis=1, keepdims=True))


def softmax(x, logs, xp=numpy):
    x = xp.array(x, dtype=float)
    out = x - _logsumexp(x, xp)
    return out if logs else xp.exp(out)


def softmax_grad(g, out, logs, xp=numpy):
    g, out = xp.array(g, dtype=float), xp.array(out, dtype=float)
    if logs:
        return g - xp.exp(out) * xp.sum(g, axis=1, keepdims=True)
    return out * (g - xp.sum(g * out, axis=1, keepdims=True))


def cross_entropy(x, target, ignore_index, xp=numpy):
    """(losses, logsumexp) of each row."""
    x, target = xp.array(x, dtype=float), numpy.array(target)
    counted = target != ignore_index
    chosen = x[numpy.arange(len(target)), numpy.where(counted, target, 0)]
    logsumexp = _logsumexp(x, xp)[:, 0]
    return xp.where(counted, logsumexp - chosen, 0.0), logsumexp


def cross_entropy_grad(g, x, target, ignore_index, logsumexp, divisor, xp=numpy):
    """g: one number for each row, or for all."""
    g, x, logsumexp = (xp.array(v, dtype=float) for v in (g, x, logsumexp))
    g = xp.full(len(target), 1.0) * g / (1.0 if divisor is None else divisor)
    target = numpy.array(target)
    one_hot = (numpy.arange(x.shape[1]) == target[:, None]).astype(float)
    dx = g[:, None] * (xp.exp(x - logsumexp[:, None]) - one_hot)
    return xp.where((target != ignore_index)[:, None], dx, 0.0)


def cross_entropy_total(x, target, ignore_index, mean, xp=numpy):
    """(out, divisor, logsumexp of each row)"""
    losses, logsumexp = cross_entropy(x, target, ignore_index, xp)
    divisor = float(numpy.sum(numpy.array(target) != ignore_index)) if mean else 1.0
    return xp.sum(losses) / (divisor or numpy.nan), numpy.array(divisor), logsumexp
