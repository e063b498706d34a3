"""Sizes and windows of pooling, by PyTorch's rules."""

import functools

import numpy as np

from ..errors import ShapeError


def outputs(size, kernel, stride, padding, dilation, ceil_mode):
    """How many windows fit along one axis."""
    free = size + 2 * padding - dilation * (kernel - 1) - 1
    if not ceil_mode:
        return free // stride + 1
    count = -(-free // stride) + 1
    # The last window must start inside the input or the padding before it, not in the padding behind.
    return count - 1 if (count - 1) * stride >= size + padding else count


def _sizes(op, axis, x_shape, kernel, stride, padding, dilation, ceil_mode):
    """How many windows fit along an axis, after a look that they do and hold an element each."""
    size, name = x_shape[axis + 2], ("height", "width")[axis]
    if padding > kernel // 2:
        raise ShapeError(
            f"{op}: padding is {padding} along the {name}, wants 0 to {kernel // 2} (half of kernel_size {kernel})"
        )
    count = outputs(size, kernel, stride, padding, dilation, ceil_mode)
    if count < 1 or size < 1:
        raise ShapeError(
            f"{op}: x has {name} {size} (shape {x_shape}), too small for kernel_size {kernel} "
            f"with padding {padding} and dilation {dilation}"
        )
    starts = range(-padding, count * stride - padding, stride)
    if dilation > 1 and any(start < 0 and start % dilation >= size for start in starts):
        raise ShapeError(f"{op}: a window covers no element of x along the {name}; use less dilation or padding")
    return count


@functools.lru_cache(1024)
def output_shape(op, x_shape, kernel_size, stride, padding, dilation, ceil_mode):
    """The shape that pooling gives, all sizes as pairs (vertical, horizontal).

    Errors  ValueError for what PyTorch refuses, and for windows that cover no element of x
    """
    if len(x_shape) != 4 or x_shape[1] < 1:
        raise ShapeError(f"{op}: x has shape {x_shape}, wants (N, C, H, W) with C at least 1")
    sizes = zip((0, 1), kernel_size, stride, padding, dilation, strict=True)
    return *x_shape[:2], *(_sizes(op, axis, x_shape, *window, ceil_mode) for axis, *window in sizes)


def _table(starts, ends, divisors):
    table = np.stack([starts, ends, divisors], axis=1).astype(np.int64)
    table.flags.writeable = False  # the tables are kept and shared
    return table


@functools.lru_cache(256)
def average_windows(size, kernel, stride, padding, ceil_mode, count_include_pad, divisor=None):
    """(windows, 3) int64: start, end (both inside the input) and divisor of each window along one axis.

    A window's sum is divided by its row divisor times its column divisor. They count its rows and columns, those
    in the padding included or not. `divisor` replaces the count: an override goes into the rows, 1 into the
    columns.
    """
    count = outputs(size, kernel, stride, padding, 1, ceil_mode)
    starts = np.arange(count) * stride - padding
    ends = np.minimum(starts + kernel, size + padding)
    inside = np.maximum(starts, 0), np.minimum(ends, size)
    counts = ends - starts if count_include_pad else inside[1] - inside[0]
    return _table(*inside, counts if divisor is None else np.full(count, divisor))


@functools.lru_cache(256)
def adaptive_windows(size, out):
    """(out, 3) int64: start, end and divisor of each of `out` windows that share an axis as evenly as they can."""
    index = np.arange(out)
    starts, ends = index * size // out, -(-(index + 1) * size // out)
    return _table(starts, ends, ends - starts)
