"""Normalisation by statistics of the batch.

Types   floating, one for all; beside an input of 16 bits all else may be float32, as
        statistics are then
Errors  ValueError for shapes that do not fit, TypeError for other element types
Source  Ioffe and Szegedy 2015, "Batch normalization", algorithm 1 and the gradients below it
"""

import math

from minigrad_kernels import norm as kernels
from minigrad_kernels.errors import KindError, ShapeError, StateError
from minigrad_kernels.layout import CHANNELS_LAST

from ... import device, fusion
from ...core.check import flag_of, number_of
from ...core.modes import no_grad, repeating
from ...core.primitive import primitive
from ...core.tape import write
from ...core.tensor import Tensor, tensor_of
from ..conv.fused import fold
from ..elementwise import sqrt
from ..elementwise.activations import relu, relu_grad
from ..elementwise.arithmetic import add
from ..elementwise.conversions import precise, typed, wide
from ..images import floating_of
from ..reduce import mean, sum
from ..shape import reshape

__all__ = ["batch_norm"]


def _dense(x):
    return device.contiguous(x, CHANNELS_LAST if x.ndim == 4 else None)


def _contiguous(vectors, x):
    """Vectors without gaps, in the type that kernels want beside x."""
    if x.itemsize == 2:
        vectors = [vector if vector is None else device.cast(vector, device.sum_dtype(x)) for vector in vectors]
    return [None if vector is None else device.contiguous(vector) for vector in vectors]


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


def per_channel(vector, ndim):
    """A vector of channels, (C,), in the shape in which it broadcasts to (N, C, ...)."""
    return reshape(vector, (-1, *(1,) * (ndim - 2)))


def _standardised(input, eps):
    """(x - mean) / sqrt(variance + eps) and 1 / sqrt(variance + eps), as differentiable functions of x."""
    axes = tuple(axis for axis in range(input.ndim) if axis != 1)
    deviation = input - mean(input, axes, True)
    scale = 1 / sqrt(mean(deviation * deviation, axes, True) + eps)
    return deviation * scale, scale, axes


def _dx_of_batch_norm(g, input, weight, eps):
    standard, scale, axes = _standardised(input, eps)
    g = g if weight is None else g * per_channel(weight, input.ndim)
    return scale * (g - mean(g, axes, True) - standard * mean(g * standard, axes, True))


def _dweight_of_batch_norm(g, input, eps):
    standard, _, axes = _standardised(input, eps)
    return sum(g * standard, axes)


def _dbias_of_batch_norm(g):
    return sum(g, tuple(axis for axis in range(g.ndim) if axis != 1))


fusion.waits(_batch_norm, lambda input, *others: input.shape)
_batch_norm.grads(
    input=precise(_dx_of_batch_norm),
    weight=precise(_dweight_of_batch_norm),
    bias=_dbias_of_batch_norm,
    residual=lambda g: g,
)
_batch_norm_relu.grads(
    input=precise(lambda g, out, input, weight, eps: _dx_of_batch_norm(relu_grad(g, out), input, weight, eps)),
    weight=precise(lambda g, out, input, eps: _dweight_of_batch_norm(relu_grad(g, out), input, eps)),
    bias=lambda g, out: _dbias_of_batch_norm(relu_grad(g, out)),
    residual=lambda g, out: relu_grad(g, out),
)


def _at_once(g, input, weight, mean, variance, eps, out, needs):
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
    return _at_once(g, input, weight, mean, variance, eps, None, needs)


@_batch_norm_relu.fast_grads
def _batch_norm_relu_at_once(g, out, input, weight, mean, variance, eps, needs):
    return _at_once(g, input, weight, mean, variance, eps, out, needs)


@fusion.extends(add, _batch_norm)
def _add_to_batch_norm(values, other):
    input, weight, bias, residual, *rest = values
    fits = residual is None and isinstance(other, Tensor) and other.shape == input.shape and other.dtype == input.dtype
    return (_batch_norm, (input, weight, bias, other, *rest)) if fits else None


@fusion.extends(relu, _batch_norm)
def _relu_of_batch_norm(values, inplace):
    return _batch_norm_relu, values


# ---- what normalisation over channels shares -------------------------------------------------------------------------


