"""Plan of weight_grad where few channels are made: A = g, rows are (j, o), the channels of neighbouring pixels j.

B = x, columns are (p, pixel, c), all that the filters of these pixels meet. For that x is copied with its border into
groups of columns that overlap, [group][row][pixel][c]: there the windows of a group lie side by side, one row of the
output after the other. The rows of a tile are few channels several times, its columns a whole filter, where
filter_plan.py has a filter in the rows and few columns. What no tap meets is not used, so that all sources are read
alike. in_place_plan.py is the same for single pixels, without the copy, and for more channels.
"""

from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np

from ..toolchain.product import ROWS, VECTOR_BYTES, Border, Job, cut, make_plan, pieces, plan_cost
from . import filter_plan
from .filter_plan import LARGE_FILTER, LEAST_STEPS, Layout, partial_count, shared_layout
from .in_place_plan import in_place, layout_in_place
from .reads import Source, forward_reads

__all__ = ["weight_grad_plan"]

WORTH = 0.92  # of the cost of filter_plan's
IN_PLACE = 0  # pixels in a group: none, see in_place_plan.py
COPIED = 0.25  # what a vector costs to copy, in steps of a tile of two vectors
MOST_ROWS = 2 * ROWS
BLOCK_BYTES = 1 << 18  # of g and the copy of x, which should stay in the second cache


@lru_cache(maxsize=256)
def weight_grad_plan(geometry):
    """(plan, layout of its partial sums), the best of those that there are."""
    if geometry.groups > 1 or geometry.dilation != (1, 1) or not geometry.work:
        return filter_plan.weight_grad_plan(geometry), shared_layout(geometry)
    # The sums differ, so that the choice must not follow the threads.
    one = geometry._replace(threads=1, x_shape=(1, *geometry.x_shape[1:]))
    made, width = geometry.w_shape[0], geometry.out_size[1]
    most = 0 if prod(geometry.w_shape) > LARGE_FILTER else min(width, MOST_ROWS // made)
    cost, pixels = min((_cost(one, pixels), pixels) for pixels in range(most + 1))
    if cost >= WORTH * plan_cost(filter_plan.weight_grad_plan(one), geometry.itemsize):
        return filter_plan.weight_grad_plan(geometry), shared_layout(geometry)
    if pixels == IN_PLACE:
        return in_place(geometry), layout_in_place(geometry)
    return _plan(geometry, pixels), _windows(geometry, pixels).layout


class _Windows(NamedTuple):
    """How x lies for groups of pixels, and the partial sums."""

    border: Border
    layout: Layout


def _windows(geometry, pixels):
    made, depth, height, width = geometry.w_shape
    _, channels, *size = geometry.x_shape
    axes = zip(geometry.out_size, (height, width), geometry.stride, geometry.padding, geometry.dilation, strict=True)
    source = Source.of(size, channels, [forward_reads(*axis) for axis in axes])
    step = pixels * geometry.stride[1]
    window = (step - geometry.stride[1] + width) * depth
    border = Border(
        rows=source.height,
        row_length=source.width * depth,
        top=source.vertical[0],
        left=source.horizontal[0] * depth,
        full_rows=source.full[0],
        full_length=window,
        groups=-(-geometry.out_size[1] // pixels),
        step=step * depth,
        turned=1,
    )
    columns = height * window
    layout = Layout(pixels * made * columns, pixels, (window, depth, 1, made * columns, columns), True)
    return _Windows(border, layout)


def _cost(geometry, pixels):
    """In steps of tiles of two vectors, for one image."""
    if pixels == IN_PLACE:
        return plan_cost(in_place(geometry), geometry.itemsize)
    border = _windows(geometry, pixels).border
    size, vectors = geometry.itemsize, -(-border.full_length * geometry.itemsize // VECTOR_BYTES)
    if border.size * size > BLOCK_BYTES:
        return float("inf")
    return plan_cost(_plan(geometry, pixels), size) + COPIED * vectors * border.groups * border.rows


def _plan(geometry, pixels):
    made, images, (height, width) = geometry.w_shape[0], geometry.x_shape[0], geometry.out_size
    found, image, partials = _windows(geometry, pixels), height * width * made, partial_count(geometry)
    most = max(1, BLOCK_BYTES // ((found.border.size + image) * geometry.itemsize))
    together = min(images, most, -(-LEAST_STEPS // (height * width)))
    rows = np.arange(pixels * made)
    bounds = cut(rows.size, ROWS, pieces(geometry.work, partials, -(-rows.size // ROWS)))
    blocks = [block * images // partials for block in range(partials + 1)]
    items = [
        list(_jobs(geometry, found, number * found.layout.size, block, section, together))
        for number, block in enumerate(zip(blocks, blocks[1:], strict=False))
        for section in zip(bounds, bounds[1:], strict=False)
    ]
    numbers, lines = np.arange(together), np.arange(height)
    taps = (
        np.add.outer(numbers * image, lines * width * made).reshape(-1),
        np.add.outer(numbers * found.border.size, lines * geometry.stride[0] * found.border.full_length).reshape(-1),
    )
    tables = (rows, rows * found.layout.steps[4]), taps
    return make_plan(geometry.work, geometry.itemsize, items, *tables, found.border, together)


def _jobs(geometry, found, base, block, section, together):
    """Jobs that sum a block of images, some at a time, into a section of the rows of one partial sum."""
    made, (height, width), border = geometry.w_shape[0], geometry.out_size, found.border
    pixels, size = found.layout.pixels, border.full_rows * border.full_length
    whole, rest = divmod(width, pixels)
    for first in range(*block, together):
        count = min(together, block[1] - first)
        job = Job(
            copies=count,
            copy_from=first * border.rows * border.row_length,
            a_offset=first * height * width * made,
            row=section[0],
            row_end=section[1],
            tap_end=count * height,
            length=whole,
            a_step=pixels * made,
            b_step=size,
            c_offset=base,
            columns=found.layout.steps[4],
            accumulate=first > block[0],
        )
        yield job
        end = min(section[1], rest * made)
        if end > section[0]:
            start = job.a_offset + whole * job.a_step
            yield job._replace(copies=0, a_offset=start, row_end=end, length=1, b_offset=whole * size, accumulate=1)
