"""Convolution with what follows it in one pass: ReLU, a residual, maxima of windows, batch norm by given statistics.

Values are those of the separate operations, bit for bit, but for batch norm, which is folded into the filters, and for
a residual of 16 bits, with which the sum is rounded once. Each is linear in the gradient that arrives, so a rule first
goes back through the later operations, to the gradient of the convolution's own output, and then asks the trio
(conv.py). fusion.py says when these are used.
"""

from minigrad_kernels import conv2d as kernels
from minigrad_kernels import pool2d
from minigrad_kernels.layout import CHANNELS_LAST, FILTER

from .. import device, fusion
from ..core.primitive import primitive
from ..core.tensor import Tensor
from .conv import conv2d_op, convolve, output_shape, trio_grads
from .conversions import through, typed, wide
from .elementwise.activations import relu
from .elementwise.arithmetic import add
from .pool import max_pool2d_op, place_op
from .reduce import rectified_columns

__all__ = ["fold"]


# ---- relu ------------------------------------------------------------------------------------------------------------


@primitive
def _conv2d_relu(input, weight, bias, geometry):
    """relu(conv2d(...))."""
    return convolve(input, weight, bias, True, geometry)


fusion.waits(_conv2d_relu, output_shape)
_conv2d_relu.grads(**through(relu.rules["input"], conv2d_op.rules))


# ---- a residual ------------------------------------------------------------------------------------------------------


@primitive
def _conv2d_add(input, weight, bias, residual, geometry):
    """conv2d(...) + residual."""
    return convolve(input, weight, bias, False, geometry, residual)


@primitive
def _conv2d_add_relu(input, weight, bias, residual, geometry):
    """relu(conv2d(...) + residual)."""
    return convolve(input, weight, bias, True, geometry, residual)


fusion.waits(_conv2d_add, lambda input, weight, bias, residual, geometry: residual.shape)
_conv2d_add.grads(**conv2d_op.rules, residual=lambda g: g)
_conv2d_add.fast_grads(conv2d_op.fast)
_conv2d_add_relu.grads(**through(relu.rules["input"], _conv2d_add.rules))


@_conv2d_relu.fast_grads
@_conv2d_add_relu.fast_grads
def _rectified_grads(g, out, input, weight, geometry, needs):
    dz, dbias = rectified_columns(device.contiguous(g, CHANNELS_LAST), out)
    grads = trio_grads(dz, dbias, input, weight, geometry, needs)
    return grads | {"residual": dz} if "residual" in needs else grads


# ---- maximum over windows --------------------------------------------------------------------------------------------


def _pooled(input, weight, bias, geometry, windows, shape, relu):
    """The arrays out and positions."""
    x, w = device.contiguous(input, CHANNELS_LAST), device.contiguous(weight, FILTER)
    bias = None if bias is None else device.contiguous(bias)
    out = device.empty(shape, x.dtype, CHANNELS_LAST, x)
    positions = device.empty(shape, pool2d.position_type(windows[0]), CHANNELS_LAST, x)
    kernels.forward_pooled(x, w, bias, relu, *geometry, *windows, out, positions, device.workspace)
    return out, positions


@primitive(outputs=("out", "positions"), fixed=("positions",))
def _conv2d_max_pool2d(input, weight, bias, geometry, windows, shape):
    """max_pool2d(conv2d(...)), and which element of each window it is."""
    return _pooled(input, weight, bias, geometry, windows, shape, False)


@primitive(outputs=("out", "positions"), fixed=("positions",))
def _conv2d_relu_max_pool2d(input, weight, bias, geometry, windows, shape):
    """max_pool2d(relu(conv2d(...))), which is relu(max_pool2d(conv2d(...)))."""
    return _pooled(input, weight, bias, geometry, windows, shape, True)


def _placed(g, positions, input, weight, geometry, windows):
    """The gradient of the convolution's own output."""
    return place_op(g, positions, output_shape(input, weight, None, geometry), windows)


fusion.waits(_conv2d_max_pool2d, lambda input, weight, bias, geometry, windows, shape: shape)
# The sums of g are those of what g is placed in.
_conv2d_max_pool2d.grads(**through(_placed, conv2d_op.rules) | {"bias": conv2d_op.rules["bias"]})
_conv2d_relu_max_pool2d.grads(**through(relu.rules["input"], _conv2d_max_pool2d.rules))


@_conv2d_relu_max_pool2d.fast_grads
def _conv2d_relu_max_pool2d_grads(g, out, positions, input, weight, geometry, windows, needs):
    g = device.contiguous(g, CHANNELS_LAST)
    dz = device.empty(output_shape(input, weight, None, geometry), g.dtype, CHANNELS_LAST, g)
    dbias = device.empty((g.shape[1],), device.sum_dtype(g), like=g)
    pool2d.max_input_grad(g, out, positions, *windows, dz, dbias, device.workspace)
    return trio_grads(dz, dbias, input, weight, geometry, needs)


# ---- what extends what -----------------------------------------------------------------------------------------------


fusion.extends(relu, conv2d_op, _conv2d_relu)
fusion.extends(relu, _conv2d_add, _conv2d_add_relu)
fusion.extends(relu, _conv2d_max_pool2d, _conv2d_relu_max_pool2d)
fusion.extends(max_pool2d_op, conv2d_op, _conv2d_max_pool2d)
fusion.extends(max_pool2d_op, _conv2d_relu, _conv2d_relu_max_pool2d)


@fusion.extends(add, conv2d_op)
def _add_to_conv2d(values, other):
    input, weight, bias, geometry = values
    fits = isinstance(other, Tensor) and other.dtype == input.dtype and other.shape == output_shape(*values)
    return (_conv2d_add, (input, weight, bias, other, geometry)) if fits else None


def fold(input, scale, shift):
    """input * scale + shift for vectors of channels, (C,), folded into a convolution; None if input is none that waits.

    Only without a graph: the result would be differentiated for other filters.
    """
    call = fusion.call_of(input)
    if call is None or call.primitive is not conv2d_op or call.recorded:
        return None
    images, weight, bias, geometry = call.values
    bias = shift if bias is None else bias * scale + shift
    weight = typed(wide(weight) * scale.reshape(-1, 1, 1, 1), images.dtype)
    return fusion.later(call._replace(values=(images, weight, typed(bias, images.dtype), geometry)))
