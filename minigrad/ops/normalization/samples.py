"""Normalisation of each sample by itself: over layers, groups of channels, or single channels.

On the CPU one kernel normalises, scales and shifts. Elsewhere the elements that are normalised together are the rows of
a matrix, which a kernel standardises.

Types   floating, one for all; beside an input of 16 bits all else may be float32
Errors  ValueError for shapes that do not fit, TypeError for other element types
Source  Ba, Kiros and Hinton 2016, "Layer normalization"; Wu and He 2018, "Group normalization"; Ulyanov, Vedaldi and
        Lempitsky 2016, "Instance normalization"
"""

import math

import numpy as np

from minigrad_kernels import norm as row_kernels
from minigrad_kernels import sample_norm as kernels
from minigrad_kernels.errors import KindError, ShapeError
from minigrad_kernels.layout import CHANNELS_LAST

from ... import device
from ...core.check import integer_of, number_of, shape_of
from ...core.modes import no_grad
from ...core.primitive import primitive
from ..axes import reduced_axes
from ..elementwise import clamp
from ..elementwise.conversions import composed, precise, typed, wide
from ..images import floating_of
from ..reduce import mean, norm, sum, var
from ..shape import reshape
from .batch import by_running, check_channels, check_running, check_vectors, scaled, update_running

__all__ = ["group_norm", "instance_norm", "layer_norm", "normalize"]

# ---- rows of a matrix ------------------------------------------------------------------------------------------------


@primitive(outputs=("out", "scale"))
def _standardize(input, eps):
    """Rows with mean 0 and variance 1, and what each was multiplied by: s = 1 / sqrt(variance + eps)."""
    x = device.contiguous(input)
    out, scale = device.empty_like(x), device.empty((len(x), 1), device.sum_dtype(x), like=x)
    row_kernels.standardize(x, eps, out, scale.reshape(-1))
    return out, scale


def _dx_of_standardize(g, g_scale, out, scale):
    """s (g - mean(g) - z mean(g z)), and as ds/dx = -s^2 z / K for rows of K, that of the second output."""
    slope = scale * mean(g * out, 1, True) + g_scale * scale * scale / out.shape[1]
    return scale * (g - mean(g, 1, True)) - out * slope


_standardize.grads(input=precise(_dx_of_standardize))


@_standardize.fast_grads
def _standardize_at_once(g, g_scale, out, scale):
    dx = device.empty_like(out)
    row_kernels.standardize_grad(device.contiguous(g), out, scale.reshape(-1), dx)
    if g_scale is not None:  # in gradients of gradients
        device.accumulate(dx, out * (g_scale * scale * scale / -out.shape[1]))
    return {"input": dx}


def _standardized(input, parts, eps):
    """The input standardised, as a differentiable function of it, and what it was multiplied by as a column of rows."""
    z, scale = _standardize(reshape(wide(input), (_rows(input, parts), -1)), eps)
    return reshape(z, input.shape), scale


# ---- parts: a number of groups of channels of images, or the shape of the last dimensions ----------------------------


def _rows(input, parts):
    """How many parts are normalised, each by itself."""
    return input.shape[0] * parts if isinstance(parts, int) else math.prod(input.shape[: input.ndim - len(parts)])


def _spread(vector, parts):
    """Weight or bias in float32 or more and in the shape in which it broadcasts to the input."""
    return vector if vector is None else reshape(wide(vector), (-1, 1, 1) if isinstance(parts, int) else parts)


def _summed(g, parts):
    """g summed to the shape of weight and bias."""
    return sum(g, (0, 2, 3)) if isinstance(parts, int) else sum(reshape(g, (-1, *parts)), 0)


@primitive(outputs=("out", "mean", "variance"), fixed=("mean", "variance"))
def _sample_norm(input, weight, bias, parts, eps):
    """Parts of each sample normalised, scaled and shifted in one pass on the CPU."""
    x, weight, bias, rows = _laid(input, weight, bias, parts)
    out, statistics = device.empty_like(x), [device.empty(rows, np.float64, like=x) for _ in ("mean", "variance")]
    if isinstance(parts, int):
        kernels.group_norm(x, weight, bias, eps, False, out, *statistics, device.workspace)
    else:
        matrices = [array.reshape(rows[0], -1) for array in (x, out)]
        kernels.layer_norm(matrices[0], weight, bias, eps, False, matrices[1], *statistics)
    return out, *statistics


