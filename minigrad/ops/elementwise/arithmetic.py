"""Elementwise arithmetic and functions of one argument.

Types   floating types promote as in PyTorch: Python scalars and arrays without dimensions take the type of the arrays
        with dimensions, integers take the floating type they meet; functions with fractional results turn integers
        into float32
Errors  ValueError if shapes do not broadcast; TypeError if an argument is neither a Tensor, an array nor a number
Source  derivatives of elementary functions: Abramowitz and Stegun 1964, "Handbook of Mathematical Functions"
"""

import math

from numpy import ndarray

from minigrad_kernels import elementwise as kernels

from ... import device
from ...core.check import one_of
from ...core.primitive import primitive
from ...core.tensor import Tensor, tensor_of
from ...device import elementwise
from ..autocast import casting
from ..conversions import no_slope, precise, to, ufunc, widened
from .choices import eq, isnan, le, logical_and, logical_or, where

__all__ = ["abs", "add", "cos", "div", "erf", "exp", "expm1", "isclose", "log", "log10", "log1p", "log2", "mul", "neg"]
__all__ += ["pow", "reciprocal", "remainder", "rsqrt", "sigmoid", "sign", "sin", "sqrt", "square", "sub", "tanh", "to"]

# ---- of two arguments ------------------------------------------------------------------------------------------------


@ufunc(input=lambda g: g, other=lambda g: g)
def add(input, other):
    """Elementwise sum.

    Math    out = input + other
    Grads   dinput = g        dother = g
    Shapes  input, other broadcast to out
    """


@ufunc(input=lambda g: g, other=lambda g: -g)
def sub(input, other):
    """Elementwise difference.

    Math    out = input - other
    Grads   dinput = g        dother = -g
    Shapes  input, other broadcast to out
    Types   neither bool: see logical_not and logical_xor
    """


@primitive
def mul(input, other):
    """Elementwise product.

    Math    out = input * other
    Grads   dinput = g * other        dother = g * input
    Shapes  input, other broadcast to out
    """
    return elementwise("mul", input, other)


mul.grads(input=precise(lambda g, other: g * other), other=precise(lambda g, input: g * input))


@primitive(fixed=("rounding_mode",))
def div(input, other, rounding_mode=None):
    """Elementwise quotient, rounded to a whole number towards 0 ("trunc") or down ("floor"), or not (None).

    Math    out = input / other
    Grads   dinput = g / other        dother = -g * input / other^2;  0 where out is rounded
    Shapes  input, other broadcast to out
    Types   integers give float32, or integers where out is rounded; bools are not rounded
    Errors  ValueError for an integer divided by 0 where out is rounded
    """
    if rounding_mode is None:
        return elementwise("div", input, other)
    floor = elementwise("floor_divide", input, other, named="div")
    if one_of("div", "rounding_mode", rounding_mode, ("trunc", "floor")) == "floor":
        return floor
    if device.is_floating(floor.dtype):
        return elementwise("trunc", elementwise("div", input, other))
    inexact = elementwise("remainder", input, other)
    return elementwise("add", floor, elementwise("logical_and", elementwise("lt", floor, 0), inexact))


div.grads(
    input=precise(lambda g, other, rounding_mode: no_slope(g) if rounding_mode else g / other),
    other=precise(
        lambda g, input, other, rounding_mode: no_slope(g) if rounding_mode else -g * (input / other / other)
    ),
)


@ufunc(input=lambda g: g, other=precise(lambda g, input, other: -g * div(input, other, rounding_mode="floor")))
def remainder(input, other):
    """What an elementwise division rounded down leaves; it has the sign of other.

    Math    out = input - other * floor(input / other)
    Grads   dinput = g        dother = -g * floor(input / other)
    Shapes  input, other broadcast to out
    Types   not both bool
    Errors  ValueError for an integer divided by 0
    """


@casting("float32", "pow", "square")
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
    if cheap and exponent in _BY_PRODUCTS and type(input) is ndarray:
        return _whole_power(input, int(exponent))
    if cheap and exponent in (0.5, -0.5):
        return (sqrt if exponent > 0 else rsqrt).forward(input)  # at -0 and -inf too what PyTorch gives
    return elementwise("pow", input, exponent)


