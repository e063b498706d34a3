"""Elementwise operations."""

import math

import numpy as np

from ... import device
from ...ops.elementwise import activations, arithmetic, choices, conversions, functions, rectifiers
from ..sizes import ExportError
from .table import RULES, rule

__all__: list[str] = []

# ---- one node --------------------------------------------------------------------------------------------------------

_SINGLE = {
    functions.exp: "Exp",
    functions.log: "Log",
    functions.sqrt: "Sqrt",
    functions.reciprocal: "Reciprocal",
    functions.sin: "Sin",
    functions.cos: "Cos",
    functions.tanh: "Tanh",
    functions.sigmoid: "Sigmoid",
    functions.erf: "Erf",
    functions.abs: "Abs",
    functions.sign: "Sign",
    arithmetic.neg: "Neg",
    rectifiers.relu: "Relu",
    choices.isnan: "IsNaN",
    choices.isinf: "IsInf",
}
_PAIRWISE = {
    arithmetic.add: "Add",
    arithmetic.sub: "Sub",
    arithmetic.mul: "Mul",
    arithmetic._div: "Div",
    arithmetic.pow: "Pow",
    choices.maximum: "Max",
    choices.minimum: "Min",
}
_COMPARED = {
    choices.eq: "Equal",
    choices.lt: "Less",
    choices.le: "LessOrEqual",
    choices.gt: "Greater",
    choices.ge: "GreaterOrEqual",
}
_LOGIC = {choices.logical_and: "And", choices.logical_or: "Or", choices.logical_xor: "Xor"}
_BITS = {choices.bitwise_and: "And", choices.bitwise_or: "Or", choices.bitwise_xor: "Xor"}


def _single(kind):
    def apply(graph, results, input, *inplace):
        dtype = input.dtype if results[0].dtype.kind == "b" else results[0].dtype  # integers become floating before
        return graph.node(kind, graph.cast(input, dtype))

    return apply


def _pairwise(kind):
    def apply(graph, results, input, other):
        dtype = results[0].dtype
        if dtype.kind == "b":
            raise ExportError("its result is bool, wanted numbers")
        return graph.node(kind, graph.cast(input, dtype), graph.cast(other, dtype))

    return apply


def _compared(kind):
    return lambda graph, results, input, other: graph.node(kind, *graph.alike(input, other))


def _logic(kind):
    return lambda graph, results, *both: graph.node(kind, *[graph.cast(one, bool) for one in both])


def _bits(kind):
    def apply(graph, results, *both):
        if results[0].dtype.kind != "b":
            raise ExportError("ONNX has no bits of integers here, only of bools")
        return graph.node(kind, *[graph.cast(one, bool) for one in both])

    return apply


for _table, _make in ((_SINGLE, _single), (_PAIRWISE, _pairwise), (_COMPARED, _compared), (_LOGIC, _logic)):
    RULES.update({primitive: _make(kind) for primitive, kind in _table.items()})
RULES.update({primitive: _bits(kind) for primitive, kind in _BITS.items()})


@rule(choices.ne)
def _ne(graph, results, input, other):
    return graph.node("Not", graph.node("Equal", *graph.alike(input, other)))


@rule(choices.logical_not)
def _not(graph, results, input):
    return graph.node("Not", graph.cast(input, bool))


@rule(choices.bitwise_not)
def _bitwise_not(graph, results, input):
    return _bits("Not")(graph, results, input)


@rule(choices.isfinite)
def _isfinite(graph, results, input):
    return graph.node("Not", graph.node("Or", graph.node("IsNaN", input), graph.node("IsInf", input)))


@rule(choices._where)
def _where(graph, results, condition, input, other):
    dtype = results[0].dtype
    return graph.node("Where", graph.cast(condition, bool), graph.cast(input, dtype), graph.cast(other, dtype))


@rule(choices.clamp)
def _clamp(graph, results, input, low, high):
    dtype = results[0].dtype
    out = graph.cast(input, dtype)
    if low is not None:
        out = graph.node("Max", out, graph.cast(low, dtype))
    return out if high is None else graph.node("Min", out, graph.cast(high, dtype))


