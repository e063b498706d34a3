"""Normalisation of each sample by itself: over layers, groups of channels, or single channels.

All three standardise the rows of one matrix, which the elements that are normalised together make up (rows.py). On the
CPU layers, and the channels of images, are normalised in one pass (samples.py).

Types   floating, one for all; beside an input of 16 bits all else may be float32
Errors  ValueError for shapes that do not fit, TypeError for other element types
Source  Ba, Kiros and Hinton 2016, "Layer normalization"; Wu and He 2018, "Group normalization"; Ulyanov, Vedaldi and
        Lempitsky 2016, "Instance normalization"
"""

import math

from minigrad_kernels.errors import KindError, ShapeError

from ...engine import no_grad
from ..arguments import flag_of, integer_of, number_of, shape_of
from ..axes import reduced_axes
from ..elementwise import clamp
from ..elementwise.conversions import composed, typed, wide
from ..images import floating_of
from ..reduce import mean, norm, var
from .batch import (
    by_running,
    check_channels,
    check_running,
    check_vectors,
    per_channel,
    scaled,
    update_running,
)
from .rows import affine, standardized
from .samples import group_norm_at_once, group_statistics, layer_norm_at_once, takes_images

__all__ = ["group_norm", "instance_norm", "layer_norm", "normalize"]


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
    eps = number_of(op, "eps", eps)
    if 0 in input.shape:
        return typed(scaled(input, weight, bias), input.dtype)
    if input.device == "cpu":
        return layer_norm_at_once(input, weight, bias, shape, eps)
    rows = math.prod(input.shape[: input.ndim - len(shape)])
    if weight is None and bias is None:
        return standardized(input, rows, eps)
    return affine(input, rows, weight, bias, eps)


def _of_channels(input, groups, weight, bias, eps):
    """Groups of channels, so many, each standardised; then channels scaled and shifted."""
    if takes_images(input):
        return group_norm_at_once(input, weight, bias, groups, eps)
    vectors = (v if v is None else per_channel(v, input.ndim) for v in (weight, bias))
    standard = input if 0 in input.shape else standardized(wide(input), input.shape[0] * groups, eps)
    return typed(scaled(standard, *[v if v is None else wide(v) for v in vectors]), input.dtype)


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
    return _of_channels(input, groups, weight, bias, eps)


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
    own = flag_of(op, "use_input_stats", use_input_stats)
    momentum, eps = number_of(op, "momentum", momentum), number_of(op, "eps", eps)
    check_channels(op, input, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
    check_running(op, running_mean, running_var, own)
    if not own:
        return by_running(input, running_mean, running_var, weight, bias, eps)
    if math.prod(input.shape[2:]) == 1:
        raise ShapeError(f"{op}: input has shape {input.shape}, and one element a channel has no variance")
    if running_mean is None or 0 in input.shape:
        return _of_channels(input, input.shape[1], weight, bias, eps)
    if takes_images(input):
        out, means, variances = group_statistics(input, weight, bias, input.shape[1], eps)
    else:
        inner, out = tuple(range(2, input.ndim)), _of_channels(input, input.shape[1], weight, bias, eps)
        with no_grad():
            means, variances = mean(input, inner), var(input, inner, correction=0)
    _update(running_mean, running_var, means, variances, math.prod(input.shape[2:]), momentum)
    return out


def _update(running_mean, running_var, means, variances, count, momentum):
    """Running statistics by those of each sample, (N, C); the variances are biased ones of `count` elements."""
    with no_grad():
        update_running(running_mean, mean(means, 0), momentum)
        update_running(running_var, mean(variances, 0) * (count / (count - 1)), momentum)


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