_BY_PRODUCTS = range(3, 9)  # larger exponents would round too often


@widened
def _whole_power(x, exponent):
    """x to a whole power by repeated squaring: NumPy's power takes 300 times as long where x < 0."""
    out = x
    for bit in f"{exponent:b}"[1:]:
        out = elementwise("mul", out, out, out=None if out is x else out)
        if bit == "1":
            out = elementwise("mul", out, x, out=out)
    return out


def _dinput_of_pow(g, input, exponent):
    if isinstance(exponent, int | float):
        if not exponent:
            return no_slope(g)
        return g * (exponent * (input if exponent == 2 else input ** (exponent - 1)))
    exponent = _as_tensor(exponent).to(g.dtype)  # from bools and unsigned integers 1 cannot be subtracted
    return where(exponent == 0, 0.0, g * (exponent * input ** (exponent - 1)))


def _as_tensor(value):
    return value if isinstance(value, Tensor) else Tensor.made(device.asarray(value))


def _dexponent_of_pow(g, input, exponent, out):
    base = Tensor.made(device.full((), input, out.dtype)) if isinstance(input, int | float) else _as_tensor(input)
    return g * where(logical_and(base == 0, exponent >= 0), 0.0, out * log(base))


pow.grads(input=precise(_dinput_of_pow), exponent=precise(_dexponent_of_pow))


# ---- of one argument -------------------------------------------------------------------------------------------------


@ufunc(input=lambda g: -g)
def neg(input):
    """Elementwise negation.

    Math    out = -x
    Grads   dx = -g
    Shapes  out as input
    Types   not bool: see logical_not
    """


def square(input):
    """Elementwise square.

    Math    out = x^2
    Grads   dx = 2 * g * x
    Shapes  out as input
    """
    return pow(tensor_of("square", "input", input), 2)


@casting("float32")
@ufunc(input=lambda g, out: g * out)
def exp(input):
    """Elementwise exponential.

    Math    out = e^x
    Grads   dx = g * out
    Shapes  out as input
    """


@casting("float32")
@ufunc(input=precise(lambda g, out: g * (out + 1)))
def expm1(input):
    """Elementwise exponential minus 1, exact near 0.

    Math    out = e^x - 1
    Grads   dx = g * (out + 1)
    Shapes  out as input
    """


@casting("float32")
@ufunc(input=lambda g, input: g / input)
def log(input):
    """Elementwise natural logarithm; -inf at 0, NaN below.

    Math    out = ln(x)
    Grads   dx = g / x
    Shapes  out as input
    """


@casting("float32")
@ufunc(input=precise(lambda g, input: g / (input * math.log(10))))
def log10(input):
    """Elementwise logarithm to the base 10; -inf at 0, NaN below.

    Math    out = ln(x) / ln(10)
    Grads   dx = g / (x * ln(10))
    Shapes  out as input
    """


@casting("float32")
@ufunc(input=precise(lambda g, input: g / (input * math.log(2))))
def log2(input):
    """Elementwise logarithm to the base 2; -inf at 0, NaN below.

    Math    out = ln(x) / ln(2)
    Grads   dx = g / (x * ln(2))
    Shapes  out as input
    """


@casting("float32")
@ufunc(input=precise(lambda g, input: g / (input + 1)))
def log1p(input):
    """Elementwise natural logarithm of 1 + x, exact near 0.

    Math    out = ln(1 + x)
    Grads   dx = g / (x + 1)
    Shapes  out as input
    """


@ufunc(input=lambda g, out: g / (2 * out))
def sqrt(input):
    """Elementwise square root; NaN below 0.

    Math    out = x^(1/2)
    Grads   dx = g / (2 * out)
    Shapes  out as input
    """


@casting("float32")
@primitive
@widened
def rsqrt(input):
    """Elementwise reciprocal of the square root; inf at 0, NaN below.

    Math    out = x^(-1/2)
    Grads   dx = -g * out^3 / 2
    Shapes  out as input
    """
    root = elementwise("sqrt", input, named="rsqrt")
    return elementwise("div", 1.0, root, out=root)


