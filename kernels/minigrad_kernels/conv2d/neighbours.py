"""Neighbouring pixels side by side in a vector, where a convolution makes few channels.

Columns of a product are channels of the result; where these are few, most lanes idle. Here they are the channels of
several neighbouring pixels of a row, which lie side by side in memory. Such a group reads one window, wider than
that of one pixel, and the filter is spread over it: a copy for each pixel, with zeros where the pixel reads nothing.

The product with such a zero is zero only if what is read is finite. So this is a second plan beside that of
pixel_plan.py, for sources without infinity and NaN.
"""

from math import prod
from typing import NamedTuple

import numpy as np

from ..toolchain import jit
from ..toolchain.product import VECTOR_BYTES, Plan
from .pixel_plan import GroupsOfChannels, pixel_plan
from .reads import Reads, filter_order, forward_reads, input_grad_reads

__all__ = ["Neighbours", "finite", "neighbours", "spread"]

WORTH = 0.8  # of the steps that single pixels take
SPREAD = 64  # multiplications for each element of the spread filter, from which on spreading pays
LARGEST = {4: np.finfo(np.float32).max, 8: np.finfo(np.float64).max}


class Neighbours(NamedTuple):
    """The plan, the place in w of each element of the spread filter (-1: zero), and pixels in a group.

    exact: nothing is multiplied with a zero of the spread filter.
    """

    plan: Plan
    picks: np.ndarray
    pixels: int
    exact: bool = False


class _Axis(NamedTuple):
    """Groups along a row: where they start, what they read first, and what pixel j of one meets: (shift, tap)."""

    places: np.ndarray
    bases: np.ndarray
    meets: list

    @property
    def window(self):
        """The least shift, and how many there are."""
        shifts = [shift for pixel in self.meets for shift, _ in pixel]
        return min(shifts, default=0), max(shifts, default=-1) + 1 - min(shifts, default=0)


def _starts(width, pixels):
    """Of groups that fill a row; the last one may repeat pixels of the one before."""
    return np.minimum(np.arange(0, width, pixels), width - pixels)


def _forward_axis(pixels, width, kernel, stride, padding, dilation):
    places = _starts(width, pixels)
    meets = [[(j * stride + q * dilation, q) for q in range(kernel)] for j in range(pixels)]
    return _Axis(places, places * stride - padding, meets)


def _input_grad_axis(pixels, width, kernel, stride, padding, dilation):
    """None where groups would not all read alike."""
    if pixels % stride or width % stride:
        return None
    places, meets = _starts(width, pixels), []
    for j in range(pixels):
        meeting = [(j + padding - q * dilation, q) for q in range(kernel)]
        meets.append([(shift // stride, q) for shift, q in meeting if shift % stride == 0])
    return _Axis(places, places // stride, meets)


def _cost(axis, made, lanes):
    """Vector operations in a row."""
    return -(-len(axis.meets) * made // lanes) * axis.window[1] * axis.places.size


def _best(of, width, made, lanes, settings):
    """The groups that take the fewest steps; None where single pixels do about as well."""
    axes = [of(pixels, width, *settings) for pixels in range(2, min(width, 2 * lanes // made) + 1)]
    axes = [axis for axis in axes if axis]
    if not axes:
        return None
    kernel, stride = settings[0], settings[1] if of is _input_grad_axis else 1
    best = min(axes, key=lambda axis: _cost(axis, made, lanes))
    single = width * -(-kernel // stride) * -(-made // lanes)
    return best if _cost(best, made, lanes) < WORTH * single else None


def _picks(axis, rows, columns, order):
    """The place in w of each element of the spread filter [p][shift][read][pixel][made].

    rows: taps down the filter in the order in which they are read; columns: places of w[p, q] for p and q;
    order: places of its elements, [read][made].
    """
    least, window = axis.window
    picks = np.full((rows.size, window, order.shape[0], len(axis.meets), order.shape[1]), -1, np.int64)
    for pixel, meeting in enumerate(axis.meets):
        for shift, q in meeting:
            picks[:, shift - least, :, pixel] = np.add.outer(columns[rows, q], order)
    return picks


def neighbours(direction, geometry):
    """Neighbours for a direction, forward or input_grad; None where they gain nothing."""
    forward, (out, depth, *kernel) = direction == "forward", geometry.w_shape
    size = geometry.out_size if forward else geometry.x_shape[2:]
    made, reads = (out, depth) if forward else (depth, out)
    settings = list(zip(kernel, geometry.stride, geometry.padding, geometry.dilation, strict=True))
    lanes = VECTOR_BYTES // geometry.itemsize
    if geometry.groups > 1 or made > lanes or not geometry.work:
        return None
    axis = _best(_forward_axis if forward else _input_grad_axis, size[1], made, lanes, settings[1])
    if not axis:
        return None
    order = np.arange(depth * out).reshape(depth, out)
    rows = np.arange(kernel[0])
    if not forward:
        order = order.T
        rows = np.concatenate(filter_order(kernel[0], geometry.stride[0], geometry.dilation[0]))
    picks = _picks(axis, rows, np.arange(prod(kernel)).reshape(kernel) * depth * out, order)
    if geometry.work < SPREAD * picks.size:
        return None
    least, window = axis.window
    vertical = (forward_reads if forward else input_grad_reads)(size[0], *settings[0])
    horizontal = [Reads(axis.places, axis.bases, least + np.arange(window), np.arange(window))]
    makes = made * len(axis.meets)
    groups = GroupsOfChannels(1, reads, makes, 0, makes, reads * makes, window)
    source = geometry.x_shape[2:] if forward else geometry.out_size
    plan = pixel_plan(geometry, [vertical, horizontal], source, reads, (*size, made), groups)
    return Neighbours(plan, picks.reshape(-1), len(axis.meets))


@jit
def spread(w, picks, out):
    """The spread filter."""
    zero = w.dtype.type(0)
    for k in range(picks.size):
        place = picks[k]
        out[k] = zero if place < 0 else w[place]


@jit
def _within(x, largest):
    good = True
    for k in range(x.size):
        good &= abs(x[k]) <= largest
    return good


def finite(x):
    """Whether a 1-D array holds neither infinity nor NaN."""
    return _within(x, LARGEST[x.itemsize])
