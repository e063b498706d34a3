"""Convolutions: of images or sequences, batches or single ones, with padding by name.

All are one of a bilinear trio. For one geometry, which is stride, padding, dilation and number of groups, let

    B(x, w, g) = sum over n, o, i, j, c, p, q of x[n, c, s i + d p - pad, s j + d q - pad] w[o, c, p, q] g[n, o, i, j]

with c over the channels of the group of o, and x = 0 outside the image. It is linear in each of its three arguments,
and

    conv2d(x, w) = dB/dg        conv2d_input_grad(g, w) = dB/dx        conv2d_weight_grad(g, x) = dB/dw

so that every derivative, of any order, is one of the three again. Sequences are images of height 1.

Letters n batch, c in-channel, o out-channel, h w input, i j output, p q filter tap, s stride, d dilation, G groups
stride, padding, dilation, output_padding: a number, or one for each dimension, vertical first
Shapes  x (N, C, H, W), w (O, C/G, P, Q), g (N, O, I, J); the batch N may be absent
Types   floating, one for all
Errors  ValueError for shapes that do not fit, TypeError for other element types
Source  Dumoulin and Visin 2016, "A guide to convolution arithmetic for deep learning", chapters 2 and 4
"""

from minigrad_kernels import conv2d as kernels
from minigrad_kernels.errors import ShapeError
from minigrad_kernels.layout import CHANNELS_LAST, FILTER

from .. import device, fusion
from ..core.check import integer_of, pair_of, shape_of
from ..core.primitive import primitive
from ..core.tensor import check_vectors, floating_of, tensor_of
from .autocast import casting
from .reduce import column_sums, sum
from .shape import pad, reshape, squeeze, unsqueeze

__all__ = ["conv1d", "conv2d", "conv2d_input_grad", "conv2d_weight_grad", "conv_transpose1d", "conv_transpose2d"]

# ---- the trio on arrays ----------------------------------------------------------------------------------------------


def output_shape(input, weight, bias, geometry):
    """The shape of a convolution."""
    return kernels.output_shape(input.shape, weight.shape, None if bias is None else bias.shape, *geometry)


def convolve(input, weight, bias, relu, geometry, residual=None):
    """The convolution of arrays, to which a residual may be added, and its positive part if relu."""
    x, weight = device.contiguous(input, CHANNELS_LAST), device.contiguous(weight, FILTER)
    bias = None if bias is None else device.contiguous(bias)
    residual = None if residual is None else device.contiguous(residual, CHANNELS_LAST)
    out = device.empty(output_shape(x, weight, bias, geometry), x.dtype, CHANNELS_LAST, x)
    kernels.forward(x, weight, bias, relu, *geometry, out, device.workspace, residual)
    return out


@casting("lower")
@primitive
def conv2d_op(input, weight, bias, geometry):
    """dB/dg, and a bias of each out-channel."""
    return convolve(input, weight, bias, False, geometry)


fusion.waits(conv2d_op, output_shape)

conv2d_op.grads(
    input=lambda g, weight, input_shape, geometry: conv2d_input_grad_op(g, weight, input_shape, geometry),
    weight=lambda g, input, weight_shape, geometry: conv2d_weight_grad_op(g, input, weight_shape, geometry),
    bias=lambda g: sum(g, (0, 2, 3)),
)


@conv2d_op.fast_grads
def _conv2d_grads(g, input, weight, geometry, needs):
    g = device.contiguous(g, CHANNELS_LAST)
    return trio_grads(g, column_sums(g) if "bias" in needs else None, input, weight, geometry, needs)


def trio_grads(g, dbias, input, weight, geometry, needs):
    """The gradients that are needed, as arrays, by that of the convolution's own output."""
    grads = {"bias": dbias}
    if "input" in needs:
        grads["input"] = conv2d_input_grad_op.forward(g, weight, input.shape, geometry)
    if "weight" in needs:
        grads["weight"] = conv2d_weight_grad_op.forward(g, input, weight.shape, geometry)
    return grads


