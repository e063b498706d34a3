"""Plan of weight_grad where the channels made leave vectors half empty: A = g, rows are o; B = x, columns are (q, c).

The channels that the taps of a row of the filter meet at a pixel are one run of x, so a window of them is read where
it lies, and those of neighbouring pixels overlap. filter_plan.py has (p, q, c) in the rows, and o in the columns.
"""

from math import prod

import numpy as np

from ..toolchain.product import ROWS, Border, Job, cut, make_plan, pieces
from .filter_plan import LARGE_FILTER, LARGE_STEPS, LEAST_STEPS, Layout, partial_count
from .reads import Source, forward_reads

__all__ = ["in_place", "layout_in_place"]

BLOCK_BYTES = 1 << 18  # of g and x, which should stay in the second cache


def layout_in_place(geometry):
    """Of sums [o][p][q][c]."""
    made, depth, height, width = geometry.w_shape
    columns = height * width * depth
    return Layout(made * columns, 1, (width * depth, depth, 1, 0, columns), True)


def in_place(geometry):
    """The plan, for one group without dilation."""
    made, (images, channels, *size), (height, width) = geometry.w_shape[0], geometry.x_shape, geometry.out_size
    axes = zip(geometry.out_size, geometry.w_shape[2:], geometry.stride, geometry.padding, (1, 1), strict=True)
    source = Source.of(size, channels, [forward_reads(*axis) for axis in axes])
    image, partials, columns = height * width * made, partial_count(geometry), layout_in_place(geometry).steps[4]
    large = made * columns > LARGE_FILTER
    block, steps = (4 * BLOCK_BYTES, LARGE_STEPS) if large else (BLOCK_BYTES, LEAST_STEPS)
    most = max(1, block // ((source.size + image) * geometry.itemsize))
    together = min(images, most, -(-steps // (height * width)))
    bounds = cut(made, ROWS, pieces(geometry.work, partials, -(-made // ROWS)))
    blocks = [block * images // partials for block in range(partials + 1)]
    items = [
        list(_jobs(geometry, source, number * made * columns, block, section, together))
        for number, block in enumerate(zip(blocks, blocks[1:], strict=False))
        for section in zip(bounds, bounds[1:], strict=False)
    ]
    numbers, lines, rows = np.arange(together), np.arange(height), np.arange(made)
    taps = (
        np.add.outer(numbers * image, lines * width * made).reshape(-1),
        np.add.outer(numbers * source.size, source.offsets(lines * geometry.stride[0], [0])[:, 0]).reshape(-1),
    )
    border = source.border()._replace(turned=1) if source.bordered else Border(turned=1)
    return make_plan(geometry.work, geometry.itemsize, items, (rows, rows * columns), taps, border, together)


def _jobs(geometry, source, base, block, section, together):
    """Jobs that sum a block of images, some at a time, into a section of the rows of one partial sum."""
    (made, depth, taps, width), (lines, length) = geometry.w_shape, geometry.out_size
    start = source.origin - int(source.offsets(*geometry.padding))
    for first in range(*block, together):
        count = min(together, block[1] - first)
        job = Job(
            a_offset=first * prod(geometry.out_size) * made,
            row=section[0],
            row_end=section[1],
            tap_end=count * lines,
            length=length,
            a_step=made,
            b_offset=start + (0 if source.bordered else first * source.size),
            b_step=geometry.stride[1] * depth,
            c_offset=base,
            columns=width * depth,
            accumulate=first > block[0],
        )
        jobs = [
            job._replace(b_offset=job.b_offset + int(source.offsets(tap, 0)), c_offset=base + tap * width * depth)
            for tap in range(taps)
        ]
        yield from source.with_copy(jobs, first, count)
