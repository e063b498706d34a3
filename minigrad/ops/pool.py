"""Pooling over windows of images and sequences; sequences are images of height 1.

kernel_size, stride, padding, dilation: a number, or one for each dimension, vertical first; stride is kernel_size
where it is None
Shapes  the batch N may be absent
Types   floating; out as input
Errors  ValueError for shapes that do not fit, TypeError for other element types
Source  Boureau, Ponce and LeCun 2010, "A theoretical analysis of feature pooling in visual recognition"
"""

from minigrad_kernels import pool2d as kernels
from minigrad_kernels.errors import ShapeError
from minigrad_kernels.layout import CHANNELS_LAST

from .. import device
from ..core.check import integer_of, pair_of
from ..core.primitive import primitive
from .conv import as_given, images_of

__all__ = ["adaptive_avg_pool2d", "avg_pool1d", "avg_pool2d", "max_pool1d", "max_pool2d"]

# ---- maximum ---------------------------------------------------------------------------------------------------------


def _run(kernel, array, shape, *settings):
    """What a kernel makes of images, in this shape."""
    x = device.contiguous(array, CHANNELS_LAST)
    out = device.empty(shape, x.dtype, CHANNELS_LAST, x)
    kernel(x, *settings, out)
    return out


@primitive(outputs=("out", "positions"), fixed=("positions",))
def max_pool2d_op(input, windows, shape):
    """The largest element of each window, and which of the window's elements it is."""
    x = device.contiguous(input, CHANNELS_LAST)
    out = device.empty(shape, x.dtype, CHANNELS_LAST, x)
    positions = device.empty(shape, kernels.position_type(windows[0]), CHANNELS_LAST, x)
    kernels.max_forward(x, *windows, out, positions)
    return out, positions


max_pool2d_op.grads(input=lambda g, positions, input_shape, windows: place_op(g, positions, input_shape, windows))


@primitive(fixed=("positions",))
def place_op(grad, positions, shape, windows):
    """grad added into zeros at the given position of each window."""
    g = device.contiguous(grad, CHANNELS_LAST)
    dx = device.empty(shape, g.dtype, CHANNELS_LAST, g)
    kernels.max_input_grad(g, None, positions, *windows, dx, None, device.workspace)
    return dx


place_op.grads(grad=lambda g, positions, windows: _select(g, positions, windows))


@primitive(fixed=("positions",))
def _select(input, positions, windows):
    """The element at the given position of each window: the adjoint of place_op, for second derivatives."""
    (_, width), stride, padding, dilation = windows
    n, c, *corner = device.array_module(input).indices(positions.shape)
    tap = positions.astype("int64")
    taps = tap // width, tap % width
    h, w = (at * s - p + tap * d for at, tap, s, p, d in zip(corner, taps, stride, padding, dilation, strict=True))
    return input[n, c, h, w]


_select.grads(input=lambda g, positions, input_shape, windows: place_op(g, positions, input_shape, windows))


def _windows(op, ndim, kernel_size, stride, padding, dilation):
    kernel_size = pair_of(op, "kernel_size", kernel_size, ndim, 1)
    stride = kernel_size if stride is None else pair_of(op, "stride", stride, ndim, 1)
    return kernel_size, stride, pair_of(op, "padding", padding, ndim, 0), pair_of(op, "dilation", dilation, ndim, 1)


def _max_pool(op, ndim, input, ceil_mode, *windows):
    images, windows = images_of(op, input, ndim), _windows(op, ndim, *windows)
    shape = kernels.output_shape(op, images.shape, *windows, ceil_mode)
    return as_given(max_pool2d_op(images, windows, shape)[0], input, ndim)


def max_pool2d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False):
    """The largest element of each window; NaN if it holds one. The padding never wins.

    Math    out[n, c, i, j] = max_{p,q} input[n, c, s i + d p - pad, s j + d q - pad]
    Grads   dinput = g at the first largest element of each window, added where windows overlap
    Shapes  (N, C, H, W) -> (N, C, I, J), I = floor((H + 2 pad - d (P - 1) - 1) / s) + 1 (ceil in ceil_mode)
    """
    return _max_pool("max_pool2d", 2, input, ceil_mode, kernel_size, stride, padding, dilation)


