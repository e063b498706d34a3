"""Pooling over windows of images and sequences; sequences are images of height 1.

kernel_size, stride, padding, dilation: a number, or one for each dimension, vertical first; stride is kernel_size
where it is None
Shapes  the batch N may be absent
Types   floating; out as input
Errors  ValueError for shapes that do not fit, TypeError for other element types
Source  Boureau, Ponce and LeCun 2010, "A theoretical analysis of feature pooling in visual recognition"
"""

from minigrad_kernels import pool2d as kernels
from minigrad_kernels.checked import Checked
from minigrad_kernels.errors import ShapeError
from minigrad_kernels.layout import CHANNELS_LAST
from minigrad_kernels.toolchain.arguments import pair

from .. import device
from ..core.check import flag_of
from ..core.primitive import primitive
from .images import as_given, images_of, pair_of

__all__ = ["adaptive_avg_pool2d", "avg_pool1d", "avg_pool2d", "max_pool1d", "max_pool2d"]

# ---- maximum ---------------------------------------------------------------------------------------------------------


@primitive(outputs=("out", "positions"), fixed=("positions",))
def _max_pool2d(input, windows, shape):
    """The largest element of each window, and which of the window's elements it is."""
    x = device.contiguous(input, CHANNELS_LAST)
    out = device.empty(shape, x.dtype, CHANNELS_LAST, x)
    positions = device.empty(shape, kernels.position_type(windows[0]), CHANNELS_LAST, x)
    kernels.max_forward(x, *windows, out, positions)
    return out, positions


_max_pool2d.grads(input=lambda g, positions, input_shape, windows: _place(g, positions, input_shape, windows))


@primitive(fixed=("positions",))
def _place(grad, positions, shape, windows):
    """grad added into zeros at the given position of each window."""
    grad = device.contiguous(grad, CHANNELS_LAST)
    out = device.empty(shape, grad.dtype, CHANNELS_LAST, grad)
    kernels.max_input_grad(grad, positions, *windows, out)
    return out


_place.grads(grad=lambda g, positions, windows: _select(g, positions, windows))


@primitive(fixed=("positions",))
def _select(input, positions, windows):
    """The element at the given position of each window: the adjoint of _place."""
    x = device.contiguous(input, CHANNELS_LAST)
    out = device.empty(positions.shape, x.dtype, CHANNELS_LAST, x)
    kernels.max_select(x, positions, *windows, out)
    return out


_select.grads(input=lambda g, positions, input_shape, windows: _place(g, positions, input_shape, windows))


_known = Checked()


def _windows(op, ndim, kernel_size, stride, padding, dilation=1):
    given = kernel_size, stride, padding, dilation
    # The very same tuples each time: what is checked with them is found again by what they are, not by their numbers.
    return _known.found(ndim, given) or _known.keep(ndim, given, _pairs(op, ndim, *given))


def _pairs(op, ndim, kernel_size, stride, padding, dilation):
    kernel_size = pair_of(op, "kernel_size", kernel_size, ndim, 1)
    stride = kernel_size if stride is None else pair_of(op, "stride", stride, ndim, 1)
    return kernel_size, stride, pair_of(op, "padding", padding, ndim, 0), pair_of(op, "dilation", dilation, ndim, 1)


def _max_pool(op, ndim, input, windows, ceil_mode):
    images = images_of(op, input, ndim)
    shape = kernels.output_shape(op, images.shape, *windows, flag_of(op, "ceil_mode", ceil_mode))
    return as_given(_max_pool2d(images, windows, shape)[0], input, ndim)


def max_pool2d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False):
    """The largest element of each window; NaN if it holds one. The padding never wins.

    Math    out[n, c, i, j] = max_{p,q} input[n, c, s i + d p - pad, s j + d q - pad]
    Grads   dinput = g at the first largest element of each window, added where windows overlap
    Shapes  (N, C, H, W) -> (N, C, I, J), I = floor((H + 2 pad - d (P - 1) - 1) / s) + 1 (ceil in ceil_mode)
    """
    windows = _windows("max_pool2d", 2, kernel_size, stride, padding, dilation)
    return _max_pool("max_pool2d", 2, input, windows, ceil_mode)


def max_pool1d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False):
    """The largest element of each window; NaN if it holds one. The padding never wins.

    Math    out[n, c, j] = max_q input[n, c, s j + d q - pad]
    Grads   dinput = g at the first largest element of each window, added where windows overlap
    Shapes  (N, C, L) -> (N, C, J), J = floor((L + 2 pad - d (Q - 1) - 1) / s) + 1 (ceil in ceil_mode)
    """
    windows = _windows("max_pool1d", 1, kernel_size, stride, padding, dilation)
    return _max_pool("max_pool1d", 1, input, windows, ceil_mode)


# ---- average ---------------------------------------------------------------------------------------------------------


@primitive
def average_over(input, rows, columns):
    """The average over each window of a table of windows."""
    x = device.contiguous(input, CHANNELS_LAST)
    out = device.empty((*x.shape[:2], len(rows), len(columns)), x.dtype, CHANNELS_LAST, x)
    kernels.average_forward(x, rows, columns, out)
    return out


average_over.grads(input=lambda g, input_shape, rows, columns: _spread(g, input_shape, rows, columns))


@primitive
def _spread(grad, shape, rows, columns):
    """Each grad shared out evenly over its window: the adjoint of average_over."""
    grad = device.contiguous(grad, CHANNELS_LAST)
    out = device.empty(shape, grad.dtype, CHANNELS_LAST, grad)
    kernels.average_input_grad(grad, rows, columns, out)
    return out


_spread.grads(grad=lambda g, rows, columns: average_over(g, rows, columns))


def _avg_pool(op, ndim, input, windows, ceil_mode, count_include_pad):
    images = images_of(op, input, ndim)
    ceil_mode = flag_of(op, "ceil_mode", ceil_mode)
    count_include_pad = flag_of(op, "count_include_pad", count_include_pad)
    kernels.output_shape(op, images.shape, *windows, ceil_mode)
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
    windows = _windows("avg_pool2d", 2, kernel_size, stride, padding)
    return _avg_pool("avg_pool2d", 2, input, windows, ceil_mode, count_include_pad)


def avg_pool1d(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True):
    """The average of each window.

    Math    out[n, c, j] = (1 / K) sum_q input[n, c, s j + q - pad], with 0 in the padding
            K = Q, or without the padding if count_include_pad is false
    Grads   dinput = g / K, spread over each window
    Shapes  (N, C, L) -> (N, C, J), J = floor((L + 2 pad - Q) / s) + 1 (ceil in ceil_mode)
    """
    windows = _windows("avg_pool1d", 1, kernel_size, stride, padding)
    return _avg_pool("avg_pool1d", 1, input, windows, ceil_mode, count_include_pad)


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
    sizes = output_size
    if isinstance(sizes, tuple | list) and len(sizes) == 2:
        sizes = tuple(old if new is None else new for old, new in zip(images.shape[2:], sizes, strict=True))
    sizes = pair(op, "output_size", sizes, 0)
    tables = [kernels.adaptive_windows(old, new) for old, new in zip(images.shape[2:], sizes, strict=True)]
    return as_given(average_over(images, *tables), input, 2)
