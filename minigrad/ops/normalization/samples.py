"""Normalisation of each sample by itself in one pass, ReLU too: what groups.py asks of the CPU.

The statistics are results without a gradient, which the rules do not need: they know how they follow from the input.
"""

import math

import numpy as np

from minigrad_kernels import sample_norm as kernels
from minigrad_kernels.layout import CHANNELS_LAST, is_dense

from ... import device
from ...primitive import primitive
from ..elementwise.conversions import wide
from ..elementwise.rectifiers import relu, relu_grad
from ..reduce import sum
from ..shape import reshape
from .rows import dx_of_rows, standardized

__all__ = ["group_norm_at_once", "group_statistics", "layer_norm_at_once", "takes_images"]

STATISTICS = ("mean", "variance")
OUTPUTS = dict(outputs=("out", *STATISTICS), fixed=STATISTICS)


def _factor(vector, number, shape, like):
    """A vector as an array; all the same number where it is None."""
    if vector is None:
        return device.full(shape, number, device.sum_dtype(like), like=like)
    return device.contiguous(vector if like.itemsize > 2 else device.cast(vector, device.sum_dtype(like)))


def _statistics(shape, like):
    return [device.empty(shape, np.float64, like=like) for _ in STATISTICS]


# ---- images --------------------------------------------------------------------------------------------------------


def _group_forward(input, weight, bias, groups, eps, relu):
    x = device.contiguous(input, CHANNELS_LAST)
    out, statistics = device.empty_like(x), _statistics((x.shape[0], groups), x)
    weight, bias = _factor(weight, 1, x.shape[1:2], x), _factor(bias, 0, x.shape[1:2], x)
    kernels.group_norm(x, weight, bias, eps, relu, out, *statistics, device.workspace)
    return out, *statistics


@primitive(**OUTPUTS)
def _group_norm(input, weight, bias, groups, eps):
    """Groups of channels of images, normalised."""
    return _group_forward(input, weight, bias, groups, eps, False)


@primitive(**OUTPUTS)
def _group_norm_relu(input, weight, bias, groups, eps):
    """relu(group_norm(...)) in one pass."""
    return _group_forward(input, weight, bias, groups, eps, True)


def _group_dx(g, input, weight, groups, eps):
    g = g if weight is None else wide(g) * reshape(wide(weight), (-1, 1, 1))
    return dx_of_rows(g, input, input.shape[0] * groups, eps)


def _group_dweight(g, input, groups, eps):
    return sum(wide(g) * standardized(wide(input), input.shape[0] * groups, eps), (0, 2, 3))


def _group_dbias(g):
    return sum(g, (0, 2, 3))


_group_norm.waits(lambda input, *others: input.shape)
_group_norm.grads(input=_group_dx, weight=_group_dweight, bias=_group_dbias)
_group_norm_relu.grads(
    input=lambda g, out, input, weight, groups, eps: _group_dx(relu_grad(g, out), input, weight, groups, eps),
    weight=lambda g, out, input, groups, eps: _group_dweight(relu_grad(g, out), input, groups, eps),
    bias=lambda g, out: _group_dbias(relu_grad(g, out)),
)


def _group_at_once(g, input, weight, mean, variance, eps, out=None):
    """All gradients; out says where relu lets g pass, None everywhere."""
    x, g = (device.contiguous(array, CHANNELS_LAST) for array in (input, g))
    weight = _factor(weight, 1, x.shape[1:2], x)
    dx, dweight, dbias = (device.empty_like(array) for array in (x, weight, weight))
    kernels.group_norm_grads(g, x, mean, variance, weight, eps, out, dx, dweight, dbias, device.workspace)
    return {"input": dx, "weight": dweight, "bias": dbias}


@_group_norm.fast_grads
def _group_norm_at_once(g, input, weight, mean, variance, eps):
    return _group_at_once(g, input, weight, mean, variance, eps)


@_group_norm_relu.fast_grads
def _group_norm_relu_at_once(g, out, input, weight, mean, variance, eps):
    return _group_at_once(g, input, weight, mean, variance, eps, out)


@relu.extends(_group_norm)
def _relu_of_group_norm(values, inplace):
    return _group_norm_relu, values


def takes_images(input):
    """Whether group_norm_at_once is for this input."""
    return input.ndim == 4 and input.device == "cpu" and 0 not in input.shape


def group_norm_at_once(input, weight, bias, groups, eps):
    """Groups of channels of images, so many, normalised; weight and bias (C,), or None."""
    return _group_norm(input, weight, bias, groups, eps)[0]


def group_statistics(input, weight, bias, groups, eps):
    """(the same, mean, biased variance), the last two (N, groups), for who wants to see them now."""
    return _group_norm.now((input, weight, bias, groups, eps))