def max_pool1d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False):
    """The largest element of each window; NaN if it holds one. The padding never wins.

    Math    out[n, c, j] = max_q input[n, c, s j + d q - pad]
    Grads   dinput = g at the first largest element of each window, added where windows overlap
    Shapes  (N, C, L) -> (N, C, J), J = floor((L + 2 pad - d (Q - 1) - 1) / s) + 1 (ceil in ceil_mode)
    """
    return _max_pool("max_pool1d", 1, input, ceil_mode, kernel_size, stride, padding, dilation)


# ---- average ---------------------------------------------------------------------------------------------------------


@primitive
def average_over(input, rows, columns):
    """The average over each window of a table of windows."""
    return _run(kernels.average_forward, input, (*input.shape[:2], len(rows), len(columns)), rows, columns)


average_over.grads(input=lambda g, input_shape, rows, columns: _spread(g, input_shape, rows, columns))


@primitive
def _spread(grad, shape, rows, columns):
    """Each grad shared out evenly over its window: the adjoint of average_over."""
    return _run(kernels.average_input_grad, grad, shape, rows, columns)


_spread.grads(grad=lambda g, rows, columns: average_over(g, rows, columns))


def _avg_pool(op, ndim, input, ceil_mode, count_include_pad, *windows):
    images, windows = images_of(op, input, ndim), _windows(op, ndim, *windows, 1)
    kernels.output_shape(op, images.shape, *windows, ceil_mode)  # which refuses what does not fit
    tables = [
        kernels.average_windows(size, *(pair[axis] for pair in windows[:3]), ceil_mode, count_include_pad)
        for axis, size in enumerate(images.shape[2:])
    ]
    return as_given(average_over(images, *tables), input, ndim)


def avg_pool2d(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True):
    """The average of each window.

    Math    out[n, c, i, j] = (1 / K) sum_{p,q} input[n, c, s i + p - pad, s j + q - pad], with 0 in the padding
            K = P Q, or without the padding if count_include_pad is false
    Grads   dinput = g / K, spread over each window
    Shapes  (N, C, H, W) -> (N, C, I, J), I = floor((H + 2 pad - P) / s) + 1 (ceil in ceil_mode)
    """
    return _avg_pool("avg_pool2d", 2, input, ceil_mode, count_include_pad, kernel_size, stride, padding)


def avg_pool1d(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True):
    """The average of each window.

    Math    out[n, c, j] = (1 / K) sum_q input[n, c, s j + q - pad], with 0 in the padding
            K = Q, or without the padding if count_include_pad is false
    Grads   dinput = g / K, spread over each window
    Shapes  (N, C, L) -> (N, C, J), J = floor((L + 2 pad - Q) / s) + 1 (ceil in ceil_mode)
    """
    return _avg_pool("avg_pool1d", 1, input, ceil_mode, count_include_pad, kernel_size, stride, padding)


def adaptive_avg_pool2d(input, output_size):
    """The average of each of output_size windows that cover the image evenly.

    Math    window i of I covers floor(i H / I) <= h < ceil((i + 1) H / I); out = the average over it
    Grads   dinput = g / K, spread over each window of K elements
    Shapes  (N, C, H, W) -> (N, C, I, J); output_size a number or a pair, in which None keeps a size
    """
    op = "adaptive_avg_pool2d"
    images = images_of(op, input, 2)
    if 0 in images.shape[2:]:
        raise ShapeError(f"{op}: input has shape {input.shape}, wanted no empty height or width")
    given = output_size if isinstance(output_size, tuple | list) else (output_size,) * 2
    sizes = zip(images.shape[2:], given, strict=True)
    sizes = [(old, old if new is None else integer_of(op, "output_size", new, 0)) for old, new in sizes]
    return as_given(average_over(images, *(kernels.adaptive_windows(*size) for size in sizes)), input, 2)
