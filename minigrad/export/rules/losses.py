"""Losses, for networks that compute one of their inputs."""

from ...ops.loss import classes, distributions
from .table import rule

__all__: list[str] = []


@rule(distributions._binary_cross_entropy)
def _binary_cross_entropy(graph, results, input, target):
    dtype = results[0].dtype
    input, target = graph.cast(input, dtype), graph.cast(target, dtype)
    one, least = graph.number(1, dtype), graph.number(-100, dtype)
    yes = graph.node("Max", graph.node("Log", input), least)
    no = graph.node("Max", graph.node("Log", graph.node("Sub", one, input)), least)
    against = graph.node("Mul", graph.node("Sub", target, one), no)
    return graph.node("Sub", against, graph.node("Mul", target, yes))


# ---- of classes ------------------------------------------------------------------------------------------------------


@rule(classes._cross_entropy)
def _cross_entropy(graph, results, input, target, ignore_index, mean, ready):
    reduction = "mean" if mean else "sum"
    return (_negative_log_likelihood(graph, graph.node("LogSoftmax", input, axis=1), target, ignore_index, reduction),)


@rule(classes._cross_entropy_rows)
def _cross_entropy_rows(graph, results, input, target, ignore_index):
    return (_negative_log_likelihood(graph, graph.node("LogSoftmax", input, axis=1), target, ignore_index, "none"),)


def _negative_log_likelihood(graph, rows, target, ignore_index, reduction):
    how = {"ignore_index": ignore_index, "reduction": reduction}
    return graph.node("NegativeLogLikelihoodLoss", rows, target, **how)