@rule(conversions.cast)
def _cast(graph, results, input, dtype):
    return graph.to_type(input, results[0].dtype)


@rule(conversions.move)
def _move(graph, results, input, place):
    return input.name


# ---- several nodes ---------------------------------------------------------------------------------------------------


@rule(arithmetic.remainder)
def _remainder(graph, results, input, other):
    x, y = (graph.cast(one, results[0].dtype) for one in (input, other))
    if not device.is_floating(results[0].dtype):
        return graph.node("Mod", x, y)
    return graph.node("Sub", x, graph.node("Mul", graph.node("Floor", graph.node("Div", x, y)), y))


@rule(arithmetic._whole_div)
def _whole_div(graph, results, input, other, rounding_mode):
    dtype = results[0].dtype
    x, y = (graph.cast(one, dtype) for one in (input, other))
    quotient = graph.node("Div", x, y)
    if not device.is_floating(dtype):
        if rounding_mode == "trunc":
            return quotient
        rest = graph.node("Sub", x, graph.node("Mod", x, y))
        return graph.node("Div", rest, y)
    if rounding_mode == "floor":
        return graph.node("Floor", quotient)
    return graph.node("Mul", graph.node("Sign", quotient), graph.node("Floor", graph.node("Abs", quotient)))


@rule(functions.rsqrt)
def _rsqrt(graph, results, input):
    return graph.node("Reciprocal", graph.node("Sqrt", graph.cast(input, results[0].dtype)))


@rule(functions.expm1)
def _expm1(graph, results, input):
    dtype = results[0].dtype
    return graph.node("Sub", graph.node("Exp", graph.cast(input, dtype)), graph.number(1, dtype))


@rule(functions.log1p)
def _log1p(graph, results, input):
    dtype = results[0].dtype
    return graph.node("Log", graph.node("Add", graph.cast(input, dtype), graph.number(1, dtype)))


@rule(rectifiers.leaky_relu)
def _leaky_relu(graph, results, input, negative_slope, inplace):
    return graph.node("LeakyRelu", input, alpha=float(negative_slope))


@rule(rectifiers._limited)
def _limited(graph, results, input, name, low, high):
    return graph.node("Clip", input, graph.number(low, input.dtype), graph.number(high, input.dtype))


@rule(activations.elu)
def _elu(graph, results, input, alpha, inplace):
    return graph.node("Elu", input, alpha=float(alpha))


@rule(activations.silu)
def _silu(graph, results, input, inplace):
    return graph.node("Mul", input, graph.node("Sigmoid", input))


@rule(activations.softplus)
def _softplus(graph, results, input, beta, threshold):
    scaled = input if beta == 1 else graph.node("Mul", input, graph.number(beta, input.dtype))
    out = graph.node("Softplus", scaled)
    out = out if beta == 1 else graph.node("Div", out, graph.number(beta, input.dtype))
    if math.isinf(threshold):
        return out
    return graph.node("Where", graph.node("Greater", scaled, graph.number(threshold, input.dtype)), input, out)


@rule(activations._gelu)
def _gelu(graph, results, input):
    dtype = input.dtype
    inner = graph.node("Erf", graph.node("Mul", input, graph.number(math.sqrt(0.5), dtype)))
    share = graph.node("Mul", graph.node("Add", inner, graph.number(1, dtype)), graph.number(0.5, dtype))
    return graph.node("Mul", input, share)


@rule(activations._gelu_tanh)
def _gelu_tanh(graph, results, input):
    dtype = input.dtype
    square = graph.node("Mul", graph.node("Mul", input, input), graph.number(activations.CUBIC, dtype))
    inner = graph.node("Mul", input, graph.node("Add", square, graph.number(1, dtype)))
    inner = graph.node("Tanh", graph.node("Mul", inner, graph.number(activations.INNER, dtype)))
    share = graph.node("Mul", graph.node("Add", inner, graph.number(1, dtype)), graph.number(np.float64(0.5), dtype))
    return graph.node("Mul", input, share)
