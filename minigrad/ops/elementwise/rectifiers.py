"""Elementwise activations that are straight but for a bend or two.

`inplace` is PyTorch's and changes nothing: a Tensor is a value, and the output a new one.

Types   floating; out as input
Errors  TypeError if input is no Tensor of floating elements, or a setting no number
"""

from minigrad_kernels import elementwise as kernels
from minigrad_kernels.errors import ShapeError

from ... import device
from ...core.check import array_of, float_of, floats_of
from ...core.primitive import primitive
from ...device import elementwise
from .functions import dense, no_slope

__all__ = ["hardtanh", "leaky_relu", "relu", "relu6"]


@primitive(fixed=("inplace",))
def relu(input, inplace=False):
    """Rectified linear unit; NaN stays NaN.

    Math    out = max(x, 0)
    Grads   dx = 0 where out <= 0, else g;  NaN passes g
    Shapes  out as input
    Types   floating or integers; not bool
    Source  Nair and Hinton 2010, "Rectified linear units improve restricted Boltzmann machines"
    """
    if array_of("relu", "input", input).dtype.kind in "iu":
        return elementwise("maximum", input, 0, named="relu")
    return dense(kernels.relu, floats_of("relu", "input", input))


relu.grads(input=lambda g, out: relu_grad(g, out))
relu.fast_grads(lambda g, out: {"input": dense(kernels.relu_grad, g, out)})


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

    Math    out = x where x > 0, else negative_slope * x
    Grads   dx = g where x > 0, else negative_slope * g
    Shapes  out as input
    Source  Maas, Hannun and Ng 2013, "Rectifier nonlinearities improve neural network acoustic models"
    """
    slope = float_of("leaky_relu", "negative_slope", negative_slope)
    return dense(kernels.leaky_relu, floats_of("leaky_relu", "input", input), settings=(slope,))


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
        floats_of(name, "input", input)
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
    low, high = float_of("hardtanh", "min_val", min_val), float_of("hardtanh", "max_val", max_val)
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
    return _limited(input, "relu6", 0, 6)
