"""Max pooling of images that lie in scratch memory, for product.py: the same steps as those of pool2d on the CPU."""

from typing import NamedTuple

import numpy as np

from .cpu import jit
from .lanes import LANES, max_windows

__all__ = ["NO_WINDOWS", "Windows", "max_images", "max_row", "run_from", "taps_inside"]


class Windows(NamedTuple):
    """Windows over images of (height, width) pixels and so many channels; `made` of them in each."""

    kernel_size: tuple
    stride: tuple
    padding: tuple
    dilation: tuple
    size: tuple
    made: tuple
    channels: int

    def table(self):
        """The numbers, in this order."""
        return np.array([*(number for pair in self[:-1] for number in pair), self.channels], np.int64)


NO_WINDOWS = np.zeros(0, np.int64)


@jit
def taps_inside(start, size, taps, dilation):
    """The first tap inside the image and one past the last, for a window whose tap 0 lies at `start`."""
    if start >= 0 and start + (taps - 1) * dilation < size:  # divisions cost more than a window
        return 0, taps
    first = (-start + dilation - 1) // dilation if start < 0 else 0
    return first, min(taps, (size - start + dilation - 1) // dilation)


@jit
def run_from(j, count, size, taps, stride, padding, dilation, channels):
    """How many of the windows from number j on lie whole inside a row, if they are to be taken at once; else 1.

    Vectors that hold all channels go along the row; where a pixel has several of them, these are neighbours.
    """
    start, last = j * stride - padding, size - 1 - (taps - 1) * dilation
    if channels > LANES or start < 0 or start > last:
        return 1
    return min(count - j, (last - start) // stride + 1)


@jit
def max_row(x, image, i, at, windows, out, positions):
    """The windows of row i of the image that lies in x from `image` on; results from `at` on."""
    height, width, made, channels = windows[8], windows[9], windows[11], windows[12]
    kernel, stride, padding, dilation = windows[1], windows[3], windows[5], windows[7]  # along the row
    top = i * windows[2] - windows[4]
    p0, p1 = taps_inside(top, height, windows[0], windows[6])
    steps, j = (windows[6] * width * channels, dilation * channels), 0
    while j < made:
        left = j * stride - padding
        q0, q1 = taps_inside(left, width, kernel, dilation)
        corner, taps = image + (top * width + left) * channels, (p0, p1, q0, q1)
        count = run_from(j, made, width, kernel, stride, padding, dilation, channels)
        run = count, stride * channels, channels
        for c in range(0, channels, LANES):
            max_windows(x, corner + c, taps, steps, kernel, out, positions, at + c, run, channels - c)
        j += count
        at += count * channels


@jit
def max_images(x, start, first, end, windows, out, positions):
    """Pool images first to end, of which the first lies in x from `start` on, into their places of out."""
    size, row = windows[8] * windows[9] * windows[12], windows[11] * windows[12]
    for image in range(first, end):
        for i in range(windows[10]):
            at = (image * windows[10] + i) * row
            max_row(x, start + (image - first) * size, i, at, windows, out, positions)
