"""Convolution: a bilinear trio, each of whose gradients are the other two.

For one geometry, which is stride, padding, dilation and number of groups, let

    B(x, w, g) = sum over n, o, i, j, c, p, q of x[n, c, s i + d p - pad, s j + d q - pad] w[o, c, p, q] g[n, o, i, j]

with c over the channels of the group of o, and x = 0 outside the image. It is linear in each of its three arguments,
and

    conv2d(x, w) = dB/dg        conv2d_input_grad(g, w) = dB/dx        conv2d_weight_grad(g, x) = dB/dw

so that every derivative, of any order, is one of the three again. Each takes arguments that fit; forms.py checks them.

Letters n batch, c in-channel, o out-channel, h w input, i j output, p q filter tap, s stride, d dilation, G groups
Shapes  x (N, C, H, W), w (O, C/G, P, Q), g (N, O, I, J); geometry: three pairs and a number
Types   floating, one for all
Source  Dumoulin and Visin 2016, "A guide to convolution arithmetic for deep learning", chapters 2 and 4
"""

from minigrad_kernels import conv2d as kernels
from minigrad_kernels.layout import CHANNELS_LAST, FILTER

from ... import device, fusion
from ...core.primitive import primitive
from ..reduce import column_sums, sum

__all__: list[str] = []  # users call the functions of forms.py


def shape_of(input, weight, bias, geometry):
    """The shape of a convolution."""
    return kernels.output_shape(input.shape, weight.shape, None if bias is None else bias.shape, *geometry)


def convolve(input, weight, bias, relu, geometry, residual=None):
    """The convolution of arrays, to which a residual may be added, and its positive part if relu."""
    x, weight = device.contiguous(input, CHANNELS_LAST), device.contiguous(weight, FILTER)
    bias = None if bias is None else device.contiguous(bias)
    residual = None if residual is None else device.contiguous(residual, CHANNELS_LAST)
    out = device.empty(shape_of(x, weight, bias, geometry), x.dtype, CHANNELS_LAST, x)
    kernels.forward(x, weight, bias, relu, *geometry, out, device.workspace, residual)
    return out


@primitive
def conv2d(input, weight, bias, geometry):
    """dB/dg, and a bias of each out-channel."""
    return convolve(input, weight, bias, False, geometry)


fusion.waits(conv2d, shape_of)

conv2d.grads(
    input=lambda g, weight, input_shape, geometry: conv2d_input_grad(g, weight, input_shape, geometry),
    weight=lambda g, input, weight_shape, geometry: conv2d_weight_grad(g, input, weight_shape, geometry),
    bias=lambda g: sum(g, (0, 2, 3)),
)


@conv2d.fast_grads
def _conv2d_grads(g, input, weight, geometry, needs):
    g = device.contiguous(g, CHANNELS_LAST)
    return trio_grads(g, column_sums(g) if "bias" in needs else None, input, weight, geometry, needs)


def trio_grads(g, dbias, input, weight, geometry, needs):
    """The gradients that are needed, as arrays, by that of the convolution's own output."""
    grads = {"bias": dbias}
    if "input" in needs:
        grads["input"] = conv2d_input_grad.forward(g, weight, input.shape, geometry)
    if "weight" in needs:
        grads["weight"] = conv2d_weight_grad.forward(g, input, weight.shape, geometry)
    return grads


@primitive
def conv2d_input_grad(grad, weight, input_shape, geometry):
    """dB/dx."""
    g, w = device.contiguous(grad, CHANNELS_LAST), device.contiguous(weight, FILTER)
    out = device.empty(input_shape, g.dtype, CHANNELS_LAST, g)
    kernels.input_grad(g, w, *geometry, out, device.workspace)
    return out


conv2d_input_grad.grads(
    grad=lambda g, weight, geometry: conv2d(g, weight, None, geometry),
    weight=lambda g, grad, weight_shape, geometry: conv2d_weight_grad(grad, g, weight_shape, geometry),
)


@primitive
def conv2d_weight_grad(grad, input, weight_shape, geometry):
    """dB/dw."""
    g, x = device.contiguous(grad, CHANNELS_LAST), device.contiguous(input, CHANNELS_LAST)
    out = device.empty(weight_shape, g.dtype, FILTER, g)
    kernels.weight_grad(g, x, *geometry, out, device.workspace)
    return out


conv2d_weight_grad.grads(
    grad=lambda g, input, geometry: conv2d(input, g, None, geometry),
    input=lambda g, grad, input_shape, geometry: conv2d_input_grad(grad, g, input_shape, geometry),
)
