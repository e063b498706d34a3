"""Elementwise activations.

`inplace` is PyTorch's and changes nothing: a Tensor is a value, and the output a new one.

Types   floating; out as input
Errors  TypeError if input is no Tensor of floating elements, or a setting no number
"""

import math

from minigrad_kernels import elementwise as kernels
from minigrad_kernels.errors import KindError, ShapeError

from ... import device
from ...device import elementwise
from ...primitive import primitive
from ..arguments import array_of, flag_of, number_of, tensor_of
from .choices import where
from .functions import dense, erf, exp, no_slope, sigmoid, tanh

__all__ = ["elu", "gelu", "hardtanh", "leaky_relu", "logsigmoid", "relu", "relu6", "silu", "softplus"]


def _floats(op, input):
    """The argument, an array of floating numbers."""
    if not device.is_floating(array_of(op, "input", input).dtype):
        raise KindError(f"{op}: input has elements {input.dtype}, wanted floating ones; convert with .to('float32')")
    return input


def _number(op, name, value):
    """A setting as a Python float."""
    value = number_of(op, name, value)
    try:
        return float(value)
    except OverflowError as error:
        raise ShapeError(f"{op}: {name} is {value}, wanted a number of 64 bits") from error


@primitive(fixed=("inplace",))
def relu(input, inplace=False):
    """Rectified linear unit; NaN stays NaN.

    Math    out = max(x, 0)
    Grads   dx = 0 where out <= 0, else g (so NaN passes g)
    Shapes  out as input
    Types   floating or integers; not bool
    Source  Nair and Hinton 2010, "Rectified linear units improve restricted Boltzmann machines"
    """
    flag_of("relu", "inplace", inplace)
    if array_of("relu", "input", input).dtype.kind in "iu":
        return elementwise("maximum", input, 0, named="relu")
    return dense(kernels.relu, _floats("relu", input))


relu.grads(input=lambda g, out: relu_grad(g, out))


@primitive(outputs=("dx",))
def relu_grad(grad, out):
    """The gradient of relu, linear in grad; out is what relu returned.

    Math    dx = 0 where out <= 0, else grad (so NaN passes grad)
    Grads   dgrad = relu_grad(g, out)        dout = 0
    Shapes  all alike
    """
    return dense(kernels.relu_grad, grad, out)


relu_grad.grads(grad=lambda g, out: relu_grad(g, out),
                out=no_slope)  # fmt: skip


@primitive(fixed=("negative_slope", "inplace"))
def leaky_relu(input, negative_slope=0.01, inplace=False):
    """Rectified linear unit that lets a little of what is negative pass.

    Math    out = x where x > 0, else negative_slope x
    Grads   dx = g where x > 0, else negative_slope g
    Shapes  out as input
    Source  Maas, Hannun and Ng 2013, "Rectifier nonlinearities improve neural network acoustic models"
    """
    flag_of("leaky_relu", "inplace", inplace)
    slope = _number("leaky_relu", "negative_slope", negative_slope)
    return dense(kernels.leaky_relu, _floats("leaky_relu", input), settings=(slope,))


leaky_relu.grads(input=lambda g, input, negative_slope: leaky_relu_grad(g, input, negative_slope))


@primitive(outputs=("dx",), fixed=("negative_slope",))
def leaky_relu_grad(grad, input, negative_slope):
    """The gradient of leaky_relu, linear in grad.

    Math    dx = grad where x > 0, else negative_slope grad
    Grads   dgrad = leaky_relu_grad(g, input, negative_slope)        dinput = 0
    Shapes  all alike
    """
    return dense(kernels.leaky_relu_grad, grad, input, settings=(float(negative_slope),))


leaky_relu_grad.grads(grad=lambda g, input, negative_slope: leaky_relu_grad(g, input, negative_slope),
                      input=no_slope)  # fmt: skip


@primitive(fixed=("low", "high"))
def _limited(input, name, low, high):
    """input between two limits."""
    if array_of(name, "input", input).dtype.kind not in "iu":
        _floats(name, input)
    elif low % 1 or high % 1:
        raise ShapeError(f"{name}: limits are {low} and {high}, wanted whole ones for an input of {input.dtype}")
    else:
        low, high = int(low), int(high)
    return elementwise("minimum", elementwise("maximum", input, low, named=name), high, named=name)


_limited.grads(input=lambda g, input, low, high: _limited_grad(g, input, low, high))


@primitive(outputs=("dx",), fixed=("low", "high"))
def _limited_grad(grad, input, low, high):
    """The gradient of _limited, linear in grad: 0 at the limits, beyond them, and at NaN."""
    inside = elementwise("logical_and", elementwise("gt", input, low), elementwise("lt", input, high))
    return device.select(inside, grad, 0.0)


_limited_grad.grads(grad=lambda g, input, low, high: _limited_grad(g, input, low, high), input=no_slope)


def hardtanh(input, min_val=-1.0, max_val=1.0, inplace=False):
    """input limited to the range from min_val to max_val.

    Math    out = min(max(x, min_val), max_val)
    Grads   dx = g where min_val < x < max_val, else 0
    Shapes  out as input
    Types   floating; integers, with limits that are whole numbers; not bool
    Source  Collobert 2004, "Large scale machine learning"
    """
    low, high = _number("hardtanh", "min_val", min_val), _number("hardtanh", "max_val", max_val)
    flag_of("hardtanh", "inplace", inplace)
    if low > high:
        raise ShapeError(f"hardtanh: min_val is {low} and max_val {high}, wanted min_val <= max_val")
    return _limited(input, "hardtanh", low, high)


