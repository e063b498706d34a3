"""Convolution: a bilinear trio, each of whose gradients are the other two.

For one geometry, which is stride, padding, dilation and number of groups, let

    B(x, w, g) = sum over n, o, i, j, c, p, q of x[n, c, s i + d p - pad, s j + d q - pad] w[o, c, p, q] g[n, o, i, j]

with c over the channels of the group of o, and x = 0 outside the image. It is linear in each of its three arguments,
and

    conv2d(x, w) = dB/dg        conv2d_input_grad(g, w) = dB/dx        conv2d_weight_grad(g, x) = dB/dw

so that every derivative, of any order, is one of the three again. Each takes arguments that fit; forms.py checks them.

Letters n batch, c in-channel, o out-channel, h w input, i j output, p q filter tap, s stride, d dilation, G groups
Shapes  x (N, C, H, W), w (O, C/G, P, Q), g (N, O, I, J); geometry: three pairs and a number
Types   float32 or float64, one for all
Source  Dumoulin and Visin 2016, "A guide to convolution arithmetic for deep learning", chapters 2 and 4
"""

from minigrad_kernels import conv2d as kernels
from minigrad_kernels.layout import CHANNELS_LAST, FILTER

from ... import device, fusion
from ...primitive import primitive
from ..reduce import sum

__all__: list[str] = []  # users call the functions of forms.py


@primitive
def conv2d(input, weight, bias, geometry):
    """dB/dg, and a bias of each out-channel."""
    shape = kernels.output_shape(input.shape, weight.shape, None if bias is None else bias.shape, *geometry)
    return fusion.run(input, weight, bias, False, geometry, shape)


@conv2d.unrecorded
def _waiting(input, weight, bias, geometry):
    shape = kernels.output_shape(input.shape, weight.shape, None if bias is None else bias.shape, *geometry)
    return fusion.convolved(input, weight, bias, geometry, shape)


conv2d.grads(
    input=lambda g, weight, input_shape, geometry: conv2d_input_grad(g, weight, input_shape, geometry),
    weight=lambda g, input, weight_shape, geometry: conv2d_weight_grad(g, input, weight_shape, geometry),
    bias=lambda g: sum(g, (0, 2, 3)),
)


@primitive
def conv2d_input_grad(grad, weight, input_shape, geometry):
    """dB/dx."""
    g, w = device.contiguous(grad, CHANNELS_LAST), device.contiguous(weight, FILTER)
    out = device.empty(input_shape, g.dtype, CHANNELS_LAST, g)
    nbytes = kernels.workspace("input_grad", input_shape, w.shape, *geometry, g.dtype, g)
    kernels.input_grad(g, w, *geometry, out, device.workspace(nbytes, g))
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
    nbytes = kernels.workspace("weight_grad", x.shape, weight_shape, *geometry, g.dtype, g)
    kernels.weight_grad(g, x, *geometry, out, device.workspace(nbytes, g))
    return out


conv2d_weight_grad.grads(
    grad=lambda g, input, geometry: conv2d(input, g, None, geometry),
    input=lambda g, grad, input_shape, geometry: conv2d_input_grad(grad, g, input_shape, geometry),
)
