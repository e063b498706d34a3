"""Normalisation.

Types   float32 or float64, one for all
Errors  ValueError for shapes that do not fit, TypeError for other element types
Source  Ioffe and Szegedy 2015, "Batch normalization", algorithm 1 and the gradients below it
"""

import math

from minigrad_kernels import norm as kernels
from minigrad_kernels.errors import KindError, ShapeError, StateError
from minigrad_kernels.layout import CHANNELS_LAST

from ... import device
from ...engine import no_grad, write
from ...primitive import primitive
from ..arguments import number_of, tensor_of
from ..elementwise import sqrt
from ..reduce import mean, sum
from ..shape import reshape

__all__ = ["batch_norm"]


def _dense(x):
    return device.contiguous(x, CHANNELS_LAST if x.ndim == 4 else None)


def _scratch(function, x):
    return device.workspace(kernels.workspace(function, x.shape))


@primitive(outputs=("out", "mean", "variance"), fixed=("mean", "variance"))
def _batch_norm(input, weight, bias, eps):
    """Normalised by the statistics of the batch, which are returned too."""
    x = _dense(input)
    weight, bias = (None if vector is None else device.contiguous(vector) for vector in (weight, bias))
    out = device.empty_like(x)
    mean, variance = (device.empty((x.shape[1],), x.dtype) for _ in range(2))
    kernels.batch_statistics(x, mean, variance, _scratch("batch_statistics", x))
    kernels.batch_normalize(x, mean, variance, weight, bias, eps, out)
    return out, mean, variance


def _per_channel(vector, ndim):
    return reshape(vector, (1, -1, *(1,) * (ndim - 2)))


def _standardised(input, eps):
    """(x - mean) / sqrt(variance + eps) and 1 / sqrt(variance + eps), as differentiable functions of x."""
    axes = tuple(axis for axis in range(input.ndim) if axis != 1)
    deviation = input - mean(input, axes, True)
    scale = 1 / sqrt(mean(deviation * deviation, axes, True) + eps)
    return deviation * scale, scale, axes


def _dx_of_batch_norm(g, input, weight, eps):
    standard, scale, axes = _standardised(input, eps)
    g = g if weight is None else g * _per_channel(weight, input.ndim)
    return scale * (g - mean(g, axes, True) - standard * mean(g * standard, axes, True))


def _dweight_of_batch_norm(g, input, eps):
    standard, _, axes = _standardised(input, eps)
    return sum(g * standard, axes)


_batch_norm.grads(
    input=_dx_of_batch_norm,
    weight=_dweight_of_batch_norm,
    bias=lambda g: sum(g, tuple(axis for axis in range(g.ndim) if axis != 1)),
)


@_batch_norm.fast_grads
def _batch_norm_at_once(g, input, mean, variance, weight, eps):
    x = _dense(input)
    weight = None if weight is None else device.contiguous(weight)
    dx = device.empty_like(x)
    dweight, dbias = (device.empty((x.shape[1],), x.dtype) for _ in range(2))
    kernels.batch_norm_grads(
        _dense(g), x, mean, variance, weight, eps, dx, dweight, dbias, _scratch("batch_norm_grads", x)
    )
    return {"input": dx, "weight": dweight, "bias": dbias}


def batch_norm(input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    """Each channel shifted and scaled to mean 0 and variance 1, then by a learned weight and bias.

    Math    out = (x - m) / sqrt(v + eps) * weight + bias, per channel
            training: m, v are the mean and the biased variance over all but the channel, and then
                running_mean = (1 - momentum) running_mean + momentum m
                running_var = (1 - momentum) running_var + momentum v K / (K - 1), for K elements a channel
            else: m, v are running_mean and running_var
    Grads   with z = (x - m) / sqrt(v + eps) and h = g weight, in training:
            dx = (h - mean(h) - z mean(h z)) / sqrt(v + eps)        dweight = sum g z        dbias = sum g
    Shapes  input (N, C) or (N, C, H, W); all others (C,)
    Errors  ValueError also for a single element per channel in training, which has no variance
    """
    momentum, eps = number_of("batch_norm", "momentum", momentum), number_of("batch_norm", "eps", eps)
    vectors = {"running_mean": running_mean, "running_var": running_var, "weight": weight, "bias": bias}
    _check(input, vectors, training)
    if not training:
        scale = 1 / sqrt(running_var + eps) if weight is None else weight / sqrt(running_var + eps)
        shift = -running_mean * scale if bias is None else bias - running_mean * scale
        return input * _per_channel(scale, input.ndim) + _per_channel(shift, input.ndim)
    out, mean, variance = _batch_norm(input, weight, bias, eps)
    count = math.prod(input.shape) // input.shape[1]
    with no_grad():
        for running, batch in ((running_mean, mean), (running_var, variance * (count / (count - 1)))):
            if running is not None:
                update = running * (1 - momentum) + batch * momentum
                write(running)[...] = update.data
    return out


def _check_running(name, vector):
    """Refuse statistics that training could not update, before it updates any."""
    if vector.node is not None or not vector.data.flags.writeable:
        kind = "read-only" if vector.node is None else f"the result of {vector.node.primitive.name}"
        raise StateError(f"batch_norm: {name} is {kind}, wanted a leaf that training can update")


def _check(input, vectors, training):
    tensor_of("batch_norm", "input", input)
    if not device.is_floating(input.dtype):
        raise KindError(f"batch_norm: input has elements {input.dtype}, wanted floating ones")
    if input.ndim not in (2, 4):
        raise ShapeError(f"batch_norm: input has shape {input.shape}, wanted (N, C) or (N, C, H, W)")
    for name, vector in vectors.items():
        if vector is None and not training and name.startswith("running"):
            raise ShapeError(f"batch_norm: {name} is None, which only training allows")
        if vector is None:
            continue
        if tensor_of("batch_norm", name, vector).shape != input.shape[1:2]:
            raise ShapeError(
                f"batch_norm: {name} has shape {vector.shape}, wanted {input.shape[1:2]} as input's channels"
            )
        if vector.dtype != input.dtype:
            raise KindError(f"batch_norm: {name} has elements {vector.dtype}, input {input.dtype}; wanted one type")
        if training and name.startswith("running"):
            _check_running(name, vector)
    if training and math.prod(input.shape) // max(input.shape[1], 1) < 2:
        raise ShapeError(
            f"batch_norm: input has shape {input.shape}, and one element a channel has no variance; "
            "use larger batches, drop_last=True in the loader, or eval()"
        )
