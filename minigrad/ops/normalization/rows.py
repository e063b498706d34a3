"""Rows standardised, and columns then scaled and shifted: what normalisation of samples is made of.

Types   floating; numbers of 16 bits are rounded once, at the end
Source  Ba, Kiros and Hinton 2016, "Layer normalization"
"""

from minigrad_kernels import norm as kernels

from ... import device
from ...primitive import primitive
from ..elementwise.conversions import precise, typed, wide
from ..reduce import mean, sum
from ..shape import reshape
from .batch import _contiguous

__all__ = ["affine", "dx_of_rows", "standardized"]


@primitive(outputs=("out", "scale"))
def _standardize(input, eps):
    """Rows with mean 0 and variance 1, and what each was multiplied by: s = 1 / sqrt(variance + eps)."""
    x = device.contiguous(input)
    out, scale = device.empty_like(x), device.empty((len(x), 1), device.sum_dtype(x), like=x)
    kernels.standardize(x, eps, out, scale.reshape(-1))
    return out, scale


def _dx_of_standardize(g, g_scale, out, scale):
    """s (g - mean(g) - z mean(g z)), and as ds/dx = -s^2 z / K for rows of K, that of the second output."""
    slope = scale * mean(g * out, 1, True) + g_scale * scale * scale / out.shape[1]
    return scale * (g - mean(g, 1, True)) - out * slope


_standardize.grads(input=precise(_dx_of_standardize))


@_standardize.fast_grads
def _standardize_at_once(g, g_scale, out, scale):
    dx = device.empty_like(out)
    kernels.standardize_grad(device.contiguous(g), out, scale.reshape(-1), dx)
    if g_scale is not None:  # in gradients of gradients
        device.accumulate(dx, out * (g_scale * scale * scale / -out.shape[1]))
    return {"input": dx}


def standardized(input, rows, eps):
    """The input, its elements in C order cut into so many rows and each row standardised."""
    return reshape(_standardize(reshape(input, (rows, -1)), eps)[0], input.shape)


def dx_of_rows(g, input, rows, eps):
    """s (g - mean(g) - z mean(g z)): the gradient of standardized, as a differentiable function of both."""
    z, scale = _standardize(reshape(wide(input), (rows, -1)), eps)
    g = reshape(wide(g), z.shape)
    return reshape(scale * (g - mean(g, 1, True) - z * mean(g * z, 1, True)), input.shape)


@primitive
def _affine(input, weight, bias):
    """Columns scaled and shifted in one pass: normalised by mean 0 and variance 1. None of 16 bits."""
    x, (weight, bias) = device.contiguous(input), _contiguous((weight, bias), input)
    out = device.empty_like(x)
    kernels.batch_normalize(x, *_unit(x), weight, bias, 0.0, None, False, out)
    return out


_affine.grads(
    input=lambda g, weight: g if weight is None else g * weight,
    weight=lambda g, input: sum(g * input, 0),
    bias=lambda g: sum(g, 0),
)


@_affine.fast_grads
def _affine_at_once(g, input, weight):
    g, x = device.contiguous(g), device.contiguous(input)
    dweight, dbias = (device.empty(x.shape[1:], x.dtype, like=x) for _ in range(2))
    kernels.batch_norm_grads(g, x, *_unit(x), None, 0.0, None, None, dweight, dbias, None, device.workspace)
    if weight is None:
        return {"input": g, "weight": None, "bias": dbias}
    dx = device.empty_like(x)
    kernels.batch_normalize(g, *_unit(x), device.contiguous(weight), None, 0.0, None, False, dx)
    return {"input": dx, "weight": dweight, "bias": dbias}


def _unit(x):
    """Mean 0 and variance 1 for the columns of x."""
    return device.zeros(x.shape[1:], x.dtype, like=x), device.full(x.shape[1:], 1, x.dtype, like=x)


def affine(input, rows, weight, bias, eps):
    """The input, its elements in C order cut into so many rows, each standardised and then its columns scaled and
    shifted."""
    vectors = [vector if vector is None else reshape(wide(vector), (-1,)) for vector in (weight, bias)]
    standard = _standardize(reshape(wide(input), (rows, -1)), eps)[0]
    return typed(reshape(_affine(standard, *vectors), input.shape), input.dtype)
