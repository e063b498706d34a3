"""Sums, means, extremes, norms, running sums."""

import math

import numpy as np

from ...ops.reduce import extremes, norms, scans, sums
from ..sizes import ExportError, Size
from .table import rule

__all__ = ["mean"]


def _reduced(graph, kind, input, axes, keepdim):
    """One of the nodes whose axes are an attribute; over no axes it would take all."""
    if not axes:
        return graph.node("Identity", input)
    return graph.node(kind, input, axes=axes, keepdims=int(keepdim))


def _sum_of(graph, input, axes, keepdim):
    if not axes:
        return graph.node("Identity", input)
    return graph.node("ReduceSum", input, graph.integers(axes), keepdims=int(keepdim))


def mean(graph, input, axes, keepdim=True):
    """The mean over axes of a Value or a name."""
    return _reduced(graph, "ReduceMean", input, axes, keepdim)


@rule(sums._sum)
def _sum(graph, results, input, axes, keepdim, dtype):
    return _sum_of(graph, graph.cast(input, results[0].dtype), axes, keepdim)


@rule(sums._mean)
def _mean(graph, results, input, axes, keepdim):
    return mean(graph, graph.cast(input, results[0].dtype), axes, keepdim)


@rule(sums._var)
def _var(graph, results, input, axes, keepdim, correction):
    deviation = graph.node("Sub", input, mean(graph, input, axes))
    squares = graph.node("Mul", deviation, deviation)
    if not correction:
        return mean(graph, squares, axes, keepdim)
    count = [input.shape[axis] for axis in axes]
    if any(isinstance(size, Size) for size in count):
        raise ExportError("correction is not 0 and the variance goes over the batch, whose size is left open")
    freedom = max(math.prod(count) - correction, 0)
    with np.errstate(divide="ignore"):
        share = np.divide(1.0, freedom)
    return graph.node("Mul", _sum_of(graph, squares, axes, keepdim), graph.number(share, input.dtype))


@rule(sums._root)
def _root(graph, results, input):
    return graph.node("Sqrt", input)


@rule(scans._prod)
def _prod(graph, results, input, axis, keepdim, dtype):
    axes = tuple(range(input.ndim)) if axis is None else (axis,)
    return _reduced(graph, "ReduceProd", graph.cast(input, results[0].dtype), axes, keepdim)


@rule(scans._cumsum)
def _cumsum(graph, results, input, axis, reverse, dtype):
    number = np.array(axis, np.int64)
    return graph.node("CumSum", graph.cast(input, results[0].dtype), number, reverse=int(reverse))


@rule(extremes._extreme)
def _extreme(graph, results, input, axes, keepdim, name, nan_wins):
    return _reduced(graph, {"max": "ReduceMax", "min": "ReduceMin"}[name], input, axes, keepdim)


@rule(extremes._argextreme)
def _argextreme(graph, results, input, axis, name):
    return graph.node({"argmax": "ArgMax", "argmin": "ArgMin"}[name], input, axis=axis, keepdims=1)


@rule(extremes._logical)
def _logical(graph, results, input, axes, keepdim, name):
    numbers = graph.to_type(graph.cast(input, bool), "int32")
    found = _reduced(graph, {"any": "ReduceMax", "all": "ReduceMin"}[name], numbers, axes, keepdim)
    return graph.to_type(found, bool)


@rule(norms._logsumexp)
def _logsumexp(graph, results, input, axes, keepdim):
    return _reduced(graph, "ReduceLogSumExp", input, axes, keepdim)


@rule(norms._norm)
def _norm(graph, results, input, p, axes, keepdim):
    if p == 2 and axes:
        return _reduced(graph, "ReduceL2", input, axes, keepdim)
    sizes = graph.node("Abs", input)
    if p in (math.inf, -math.inf):
        return _reduced(graph, "ReduceMax" if p > 0 else "ReduceMin", sizes, axes, keepdim)
    if p == 0:
        counted = graph.to_type(graph.node("Greater", sizes, graph.number(0, input.dtype)), input.dtype)
        return _sum_of(graph, counted, axes, keepdim)
    if p == 1:
        return _sum_of(graph, sizes, axes, keepdim)
    total = _sum_of(graph, graph.node("Pow", sizes, graph.number(p, input.dtype)), axes, keepdim)
    return graph.node("Pow", total, graph.number(1 / p, input.dtype))
