"""Normalisation by statistics of the batch, or of each sample by itself: over layers, groups of channels, channels.

Kernels make the first gradients in one pass. The rules below them state the same in differentiable ops.

Types   floating, one for all; beside an input of 16 bits all else may be float32, as statistics are then
Errors  ValueError for shapes that do not fit, TypeError for other element types
Source  Ioffe and Szegedy 2015, "Batch normalization", algorithm 1 and the gradients below it; Ba, Kiros and Hinton
        2016, "Layer normalization"; Wu and He 2018, "Group normalization"; Ulyanov, Vedaldi and Lempitsky 2016,
        "Instance normalization"
"""

import math

import numpy as np

from minigrad_kernels import norm as kernels
from minigrad_kernels.errors import ShapeError
from minigrad_kernels.layout import CHANNELS_LAST

from .. import device, fusion
from ..core.check import integer_of, number_of, shape_of
from ..core.modes import repeating
from ..core.primitive import primitive
from ..core.tape import write
from ..core.tensor import Tensor, check_vectors, floating_of, tensor_of
from .autocast import composed
from .conv_fused import fold
from .conversions import precise, through, typed, wide
from .elementwise import clamp, sqrt
from .elementwise.activations import relu
from .elementwise.arithmetic import add
from .reduce import mean, norm, reduced_axes, sum
from .shape import reshape

__all__ = ["batch_norm", "group_norm", "instance_norm", "layer_norm", "normalize"]

# ---- arrays for kernels ----------------------------------------------------------------------------------------------


def _dense(x):
    return device.contiguous(x, CHANNELS_LAST if x.ndim == 4 else None)


def _contiguous(vectors, x):
    """Vectors without gaps, in the type that kernels want beside x."""
    typed = lambda vector: device.cast(vector, device.sum_dtype(x)) if x.itemsize == vector.itemsize == 2 else vector
    return [None if vector is None else device.contiguous(typed(vector)) for vector in vectors]


# ---- the gradients as differentiable functions -----------------------------------------------------------------------


def per_channel(vector, ndim):
    """A vector of channels, (C,), in the shape in which it broadcasts to (N, C, ...)."""
    return reshape(vector, (-1, *(1,) * (ndim - 2)))


def scaled(standard, weight, bias):
    """standard * weight + bias for vectors of channels, where None is 1 and 0."""
    out = standard if weight is None else standard * per_channel(weight, standard.ndim)
    return out if bias is None else out + per_channel(bias, standard.ndim)


def _but_channels(input):
    return tuple(axis for axis in range(input.ndim) if axis != 1)


def _by_batch(input):
    """The shape and the axes in which the elements that are normalised together are seen."""
    return input.shape, _but_channels(input)


