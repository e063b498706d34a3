"""Pooling on the CPU: every thread owns rows of the result, and vectors hold neighbouring channels.

Arrays are C-contiguous (N, H, W, C) views. The steps on vectors of channels are in cpu_windows.py.
"""

import numpy as np

from ..toolchain import jit, share, shared
from ..toolchain.pooling import run_from, taps_inside
from .cpu_place import FEW, max_input_grad, max_relu_input_grad
from .cpu_windows import LANES, add_quotient, max_windows, mean_window

__all__ = [
    "average_forward",
    "average_input_grad",
    "max_forward",
    "max_input_grad",
    "max_relu_input_grad",
    "max_select",
]


@jit
def max_row(x, row, kernel_size, stride, padding, dilation, out, positions):
    n, i = row // out.shape[1], row % out.shape[1]
    height, width, channels = x.shape[1:]
    top = i * stride[0] - padding[0]
    p0, p1 = taps_inside(top, height, kernel_size[0], dilation[0])
    steps = dilation[0] * width * channels, dilation[1] * channels
    j, at = 0, row * out.shape[2] * channels
    while j < out.shape[2]:
        left = j * stride[1] - padding[1]
        q0, q1 = taps_inside(left, width, kernel_size[1], dilation[1])
        corner, taps = ((n * height + top) * width + left) * channels, (p0, p1, q0, q1)
        count = run_from(j, out.shape[2], width, kernel_size[1], stride[1], padding[1], dilation[1], channels)
        run = count, stride[1] * channels, channels
        for c in range(0, channels, LANES):
            max_windows(x, corner + c, taps, steps, kernel_size[1], out, positions, at + c, run, channels - c)
        j += count
        at += count * channels


@shared
def max_forward(team, x, kernel_size, stride, padding, dilation, out, positions):
    for row in share(out.shape[0] * out.shape[1], team):
        max_row(x, row, kernel_size, stride, padding, dilation, out, positions)


@jit
def select_row(x, positions, row, kernel_size, stride, padding, dilation, out):
    n, i = row // out.shape[1], row % out.shape[1]
    for j in range(out.shape[2]):
        for c in range(out.shape[3]):
            tap = np.int64(positions[n, i, j, c])
            h = i * stride[0] - padding[0] + tap // kernel_size[1] * dilation[0]
            w = j * stride[1] - padding[1] + tap % kernel_size[1] * dilation[1]
            out[n, i, j, c] = x[n, h, w, c]


@shared
def max_select(team, x, positions, kernel_size, stride, padding, dilation, out):
    for row in share(out.shape[0] * out.shape[1], team):
        select_row(x, positions, row, kernel_size, stride, padding, dilation, out)


@jit
def clear_row(x, row):
    n, h, zero = row // x.shape[1], row % x.shape[1], x.dtype.type(0)
    for w in range(x.shape[2]):
        for c in range(x.shape[3]):
            x[n, h, w, c] = zero


@jit
def average_row(x, row, rows, columns, out):
    n, i = row // out.shape[1], row % out.shape[1]
    height, width, channels = x.shape[1:]
    steps = width * channels, channels
    for j in range(out.shape[2]):
        taps = rows[i, 0], rows[i, 1], columns[j, 0], columns[j, 1]
        divisor = out.dtype.type(rows[i, 2] * columns[j, 2])
        image, at = n * height * width * channels, (row * out.shape[2] + j) * channels
        for c in range(0, channels, LANES):
            mean_window(x, image + c, taps, steps, divisor, out, at + c, channels - c)


@shared
def average_forward(team, x, rows, columns, out):
    for row in share(out.shape[0] * out.shape[1], team):
        average_row(x, row, rows, columns, out)


@jit
def spread_few(g, divisor, dx):
    """Onto each pixel of dx its share of the few channels of g."""
    for c in range(g.size):
        share = g[c] / divisor
        for w in range(dx.shape[0]):
            dx[w, c] += share


@jit
def spread_row(g, row, rows, columns, dx):
    """Into one row of dx, the shares of all windows that hold it, in a fixed order."""
    n, h = row // dx.shape[1], row % dx.shape[1]
    channels, width = dx.shape[3], dx.shape[2]
    clear_row(dx, row)
    for i in range(g.shape[1]):
        if h < rows[i, 0] or h >= rows[i, 1]:
            continue
        for j in range(g.shape[2]):
            divisor = dx.dtype.type(rows[i, 2] * columns[j, 2])
            source = ((n * g.shape[1] + i) * g.shape[2] + j) * channels
            if channels < FEW:
                spread_few(g[n, i, j], divisor, dx[n, h, columns[j, 0] : columns[j, 1]])
                continue
            for w in range(columns[j, 0], columns[j, 1]):
                at = (row * width + w) * channels
                for c in range(0, channels, LANES):
                    add_quotient(g, source + c, divisor, dx, at + c, channels - c)


@shared
def average_input_grad(team, g, rows, columns, dx):
    for row in share(dx.shape[0] * dx.shape[1], team):
        spread_row(g, row, rows, columns, dx)