@casting("lower")
@primitive
def conv2d_input_grad_op(grad, weight, input_shape, geometry):
    """dB/dx."""
    g, w = device.contiguous(grad, CHANNELS_LAST), device.contiguous(weight, FILTER)
    out = device.empty(input_shape, g.dtype, CHANNELS_LAST, g)
    kernels.input_grad(g, w, *geometry, out, device.workspace)
    return out


conv2d_input_grad_op.grads(
    grad=lambda g, weight, geometry: conv2d_op(g, weight, None, geometry),
    weight=lambda g, grad, weight_shape, geometry: conv2d_weight_grad_op(grad, g, weight_shape, geometry),
)


@casting("lower")
@primitive
def conv2d_weight_grad_op(grad, input, weight_shape, geometry):
    """dB/dw."""
    g, x = device.contiguous(grad, CHANNELS_LAST), device.contiguous(input, CHANNELS_LAST)
    out = device.empty(weight_shape, g.dtype, FILTER, g)
    kernels.weight_grad(g, x, *geometry, out, device.workspace)
    return out


conv2d_weight_grad_op.grads(
    grad=lambda g, input, geometry: conv2d_op(input, g, None, geometry),
    input=lambda g, grad, input_shape, geometry: conv2d_input_grad_op(grad, g, input_shape, geometry),
)


# ---- as users call them ----------------------------------------------------------------------------------------------
#
# An op on images has ndim 2 and takes (N, C, H, W) or (C, H, W); one on sequences has ndim 1, takes (N, C, L) or
# (C, L), and works on images of height 1.


def images_of(op, input, ndim):
    """The input as (N, C, H, W)."""
    if floating_of(op, "input", input).ndim not in (ndim + 1, ndim + 2):
        wanted = "(N, C, H, W) or (C, H, W)" if ndim == 2 else "(N, C, L) or (C, L)"
        raise ShapeError(f"{op}: input has shape {input.shape}, wanted {wanted}")
    images = input if ndim == 2 else unsqueeze(input, -2)
    return images if images.ndim == 4 else unsqueeze(images, 0)


def as_given(images, input, ndim):
    """A result (N, C, I, J) with as many dimensions as the input had."""
    if ndim == 2 and input.ndim == 4:
        return images
    out = images if ndim == 2 else squeeze(images, 2)
    return out if input.ndim == ndim + 2 else squeeze(out, 0)


def _operands(op, ndim, input, weight, bias, groups):
    """(images, filters, groups) as the trio takes them; whether they fit each other is looked at by the kernels."""
    images, groups = images_of(op, input, ndim), integer_of(op, "groups", groups)
    if bias is not None:
        tensor_of(op, "bias", bias)
    if tensor_of(op, "weight", weight).ndim != ndim + 2:
        raise ShapeError(f"{op}: weight has shape {weight.shape}, wanted {ndim + 2} dimensions")
    return images, weight if ndim == 2 else unsqueeze(weight, 2), groups