def _laid(input, weight, bias, parts):
    """Arrays as the kernels want them, 1 and 0 for no weight and bias; and the shape of the statistics."""
    x = device.contiguous(input, CHANNELS_LAST if isinstance(parts, int) else None)
    shape = x.shape[1:2] if isinstance(parts, int) else (math.prod(parts),)
    vectors = []
    for vector, number in ((weight, 1), (bias, 0)):
        if vector is None:
            vectors.append(device.full(shape, number, device.sum_dtype(x), like=x))
        else:
            vector = vector if x.itemsize > 2 else device.cast(vector, device.sum_dtype(x))
            vectors.append(device.contiguous(vector).reshape(shape))
    return x, *vectors, (x.shape[0], parts) if isinstance(parts, int) else (_rows(x, parts),)


def _dx_of_sample_norm(g, input, weight, parts, eps):
    """s (g - mean(g) - z mean(g z)), for g times the weight."""
    z, scale = _standardized(input, parts, eps)
    g = wide(g) if weight is None else wide(g) * _spread(weight, parts)
    rows = (len(scale.array), -1)
    z, g = reshape(z, rows), reshape(g, rows)
    return reshape(scale * (g - mean(g, 1, True) - z * mean(g * z, 1, True)), input.shape)


_sample_norm.grads(
    input=_dx_of_sample_norm,
    weight=lambda g, input, parts, eps: _summed(wide(g) * _standardized(input, parts, eps)[0], parts),
    bias=_summed,
)


@_sample_norm.fast_grads
def _sample_norm_at_once(g, input, weight, mean, variance, parts, eps):
    x, factor, _, _ = _laid(input, weight, None, parts)
    g = device.contiguous(g, CHANNELS_LAST if isinstance(parts, int) else None)
    dx, dweight, dbias = (device.empty_like(array) for array in (x, factor, factor))
    if isinstance(parts, int):
        kernels.group_norm_grads(g, x, mean, variance, factor, eps, None, dx, dweight, dbias, device.workspace)
        return {"input": dx, "weight": dweight, "bias": dbias}
    g, x, rows = (array.reshape(mean.size, -1) for array in (g, x, dx))
    kernels.layer_norm_grads(g, x, mean, variance, factor, eps, None, rows, dweight, dbias, device.workspace)
    return {"input": dx, "weight": dweight.reshape(parts), "bias": dbias.reshape(parts)}


def _normalized(input, weight, bias, parts, eps):
    """Parts of each sample normalised; then scaled and shifted."""
    images = input
    if isinstance(parts, int) and input.ndim != 4:
        images = reshape(input, (*input.shape[:2], math.prod(input.shape[2:]), 1))
    if 0 not in input.shape and input.device == "cpu":
        out = _sample_norm(images, weight, bias, parts, eps)[0]
    else:
        standard = images if 0 in input.shape else _standardized(images, parts, eps)[0]
        out = typed(scaled(standard, _spread(weight, parts), _spread(bias, parts)), input.dtype)
    return out if images is input else reshape(out, input.shape)


# ---- ops -------------------------------------------------------------------------------------------------------------


def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    """Each sample shifted and scaled to mean 0 and variance 1 over its last dimensions, then by weight and bias.

    Math    m = mean(x, D);  v = mean((x - m)^2, D), the biased variance, for D the dimensions of normalized_shape
            z = (x - m) / sqrt(v + eps);  out = z * weight + bias
    Grads   h = g * weight;  dx = (h - mean(h, D) - z * mean(h * z, D)) / sqrt(v + eps)
            dweight = g * z, summed over all but D        dbias = g, summed alike
    Shapes  input (..., *normalized_shape), weight and bias as normalized_shape; out as input
    """
    op = "layer_norm"
    if not isinstance(normalized_shape, tuple | list):
        raise KindError(f"{op}: normalized_shape is {normalized_shape!r}, wanted a tuple of sizes")
    shape = shape_of(op, "normalized_shape", (normalized_shape,))
    if not shape or floating_of(op, "input", input).shape[-len(shape) :] != shape:
        raise ShapeError(f"{op}: normalized_shape is {shape}, wanted the last sizes of input (shape {input.shape})")
    check_vectors(op, input, shape, weight=weight, bias=bias)
    return _normalized(input, weight, bias, shape, number_of(op, "eps", eps))


