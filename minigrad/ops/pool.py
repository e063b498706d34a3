"""Pooling over windows of images.

kernel_size, stride, padding, dilation: a number or a pair (vertical, horizontal); stride defaults to kernel_size
Types   float32 or float64; out as input
Errors  ValueError for shapes that do not fit, TypeError for other element types
Source  Boureau, Ponce and LeCun 2010, "A theoretical analysis of feature pooling in visual recognition"
"""

from minigrad_kernels import pool2d as kernels
from minigrad_kernels.errors import ShapeError
from minigrad_kernels.layout import CHANNELS_LAST
from minigrad_kernels.toolchain.arguments import pair

from .. import device
from ..primitive import primitive
from .arguments import integer_of, tensor_of

__all__ = ["adaptive_avg_pool2d", "avg_pool2d", "max_pool2d"]

# ---- maximum ---------------------------------------------------------------------------------------------------------


@primitive(outputs=("out", "positions"), fixed=("positions",))
def _max_pool2d(input, windows, ceil_mode):
    """The largest element of each window, and which of the window's elements it is."""
    shape = kernels.output_shape("max_pool2d", input.shape, *windows, ceil_mode)
    x = device.contiguous(input, CHANNELS_LAST)
    out = device.empty(shape, x.dtype, CHANNELS_LAST)
    positions = device.empty(shape, kernels.position_type(windows[0]), CHANNELS_LAST)
    kernels.max_forward(x, *windows, out, positions)
    return out, positions


_max_pool2d.grads(input=lambda g, positions, input_shape, windows: _place(g, positions, input_shape, windows))


@primitive(fixed=("positions",))
def _place(grad, positions, shape, windows):
    """grad added into zeros at the given position of each window."""
    grad = device.contiguous(grad, CHANNELS_LAST)
    out = device.empty(shape, grad.dtype, CHANNELS_LAST)
    kernels.max_input_grad(grad, positions, *windows, out)
    return out


_place.grads(grad=lambda g, positions, windows: _select(g, positions, windows))


@primitive(fixed=("positions",))
def _select(input, positions, windows):
    """The element at the given position of each window: the adjoint of _place."""
    x = device.contiguous(input, CHANNELS_LAST)
    out = device.empty(positions.shape, x.dtype, CHANNELS_LAST)
    kernels.max_select(x, positions, *windows, out)
    return out


_select.grads(input=lambda g, positions, input_shape, windows: _place(g, positions, input_shape, windows))


def _windows(op, kernel_size, stride, padding, dilation):
    kernel_size = pair(op, "kernel_size", kernel_size, 1)
    stride = kernel_size if stride is None else pair(op, "stride", stride, 1)
    return kernel_size, stride, pair(op, "padding", padding, 0), pair(op, "dilation", dilation, 1)


def max_pool2d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False):
    """The largest element of each window; NaN if it holds one. The padding never wins.

    Math    out[n, c, i, j] = max_{p,q} input[n, c, s i + d p - pad, s j + d q - pad]
    Grads   dinput = g at the first largest element of each window, added where windows overlap
    Shapes  (N, C, H, W) -> (N, C, I, J), I = floor((H + 2 pad - d (P - 1) - 1) / s) + 1 (ceil in ceil_mode)
    """
    tensor_of("max_pool2d", "input", input)
    return _max_pool2d(input, _windows("max_pool2d", kernel_size, stride, padding, dilation), bool(ceil_mode))[0]


# ---- average ---------------------------------------------------------------------------------------------------------


@primitive
def _average(input, rows, columns):
    """The average over each window of a table of windows."""
    x = device.contiguous(input, CHANNELS_LAST)
    out = device.empty((*x.shape[:2], len(rows), len(columns)), x.dtype, CHANNELS_LAST)
    kernels.average_forward(x, rows, columns, out)
    return out


_average.grads(input=lambda g, input_shape, rows, columns: _spread(g, input_shape, rows, columns))


@primitive
def _spread(grad, shape, rows, columns):
    """Each grad shared out evenly over its window: the adjoint of _average."""
    grad = device.contiguous(grad, CHANNELS_LAST)
    out = device.empty(shape, grad.dtype, CHANNELS_LAST)
    kernels.average_input_grad(grad, rows, columns, out)
    return out


_spread.grads(grad=lambda g, rows, columns: _average(g, rows, columns))


def avg_pool2d(
    input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None
):
    """The average of each window.

    Math    out[n, c, i, j] = (1 / K) sum_{p,q} input[n, c, s i + p - pad, s j + q - pad], with 0 in the padding
            K = P Q, or without the padding if count_include_pad is false, or divisor_override
    Grads   dinput = g / K, spread over each window
    Shapes  (N, C, H, W) -> (N, C, I, J), I = floor((H + 2 pad - P) / s) + 1 (ceil in ceil_mode)
    Errors  ValueError also if divisor_override is 0
    """
    tensor_of("avg_pool2d", "input", input)
    windows = _windows("avg_pool2d", kernel_size, stride, padding, 1)
    ceil_mode, count_include_pad = bool(ceil_mode), bool(count_include_pad)
    kernels.output_shape("avg_pool2d", input.shape, *windows, ceil_mode)
    if divisor_override is not None and integer_of("avg_pool2d", "divisor_override", divisor_override) == 0:
        raise ShapeError("avg_pool2d: divisor_override is 0, wanted another number or None")
    divisors = (None, None) if divisor_override is None else (divisor_override, 1)
    tables = [
        kernels.average_windows(size, *(pair[axis] for pair in windows[:3]), ceil_mode, count_include_pad, divisor)
        for axis, (size, divisor) in enumerate(zip(input.shape[2:], divisors, strict=True))
    ]
    return _average(input, *tables)


def adaptive_avg_pool2d(input, output_size):
    """The average of each of output_size windows that cover the image evenly.

    Math    window i of I covers floor(i H / I) <= h < ceil((i + 1) H / I); out = the average over it
    Grads   dinput = g / K, spread over each window of K elements
    Shapes  (N, C, H, W) -> (N, C, I, J); output_size a number or a pair, None keeps a size
    """
    if tensor_of("adaptive_avg_pool2d", "input", input).ndim != 4:
        raise ShapeError(f"adaptive_avg_pool2d: input has shape {input.shape}, wanted (N, C, H, W)")
    sizes = tuple(output_size) if isinstance(output_size, tuple | list) else (output_size, output_size)
    if len(sizes) == 2:
        sizes = tuple(old if new is None else new for old, new in zip(input.shape[2:], sizes, strict=True))
    sizes = pair("adaptive_avg_pool2d", "output_size", sizes, 1)
    if 0 in input.shape[1:]:
        raise ShapeError(f"adaptive_avg_pool2d: input has shape {input.shape}, wanted no empty dimension but N")
    return _average(
        input, *(kernels.adaptive_windows(old, new) for old, new in zip(input.shape[2:], sizes, strict=True))
    )
