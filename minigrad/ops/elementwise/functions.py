"""Elementwise functions of one argument.

Types   out as input; functions with fractional results turn integers into float32
Errors  TypeError if input is neither a Tensor, an array nor a number
Source  derivatives of elementary functions: Abramowitz and Stegun 1964, "Handbook of Mathematical Functions"
"""

import math

from minigrad_kernels import elementwise as kernels

from ... import device
from ...core.primitive import primitive
from ...core.tensor import Tensor
from ...device import elementwise
from .conversions import precise, to, widened

__all__ = ["abs", "cos", "erf", "exp", "expm1", "log", "log1p", "reciprocal", "rsqrt", "sigmoid", "sign", "sin"]
__all__ += ["sqrt", "tanh", "to"]


def no_slope(g):
    """The gradient of a result that does not change with its argument: zeros, without history."""
    return Tensor.made(device.zeros(g.shape, g.dtype, like=g.array))


def dense(kernel, *arrays, settings=()):
    """What a kernel for dense floating arrays of one layout gives."""
    like = arrays[-1]
    order = device.order_of(like)
    arrays = [device.contiguous(array, order) for array in arrays]
    out = device.empty(like.shape, like.dtype, order, like)
    kernel(*arrays, *settings, out)
    return out


@primitive
def exp(input):
    """Elementwise exponential.

    Math    out = e^x
    Grads   dx = g * out
    Shapes  out as input
    """
    return elementwise("exp", input)


exp.grads(input=lambda g, out: g * out)


@primitive
def expm1(input):
    """Elementwise exponential minus 1, exact near 0.

    Math    out = e^x - 1
    Grads   dx = g * (out + 1)
    Shapes  out as input
    """
    return elementwise("expm1", input)


expm1.grads(input=precise(lambda g, out: g * (out + 1)))


@primitive
def log(input):
    """Elementwise natural logarithm; -inf at 0, NaN below.

    Math    out = ln(x)
    Grads   dx = g / x
    Shapes  out as input
    """
    return elementwise("log", input)


log.grads(input=lambda g, input: g / input)


@primitive
def log1p(input):
    """Elementwise natural logarithm of 1 + x, exact near 0.

    Math    out = ln(1 + x)
    Grads   dx = g / (x + 1)
    Shapes  out as input
    """
    return elementwise("log1p", input)


log1p.grads(input=precise(lambda g, input: g / (input + 1)))


@primitive
def sqrt(input):
    """Elementwise square root; NaN below 0.

    Math    out = x^(1/2)
    Grads   dx = g / (2 * out)
    Shapes  out as input
    """
    return elementwise("sqrt", input)


sqrt.grads(input=lambda g, out: g / (2 * out))


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


@primitive
def reciprocal(input):
    """Elementwise reciprocal; inf at 0.

    Math    out = 1 / x
    Grads   dx = -g * out^2
    Shapes  out as input
    """
    return elementwise("div", 1.0, input, named="reciprocal")


reciprocal.grads(input=precise(lambda g, out: -g * (out * out)))


@primitive
def sin(input):
    """Elementwise sine of angles in radians; NaN at +-inf.

    Math    out = sin(x)
    Grads   dx = g * cos(x)
    Shapes  out as input
    """
    return elementwise("sin", input)


sin.grads(input=precise(lambda g, input: g * cos(input)))


@primitive
def cos(input):
    """Elementwise cosine of angles in radians; NaN at +-inf.

    Math    out = cos(x)
    Grads   dx = -g * sin(x)
    Shapes  out as input
    """
    return elementwise("cos", input)


cos.grads(input=precise(lambda g, input: g * -sin(input)))


@primitive
def tanh(input):
    """Elementwise hyperbolic tangent.

    Math    out = (e^x - e^-x) / (e^x + e^-x)
    Grads   dx = g * (1 - out^2)
    Shapes  out as input
    """
    return elementwise("tanh", input)


@precise
def _dinput_of_tanh(g, out):
    return g * (1 - out * out)


tanh.grads(input=_dinput_of_tanh)


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


@precise
def _dinput_of_sigmoid(g, out):
    return g * out * (1 - out)


sigmoid.grads(input=_dinput_of_sigmoid)


@primitive
def erf(input):
    """Elementwise error function.

    Math    out = 2 / sqrt(pi) times the integral of e^{-t^2} from 0 to x
    Grads   dx = g * 2 / sqrt(pi) * e^(-x^2)
    Shapes  out as input
    """
    if not device.is_array(input) or not device.is_floating(input.dtype):
        input = elementwise("div", input, 1, named="erf")  # the same numbers in float32
    return dense(kernels.erf, input)


erf.grads(input=precise(lambda g, input: g * (2 / math.sqrt(math.pi) * exp(-(input * input)))))


@primitive
def abs(input):
    """Elementwise absolute value.

    Math    out = abs(x)
    Grads   dx = g * sign(x), 0 at 0 and NaN
    Shapes  out as input
    Types   not bool
    """
    return elementwise("abs", input)


def _dinput_of_abs(g, input):
    return g * sign(input)


abs.grads(input=_dinput_of_abs)


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
