"""Ops that lay windows over a Tensor, and their adjoints, which add windows up.

Types   any; out as input
Errors  ValueError if a shape or size does not fit, IndexError for a dimension out of range, TypeError for other kinds
Source  Chellapilla, Puri and Simard 2006, "High performance convolutional neural networks for document processing"
"""

import math

from minigrad_kernels.errors import ShapeError
from minigrad_kernels.toolchain.arguments import pair

from ... import device
from ...device import array_module
from ...primitive import primitive
from ..arguments import integer_of, tensor_of
from ..axes import axis_of
from .pads import pad
from .views import permute, reshape, unsqueeze

__all__ = ["fold", "unfold", "windows"]


@primitive(view="input")
def _windows(input, axis, size, step, dilation):
    """The windows along an axis: element k of window i is input[s i + d k]; the last axis runs through each window."""
    count = (input.shape[axis] - max(0, dilation * (size - 1) + 1)) // step + 1
    shape, strides = [*input.shape, size], [*input.strides, input.strides[axis] * dilation]
    shape[axis], strides[axis] = count, strides[axis] * step if count > 1 else 0
    return device.strided(input, shape, strides)


@primitive
def _overlap(input, axis, shape, step, dilation):
    """Windows along an axis added up where they overlap, to this shape: the adjoint of _windows."""
    count, size = input.shape[axis], input.shape[-1]
    out, at = device.zeros(shape, input.dtype, like=input), (slice(None),) * axis
    if size <= count:
        for k in range(size):  # of all windows at once
            out[(*at, slice(k * dilation, k * dilation + step * (count - 1) + 1, step))] += input[..., k]
    else:
        rows = array_module(input).moveaxis(input, -1, axis + 1)
        for i in range(count):
            out[(*at, slice(i * step, i * step + dilation * (size - 1) + 1, dilation))] += rows[(*at, i)]
    return out


_windows.grads(input=lambda g, axis, step, dilation, input_shape: _overlap(g, axis, input_shape, step, dilation))
_overlap.grads(input=lambda g, axis, step, dilation, input_shape: _windows(g, axis, input_shape[-1], step, dilation))


def windows(input, dimension, size, step):
    """Windows of size elements along a dimension, step apart: a view of the same memory.

    Math    out[..., i, ..., k] = input[..., i step + k, ...]
    Grads   dinput = g added up where windows overlap
    Shapes  (..., n, ...) -> (..., (n - size) // step + 1, ..., size)
    """
    axis = axis_of("windows", dimension, tensor_of("windows", "input", input).ndim)
    size, step = integer_of("windows", "size", size), integer_of("windows", "step", step)
    row = input if input.ndim else unsqueeze(input, 0)
    if not 0 <= size <= row.shape[axis] or step < 1:
        raise ShapeError(
            f"windows: size is {size}, step {step}; wanted 0 to {row.shape[axis]} and at least 1 (shape {input.shape})"
        )
    out = _windows(row, axis, size, step, 1)
    return out if input.ndim else reshape(out, size)


def _geometry(op, sizes, kernel_size, dilation, padding, stride):
    """(kernel size, dilation, padding, stride, number of windows), each (vertical, horizontal)."""
    kernel_size, dilation = pair(op, "kernel_size", kernel_size, 1), pair(op, "dilation", dilation, 1)
    padding, stride = pair(op, "padding", padding, 0), pair(op, "stride", stride, 1)
    counts = tuple(
        [
            (n + 2 * p - d * (k - 1) - 1) // s + 1
            for n, k, d, p, s in zip(sizes, kernel_size, dilation, padding, stride, strict=True)
        ]
    )
    if min(counts) < 1:
        raise ShapeError(f"{op}: images of size {sizes} hold {counts} windows, wanted at least one")
    return kernel_size, dilation, padding, stride, counts


def _check_images(op, input, ndim, words):
    """Refuse what is no batch of this many dimensions, nor one of its elements; only a batch may be empty."""
    shape = tensor_of(op, "input", input).shape
    if len(shape) not in (ndim - 1, ndim) or not all(shape[1 - ndim :]):
        raise ShapeError(f"{op}: input has shape {shape}, wanted {words} with elements")


def unfold(input, kernel_size, dilation=1, padding=0, stride=1):
    """The windows of images as columns: a convolution is a product with them.

    Math    out[n, (c, p, q), (i, j)] = input[n, c, s i + d p - pad, s j + d q - pad], 0 outside
    Grads   dinput = fold(g)
    Shapes  (N, C, H, W) or (C, H, W) -> (N, C P Q, I J) or (C P Q, I J)
    """
    _check_images("unfold", input, 4, "(N, C, H, W) or (C, H, W)")
    geometry = _geometry("unfold", input.shape[-2:], kernel_size, dilation, padding, stride)
    kernel, dilation, (vertical, horizontal), stride, counts = geometry
    images = input if input.ndim == 4 else unsqueeze(input, 0)
    if vertical or horizontal:
        images = pad(images, (horizontal, horizontal, vertical, vertical))
    for axis in (0, 1):
        images = _windows(images, 2 + axis, kernel[axis], stride[axis], dilation[axis])
    columns = permute(images, (0, 1, 4, 5, 2, 3))
    return reshape(columns, (*input.shape[:-3], input.shape[-3] * math.prod(kernel), math.prod(counts)))


def fold(input, output_size, kernel_size, dilation=1, padding=0, stride=1):
    """Columns added up to images: the adjoint of unfold.

    Math    out[n, c, s i + d p - pad, s j + d q - pad] += input[n, (c, p, q), (i, j)]
    Grads   dinput = unfold(g)
    Shapes  (N, C P Q, I J) or (C P Q, I J) -> (N, C, H, W) or (C, H, W), with (H, W) = output_size
    """
    _check_images("fold", input, 3, "(N, C P Q, I J) or (C P Q, I J)")
    sizes = pair("fold", "output_size", output_size, 1)
    kernel, dilation, padding, stride, counts = _geometry("fold", sizes, kernel_size, dilation, padding, stride)
    rows, columns = input.shape[-2:]
    if rows % math.prod(kernel) or columns != math.prod(counts):
        raise ShapeError(
            f"fold: input has shape {input.shape}, wanted a multiple of {math.prod(kernel)} rows and "
            f"{math.prod(counts)} columns for kernel_size {kernel} and output_size {sizes}"
        )
    batch, channels = math.prod(input.shape[:-2]), rows // math.prod(kernel)
    images = permute(reshape(input, (batch, channels, *kernel, *counts)), (0, 1, 4, 5, 2, 3))
    for axis in (1, 0):
        length = sizes[axis] + 2 * padding[axis]
        shape = (*images.shape[: 2 + axis], length, *images.shape[3 + axis : -1])
        images = _overlap(images, 2 + axis, shape, stride[axis], dilation[axis])
    if any(padding):
        images = pad(images, (-padding[1], -padding[1], -padding[0], -padding[0]))
    return images if input.ndim == 3 else reshape(images, images.shape[1:])
