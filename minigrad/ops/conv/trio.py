"""Convolution: a bilinear trio, each of whose gradients are the other two.

For one stride, padding, dilation and number of groups, let B(x, w, g) = <conv2d(x, w), g>. It is linear in each of
its three arguments, and

    conv2d(x, w) = dB/dg        conv2d_input_grad(g, w) = dB/dx        conv2d_weight_grad(g, x) = dB/dw

so that every derivative, of any order, is one of the three again.

Letters n batch, c in-channel, o out-channel, h w input, i j output, p q filter tap, s stride, d dilation, G groups
Types   float32 or float64, one for all
Errors  ValueError for shapes that do not fit, TypeError for other element types
Source  Dumoulin and Visin 2016, "A guide to convolution arithmetic for deep learning", chapters 2 and 4
"""

from minigrad_kernels import conv2d as kernels
from minigrad_kernels.errors import KindError
from minigrad_kernels.layout import CHANNELS_LAST, FILTER
from minigrad_kernels.toolchain.arguments import pair

from ... import device
from ...primitive import primitive
from ..arguments import array_of, integer_of, shape_of
from ..reduce import sum

__all__ = ["conv2d", "conv2d_input_grad", "conv2d_weight_grad"]


def _geometry(op, stride, padding, dilation, groups):
    pairs = pair(op, "stride", stride, 1), pair(op, "padding", padding, 0), pair(op, "dilation", dilation, 1)
    return *pairs, integer_of(op, "groups", groups)


def _check(op, **arrays):
    """Refuse what is no array of the right rank, and mixed types."""
    first, *others = arrays.items()
    for name, array in arrays.items():
        if array is not None or name != "bias":
            array_of(op, name, array, 1 if name == "bias" else 4)
    if not device.is_floating(first[1].dtype):
        raise KindError(f"{op}: {first[0]} has elements {first[1].dtype}, wanted floating ones")
    for name, array in others:
        if array is not None and array.dtype != first[1].dtype:
            raise KindError(f"{op}: {name} has elements {array.dtype}, {first[0]} {first[1].dtype}; wanted one type")


@primitive
def conv2d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """Two-dimensional cross-correlation of images with filters.

    Math    out[n, o, i, j] = bias[o] + sum_{c,p,q} input[n, c, s i + d p - pad, s j + d q - pad] weight[o, c, p, q]
            with c over the channels of the group of o, and 0 outside the image
    Grads   dinput = conv2d_input_grad(g, weight)        dweight = conv2d_weight_grad(g, input)
            dbias = sum of g over n, i, j
    Shapes  input (N, C, H, W), weight (O, C/G, P, Q), bias (O,) -> (N, O, I, J)
            I = floor((H + 2 pad - d (P - 1) - 1) / s) + 1, J alike; stride, padding, dilation: a number or a pair
    """
    _check("conv2d", input=input, weight=weight, bias=bias)
    geometry = _geometry("conv2d", stride, padding, dilation, groups)
    shape = kernels.output_shape(input.shape, weight.shape, None if bias is None else bias.shape, *geometry)
    x, w = device.contiguous(input, CHANNELS_LAST), device.contiguous(weight, FILTER)
    bias = None if bias is None else device.contiguous(bias)
    out = device.empty(shape, x.dtype, CHANNELS_LAST)
    nbytes = kernels.workspace("forward", x.shape, w.shape, *geometry, x.dtype)
    kernels.forward(x, w, bias, *geometry, out, device.workspace(nbytes))
    return out


conv2d.grads(
    input=lambda g, weight, input_shape, stride, padding, dilation, groups: conv2d_input_grad(
        g, weight, input_shape, stride, padding, dilation, groups
    ),
    weight=lambda g, input, weight_shape, stride, padding, dilation, groups: conv2d_weight_grad(
        g, input, weight_shape, stride, padding, dilation, groups
    ),
    bias=lambda g: sum(g, (0, 2, 3)),
)


@primitive
def conv2d_input_grad(grad, weight, input_shape, stride=1, padding=0, dilation=1, groups=1):
    """The gradient of conv2d with respect to its input: each element spreads over the pixels that it was made from.

    Math    out[n, c, h, w] = sum of grad[n, o, i, j] weight[o, c, p, q] over all o, p, q, i, j
            with h = s i + d p - pad and w = s j + d q - pad
    Grads   dgrad = conv2d(g, weight)        dweight = conv2d_weight_grad(grad, g)
    Shapes  grad (N, O, I, J), weight (O, C/G, P, Q) -> input_shape (N, C, H, W)
    """
    _check("conv2d_input_grad", grad=grad, weight=weight)
    geometry = _geometry("conv2d_input_grad", stride, padding, dilation, groups)
    input_shape = shape_of("conv2d_input_grad", "input_shape", (input_shape,), 4)
    g, w = device.contiguous(grad, CHANNELS_LAST), device.contiguous(weight, FILTER)
    out = device.empty(input_shape, g.dtype, CHANNELS_LAST)
    nbytes = kernels.workspace("input_grad", input_shape, w.shape, *geometry, g.dtype)
    kernels.input_grad(g, w, *geometry, out, device.workspace(nbytes))
    return out


conv2d_input_grad.grads(
    grad=lambda g, weight, stride, padding, dilation, groups: conv2d(
        g, weight, None, stride, padding, dilation, groups
    ),
    weight=lambda g, grad, weight_shape, stride, padding, dilation, groups: conv2d_weight_grad(
        grad, g, weight_shape, stride, padding, dilation, groups
    ),
)


@primitive
def conv2d_weight_grad(grad, input, weight_shape, stride=1, padding=0, dilation=1, groups=1):
    """The gradient of conv2d with respect to its weight: each element times the patch that it was made from.

    Math    out[o, c, p, q] = sum_{n,i,j} grad[n, o, i, j] input[n, c, s i + d p - pad, s j + d q - pad]
    Grads   dgrad = conv2d(input, g)        dinput = conv2d_input_grad(grad, g)
    Shapes  grad (N, O, I, J), input (N, C, H, W) -> weight_shape (O, C/G, P, Q)
    """
    _check("conv2d_weight_grad", grad=grad, input=input)
    geometry = _geometry("conv2d_weight_grad", stride, padding, dilation, groups)
    weight_shape = shape_of("conv2d_weight_grad", "weight_shape", (weight_shape,), 4)
    g, x = device.contiguous(grad, CHANNELS_LAST), device.contiguous(input, CHANNELS_LAST)
    out = device.empty(weight_shape, g.dtype, FILTER)
    nbytes = kernels.workspace("weight_grad", x.shape, weight_shape, *geometry, g.dtype)
    kernels.weight_grad(g, x, *geometry, out, device.workspace(nbytes))
    return out


conv2d_weight_grad.grads(
    grad=lambda g, input, stride, padding, dilation, groups: conv2d(input, g, None, stride, padding, dilation, groups),
    input=lambda g, grad, input_shape, stride, padding, dilation, groups: conv2d_input_grad(
        grad, g, input_shape, stride, padding, dilation, groups
    ),
)
