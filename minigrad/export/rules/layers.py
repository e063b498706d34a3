"""Convolutions, products, pooling, normalisation, softmax."""

import math

import numpy as np

from ...ops import pool
from ...ops.conv import trio
from ...ops.matmul import _linear, product
from ...ops.normalization import batch, samples
from ...ops.softmax import _log_softmax, _softmax
from ..sizes import ExportError
from .reductions import mean
from .table import rule

__all__: list[str] = []

# ---- products --------------------------------------------------------------------------------------------------------


@rule(product)
def _of_product(graph, results, input, other):
    return graph.node("MatMul", input, other)


@rule(_linear)
def _of_linear(graph, results, input, weight, bias):
    return graph.node("Gemm", input, weight, *([] if bias is None else [bias]), transB=1)


@rule(trio.conv2d)
def _conv2d(graph, results, input, weight, bias, geometry):
    stride, padding, dilation, groups = geometry
    how = {"kernel_shape": weight.shape[2:], "strides": stride, "dilations": dilation, "group": groups}
    return graph.node("Conv", input, weight, *([] if bias is None else [bias]), pads=(*padding, *padding), **how)


@rule(trio.conv2d_input_grad)
def _conv2d_input_grad(graph, results, grad, weight, input_shape, geometry):
    stride, padding, dilation, groups = geometry
    taps = weight.shape[2:]
    along = zip(grad.shape[2:], taps, stride, padding, dilation, results[0].shape[2:], strict=True)
    added = tuple([n - ((i - 1) * s - 2 * p + d * (k - 1) + 1) for i, k, s, p, d, n in along])
    how = {"kernel_shape": taps, "strides": stride, "dilations": dilation, "group": groups}
    return graph.node("ConvTranspose", grad, weight, pads=(*padding, *padding), output_padding=added, **how)


# ---- pooling ---------------------------------------------------------------------------------------------------------


@rule(pool._max_pool2d)
def _max_pool2d(graph, results, input, windows, shape):
    """Its end is padded so that the last window just fits, whether sizes were rounded up or down."""
    kernel, stride, padding, dilation = windows
    along = zip(input.shape[2:], kernel, stride, padding, dilation, results[0].shape[2:], strict=True)
    ends = [max(0, (i - 1) * s + d * (k - 1) + 1 - n - p) for n, k, s, p, d, i in along]
    pads = (*padding, *ends)
    if any(width >= size for width, size in zip(pads, (*kernel, *kernel), strict=True)):  # runtimes refuse these
        widths = [0, 0, *padding, 0, 0, *ends]
        input = graph.node("Pad", input, graph.integers(widths), graph.number(-np.inf, input.dtype), mode="constant")
        pads = (0,) * 4
    return graph.node("MaxPool", input, kernel_shape=kernel, strides=stride, dilations=dilation, pads=pads)


@rule(pool.average_over)
def _average_over(graph, results, input, rows, columns):
    """A table has start, end and divisor of each window along an axis."""
    tables, sizes = (rows, columns), input.shape[2:]
    if all((table[:, 1] - table[:, 0] == 1).all() and (table[:, 2] == 1).all() for table in tables):
        out = input.name
        for axis, (table, size) in enumerate(zip(tables, sizes, strict=True), 2):
            if not np.array_equal(table[:, 0], np.arange(size)):
                out = graph.node("Gather", out, table[:, 0].astype(np.int64), axis=axis)
        return out
    steps = [_regular(table, size) for table, size in zip(tables, sizes, strict=True)]
    if None not in steps:
        kernel, stride = zip(*steps, strict=True)
        return graph.node("AveragePool", input, kernel_shape=kernel, strides=stride)
    above, beside = (_matrix(table, size, input.dtype) for table, size in zip(tables, sizes, strict=True))
    return graph.node("MatMul", graph.node("MatMul", above, input), np.ascontiguousarray(beside.T))


def _regular(table, size):
    """(size, stride) of windows that are alike, begin at 0 and touch no padding; else None."""
    starts, widths = table[:, 0], table[:, 1] - table[:, 0]
    if not len(table):
        return None
    kernel, stride = int(widths[0]), int(starts[1]) if len(table) > 1 else size
    alike = (widths == kernel).all() and (table[:, 2] == kernel).all() and kernel > 0
    if not alike or stride < 1 or not np.array_equal(starts, np.arange(len(table)) * stride):
        return None
    return (kernel, stride) if (size - kernel) // stride + 1 == len(table) else None


def _matrix(table, size, dtype):
    """The matrix that takes the average over each window along an axis."""
    places = np.arange(size)
    inside = (places >= table[:, :1]) & (places < table[:, 1:2])
    return (inside / table[:, 2:]).astype(dtype)


# ---- normalisation ---------------------------------------------------------------------------------------------------


def _vector(graph, vector, ndim):
    """A vector of channels as it broadcasts to (N, C, ...)."""
    return graph.reshape(vector, (-1, *(1,) * (ndim - 2)))


def _scaled(graph, out, weight, bias, ndim):
    if weight is not None:
        out = graph.node("Mul", out, _vector(graph, weight, ndim))
    return out if bias is None else graph.node("Add", out, _vector(graph, bias, ndim))


@rule(batch._batch_statistics)
def _batch_statistics(graph, results, input, running_mean, running_var, momentum):
    if running_mean is not None:
        raise ExportError("it updates running statistics, as in training")
    axes = tuple(axis for axis in range(input.ndim) if axis != 1)
    deviation = graph.node("Sub", input, mean(graph, input, axes))
    return mean(graph, input, axes, False), mean(graph, graph.node("Mul", deviation, deviation), axes, False)


@rule(batch._batch_norm)
def _batch_norm(graph, results, input, weight, bias, residual, average, variance, eps):
    spread = graph.node("Sqrt", graph.node("Add", variance, graph.number(eps, input.dtype)))
    out = graph.node("Sub", input, _vector(graph, average, input.ndim))
    out = graph.node("Div", out, _vector(graph, spread, input.ndim))
    out = _scaled(graph, out, weight, bias, input.ndim)
    return out if residual is None else graph.node("Add", out, residual)


@rule(samples._sample_norm)
def _sample_norm(graph, results, input, weight, bias, parts, eps):
    if not isinstance(parts, int):
        weight = np.ones(parts, input.dtype) if weight is None else weight
        inputs = [input, weight] if bias is None else [input, weight, bias]
        return (graph.node("LayerNormalization", *inputs, axis=input.ndim - len(parts), epsilon=float(eps)),)
    grouped = graph.reshape(input, (input.shape[0], parts, math.prod(input.shape[1:]) // parts))
    one, zero = np.ones(parts, input.dtype), np.zeros(parts, input.dtype)
    out = graph.reshape(graph.node("InstanceNormalization", grouped, one, zero, epsilon=float(eps)), input.shape)
    return (_scaled(graph, out, weight, bias, input.ndim),)


# ---- softmax ---------------------------------------------------------------------------------------------------------


@rule(_softmax)
def _of_softmax(graph, results, input):
    return graph.node("Softmax", input, axis=1)


@rule(_log_softmax)
def _of_log_softmax(graph, results, input):
    return graph.node("LogSoftmax", input, axis=1)