def relu6(input, inplace=False):
    """Rectified linear unit that rises no higher than 6.

    Math    out = min(max(x, 0), 6)
    Grads   dx = g where 0 < x < 6, else 0
    Shapes  out as input
    Types   floating or integers; not bool
    Source  Krizhevsky 2010, "Convolutional deep belief networks on CIFAR-10"
    """
    flag_of("relu6", "inplace", inplace)
    return _limited(input, "relu6", 0, 6)


@primitive(fixed=("alpha", "inplace"))
def elu(input, alpha=1.0, inplace=False):
    """Exponential linear unit.

    Math    out = x where x > 0, else alpha (e^x - 1)
    Grads   dx = g where x > 0, else g alpha e^x
    Shapes  out as input
    Source  Clevert, Unterthiner and Hochreiter 2016, "Fast and accurate deep network learning by ELUs"
    """
    flag_of("elu", "inplace", inplace)
    alpha, input = _number("elu", "alpha", alpha), _floats("elu", input)
    low = elementwise("minimum", input, 0.0)
    low = elementwise("mul", elementwise("expm1", low, out=low), alpha, out=low)
    return device.select(elementwise("gt", input, 0.0), input, low)


def _dinput_of_elu(g, input, alpha):
    low = where(input >= 0, 0.0, input)  # no e^x of large x: in the second order it would be 0 * inf
    return g * where(input > 0, 1.0, alpha * exp(low))


elu.grads(input=_dinput_of_elu)


@primitive(fixed=("inplace",))
def silu(input, inplace=False):
    """Sigmoid linear unit, also called swish.

    Math    out = x s, s = 1 / (1 + e^-x)
    Grads   dx = g s (1 + x (1 - s))
    Shapes  out as input
    Source  Hendrycks and Gimpel 2016, "Gaussian error linear units", section 2
    """
    flag_of("silu", "inplace", inplace)
    share = sigmoid.forward(_floats("silu", input))
    return elementwise("mul", input, share, out=share)


def _dinput_of_silu(g, input):
    share = sigmoid(input)
    return g * (share * (1 + input * (1 - share)))


silu.grads(input=_dinput_of_silu)


@primitive(fixed=("beta", "threshold"))
def softplus(input, beta=1, threshold=20):
    """A smooth relu, and x itself where beta x is above the threshold.

    Math    out = ln(1 + e^(beta x)) / beta
    Grads   dx = g / (1 + e^(-beta x))
    Shapes  out as input
    Source  Dugas and others 2001, "Incorporating second-order functional knowledge for better option pricing"
    """
    beta, threshold = (_number("softplus", n, v) for n, v in (("beta", beta), ("threshold", threshold)))
    input = _floats("softplus", input)
    scaled = elementwise("mul", input, beta)
    small = elementwise("abs", scaled)  # e^-|y| does not overflow, and ln(1 + e^y) = max(y, 0) + ln(1 + e^-|y|)
    small = elementwise("exp", elementwise("neg", small, out=small), out=small)
    soft = elementwise("add", elementwise("log1p", small, out=small), elementwise("maximum", scaled, 0.0), out=small)
    soft = elementwise("div", soft, beta, out=soft)
    return device.select(elementwise("gt", scaled, threshold), input, soft)


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
    _floats("logsigmoid", tensor_of("logsigmoid", "input", input).data)
    return -softplus(-input, 1.0, math.inf)


# ---- GELU ------------------------------------------------------------------------------------------------------------

INNER, CUBIC = math.sqrt(2 / math.pi), 0.044715


@primitive
def _gelu(input):
    input = _floats("gelu", input)
    share = erf.forward(elementwise("mul", input, math.sqrt(0.5)))
    share = elementwise("add", share, 1.0, out=share)
    return elementwise("mul", elementwise("mul", input, 0.5), share, out=share)


def _dinput_of_gelu(g, input):
    below = 0.5 * (1 + erf(input * math.sqrt(0.5)))
    density = exp(-0.5 * (input * input)) / math.sqrt(2 * math.pi)
    return g * (below + input * density)


_gelu.grads(input=_dinput_of_gelu)


@primitive
def _gelu_tanh(input):
    input = _floats("gelu", input)
    share = elementwise("mul", elementwise("mul", input, input), input)
    share = elementwise("add", elementwise("mul", share, CUBIC, out=share), input, out=share)
    share = elementwise("tanh", elementwise("mul", share, INNER, out=share), out=share)
    share = elementwise("add", share, 1.0, out=share)
    return elementwise("mul", elementwise("mul", input, 0.5), share, out=share)


def _dinput_of_gelu_tanh(g, input):
    squared = input * input
    bend = tanh(INNER * (input + CUBIC * (squared * input)))
    slope = INNER * (1 + 3 * CUBIC * squared)
    return g * (0.5 * (1 + bend) + 0.5 * input * (1 - bend * bend) * slope)


_gelu_tanh.grads(input=_dinput_of_gelu_tanh)


def gelu(input, *, approximate="none"):
    """Gaussian error linear unit: x times the share of the normal distribution that lies below x.

    Math    out = x (1 + erf(x / sqrt(2))) / 2
            approximate 'tanh': out = x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2
    Grads   dx = g (out / x + x e^(-x^2 / 2) / sqrt(2 pi)), and the derivative of the approximation
    Shapes  out as input
    Source  Hendrycks and Gimpel 2016, "Gaussian error linear units"
    """
    if not isinstance(approximate, str):
        raise KindError(f"gelu: approximate is {approximate!r}, wanted 'none' or 'tanh'")
    if approximate not in ("none", "tanh"):
        raise ShapeError(f"gelu: approximate is {approximate!r}, wanted 'none' or 'tanh'")
    return _gelu(input) if approximate == "none" else _gelu_tanh(input)