# ---- layers --------------------------------------------------------------------------------------------------------


class _Layers:
    """How the elements of an input that are normalised together lie in memory as rows of a matrix.

    Images that lie channels last keep their order where all that follows the first dimension is normalised.
    """

    def __init__(self, input, shape):
        images = input.ndim == 4 and len(shape) == 3 and is_dense(input, CHANNELS_LAST)
        self.shape, self.size, self.order = shape, math.prod(shape), CHANNELS_LAST if images else None

    def dense(self, array):
        """The array, as the input is to lie."""
        return device.contiguous(array, self.order)

    def rows(self, array):
        """A dense array as a matrix."""
        return (array if self.order is None else array.transpose(self.order)).reshape(-1, self.size)

    def row(self, vector, number, like):
        """Weight or bias in the order of the elements of a row; all the same number where it is None."""
        if vector is not None and self.order is not None:
            vector = vector.transpose(1, 2, 0)
        return _factor(vector, number, self.shape, like).reshape(-1)

    def vector(self, row):
        """The gradient of weight or bias from that of such a row."""
        if self.order is None:
            return row.reshape(self.shape)
        channels, *image = self.shape
        return row.reshape(*image, channels).transpose(2, 0, 1)


def _layer_forward(input, weight, bias, shape, eps, relu):
    layers = _Layers(input, shape)
    x = layers.dense(input)
    out, rows = device.empty_like(x), layers.rows(x)
    weight, bias = layers.row(weight, 1, x), layers.row(bias, 0, x)
    statistics = _statistics(rows.shape[:1], x)
    kernels.layer_norm(rows, weight, bias, eps, relu, layers.rows(out), *statistics)
    return out, *statistics


@primitive(**OUTPUTS)
def _layer_norm(input, weight, bias, shape, eps):
    """The last dimensions, of that shape, normalised."""
    return _layer_forward(input, weight, bias, shape, eps, False)


@primitive(**OUTPUTS)
def _layer_norm_relu(input, weight, bias, shape, eps):
    """relu(layer_norm(...)) in one pass."""
    return _layer_forward(input, weight, bias, shape, eps, True)


def _samples(input, shape):
    return math.prod(input.shape[: input.ndim - len(shape)])


def _layer_dx(g, input, weight, shape, eps):
    return dx_of_rows(g if weight is None else wide(g) * wide(weight), input, _samples(input, shape), eps)


def _layer_dweight(g, input, shape, eps):
    return _layer_dbias(wide(g) * standardized(wide(input), _samples(input, shape), eps), shape)


def _layer_dbias(g, shape):
    return sum(reshape(g, (-1, *shape)), 0)


_layer_norm.waits(lambda input, *others: input.shape)
_layer_norm.grads(input=_layer_dx, weight=_layer_dweight, bias=_layer_dbias)
_layer_norm_relu.grads(
    input=lambda g, out, input, weight, shape, eps: _layer_dx(relu_grad(g, out), input, weight, shape, eps),
    weight=lambda g, out, input, shape, eps: _layer_dweight(relu_grad(g, out), input, shape, eps),
    bias=lambda g, out, shape: _layer_dbias(relu_grad(g, out), shape),
)


def _layer_at_once(g, input, weight, mean, variance, shape, eps, out=None):
    """All gradients; out says where relu lets g pass, None everywhere."""
    layers = _Layers(input, shape)
    x, g = layers.dense(input), layers.dense(g)
    rows, weight = layers.rows(x), layers.row(weight, 1, x)
    dx, dweight, dbias = (device.empty_like(array) for array in (x, weight, weight))
    out = None if out is None else layers.rows(out)
    outputs = layers.rows(dx), dweight, dbias
    kernels.layer_norm_grads(layers.rows(g), rows, mean, variance, weight, eps, out, *outputs, device.workspace)
    return {"input": dx, "weight": layers.vector(dweight), "bias": layers.vector(dbias)}


@_layer_norm.fast_grads
def _layer_norm_at_once(g, input, weight, mean, variance, shape, eps):
    return _layer_at_once(g, input, weight, mean, variance, shape, eps)


@_layer_norm_relu.fast_grads
def _layer_norm_relu_at_once(g, out, input, weight, mean, variance, shape, eps):
    return _layer_at_once(g, input, weight, mean, variance, shape, eps, out)


@relu.extends(_layer_norm)
def _relu_of_layer_norm(values, inplace):
    return _layer_norm_relu, values


def layer_norm_at_once(input, weight, bias, shape, eps):
    """The last dimensions, of that shape, normalised; weight and bias of that shape, or None."""
    return _layer_norm(input, weight, bias, shape, eps)[0]
