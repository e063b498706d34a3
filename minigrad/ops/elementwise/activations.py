"""Elementwise activations.

`inplace` is PyTorch's and changes nothing: a Tensor is a value, and the output a new one.

Types   floating; out as input
Errors  TypeError if input is no Tensor of floating elements, or a setting no number
"""

import math

from minigrad_kernels import elementwise as kernels
from minigrad_kernels.errors import ShapeError

from ... import device
from ...core.check import float_of, floats_of, one_of
from ...core.primitive import primitive
from ...core.tensor import tensor_of
from ...device import elementwise
from ..autocast import casting
from ..conversions import no_slope, precise, widened
from .arithmetic import erf, exp, sigmoid, tanh
from .choices import gt, logical_and, lt, where

__all__ = ["elu", "gelu", "hardtanh", "leaky_relu", "logsigmoid", "relu", "relu6", "silu", "softplus"]

# ---- straight but for a bend or two ----------------------------------------------------------------------------------


@primitive(fixed=("inplace",))
def relu(input, inplace=False):
    """Rectified linear unit; NaN stays NaN.

    Math    out = max(x, 0)
    Grads   dx = 0 where out <= 0, else g;  NaN passes g
    Shapes  out as input
    Source  Nair and Hinton 2010, "Rectified linear units improve restricted Boltzmann machines"
    """
    return device.dense(kernels.relu, floats_of("relu", "input", input))


relu.grads(input=lambda g, out: relu_grad(g, out))
relu.fast_grads(lambda g, out: {"input": device.dense(kernels.relu_grad, g, out)})


@primitive(outputs=("dx",))
def relu_grad(grad, out):
    """The gradient of relu, linear in grad; out is what relu returned.

    Math    dx = 0 where out <= 0, else grad (so NaN passes grad)
    Grads   dgrad = relu_grad(g, out)        dout = 0
    Shapes  all alike
    """
    return device.dense(kernels.relu_grad, grad, out)


relu_grad.grads(grad=lambda g, out: relu_grad(g, out), out=no_slope)


@primitive(fixed=("negative_slope", "inplace"))
def leaky_relu(input, negative_slope=0.01, inplace=False):
    """Rectified linear unit that lets a little of what is negative pass.

    Math    out = x where x > 0, else negative_slope * x
    Grads   dx = g where x > 0, else negative_slope * g
    Shapes  out as input
    Source  Maas, Hannun and Ng 2013, "Rectifier nonlinearities improve neural network acoustic models"
    """
    slope = float_of("leaky_relu", "negative_slope", negative_slope)
    return device.dense(kernels.leaky_relu, floats_of("leaky_relu", "input", input), settings=(slope,))


leaky_relu.grads(input=lambda g, input, negative_slope: leaky_relu_grad(g, input, negative_slope))


@primitive(outputs=("dx",), fixed=("negative_slope",))
def leaky_relu_grad(grad, input, negative_slope):
    """The gradient of leaky_relu, linear in grad.

    Math    dx = grad where x > 0, else negative_slope grad
    Grads   dgrad = leaky_relu_grad(g, input, negative_slope)        dinput = 0
    Shapes  all alike
    """
    return device.dense(kernels.leaky_relu_grad, grad, input, settings=(float(negative_slope),))


leaky_relu_grad.grads(grad=lambda g, input, negative_slope: leaky_relu_grad(g, input, negative_slope), input=no_slope)


@primitive(fixed=("min_val", "max_val", "inplace"))
def hardtanh(input, min_val=-1.0, max_val=1.0, inplace=False):
    """input limited to the range from min_val to max_val.

    Math    out = min(max(x, min_val), max_val)
    Grads   dx = g where min_val < x < max_val, else 0
    Shapes  out as input
    Source  Collobert 2004, "Large scale machine learning"
    """
    low, high = float_of("hardtanh", "min_val", min_val), float_of("hardtanh", "max_val", max_val)
    if low > high:
        raise ShapeError(f"hardtanh: min_val is {low} and max_val {high}, wanted min_val <= max_val")
    return elementwise("minimum", elementwise("maximum", floats_of("hardtanh", "input", input), low), high)


def _dinput_of_hardtanh(g, input, min_val, max_val):
    return where(logical_and(gt(input, min_val), lt(input, max_val)), g, 0.0)


hardtanh.grads(input=_dinput_of_hardtanh)


def relu6(input, inplace=False):
    """Rectified linear unit that rises no higher than 6.

    Math    out = min(max(x, 0), 6)
    Grads   dx = g where 0 < x < 6, else 0
    Shapes  out as input
    Source  Krizhevsky 2010, "Convolutional deep belief networks on CIFAR-10"
    """
    floats_of("relu6", "input", tensor_of("relu6", "input", input).array)
    return hardtanh(input, 0.0, 6.0)


# ---- smooth, or nearly so --------------------------------------------------------------------------------------------


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


@casting("float32", "logsigmoid", "softplus")
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
    scaled = input if beta == 1 else elementwise("mul", input, beta)
    small = elementwise("abs", scaled)  # e^-|y| does not overflow, and ln(1 + e^y) = max(y, 0) + ln(1 + e^-|y|)
    small = elementwise("exp", elementwise("neg", small, out=small), out=small)
    soft = elementwise("add", elementwise("log1p", small, out=small), elementwise("maximum", scaled, 0.0), out=small)
    soft = soft if beta == 1 else elementwise("div", soft, beta, out=soft)
    if threshold == math.inf:
        return soft
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


INNER, CUBIC = math.sqrt(2 / math.pi), 0.044715


@primitive(fixed=("approximate",))
@widened
def gelu(input, approximate="none"):
    """Gaussian error linear unit: x times the share of the normal distribution that lies below x.

    Math    s = (1 + erf(x / sqrt(2))) / 2;  out = x * s
            approximate 'tanh' has 1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)) in the place of 1 + erf(x / sqrt(2))
    Grads   dx = g * (s + x * e^(-x^2 / 2) / sqrt(2 * pi));  with 'tanh' the derivative of that
    Shapes  out as input
    Source  Hendrycks and Gimpel 2016, "Gaussian error linear units"
    """
    input = floats_of("gelu", "input", input)
    if one_of("gelu", "approximate", approximate, ("none", "tanh")) == "none":
        share = erf.forward(elementwise("mul", input, math.sqrt(0.5)))
    else:
        share = elementwise("mul", elementwise("mul", input, input), input)
        share = elementwise("add", elementwise("mul", share, CUBIC, out=share), input, out=share)
        share = elementwise("tanh", elementwise("mul", share, INNER, out=share), out=share)
    share = elementwise("add", share, 1.0, out=share)
    return elementwise("mul", elementwise("mul", input, 0.5), share, out=share)


@precise
def _dinput_of_gelu(g, input, approximate):
    squared = input * input
    if approximate == "none":
        below = 0.5 * (1 + erf(input * math.sqrt(0.5)))
        return g * (below + input * (exp(-0.5 * squared) / math.sqrt(2 * math.pi)))
    bend = tanh(INNER * (input + CUBIC * (squared * input)))
    slope = INNER * (1 + 3 * CUBIC * squared)
    return g * (0.5 * (1 + bend) + 0.5 * input * (1 - bend * bend) * slope)


gelu.grads(input=_dinput_of_gelu)