def _named_padding(op, name, images, stride, reach):
    """(images, padding) for padding 'valid' or 'same', of which 'same' may have to pad the images at their end."""
    if name not in ("valid", "same"):
        raise ShapeError(f"{op}: padding is {name!r}, wanted 'valid', 'same' or numbers")
    if name == "valid":
        return images, (0, 0)
    if stride != (1, 1):
        raise ShapeError(f"{op}: padding is 'same' and stride {stride}, wanted stride 1")
    if any(width % 2 for width in reach):  # the odd one goes below and to the right
        images = pad(images, (0, reach[1] % 2, 0, reach[0] % 2))
    return images, tuple(width // 2 for width in reach)


def _convolved(op, ndim, input, weight, bias, stride, padding, dilation, groups):
    images, filters, groups = _operands(op, ndim, input, weight, bias, groups)
    stride, dilation = pair_of(op, "stride", stride, ndim, 1), pair_of(op, "dilation", dilation, ndim, 1)
    if isinstance(padding, str):
        reach = [d * (size - 1) for d, size in zip(dilation, filters.shape[2:], strict=True)]
        images, padding = _named_padding(op, padding, images, stride, reach)
    else:
        padding = pair_of(op, "padding", padding, ndim, 0)
    try:
        out = conv2d_op(images, filters, bias, (stride, padding, dilation, groups))
    except ShapeError:
        _check_channels(op, ndim, input, weight, groups)
        raise
    return as_given(out, input, ndim)


def _check_channels(op, ndim, input, weight, groups):
    """Refuse an input with other channels than the weight takes; only asked where something does not fit."""
    batched = input.ndim == ndim + 2
    found, taken = input.shape[batched], weight.shape[1] * groups
    if found != taken:
        seen = input.shape if batched else f"{input.shape}, taken as one {'image' if ndim == 2 else 'sequence'}"
        last = "; where channels come last, x.permute(0, 3, 1, 2) brings them to the front"
        hint = last if input.shape[3:] == (taken,) else ""
        wanted = f"weight takes {taken} (shape {weight.shape}, groups={groups})"
        raise ShapeError(f"{op}: input has {found} channels (shape {seen}), {wanted}{hint}") from None


def conv2d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """Two-dimensional cross-correlation of images with filters.

    Math    out[n, o, i, j] = bias[o] + sum_{c,p,q} input[n, c, s i + d p - pad, s j + d q - pad] weight[o, c, p, q]
            with c over the channels of the group of o, and 0 outside the image
            padding 'valid' is 0; 'same' pads so that I, J = H, W, an odd number more at the end, and wants stride 1
    Grads   dinput = conv2d_input_grad(g, weight)        dweight = conv2d_weight_grad(g, input)
            dbias = sum of g over n, i, j
    Shapes  input (N, C, H, W), weight (O, C/G, P, Q), bias (O,) -> (N, O, I, J)
            I = floor((H + 2 pad - d (P - 1) - 1) / s) + 1, J alike
    """
    return _convolved("conv2d", 2, input, weight, bias, stride, padding, dilation, groups)


def conv1d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """Cross-correlation of sequences with filters.

    Math    out[n, o, j] = bias[o] + sum_{c,q} input[n, c, s j + d q - pad] weight[o, c, q]
            with c over the channels of the group of o, and 0 outside the sequence; padding by name as in conv2d
    Grads   as conv2d, for images of height 1
    Shapes  input (N, C, L), weight (O, C/G, Q), bias (O,) -> (N, O, J), J = floor((L + 2 pad - d (Q - 1) - 1) / s) + 1
    """
    return _convolved("conv1d", 1, input, weight, bias, stride, padding, dilation, groups)


def _transposed(op, ndim, input, weight, bias, stride, padding, output_padding, groups, dilation):
    images, filters, groups = _operands(op, ndim, input, weight, bias, groups)
    if images.shape[1] != filters.shape[0]:
        found = f"input has {images.shape[1]} channels (shape {input.shape}), weight expects {filters.shape[0]}"
        raise ShapeError(f"{op}: {found} (shape {weight.shape})")
    check_vectors(op, input, (filters.shape[1] * groups,), bias=bias)
    stride, dilation = pair_of(op, "stride", stride, ndim, 1), pair_of(op, "dilation", dilation, ndim, 1)
    padding, extra = pair_of(op, "padding", padding, ndim, 0), pair_of(op, "output_padding", output_padding, ndim, 0)
    axes = zip(images.shape[2:], filters.shape[2:], stride, padding, dilation, extra, strict=True)
    size = tuple([s * (h - 1) - 2 * border + d * (taps - 1) + e + 1 for h, taps, s, border, d, e in axes])
    beyond = [e // s for e, s in zip(extra, stride, strict=True)]  # pixels of input that so large an output would have
    if any(beyond):
        images = pad(images, (0, beyond[1], 0, beyond[0]))
    shape = (images.shape[0], filters.shape[1] * groups, *size)
    out = as_given(conv2d_input_grad_op(images, filters, shape, (stride, padding, dilation, groups)), input, ndim)
    return out if bias is None else out + reshape(bias, (-1, *[1] * ndim))


def conv_transpose2d(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    """The adjoint of conv2d, with a bias: each pixel spreads over those that conv2d would have made it from.

    Math    out[n, o, i, j] = bias[o] + sum of input[n, c, h, w] weight[c, o, p, q] over all c, p, q, h, w
            with i = s h + d p - pad and j = s w + d q - pad, and c over the channels of the group of o
    Grads   dinput = conv2d(g, weight)        dweight = conv2d_weight_grad(input, g)        dbias = sum_{n,i,j} g
    Shapes  input (N, C, H, W), weight (C, O/G, P, Q), bias (O,) -> (N, O, I, J)
            I = s (H - 1) - 2 pad + d (P - 1) + output_padding + 1, J alike
    """
    return _transposed("conv_transpose2d", 2, input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose1d(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    """The adjoint of conv1d, with a bias.

    Math    out[n, o, j] = bias[o] + sum of input[n, c, w] weight[c, o, q] over all c, q, w with j = s w + d q - pad
            and c over the channels of the group of o
    Grads   as conv_transpose2d, for images of height 1
    Shapes  input (N, C, L), weight (C, O/G, Q), bias (O,) -> (N, O, J)
            J = s (L - 1) - 2 pad + d (Q - 1) + output_padding + 1
    """
    return _transposed("conv_transpose1d", 1, input, weight, bias, stride, padding, output_padding, groups, dilation)


def _geometry(op, grad, name, other, stride, padding, dilation, groups):
    """The geometry for the trio, which looks at all else."""
    floating_of(op, "grad", grad), floating_of(op, name, other)
    pairs = (("stride", stride, 1), ("padding", padding, 0), ("dilation", dilation, 1))
    return *(pair_of(op, name, value, 2, least) for name, value, least in pairs), integer_of(op, "groups", groups)


def conv2d_input_grad(grad, weight, input_shape, stride=1, padding=0, dilation=1, groups=1):
    """The gradient of conv2d with respect to its input: each element spreads over the pixels that it was made from.

    Math    out[n, c, h, w] = sum of grad[n, o, i, j] weight[o, c, p, q] over all o, p, q, i, j
            with h = s i + d p - pad and w = s j + d q - pad
    Grads   dgrad = conv2d(g, weight)        dweight = conv2d_weight_grad(grad, g)
    Shapes  grad (N, O, I, J), weight (O, C/G, P, Q) -> input_shape (N, C, H, W)
    """
    op = "conv2d_input_grad"
    geometry = _geometry(op, grad, "weight", weight, stride, padding, dilation, groups)
    return conv2d_input_grad_op(grad, weight, shape_of(op, "input_shape", (input_shape,), 4), geometry)


def conv2d_weight_grad(grad, input, weight_shape, stride=1, padding=0, dilation=1, groups=1):
    """The gradient of conv2d with respect to its weight: each element times the patch that it was made from.

    Math    out[o, c, p, q] = sum_{n,i,j} grad[n, o, i, j] input[n, c, s i + d p - pad, s j + d q - pad]
    Grads   dgrad = conv2d(input, g)        dinput = conv2d_input_grad(grad, g)
    Shapes  grad (N, O, I, J), input (N, C, H, W) -> weight_shape (O, C/G, P, Q)
    """
    op = "conv2d_weight_grad"
    geometry = _geometry(op, grad, "input", input, stride, padding, dilation, groups)
    return conv2d_weight_grad_op(grad, input, shape_of(op, "weight_shape", (weight_shape,), 4), geometry)
