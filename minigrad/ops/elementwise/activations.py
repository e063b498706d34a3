"""Elementwise activations that are smooth, or nearly so.

`inplace` is PyTorch's and changes nothing: a Tensor is a value, and the output a new one.

Types   floating; out as input
Errors  TypeError if input is no Tensor of floating elements, or a setting no number
"""

import math

from minigrad_kernels.errors import KindError, ShapeError

from ... import device
from ...core.check import float_of, floats_of
from ...core.primitive import primitive
from ...core.tensor import tensor_of
from ...device import elementwise
from .choices import where
from .conversions import precise, widened
from .functions import erf, exp, sigmoid, tanh

__all__ = ["elu", "gelu", "logsigmoid", "silu", "softplus"]


@primitive(fixed=("alpha", "inplace"))
@widened
def elu(input, alpha=1.0, inplace=False):
    """Exponential linear unit.

    Math    out = x where x > 0, else alpha * (e^x - 1)
    Grads   dx = g where x > 0, else g * alpha * e^x
    Shapes  out as input
    Source  Clevert, Unterthiner and Hochreiter 2016, "Fast and accurate deep network learning by ELUs"
    """
    alpha, input = float_of("elu", "alpha", alpha), floats_of("elu", "input", input)
    low = elementwise("minimum", input, 0.0)
    low = elementwise("mul", elementwise("expm1", low, out=low), alpha, out=low)
    return device.select(elementwise("gt", input, 0.0), input, low)


@precise
def _dinput_of_elu(g, input, alpha):
    low = where(input >= 0, 0.0, input)  # no e^x of large x: in the second order it would be 0 * inf
    return g * where(input > 0, 1.0, alpha * exp(low))


elu.grads(input=_dinput_of_elu)


@primitive(fixed=("inplace",))
@widened
def silu(input, inplace=False):
    """Sigmoid linear unit, also called swish.

    Math    s = 1 / (1 + e^-x);  out = x * s
    Grads   dx = g * s * (1 + x * (1 - s))
    Shapes  out as input
    Source  Hendrycks and Gimpel 2016, "Gaussian error linear units", section 2
    """
    share = sigmoid.forward(floats_of("silu", "input", input))
    return elementwise("mul", input, share, out=share)


@precise
def _dinput_of_silu(g, input):
    share = sigmoid(input)
    return g * (share * (1 + input * (1 - share)))


silu.grads(input=_dinput_of_silu)


@primitive(fixed=("beta", "threshold"))
@widened
def softplus(input, beta=1, threshold=20):
    """A smooth relu, and x itself where beta x is above the threshold.

    Math    out = x where beta * x > threshold, else ln(1 + e^(beta * x)) / beta
    Grads   dx = g where beta * x > threshold, else g / (1 + e^(-beta * x))
    Shapes  out as input
    Source  Dugas and others 2001, "Incorporating second-order functional knowledge for better option pricing"
    """
    beta, threshold = (float_of("softplus", n, v) for n, v in (("beta", beta), ("threshold", threshold)))
    input = floats_of("softplus", "input", input)
    scaled = elementwise("mul", input, beta)
    small = elementwise("abs", scaled)  # e^-|y| does not overflow, and ln(1 + e^y) = max(y, 0) + ln(1 + e^-|y|)
    small = elementwise("exp", elementwise("neg", small, out=small), out=small)
    soft = elementwise("add", elementwise("log1p", small, out=small), elementwise("maximum", scaled, 0.0), out=small)
    soft = elementwise("div", soft, beta, out=soft)
    return device.select(elementwise("gt", scaled, threshold), input, soft)


@precise
def _dinput_of_softplus(g, input, beta, threshold):
    scaled = input * beta
    return g * where(scaled > threshold, 1.0, sigmoid(scaled))


softplus.grads(input=_dinput_of_softplus)


def logsigmoid(input):
    """The logarithm of sigmoid, exact where sigmoid itself rounds to 0.

    Math    out = -ln(1 + e^-x)
    Grads   dx = g / (1 + e^x)
    Shapes  out as input
    Source  Bishop 2006, "Pattern Recognition and Machine Learning", section 4.2
    """
    floats_of("logsigmoid", "input", tensor_of("logsigmoid", "input", input).array)
    return softplus(input, -1.0, math.inf)  # ln(1 + e^-x) / -1


# ---- GELU ------------------------------------------------------------------------------------------------------------

INNER, CUBIC = math.sqrt(2 / math.pi), 0.044715


@primitive
@widened
def _gelu(input):
    input = floats_of("gelu", "input", input)
    share = erf.forward(elementwise("mul", input, math.sqrt(0.5)))
    share = elementwise("add", share, 1.0, out=share)
    return elementwise("mul", elementwise("mul", input, 0.5), share, out=share)


@precise
def _dinput_of_gelu(g, input):
    below = 0.5 * (1 + erf(input * math.sqrt(0.5)))
    density = exp(-0.5 * (input * input)) / math.sqrt(2 * math.pi)
    return g * (below + input * density)


_gelu.grads(input=_dinput_of_gelu)


@primitive
@widened
def _gelu_tanh(input):
    input = floats_of("gelu", "input", input)
    share = elementwise("mul", elementwise("mul", input, input), input)
    share = elementwise("add", elementwise("mul", share, CUBIC, out=share), input, out=share)
    share = elementwise("tanh", elementwise("mul", share, INNER, out=share), out=share)
    share = elementwise("add", share, 1.0, out=share)
    return elementwise("mul", elementwise("mul", input, 0.5), share, out=share)


@precise
def _dinput_of_gelu_tanh(g, input):
    squared = input * input
    bend = tanh(INNER * (input + CUBIC * (squared * input)))
    slope = INNER * (1 + 3 * CUBIC * squared)
    return g * (0.5 * (1 + bend) + 0.5 * input * (1 - bend * bend) * slope)


_gelu_tanh.grads(input=_dinput_of_gelu_tanh)


def gelu(input, *, approximate="none"):
    """Gaussian error linear unit: x times the share of the normal distribution that lies below x.

    Math    s = (1 + erf(x / sqrt(2))) / 2;  out = x * s
            approximate 'tanh' has 1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)) in the place of 1 + erf(x / sqrt(2))
    Grads   dx = g * (s + x * e^(-x^2 / 2) / sqrt(2 * pi));  with 'tanh' the derivative of that
    Shapes  out as input
    Source  Hendrycks and Gimpel 2016, "Gaussian error linear units"
    """
    if not isinstance(approximate, str):
        raise KindError(f"gelu: approximate is {approximate!r}, wanted 'none' or 'tanh'")
    if approximate not in ("none", "tanh"):
        raise ShapeError(f"gelu: approximate is {approximate!r}, wanted 'none' or 'tanh'")
    return _gelu(input) if approximate == "none" else _gelu_tanh(input)
