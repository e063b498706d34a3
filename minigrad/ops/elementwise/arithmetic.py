"""Elementwise arithmetic.

Types   floating types promote as in PyTorch: Python scalars and arrays without dimensions take the type of the arrays
        with dimensions, integers take the floating type they meet
Errors  ValueError if shapes do not broadcast; TypeError if an argument is neither a Tensor, an array nor a number
Source  derivatives of elementary functions: Abramowitz and Stegun 1964, "Handbook of Mathematical Functions"
"""

from minigrad_kernels.errors import KindError, ShapeError

from ... import device
from ...core.primitive import primitive
from ...core.tensor import Tensor, tensor_of
from ...device import elementwise
from .choices import logical_and, where
from .conversions import precise
from .functions import log, no_slope, rsqrt, sqrt

__all__ = ["add", "div", "mul", "neg", "pow", "remainder", "square", "sub"]


@primitive
def add(input, other):
    """Elementwise sum.

    Math    out = input + other
    Grads   dinput = g        dother = g
    Shapes  input, other broadcast to out
    """
    return elementwise("add", input, other)


add.grads(input=lambda g: g,
          other=lambda g: g)  # fmt: skip


@primitive
def sub(input, other):
    """Elementwise difference.

    Math    out = input - other
    Grads   dinput = g        dother = -g
    Shapes  input, other broadcast to out
    Types   neither bool: see logical_not and logical_xor
    """
    return elementwise("sub", input, other)


sub.grads(input=lambda g: g,
          other=lambda g: -g)  # fmt: skip


@primitive
def mul(input, other):
    """Elementwise product.

    Math    out = input * other
    Grads   dinput = g * other        dother = g * input
    Shapes  input, other broadcast to out
    """
    return elementwise("mul", input, other)


mul.grads(input=precise(lambda g, other: g * other),
          other=precise(lambda g, input: g * input))  # fmt: skip


@primitive
def _div(input, other):
    return elementwise("div", input, other)


_div.grads(input=precise(lambda g, other: g / other),
           other=precise(lambda g, input, other: -g * (input / other / other)))  # fmt: skip


@primitive(fixed=("rounding_mode",))
def _whole_div(input, other, rounding_mode):
    floor = elementwise("floor_divide", input, other, named="div")
    if rounding_mode == "floor":
        return floor
    if device.is_floating(floor.dtype):
        return elementwise("trunc", elementwise("div", input, other))
    inexact = elementwise("remainder", input, other)
    return elementwise("add", floor, elementwise("logical_and", elementwise("lt", floor, 0), inexact))


_whole_div.grads(input=no_slope, other=no_slope)


def div(input, other, *, rounding_mode=None):
    """Elementwise quotient, rounded to a whole number towards 0 ("trunc") or down ("floor"), or not (None).

    Math    out = input / other
    Grads   dinput = g / other        dother = -g * input / other^2;  0 where out is rounded
    Shapes  input, other broadcast to out
    Types   integers give float32, or integers where out is rounded; bools are not rounded
    Errors  ValueError for an integer divided by 0 where out is rounded
    """
    if rounding_mode is None:
        return _div(input, other)
    if not isinstance(rounding_mode, str):
        raise KindError(f"div: rounding_mode is {rounding_mode!r}, wanted None, 'trunc' or 'floor'")
    if rounding_mode not in ("trunc", "floor"):
        raise ShapeError(f"div: rounding_mode is {rounding_mode!r}, wanted None, 'trunc' or 'floor'")
    return _whole_div(input, other, rounding_mode)


@primitive
def remainder(input, other):
    """What an elementwise division rounded down leaves; it has the sign of other.

    Math    out = input - other * floor(input / other)
    Grads   dinput = g        dother = -g * floor(input / other)
    Shapes  input, other broadcast to out
    Types   not both bool
    Errors  ValueError for an integer divided by 0
    """
    return elementwise("remainder", input, other)


remainder.grads(input=lambda g: g,
                other=precise(lambda g, input, other: -g * div(input, other, rounding_mode="floor")))  # fmt: skip


@primitive
def pow(input, exponent):
    """Elementwise power.

    Math    out = input^exponent
    Grads   dinput = 0 where exponent = 0, else g * exponent * input^(exponent - 1)
            dexponent = 0 where input = 0 and exponent >= 0, else g * out * ln(input)
    Shapes  input, exponent broadcast to out
    Types   not both bool; no negative powers of integers
    """
    cheap = type(exponent) in (int, float) and device.is_array(input) and device.is_floating(input.dtype)
    if cheap and exponent in (1, 2):
        return elementwise("mul", input, input if exponent == 2 else 1.0)  # far cheaper than a logarithm
    if cheap and exponent in (0.5, -0.5):
        return (sqrt if exponent > 0 else rsqrt).forward(input)  # at -0 and -inf too what PyTorch gives
    if cheap and input.itemsize > 2 and 1 <= abs(exponent) <= LARGEST and exponent % 1 == 0:
        return _whole_power(input, int(exponent))
    return elementwise("pow", input, exponent)


LARGEST = 8  # of the exponents for which products are used: they round once for each


def _whole_power(x, exponent):
    """x to a whole power by repeated squaring: where x < 0, NumPy's power takes up to a hundred times as long."""
    out = x
    for bit in f"{abs(exponent):b}"[1:]:
        out = elementwise("mul", out, out, out=None if out is x else out)
        if bit == "1":
            out = elementwise("mul", out, x, out=out)
    return out if exponent > 0 else elementwise("div", 1.0, out, out=None if out is x else out)


def _dinput_of_pow(g, input, exponent):
    if isinstance(exponent, int | float):
        return g * (exponent * input ** (exponent - 1)) if exponent else no_slope(g)
    exponent = _as_tensor(exponent).to(g.dtype)  # from bools and unsigned integers 1 cannot be subtracted
    return where(exponent == 0, 0.0, g * (exponent * input ** (exponent - 1)))


def _as_tensor(value):
    return value if isinstance(value, Tensor) else Tensor.made(device.asarray(value))


def _dexponent_of_pow(g, input, exponent, out):
    base = Tensor.made(device.full((), input, out.dtype)) if isinstance(input, int | float) else _as_tensor(input)
    return g * where(logical_and(base == 0, exponent >= 0), 0.0, out * log(base))


pow.grads(input=precise(_dinput_of_pow),
          exponent=precise(_dexponent_of_pow))  # fmt: skip


@primitive
def neg(input):
    """Elementwise negation.

    Math    out = -x
    Grads   dx = -g
    Shapes  out as input
    Types   not bool: see logical_not
    """
    return elementwise("neg", input)


neg.grads(input=lambda g: -g)


def square(input):
    """Elementwise square.

    Math    out = x^2
    Grads   dx = 2 * g * x
    Shapes  out as input
    """
    return pow(tensor_of("square", "input", input), 2)
