"""Elementwise arithmetic, functions, activations and their gradients on dense float32 arrays of the CPU.

All arrays of a call have one shape and one order of axes in memory. p and q are the numbers that some ops take. Other
devices and element types have functions of their own array modules for this.

Types   float32; float16 and bfloat16, rounded once
Errors  ValueError for a shape, a layout or an op that does not exist, TypeError for an element type or kind of array
"""

from ..errors import KindError, ShapeError
from ..toolchain import implementation
from ..toolchain.arguments import SINGLE, check_array, check_output, flat, workspace_of
from ..toolchain.runs import workspace
from ..toolchain.widening import widened
from .plan import ONES, TWOS

__all__ = ["one", "total", "two", "workspace"]

_bytes = workspace  # where an argument has that name


def _check_op(function, op, ops):
    if op not in ops:
        raise ShapeError(f"{function}: op is {op!r}, wants one of {', '.join(sorted(ops))}")


@widened("x", "out")
def one(x, op, p, q, out):
    """A function of each element.

    Math    add_number x + p;  mul_number x p;  div_number x / p;  abs;  neg;  exp;  expm1;  log;  log1p;  sqrt;  tanh
            sigmoid 1 / (1 + e^-x);  silu x sigmoid(x);  elu x where x > 0, else p (e^x - 1)
            softplus ln(1 + e^(p x)) / p, x where p x > q
            limit min(max(x, p), q)
            gelu x (1 + erf(x / sqrt 2)) / 2;  gelu_tanh x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2
    Grads   see two
    Shapes  x and out alike
    Source  see maths.py
    """
    kernel = implementation(__name__, "one", x)
    _check_op("one", op, ONES)
    check_array("one", "x", x, None, SINGLE)
    check_output("one", "out", out, x.shape, x.dtype)
    view, out_view = flat("one", ("x", "out"), (x, out))
    kernel(view, op, p, q, out_view)


def _check_pair(function, op, x, y):
    _check_op(function, op, TWOS)
    if type(y) is not type(x):
        raise KindError(f"{function}: y is a {type(y).__name__}, x a {type(x).__name__}; wants arrays of one kind")
    check_array(function, "x", x, None, SINGLE)
    check_array(function, "y", y, x.shape, x.dtype)


@widened("x y", "out")
def two(x, y, op, p, q, out):
    """A function of each pair of elements.

    Math    add, sub, mul, div, maximum, minimum; NaN wins
            NAME_grad: x times the derivative of NAME, at y; of tanh and sigmoid, where they were y
            squared_error (x - y)^2;  scaled_difference p (x - y);  absolute_error |x - y|, its gradient times p
            huber d^2 / 2 where |d| <= p, else p (|d| - p / 2), over q, with d = x - y
            huber_grad, without that divisor, times q
            logistic_loss ln(1 + e^x) - x y, its gradient times p;  divergence y (ln y - x)
            limit_grad x where p < y < q, else 0;  abs_grad x sign(y)
    Grads   sums and products of these
    Shapes  x, y and out alike
    Source  see maths.py
    """
    kernel = implementation(__name__, "two", x)
    _check_pair("two", op, x, y)
    check_output("two", "out", out, x.shape, x.dtype)
    first, second, out_view = flat("two", ("x", "y", "out"), (x, y, out))
    kernel(first, second, op, p, q, out_view)


@widened("x y")
def total(x, y, op, p, q, divisor, out, workspace):
    """What `two` gives, added up and divided by a number, in one pass.

    Math    out = sum of two(x, y, op, p, q) / divisor
    Grads   those of two, over divisor
    Shapes  x and y alike; out (), float32; workspace: workspace(size of x) bytes, or a function that gives so many
    """
    kernel = implementation(__name__, "total", x)
    _check_pair("total", op, x, y)
    check_output("total", "out", out, (), SINGLE)
    first, second = flat("total", ("x", "y"), (x, y))
    memory = workspace_of("total", workspace, _bytes(x.size), "pointwise.workspace", x)
    kernel(first, second, op, p, q, divisor, out, memory)
