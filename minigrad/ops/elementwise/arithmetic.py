"""Elementwise arithmetic.

Types   floating types promote as in PyTorch: Python scalars and arrays without dimensions take the type of the arrays
        with dimensions, integers take the floating type they meet
Errors  ValueError if shapes do not broadcast; TypeError if an argument is neither a Tensor, an array nor a number
Source  derivatives of elementary functions: Abramowitz and Stegun 1964, "Handbook of Mathematical Functions"
"""

from ... import device
from ...device import elementwise
from ...primitive import primitive
from ...tensor import Tensor
from .choices import where
from .functions import log

__all__ = ["add", "div", "mul", "neg", "pow", "square", "sub"]


@primitive
def add(x, y):
    """Elementwise sum.

    Math    out = x + y
    Grads   dx = g        dy = g
    Shapes  x, y broadcast to out
    """
    return elementwise("add", x, y)


add.grads(x=lambda g: g,
          y=lambda g: g)  # fmt: skip


@primitive
def sub(x, y):
    """Elementwise difference.

    Math    out = x - y
    Grads   dx = g        dy = -g
    Shapes  x, y broadcast to out
    """
    return elementwise("sub", x, y)


sub.grads(x=lambda g: g,
          y=lambda g: -g)  # fmt: skip


@primitive
def mul(x, y):
    """Elementwise product.

    Math    out = x * y
    Grads   dx = g * y        dy = g * x
    Shapes  x, y broadcast to out
    """
    return elementwise("mul", x, y)


mul.grads(x=lambda g, y: g * y,
          y=lambda g, x: g * x)  # fmt: skip


@primitive
def div(x, y):
    """Elementwise quotient.

    Math    out = x / y
    Grads   dx = g / y        dy = -g * x / y^2
    Shapes  x, y broadcast to out
    """
    return elementwise("div", x, y)


div.grads(x=lambda g, y: g / y,
          y=lambda g, x, y: -g * (x / y) / y)  # fmt: skip


@primitive
def pow(x, exponent):
    """Elementwise power.

    Math    out = x^e
    Grads   dx = g * e * x^(e - 1), 0 where e = 0        de = g * out * ln x, 0 where x = 0 and e >= 0
    Shapes  x, exponent broadcast to out
    """
    if type(exponent) in (int, float) and exponent in (1, 2) and device.is_array(x) and device.is_floating(x.dtype):
        return elementwise("mul", x, x if exponent == 2 else 1.0)  # far cheaper than a logarithm
    return elementwise("pow", x, exponent)


def _dx_of_pow(g, x, exponent):
    if not isinstance(exponent, int | float):
        exponent = _as_tensor(exponent)
        return where(exponent == 0, 0.0, g * exponent * x ** (exponent - 1))
    if exponent in (0, 1):
        return g * float(exponent)
    return g * (exponent * (x if exponent == 2 else x ** (exponent - 1)))


def _as_tensor(value):
    return value if isinstance(value, Tensor) else Tensor.made(device.asarray(value))


def _de_of_pow(g, x, exponent, out):
    base = Tensor.made(device.full((), x, out.dtype)) if isinstance(x, int | float) else _as_tensor(x)
    return where((base == 0) * (exponent >= 0), 0.0, g * out * log(base))


pow.grads(x=_dx_of_pow,
          exponent=_de_of_pow)  # fmt: skip


@primitive
def neg(x):
    """Elementwise negation.

    Math    out = -x
    Grads   dx = -g
    Shapes  out as x
    """
    return elementwise("neg", x)


neg.grads(x=lambda g: -g)


@primitive
def square(x):
    """Elementwise square.

    Math    out = x^2
    Grads   dx = 2 g x
    Shapes  out as x
    """
    return elementwise("mul", x, x, named="square")


square.grads(x=lambda g, x: 2 * g * x)