def _by_rows(input, groups):
    """The same for groups of channels of each sample."""
    return (input.shape[0] * groups, math.prod(input.shape[1:]) // groups), (1,)


def _standard(input, eps, shape, axes):
    """z = (x - mean) / sqrt(variance + eps) over these axes of x in this shape, and 1 / sqrt(variance + eps)."""
    x = reshape(input, shape)
    deviation = x - mean(x, axes, True)
    scale = 1 / sqrt(mean(deviation * deviation, axes, True) + eps)
    return deviation * scale, scale


def _dx(g, input, weight, eps, shape, axes):
    z, scale = _standard(input, eps, shape, axes)
    g = reshape(scaled(g, weight, None), shape)
    return reshape(scale * (g - mean(g, axes, True) - z * mean(g * z, axes, True)), input.shape)


def _dweight(g, input, eps, shape, axes):
    return _dbias(g * reshape(_standard(input, eps, shape, axes)[0], input.shape))


def _dbias(g):
    return sum(g, _but_channels(g))


# ---- the batch -------------------------------------------------------------------------------------------------------


@primitive(outputs=("mean", "variance"), fixed=("input", "running_mean", "running_var", "mean", "variance"))
def _batch_statistics(input, running_mean, running_var, momentum):
    """Mean and biased variance of each channel, which enter into the running ones."""
    x = _dense(input)
    mean, variance = (device.empty((x.shape[1],), device.sum_dtype(x), like=x) for _ in range(2))
    given = running_mean, running_var
    running = _contiguous(given, x)
    kernels.batch_statistics(x, mean, variance, device.workspace, *running, momentum)
    for vector, updated in zip(given, running, strict=True):
        if updated is not vector:
            device.assign(vector, updated)
    return mean, variance


def _normalized(input, weight, bias, residual, mean, variance, eps, relu):
    x = _dense(input)
    weight, bias = _contiguous((weight, bias), x)
    residual = None if residual is None else device.contiguous(residual, device.order_of(x))
    out = device.empty_like(x)
    kernels.batch_normalize(x, mean, variance, weight, bias, eps, residual, relu, out)
    return out


NOT_VARIED = ("mean", "variance")  # the rules know how they follow from the input


@primitive(fixed=NOT_VARIED)
def _batch_norm(input, weight, bias, residual, mean, variance, eps):
    """Normalised by the statistics of the batch, and a residual added."""
    return _normalized(input, weight, bias, residual, mean, variance, eps, False)


@primitive(fixed=NOT_VARIED)
def _batch_norm_relu(input, weight, bias, residual, mean, variance, eps):
    """relu(batch_norm(...) + residual) in one pass."""
    return _normalized(input, weight, bias, residual, mean, variance, eps, True)


fusion.waits(_batch_norm, lambda input, *others: input.shape)
_batch_norm.grads(
    input=precise(lambda g, input, weight, eps: _dx(g, input, weight, eps, *_by_batch(input))),
    weight=precise(lambda g, input, eps: _dweight(g, input, eps, *_by_batch(input))),
    bias=_dbias,
    residual=lambda g: g,
)
_batch_norm_relu.grads(**through(relu.rules["input"], _batch_norm.rules))


@_batch_norm_relu.fast_grads
def _at_once(g, out, input, weight, mean, variance, eps, needs):
    """All gradients; out says where relu lets g pass, None everywhere."""
    x = _dense(input)
    (weight,) = _contiguous((weight,), x)
    dx = device.empty_like(x)
    dweight, dbias = (device.empty((x.shape[1],), device.sum_dtype(x), like=x) for _ in range(2))
    masked = {"residual": device.empty_like(x)} if out is not None and "residual" in needs else {}
    g = device.contiguous(g, device.order_of(x))
    dresidual = masked.get("residual")
    kernels.batch_norm_grads(g, x, mean, variance, weight, eps, out, dx, dweight, dbias, dresidual, device.workspace)
    return {"input": dx, "weight": dweight, "bias": dbias, **masked}


@_batch_norm.fast_grads
def _batch_norm_at_once(g, input, weight, mean, variance, eps, needs):
    return _at_once(g, None, input, weight, mean, variance, eps, needs)


@fusion.extends(add, _batch_norm)
def _add_to_batch_norm(values, other):
    input, weight, bias, residual, *rest = values
    fits = residual is None and isinstance(other, Tensor) and other.shape == input.shape and other.dtype == input.dtype
    return (_batch_norm, (input, weight, bias, other, *rest)) if fits else None


fusion.extends(relu, _batch_norm, _batch_norm_relu)

# ---- each sample by itself -------------------------------------------------------------------------------------------


@primitive(outputs=("out", "mean", "variance"), fixed=("mean", "variance"))
def sample_norm_op(input, weight, bias, groups, eps):
    """Rows of a matrix, or groups of channels of images, normalised, scaled and shifted: on the CPU in one pass."""
    x = _dense(input)
    weight, bias = _affine(x, weight, bias)
    shape = x.shape[:1] if x.ndim == 2 else (x.shape[0], groups)
    out = device.empty_like(x)
    statistics = [device.empty(shape, np.float64, like=x) for _ in ("mean", "variance")]
    if x.ndim == 2:
        kernels.layer_norm(x, weight, bias, eps, out, *statistics)
    else:
        kernels.group_norm(x, weight, bias, eps, out, *statistics, device.workspace)
    return out, *statistics


def _affine(x, weight, bias):
    """Weight and bias as kernels want them; 1 and 0 for None."""
    given = zip(_contiguous((weight, bias), x), (1, 0), strict=True)
    return [device.full(x.shape[1:2], number, device.sum_dtype(x), like=x) if v is None else v for v, number in given]


sample_norm_op.grads(
    input=precise(lambda g, input, weight, groups, eps: _dx(g, input, weight, eps, *_by_rows(input, groups))),
    weight=precise(lambda g, input, groups, eps: _dweight(g, input, eps, *_by_rows(input, groups))),
    bias=_dbias,
)


@sample_norm_op.fast_grads
def _sample_norm_at_once(g, input, weight, mean, variance, eps):
    x = _dense(input)
    weight, _ = _affine(x, weight, None)
    dx, dweight, dbias = (device.empty_like(array) for array in (x, weight, weight))
    kernel = kernels.layer_norm_grads if x.ndim == 2 else kernels.group_norm_grads
    kernel(_dense(g), x, mean, variance, weight, eps, dx, dweight, dbias, device.workspace)
    return {"input": dx, "weight": dweight, "bias": dbias}


@primitive(outputs=("out", "scale"), fixed=("scale",))
def _standardize(input, eps):
    """Rows with mean 0 and variance 1, and what each was multiplied by: 1 / sqrt(variance + eps)."""
    x = device.contiguous(input)
    out, scale = device.empty_like(x), device.empty(x.shape[:1], device.sum_dtype(x), like=x)
    kernels.standardize(x, eps, out, scale)
    return out, scale


_standardize.grads(input=lambda g, input, eps: _dx(g, input, None, eps, input.shape, (1,)))


@_standardize.fast_grads
def _standardize_at_once(g, out, scale):
    dx = device.empty_like(out)
    kernels.standardize_grad(device.contiguous(g), out, scale, dx)
    return {"input": dx}


def _normalized_samples(input, weight, bias, groups, eps):
    """Rows of a matrix, or groups of channels of images, normalised; each column or channel scaled and shifted."""
    if 0 in input.shape:
        return scaled(input, weight, bias)
    if input.device == "cpu":
        return sample_norm_op(input, weight, bias, groups, eps)[0]
    rows = reshape(input, _by_rows(input, groups)[0])
    return scaled(reshape(_standardize(rows, eps)[0], input.shape), weight, bias)


def _normalized_groups(input, weight, bias, groups, eps):
    images = input if input.ndim == 4 else reshape(input, (*input.shape[:2], math.prod(input.shape[2:]), 1))
    return reshape(_normalized_samples(images, weight, bias, groups, eps), input.shape)


# ---- ops -------------------------------------------------------------------------------------------------------------


def check_channels(op, input, **vectors):
    """Refuse an input without channels, and vectors that do not hold a number for each of them."""
    if floating_of(op, "input", input).ndim < 2:
        raise ShapeError(f"{op}: input has shape {input.shape}, wanted (N, C, ...)")
    for name, vector in vectors.items():
        if vector is not None and tensor_of(op, name, vector).shape != input.shape[1:2]:
            own = f"{name} is for {vector.numel()} (shape {vector.shape})"
            raise ShapeError(f"{op}: input has {input.shape[1]} channels (shape {input.shape}), {own}; wants as many")


def _by_running(input, running_mean, running_var, weight, bias, eps):
    """Normalised by given statistics: one scale and one shift for each channel."""
    scale = (1 if weight is None else wide(weight)) / sqrt(wide(running_var) + eps)
    shift = (0 if bias is None else wide(bias)) - wide(running_mean) * scale
    folded = fold(input, scale, shift)
    if folded is not None:
        return folded
    return typed(scaled(wide(input), scale, shift), input.dtype)


def batch_norm(input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    """Each channel shifted and scaled to mean 0 and variance 1, then by a learned weight and bias.

    Math    m = mean(x, D);  v = mean((x - m)^2, D), the biased variance, for D all dimensions but the channels
            z = (x - m) / sqrt(v + eps);  out = z * weight + bias
            in training running_mean becomes (1 - momentum) running_mean + momentum m and running_var
            (1 - momentum) running_var + momentum v K / (K - 1), for K elements a channel; otherwise m and v are
            running_mean and running_var
    Grads   h = g * weight;  in training:  dx = (h - mean(h, D) - z * mean(h * z, D)) / sqrt(v + eps)
            dweight = g * z, summed over D        dbias = g, summed over D
    Shapes  input (N, C, ...); all others (C,)
    Errors  ValueError also for a single element per channel in training, which has no variance
    """
    op = "batch_norm"
    check_channels(op, input, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
    if (running_mean is None) != (running_var is None) or (running_mean is None and not training):
        name = "running_mean" if running_mean is None else "running_var"
        raise ShapeError(f"{op}: {name} is None, wanted both, or neither where input's own statistics are used")
    if not training:
        return _by_running(input, running_mean, running_var, weight, bias, eps)
    if not input.array.size:  # no statistics
        return typed(scaled(input, weight, bias), input.dtype)
    if input.array.size == input.shape[1]:
        raise ShapeError(
            f"{op}: input has shape {input.shape}, and one element a channel has no variance; "
            "use larger batches, drop_last=True in the loader, or eval()"
        )
    images = input if input.ndim in (2, 4) else reshape(input, (*input.shape[:2], -1, 1))
    if repeating.get():
        running_mean = running_var = None
    for running in (running_mean, running_var):
        if running is not None:
            write(running)
    statistics = _batch_statistics(images, running_mean, running_var, momentum)
    out = _batch_norm(images, weight, bias, None, *statistics, eps)
    return out if images is input else reshape(out, input.shape)


@composed
def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    """Each sample shifted and scaled to mean 0 and variance 1 over its last dimensions, then by weight and bias.

    Math    m = mean(x, D);  v = mean((x - m)^2, D), the biased variance, for D the dimensions of normalized_shape
            z = (x - m) / sqrt(v + eps);  out = z * weight + bias
    Grads   h = g * weight;  dx = (h - mean(h, D) - z * mean(h * z, D)) / sqrt(v + eps)
            dweight = g * z, summed over all but D        dbias = g, summed alike
    Shapes  input (..., *normalized_shape), weight and bias as normalized_shape; out as input
    """
    op = "layer_norm"
    shape = shape_of(op, "normalized_shape", (normalized_shape,))
    if not shape or floating_of(op, "input", input).shape[-len(shape) :] != shape:
        raise ShapeError(f"{op}: normalized_shape is {shape}, wanted the last sizes of input (shape {input.shape})")
    check_vectors(op, input, shape, weight=weight, bias=bias)
    columns = math.prod(shape)
    rows = reshape(input, (math.prod(input.shape[: -len(shape)]), columns))
    weight, bias = (None if vector is None else reshape(vector, (columns,)) for vector in (weight, bias))
    return reshape(_normalized_samples(rows, weight, bias, 1, eps), input.shape)


@composed
def group_norm(input, num_groups, weight=None, bias=None, eps=1e-5):
    """Each group of channels of each sample shifted and scaled to mean 0 and variance 1, then by weight and bias.

    Math    out = z weight + bias, per channel, z = (x - m) / sqrt(v + eps)
            m, v: mean and biased variance over the C / G channels of a group and all that follows them
    Grads   as layer_norm
    Shapes  input (N, C, ...), C a multiple of num_groups G; weight and bias (C,); out as input
    Errors  ValueError also for a single element in all, which has no variance
    """
    op = "group_norm"
    groups = integer_of(op, "num_groups", num_groups)
    check_channels(op, input, weight=weight, bias=bias)
    channels = input.shape[1]
    if groups < 1 or channels % groups:
        raise ShapeError(f"{op}: num_groups is {groups}, wanted a divisor of {channels} channels ({input.shape})")
    if input.array.size == groups:
        raise ShapeError(f"{op}: input has shape {input.shape}, and one element a group has no variance")
    return _normalized_groups(input, weight, bias, groups, eps)


@composed
def instance_norm(input, *, weight=None, bias=None, eps=1e-5):
    """Each channel of each sample shifted and scaled to mean 0 and variance 1, then by weight and bias.

    Math    out = z weight + bias, per channel, z = (x - m) / sqrt(v + eps)
            m, v: mean and biased variance over all that follows the channel
    Grads   as layer_norm
    Shapes  input (N, C, ...); weight and bias (C,); out as input
    Errors  ValueError also for a single element per channel and sample, which has no variance
    """
    op = "instance_norm"
    check_channels(op, input, weight=weight, bias=bias)
    if math.prod(input.shape[2:]) == 1:
        raise ShapeError(f"{op}: input has shape {input.shape}, and one element a channel has no variance")
    return _normalized_groups(input, weight, bias, input.shape[1], eps)


@composed
def normalize(input, p=2.0, dim=1, eps=1e-12):
    """Vectors scaled to length 1, or by 1 / eps where they are shorter than that.

    Math    out = input / max(sum(abs(input)^p, dim)^(1/p), eps);  other p as norm
    Grads   of the quotient; the norm counts as the constant eps where it is below
    Shapes  out as input
    Source  torch.nn.functional.normalize
    """
    reduced_axes("normalize", input, dim)
    return input / clamp(norm(input, p, dim, True), number_of("normalize", "eps", eps, 0))