def group_norm(input, num_groups, weight=None, bias=None, eps=1e-5):
    """Each group of channels of each sample shifted and scaled to mean 0 and variance 1, then by weight and bias.

    Math    out = z weight + bias, per channel, z = (x - m) / sqrt(v + eps)
            m, v: mean and biased variance over the C / G channels of a group and all that follows them
    Grads   as layer_norm
    Shapes  input (N, C, ...), C a multiple of num_groups G; weight and bias (C,); out as input
    Errors  ValueError also for a single element in all, which has no variance
    """
    op = "group_norm"
    groups, eps = integer_of(op, "num_groups", num_groups), number_of(op, "eps", eps)
    check_channels(op, input, weight=weight, bias=bias)
    batch, channels = input.shape[:2]
    if groups < 1 or channels % groups:
        raise ShapeError(f"{op}: num_groups is {groups}, wanted a divisor of {channels} channels ({input.shape})")
    if batch * (channels // groups) * math.prod(input.shape[2:]) == 1:
        raise ShapeError(f"{op}: input has shape {input.shape}, and one element a group has no variance")
    return _normalized(input, weight, bias, groups, eps)


def instance_norm(
    input,
    running_mean=None,
    running_var=None,
    weight=None,
    bias=None,
    use_input_stats=True,
    momentum=0.1,
    eps=1e-5,
):
    """Each channel of each sample shifted and scaled to mean 0 and variance 1, then by weight and bias.

    Math    out = z weight + bias, per channel, z = (x - m) / sqrt(v + eps)
            use_input_stats: m, v are mean and biased variance over all that follows the channel, and then
                running_mean = (1 - momentum) running_mean + momentum (mean of m over the batch)
                running_var = (1 - momentum) running_var + momentum (mean of v K / (K - 1)), for K elements a channel
            else: m, v are running_mean and running_var
    Grads   as layer_norm, by the input's own statistics
    Shapes  input (N, C, ...); all others (C,)
    Errors  ValueError also for a single element per channel and sample, which has no variance
    """
    op = "instance_norm"
    momentum, eps = number_of(op, "momentum", momentum), number_of(op, "eps", eps)
    check_channels(op, input, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
    check_running(op, running_mean, running_var, use_input_stats)
    if not use_input_stats:
        return by_running(input, running_mean, running_var, weight, bias, eps)
    count, inner = math.prod(input.shape[2:]), tuple(range(2, input.ndim))
    if count == 1:
        raise ShapeError(f"{op}: input has shape {input.shape}, and one element a channel has no variance")
    if running_mean is not None and 0 not in input.shape:
        with no_grad():
            update_running(running_mean, mean(mean(input, inner), 0), momentum)
            update_running(running_var, mean(var(input, inner, correction=0), 0) * (count / (count - 1)), momentum)
    return _normalized(input, weight, bias, input.shape[1], eps)


@composed
def normalize(input, p=2.0, dim=1, eps=1e-12):
    """Vectors scaled to length 1, or by 1 / eps where they are shorter than that.

    Math    out = input / max(|input|_p, eps), along dim
    Grads   of the quotient; the norm counts as the constant eps where it is below
    Shapes  out as input
    Source  torch.nn.functional.normalize
    """
    if not number_of("normalize", "eps", eps) >= 0:
        raise ShapeError(f"normalize: eps is {eps}, wanted at least 0")
    reduced_axes("normalize", input, dim)
    return input / clamp(norm(input, p, dim, True), eps)
