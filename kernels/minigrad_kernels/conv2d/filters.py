"""The filter as plans of forward and input_grad read it, and copies of it that lie so.

A row of it has the channels made for a channel read; those of forward are rows as they are stored, [p][q][c][o].
"""

from functools import lru_cache
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from ..layout import FILTER
from ..toolchain import alias
from ..toolchain.product import DOT_COLUMNS, VECTOR_BYTES, flat
from ..transpose.cpu import transpose
from .reads import filter_order

__all__ = ["FAR", "FilterRows", "copied", "filter_rows", "transposed"]

FAR = 1024  # bytes between rows from which on they are packed
REPAYS = 2048  # pixels that read a copy of the filter, from which on it pays
NARROW = 0.9  # of a step of a tile of two vectors, what one of a tile of one costs
RUN_STEPS = 40  # what a product of runs costs beside its vectors, for each pixel, in such steps
WORTH = 0.85  # of the cost of tiles for all columns
LARGE_PLANE = 1 << 14  # elements of a tap, from which on NumPy takes longer to turn them than a kernel


class FilterRows(NamedTuple):
    """How a plan reads the filter."""

    step: int  # elements from a row to the next
    apart: int  # its last columns, which lie behind the rows, each one by itself


def filter_rows(direction, geometry):
    """The FilterRows of "forward" or "input_grad".

    Where a copy of the filter pays, its rows are whole vectors, so that none lies across lines of the cache. A few
    columns beyond them may cost more in a tile of their own than as products of runs, with all that a row of taps
    reads at a pixel.
    """
    (made, depth, _, taps), lanes = geometry.w_shape, VECTOR_BYTES // geometry.itemsize
    columns, channels = (made, depth) if direction == "forward" else (depth, made)
    whole, rest = columns - columns % lanes, columns % lanes
    step = whole + lanes * (rest > 0)
    many = geometry.x_shape[0] * prod(geometry.out_size) >= REPAYS
    if not many or geometry.groups > 1 or step * geometry.itemsize >= FAR:
        return FilterRows(columns, 0)
    if direction == "input_grad":
        taps = max(1, taps // geometry.stride[1])
    run = -(-(taps if geometry.dilation[1] == 1 else 1) * channels // lanes)
    runs = -(-rest // DOT_COLUMNS) * (DOT_COLUMNS / 2 + RUN_STEPS / max(1, run)) / lanes
    if whole and rest and _tiles(whole, lanes) + runs < WORTH * _tiles(columns, lanes):
        return FilterRows(whole, rest)
    return FilterRows(step, 0)


def _tiles(columns, lanes):
    """What the tiles of a row cost, in steps of one of two vectors."""
    wide, rest = divmod(columns, 2 * lanes)
    return wide + (rest > lanes) + NARROW * (0 < rest <= lanes)


def _targets(rows, shape, out):
    """Where a filter of that shape goes, its columns being the last axis, and which of them."""
    *others, columns = shape
    whole, split = columns - rows.apart, prod(others) * rows.step
    yield out[:split].reshape(*others, rows.step)[..., :whole], slice(whole)
    if rows.apart:
        yield np.moveaxis(out[split:].reshape(rows.apart, *others), 0, -1), slice(whole, None)


def copied(w, rows, out):
    """The filter in memory for it, as [p][q][c][o]."""
    stored = flat(w).reshape(-1, w.shape[0])
    for target, columns in _targets(rows, stored.shape, out):
        np.copyto(target, stored[:, columns])
    return out


@lru_cache(maxsize=1024)
def _slices(kernel, stride, dilation):
    """Of filter_order, along one axis: from and to which place the taps of a slice go."""
    result, place = [], 0
    for taps in filter_order(kernel, stride, dilation):
        if taps.size:
            step = int(taps[1] - taps[0]) if taps.size > 1 else -1
            end = int(taps[-1]) + step
            result.append((place, place + taps.size, slice(int(taps[0]), None if end < 0 else end, step)))
            place += taps.size
    return result


def transposed(w, stride, dilation, rows, out):
    """Copy the filter in the order of filter_order, as [p][q][o][c of a group]."""
    stored = w.transpose(2, 3, 0, 1)
    if rows == (w.shape[1], 0) and prod(w.shape[:2]) >= LARGE_PLANE:
        order = (np.concatenate(filter_order(*axis)) for axis in zip(w.shape[2:], stride, dilation, strict=True))
        for plane, tap in zip(out.reshape(-1, 1, *w.shape[:2]), product(*order), strict=True):
            transpose(alias(w).transpose(FILTER)[tap][None], plane)
        return
    along = [_slices(*axis) for axis in zip(w.shape[2:], stride, dilation, strict=True)]
    for target, columns in _targets(rows, stored.shape, out):
        for (top, bottom, p), (left, right, q) in product(*along):
            np.copyto(target[top:bottom, left:right], stored[p, q, :, columns])
