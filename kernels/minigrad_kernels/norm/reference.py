"""Normalisation by definition: NumPy, float64."""

import numpy


def _axes(x):
    """All axes but the channels, and the shape that broadcasts a vector of channels against x."""
    return tuple(a for a in range(x.ndim) if a != 1), (1, -1) + (1,) * (x.ndim - 2)


def _channels(vector, x, xp):
    return xp.reshape(xp.array(vector, dtype=float), _axes(x)[1])


def batch_statistics(x, xp=numpy):
    """(mean, biased variance) of each channel."""
    x = xp.array(x, dtype=float)
    axes, shape = _axes(x)
    mean = xp.mean(x, axis=axes)
    return mean, xp.mean((x - xp.reshape(mean, shape)) ** 2, axis=axes)


def batch_normalize(x, mean, variance, weight, bias, eps, residual, relu, xp=numpy):
    x = xp.array(x, dtype=float)
    out = (x - _channels(mean, x, xp)) / xp.sqrt(_channels(variance, x, xp) + eps)
    if weight is not None:
        out = out * _channels(weight, x, xp)
    if bias is not None:
        out = out + _channels(bias, x, xp)
    if residual is not None:
        out = out + xp.array(residual, dtype=float)
    return xp.where(out <= 0, 0.0, out) if relu else out


def batch_norm_grads(g, x, mean, variance, weight, eps, out=None, xp=numpy):
    """(dx, dw, db, masked g) where mean and variance are those of x itself."""
    g, x = xp.array(g, dtype=float), xp.array(x, dtype=float)
    if out is not None:
        g = xp.where(numpy.array(out) <= 0, 0.0, g)
    axes, shape = _axes(x)
    deviation = xp.sqrt(_channels(variance, x, xp) + eps)
    normal = (x - _channels(mean, x, xp)) / deviation
    dw, db = xp.sum(g * normal, axis=axes), xp.sum(g, axis=axes)
    count = x.size / x.shape[1]
    dx = g - (xp.reshape(db, shape) + normal * xp.reshape(dw, shape)) / count
    if weight is not None:
        dx = dx * _channels(weight, x, xp)
    return dx / deviation, dw, db, g


def standardize(x, eps, xp=numpy):
    """(out, scale): each row with mean 0 and variance 1, and 1 / sqrt(variance + eps)."""
    x = xp.array(x, dtype=float)
    deviation = x - xp.mean(x, axis=1, keepdims=True)
    scale = 1 / xp.sqrt(xp.mean(deviation**2, axis=1) + eps)
    return deviation * xp.reshape(scale, (-1, 1)), scale


def standardize_grad(g, out, scale, xp=numpy):
    """dx of standardize, from its results."""
    g, out, scale = (xp.array(array, dtype=float) for array in (g, out, scale))
    centred = g - xp.mean(g, axis=1, keepdims=True)
    return xp.reshape(scale, (-1, 1)) * (centred - out * xp.mean(g * out, axis=1, keepdims=True))


def _grouped(x, groups, xp):
    """(N, C, ...) as (N, groups, elements of a group)."""
    return xp.reshape(x, (x.shape[0], groups, -1))


def group_norm(x, weight, bias, eps, num_groups, xp=numpy):
    """(out, mean, biased variance) of groups of channels."""
    x = xp.array(x, dtype=float)
    whole = _grouped(x, num_groups, xp)
    mean = xp.mean(whole, axis=2)
    centred = whole - xp.reshape(mean, (*mean.shape, 1))
    variance = xp.mean(centred**2, axis=2)
    z = centred / xp.sqrt(xp.reshape(variance, (*mean.shape, 1)) + eps)
    out = xp.reshape(z, x.shape) * _channels(weight, x, xp) + _channels(bias, x, xp)
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
    axes = _axes(x)[0]
    return dx, xp.sum(g * xp.reshape(z, x.shape), axis=axes), xp.sum(g, axis=axes)


def layer_norm(x, weight, bias, eps, xp=numpy):
    """(out, mean, biased variance) of rows."""
    x = xp.array(x, dtype=float)
    out, mean, variance = group_norm(x, weight, bias, eps, 1, xp)
    return out, xp.reshape(mean, (-1,)), xp.reshape(variance, (-1,))


def layer_norm_grads(g, x, mean, variance, weight, eps, xp=numpy):
    """(dx, dw, db), by the given statistics."""
    mean, variance = (xp.reshape(xp.array(v, dtype=float), (-1, 1)) for v in (mean, variance))
    return group_norm_grads(g, x, mean, variance, weight, eps, xp)
