"""Elementwise functions of one argument.

Types   out as x; functions with fractional results turn integers into float32
Errors  TypeError if x is neither a Tensor, an array nor a number
Source  derivatives of elementary functions: Abramowitz and Stegun 1964, "Handbook of Mathematical Functions"
"""

from minigrad_kernels import elementwise as kernels

from ... import device
from ...device import elementwise
from ...primitive import primitive
from ..arguments import tensor_of

__all__ = ["abs", "exp", "log", "relu", "sigmoid", "sign", "sqrt", "tanh", "to"]


@primitive
def exp(x):
    """Elementwise exponential.

    Math    out = e^x
    Grads   dx = g * out
    Shapes  out as x
    """
    return elementwise("exp", x)


exp.grads(x=lambda g, out: g * out)


@primitive
def log(x):
    """Elementwise natural logarithm; -inf at 0, NaN below.

    Math    out = ln x
    Grads   dx = g / x
    Shapes  out as x
    """
    return elementwise("log", x)


log.grads(x=lambda g, x: g / x)


@primitive
def sqrt(x):
    """Elementwise square root; NaN below 0.

    Math    out = x^(1/2)
    Grads   dx = g / (2 out)
    Shapes  out as x
    """
    return elementwise("sqrt", x)


sqrt.grads(x=lambda g, out: g / (2 * out))


@primitive
def tanh(x):
    """Elementwise hyperbolic tangent.

    Math    out = (e^x - e^-x) / (e^x + e^-x)
    Grads   dx = g * (1 - out^2)
    Shapes  out as x
    """
    return elementwise("tanh", x)


tanh.grads(x=lambda g, out: g * (1 - out * out))


@primitive
def sigmoid(x):
    """Elementwise logistic function.

    Math    out = 1 / (1 + e^-x)
    Grads   dx = g * out * (1 - out)
    Shapes  out as x
    """
    out = elementwise("exp", elementwise("mul", x, -1.0, named="sigmoid"))  # not neg, which wraps unsigned integers
    return elementwise("div", 1.0, elementwise("add", out, 1.0, out=out), out=out)


sigmoid.grads(x=lambda g, out: g * out * (1 - out))


@primitive
def abs(x):
    """Elementwise absolute value.

    Math    out = |x|
    Grads   dx = g * sign(x), 0 at 0
    Shapes  out as x
    """
    return elementwise("abs", x)


abs.grads(x=lambda g, x: g * sign(x))


@primitive
def sign(x):
    """Elementwise sign.

    Math    out = -1, 0 or 1
    Grads   dx = 0
    Shapes  out as x
    """
    return elementwise("sign", x)


sign.grads(x=lambda g: g * 0.0)


@primitive
def relu(x):
    """Rectified linear unit; NaN stays NaN.

    Math    out = max(x, 0)
    Grads   dx = 0 where out <= 0, else g (so NaN passes g)
    Shapes  out as x
    Source  Nair and Hinton 2010, "Rectified linear units improve restricted Boltzmann machines"
    """
    if not device.is_array(x) or not device.is_floating(x.dtype):
        return elementwise("maximum", x, 0, named="relu")
    x = device.contiguous(x, device.order_of(x))
    out = device.empty_like(x)
    kernels.relu(x, out)
    return out


relu.grads(x=lambda g, out: relu_grad(g, out))


@primitive(outputs=("dx",), fixed=("out",))
def relu_grad(grad, out):
    """The gradient of relu, linear in grad; out is what relu returned.

    Math    dx = 0 where out <= 0, else grad (so NaN passes grad)
    Grads   dgrad = relu_grad(g, out)
    Shapes  all alike
    """
    dx = device.empty_like(out)
    kernels.relu_grad(device.contiguous(grad, device.order_of(out)), out, dx)
    return dx


relu_grad.grads(grad=lambda g, out: relu_grad(g, out))


@primitive
def cast(x, dtype):
    """The same numbers in another element type.

    Math    out = x, rounded to dtype
    Grads   dx = g in the type of x
    Shapes  out as x
    Types   any; gradients flow between floating types
    """
    return device.cast(x, dtype)


cast.grads(x=lambda g: g)


@primitive
def move(x, place):
    """The same numbers on another device.

    Math    out = x
    Grads   dx = g on the device of x
    Shapes  out as x
    """
    return device.move(x, place)


move.grads(x=lambda g, x: move(g, x.device))


def to(x, target):
    """x on another device or in another element type; x itself if nothing changes.

    Math    out = x
    Grads   dx = g, moved or converted back
    Shapes  out as x
    Types   target the name of a device ("cpu") or an element type ("float64")
    """
    tensor_of("to", "x", x)
    if device.is_device(target):
        return x if x.device == target else move(x, target)
    dtype = device.element_type(target)
    return x if x.dtype == dtype else cast(x, dtype)