rsqrt.grads(input=precise(lambda g, out: -0.5 * g * (out * out * out)))


@casting("float32")
@primitive
def reciprocal(input):
    """Elementwise reciprocal; inf at 0.

    Math    out = 1 / x
    Grads   dx = -g * out^2
    Shapes  out as input
    """
    return elementwise("div", 1.0, input, named="reciprocal")


reciprocal.grads(input=precise(lambda g, out: -g * (out * out)))


@ufunc(input=precise(lambda g, input: g * cos(input)))
def sin(input):
    """Elementwise sine of angles in radians; NaN at +-inf.

    Math    out = sin(x)
    Grads   dx = g * cos(x)
    Shapes  out as input
    """


@ufunc(input=precise(lambda g, input: g * -sin(input)))
def cos(input):
    """Elementwise cosine of angles in radians; NaN at +-inf.

    Math    out = cos(x)
    Grads   dx = -g * sin(x)
    Shapes  out as input
    """


@ufunc(input=precise(lambda g, out: g * (1 - out * out)))
def tanh(input):
    """Elementwise hyperbolic tangent.

    Math    out = (e^x - e^-x) / (e^x + e^-x)
    Grads   dx = g * (1 - out^2)
    Shapes  out as input
    """


@primitive
@widened
def sigmoid(input):
    """Elementwise logistic function.

    Math    out = 1 / (1 + e^-x)
    Grads   dx = g * out * (1 - out)
    Shapes  out as input
    """
    out = elementwise("mul", input, -1.0, named="sigmoid")  # not neg, which wraps unsigned integers
    out = elementwise("exp", out, out=out)
    return elementwise("div", 1.0, elementwise("add", out, 1.0, out=out), out=out)


sigmoid.grads(input=precise(lambda g, out: g * out * (1 - out)))


@primitive
def erf(input):
    """Elementwise error function.

    Math    out = 2 / sqrt(pi) times the integral of e^{-t^2} from 0 to x
    Grads   dx = g * 2 / sqrt(pi) * e^(-x^2)
    Shapes  out as input
    """
    if not device.is_array(input) or not device.is_floating(input.dtype):
        input = elementwise("div", input, 1, named="erf")  # the same numbers in float32
    return device.dense(kernels.erf, input)


erf.grads(input=precise(lambda g, input: g * (2 / math.sqrt(math.pi) * exp(-(input * input)))))


@ufunc(input=lambda g, input: g * sign(input))
def abs(input):
    """Elementwise absolute value.

    Math    out = abs(x)
    Grads   dx = g * sign(x), 0 at 0 and NaN
    Shapes  out as input
    Types   not bool
    """


@primitive
def sign(input):
    """Elementwise sign; 0 at NaN, as in PyTorch.

    Math    out is -1, 0 or 1
    Grads   dx = 0
    Shapes  out as input
    """
    if device.is_array(input) and input.dtype == bool:
        return device.copy(input)
    out = elementwise("sign", input)
    return device.select(elementwise("eq", out, out), out, 0)


sign.grads(input=no_slope)


def isclose(input, other, rtol=1e-5, atol=1e-8, equal_nan=False):
    """Whether elements agree.

    Math    out = abs(input - other) <= atol + rtol * abs(other), or input = other
    Grads   none
    Shapes  input, other broadcast to out
    Types   out bool; equal_nan: NaN agrees with NaN
    """
    tensor_of("isclose", "input", input), tensor_of("isclose", "other", other)
    near = logical_or(eq(input, other), le(abs(sub(input, other)), atol + rtol * abs(other)))
    return logical_or(near, logical_and(isnan(input), isnan(other))) if equal_nan else near


def allclose(input, other, rtol=1e-5, atol=1e-8, equal_nan=False):
    """Whether all elements agree, as isclose says; True or False."""
    return bool(isclose(input, other, rtol, atol, equal_nan).array.all())
