"""Normalisation of samples by definition: NumPy, float64."""

import numpy


def _grouped(x, groups, xp):
    """(N, C, ...) as (N, groups, elements of a group)."""
    return xp.reshape(x, (x.shape[0], groups, -1)) if x.size else xp.zeros((x.shape[0], groups, 1))


def _channels(vector, x, xp):
    return xp.reshape(xp.array(vector, dtype=float), (1, -1) + (1,) * (x.ndim - 2))


def group_norm(x, weight, bias, eps, num_groups, xp=numpy):
    """(out, mean, biased variance) of groups of channels."""
    x = xp.array(x, dtype=float)
    whole = _grouped(x, num_groups, xp)
    mean = xp.mean(whole, axis=2)
    centred = whole - xp.reshape(mean, (*mean.shape, 1))
    variance = xp.mean(centred**2, axis=2)
    z = centred / xp.sqrt(xp.reshape(variance, (*mean.shape, 1)) + eps)
    out = xp.reshape(z, x.shape) if x.size else x
    out = out * _channels(weight, x, xp) + _channels(bias, x, xp)
    return out, mean, variance


def group_norm_grads(g, x, mean, variance, weight, eps, xp=numpy):
    """(dx, dw, db), by the given statistics."""
    g, x = xp.array(g, dtype=float), xp.array(x, dtype=float)
    groups = numpy.shape(mean)[1]
    mean, deviation = (xp.reshape(xp.array(v, dtype=float), (-1, groups, 1)) for v in (mean, variance))
    deviation = xp.sqrt(deviation + eps)
    z = (_grouped(x, groups, xp) - mean) / deviation
    h = _grouped(g * _channels(weight, x, xp), groups, xp)
    level, slope = xp.mean(h, axis=2, keepdims=True), xp.mean(h * z, axis=2, keepdims=True)
    dx = xp.reshape((h - level - z * slope) / deviation, x.shape)
    inner = tuple(axis for axis in range(x.ndim) if axis != 1)
    return dx, xp.sum(g * xp.reshape(z, x.shape), axis=inner), xp.sum(g, axis=inner)


def layer_norm(x, weight, bias, eps, xp=numpy):
    """(out, mean, biased variance) of rows."""
    x = xp.array(x, dtype=float)
    out, mean, variance = group_norm(x, weight, bias, eps, 1, xp)
    return out, xp.reshape(mean, (-1,)), xp.reshape(variance, (-1,))


def layer_norm_grads(g, x, mean, variance, weight, eps, xp=numpy):
    """(dx, dw, db), by the given statistics."""
    mean, variance = (xp.reshape(xp.array(v, dtype=float), (-1, 1)) for v in (mean, variance))
    return group_norm_grads(g, x, mean, variance, weight, eps, xp)
