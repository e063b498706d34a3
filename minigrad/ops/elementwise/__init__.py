"""Elementwise ops: arithmetic, functions of one argument, choices and comparisons."""

from .arithmetic import add, div, mul, neg, pow, square, sub
from .choices import clamp, eq, ge, gt, isfinite, isnan, le, logical_not, lt, maximum, minimum, ne, where
from .functions import abs, exp, log, relu, sigmoid, sign, sqrt, tanh, to

__all__ = [
    "abs",
    "add",
    "clamp",
    "div",
    "eq",
    "exp",
    "ge",
    "gt",
    "isfinite",
    "isnan",
    "le",
    "log",
    "logical_not",
    "lt",
    "maximum",
    "minimum",
    "mul",
    "ne",
    "neg",
    "pow",
    "relu",
    "sigmoid",
    "sign",
    "sqrt",
    "square",
    "sub",
    "tanh",
    "to",
    "where",
]
