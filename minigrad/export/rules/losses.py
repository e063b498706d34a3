"""Losses, for networks that compute one of their inputs."""

import numpy as np

from ...ops.loss import classes, distributions, regression
from .table import rule

__all__: list[str] = []


def _difference(graph, results, input, target):
    dtype = results[0].dtype
    return graph.node("Sub", graph.cast(input, dtype), graph.cast(target, dtype))


@rule(regression._squared_error)
def _squared_error(graph, results, input, target):
    difference = _difference(graph, results, input, target)
    return graph.node("Mul", difference, difference)


@rule(regression._absolute_error)
def _absolute_error(graph, results, input, target):
    return graph.node("Abs", _difference(graph, results, input, target))


@rule(regression._huber)
def _huber(graph, results, input, target, delta, divisor):
    dtype = results[0].dtype
    difference = _difference(graph, results, input, target)
    limited = graph.node("Clip", difference, graph.number(-delta, dtype), graph.number(delta, dtype))
    half = graph.node("Mul", limited, graph.number(0.5, dtype))
    out = graph.node("Mul", graph.node("Sub", difference, half), limited)
    return out if divisor == 1 else graph.node("Div", out, graph.number(divisor, dtype))


@rule(distributions._binary_cross_entropy)
def _binary_cross_entropy(graph, results, input, target):
    dtype = results[0].dtype
    input, target = graph.cast(input, dtype), graph.cast(target, dtype)
    one, least = graph.number(1, dtype), graph.number(-100, dtype)
    yes = graph.node("Max", graph.node("Log", input), least)
    no = graph.node("Max", graph.node("Log", graph.node("Sub", one, input)), least)
    against = graph.node("Mul", graph.node("Sub", target, one), no)
    return graph.node("Sub", against, graph.node("Mul", target, yes))


@rule(distributions._logistic)
def _logistic(graph, results, input, target, pos_weight):
    """(1 - t) softplus(x) + P t softplus(-x)."""
    dtype = results[0].dtype
    input, target = graph.cast(input, dtype), graph.cast(target, dtype)
    no = graph.node("Mul", graph.node("Sub", graph.number(1, dtype), target), graph.node("Softplus", input))
    if pos_weight is not None:
        target = graph.node("Mul", target, graph.cast(pos_weight, dtype))
    return graph.node("Add", no, graph.node("Mul", target, graph.node("Softplus", graph.node("Neg", input))))


@rule(distributions._divergence)
def _divergence(graph, results, input, target):
    """t (ln t - input), with 0 ln 0 = 0."""
    dtype = results[0].dtype
    input, target = graph.cast(input, dtype), graph.cast(target, dtype)
    zero = graph.number(0, dtype)
    own = graph.node("Mul", target, graph.node("Log", target))
    own = graph.node("Where", graph.node("Equal", target, zero), zero, own)
    return graph.node("Sub", own, graph.node("Mul", target, input))


# ---- of classes ------------------------------------------------------------------------------------------------------


@rule(classes._cross_entropy)
def _cross_entropy(graph, results, input, target, ignore_index, mean, ready):
    reduction = "mean" if mean else "sum"
    return (_negative_log_likelihood(graph, graph.node("LogSoftmax", input, axis=1), target, ignore_index, reduction),)


@rule(classes._cross_entropy_rows)
def _cross_entropy_rows(graph, results, input, target, ignore_index):
    return (_negative_log_likelihood(graph, graph.node("LogSoftmax", input, axis=1), target, ignore_index, "none"),)


@rule(classes._of_rows)
def _of_rows(graph, results, input, target):
    places = graph.node("Unsqueeze", target, np.array([1]))
    return graph.node("Squeeze", graph.node("GatherElements", input, places, axis=1), np.array([1]))


def _negative_log_likelihood(graph, rows, target, ignore_index, reduction):
    how = {"ignore_index": ignore_index, "reduction": reduction}
    return graph.node("NegativeLogLikelihoodLoss", rows, target, **how)