def check_vectors(op, input, shape, **vectors):
    """Refuse what is neither None nor a Tensor of this shape and of input's type, or beside 16 bits of float32."""
    for name, vector in vectors.items():
        if vector is None:
            continue
        if tensor_of(op, name, vector).shape != shape:
            raise ShapeError(f"{op}: {name} has shape {vector.shape}, wanted {shape} (input has shape {input.shape})")
        wider = vector.dtype == device.default_dtype and device.is_half(input.dtype)
        if vector.dtype != input.dtype and not wider:
            raise KindError(f"{op}: {name} has elements {vector.dtype}, input {input.dtype}; wanted one type")


def check_channels(op, input, **vectors):
    """Refuse an input without channels, and vectors that do not hold a number for each of them."""
    if floating_of(op, "input", input).ndim < 2:
        raise ShapeError(f"{op}: input has shape {input.shape}, wanted (N, C, ...)")
    check_vectors(op, input, input.shape[1:2], **vectors)


def check_running(op, running_mean, running_var, updated):
    """Refuse one without the other, none where they are needed, and before any is updated what could not be."""
    if (running_mean is None) != (running_var is None) or (running_mean is None and not updated):
        name = "running_mean" if running_mean is None else "running_var"
        raise ShapeError(f"{op}: {name} is None, wanted both, or neither where input's own statistics are used")
    for name, vector in (("running_mean", running_mean), ("running_var", running_var)):
        if updated and vector is not None and (vector.requires_grad or not device.is_writable(vector.array)):
            kind = "requires a gradient" if vector.requires_grad else "is read-only"
            raise StateError(f"{op}: {name} {kind}, wanted a leaf that can be updated")


def update_running(running, batch, momentum):
    """(1 - momentum) running + momentum batch, into running."""
    if repeating.get():
        return
    with no_grad():
        update = running * (1 - momentum) + batch * momentum
    device.assign(write(running), update.array)


def scaled(standard, weight, bias):
    """standard * weight + bias, where None is 1 and 0."""
    out = standard if weight is None else standard * weight
    return out if bias is None else out + bias


def by_running(input, running_mean, running_var, weight, bias, eps):
    """Normalised by given statistics: one scale and one shift for each channel."""
    running_mean, running_var, weight, bias = (
        None if vector is None else wide(vector) for vector in (running_mean, running_var, weight, bias)
    )
    scale = 1 / sqrt(running_var + eps) if weight is None else weight / sqrt(running_var + eps)
    shift = -running_mean * scale if bias is None else bias - running_mean * scale
    folded = fold(input, scale, shift)
    if folded is not None:
        return folded
    return typed(scaled(wide(input), per_channel(scale, input.ndim), per_channel(shift, input.ndim)), input.dtype)


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
    training = flag_of(op, "training", training)
    momentum, eps = number_of(op, "momentum", momentum), number_of(op, "eps", eps)
    check_channels(op, input, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
    check_running(op, running_mean, running_var, training)
    if not training:
        return by_running(input, running_mean, running_var, weight, bias, eps)
    return _by_batch(input, running_mean, running_var, weight, bias, momentum, eps)


def _by_batch(input, running_mean, running_var, weight, bias, momentum, eps):
    count = input.shape[0] * math.prod(input.shape[2:])
    if eps <= 0:
        raise ShapeError(f"batch_norm: eps is {eps}, wanted more than 0 in training")
    if count == 1:
        raise ShapeError(
            f"batch_norm: input has shape {input.shape}, and one element a channel has no variance; "
            "use larger batches, drop_last=True in the loader, or eval()"
        )
    if not input.array.size:  # no statistics
        out = scaled(input, *(v if v is None else per_channel(v, input.ndim) for v in (weight, bias)))
        return typed(out, input.dtype)
    images = input if input.ndim in (2, 4) else reshape(input, (*input.shape[:2], -1, 1))
    if repeating.get():
        running_mean = running_var = None
    for running in (running_mean, running_var):
        if running is not None:
            write(running)
    statistics = _batch_statistics(images, running_mean, running_var, momentum)
    out = _batch_norm(images, weight, bias, None, *statistics, eps)
    return out if images is input else reshape(out, input.shape)
