"""Plan of input_grad where x has few channels: a pixel of g is scattered over all that a row of the filter meets.

These are as many neighbouring pixels of dx as the filter is wide, which lie side by side in memory with their
channels, and so share vectors. Rows are rows of dx, columns such a run of pixels: A = g, B = the filter as
[p][o][q][c], and the sum runs over p and the channels of g. There is one product for each pixel of a row of g, added
to what those before it left in dx. What leaves the image is left out, so nothing is multiplied in vain.
"""

import numpy as np

from ..toolchain.product import ROWS, VECTOR_BYTES, Job, make_plan, plan_cost
from .neighbours import Neighbours, neighbours
from .pixel_plan import input_grad_plan
from .reads import Reads, Source, filter_order, input_grad_reads, without_border

__all__ = ["near"]

WORTH = 0.9  # of the cost of the other plan
BLOCK_BYTES = 1 << 18  # of g and dx, which should stay in the second cache
RUN = 4 * ROWS  # rows whose part of dx should stay in the first cache
MOST = 8192  # products, or thereabouts: making a plan of more takes too long


def _scatter(geometry):
    """Neighbours that read what is not finite just as any plan does, or None where another plan does about as well."""
    images, depth, height, _ = geometry.x_shape
    if depth * geometry.itemsize % (2 * VECTOR_BYTES) == 0:  # vectors are full
        return None
    if geometry.groups > 1 or geometry.dilation[1] > 1 or not geometry.work:
        return None
    if images * height * geometry.out_size[1] > MOST * RUN:
        return None
    alone = geometry._replace(threads=1)  # the sums differ, so that the choice must not follow the threads
    near = neighbours("input_grad", alone)
    other = near.plan if near else input_grad_plan(alone)
    if plan_cost(_plan(alone), geometry.itemsize) >= WORTH * plan_cost(other, geometry.itemsize):
        return None
    return Neighbours(_plan(geometry), _picks(geometry), 0, True)


def near(direction, geometry):
    """Neighbours of forward or input_grad, the best there are; None where they gain nothing."""
    return (direction == "input_grad" and _scatter(geometry)) or neighbours(direction, geometry)


def _b_step(geometry):
    """From a row of B to the next: whole vectors, so that none lies across lines of the cache."""
    lanes = VECTOR_BYTES // geometry.itemsize
    return -(-geometry.w_shape[3] * geometry.w_shape[1] // lanes) * lanes


def _picks(geometry):
    """The place in w of each element of B, [p in the order of filter_order][o][q][c] (-1: not used)."""
    made, depth, height, width = geometry.w_shape
    places = np.arange(height * width * depth * made).reshape(height, width, depth, made)
    order = np.concatenate(filter_order(height, geometry.stride[0], geometry.dilation[0]))
    picks = np.full((height, made, _b_step(geometry)), -1, np.int64)
    picks[:, :, : width * depth] = places[order].transpose(0, 3, 1, 2).reshape(height, made, -1)
    return picks.reshape(-1)


def _plan(geometry):
    images, depth, height, width = geometry.x_shape
    made, size = geometry.w_shape[0], geometry.out_size
    vertical = input_grad_reads(
        height, geometry.w_shape[2], geometry.stride[0], geometry.padding[0], geometry.dilation[0]
    )
    vertical = [reads for reads in without_border(vertical, size[0]) if reads.places.size]
    columns = np.arange(size[1])
    source = Source.of(size, made, [vertical, [Reads(columns, columns, np.zeros(1, int), np.zeros(1, int))]])
    image = height * width * depth
    blocks = -(-images * max(source.size, image) * geometry.itemsize // BLOCK_BYTES)
    blocks = min(images, -(-blocks // geometry.threads) * geometry.threads)
    bounds = [block * images // blocks for block in range(blocks + 1)]
    numbers = np.arange(max(np.diff(bounds)))
    tables = [[], [], [], []]
    for reads in vertical:
        tables[0].append(np.add.outer(numbers * source.size, source.offsets(reads.bases, 0)).reshape(-1))
        tables[1].append(np.add.outer(numbers * image, reads.places * width * depth).reshape(-1))
        tables[2].append(source.offsets(reads.shifts, 0).reshape(-1))
        tables[3].append(reads.taps * made * _b_step(geometry))
    items = [
        list(_item_jobs(geometry, vertical, end - first, (first * source.size, first * image), numbers.size))
        for first, end in zip(bounds, bounds[1:], strict=False)
    ]
    tables = [np.concatenate(lists) for lists in tables]
    return make_plan(geometry.work, geometry.itemsize, items, tables[:2], tables[2:])


def _item_jobs(geometry, vertical, count, starts, together):
    """Jobs for so many images, of which the first start there in g and dx; `together` share the tables."""
    made, row, tap = geometry.w_shape[0], 0, 0
    width, depth = geometry.x_shape[3], geometry.x_shape[1]
    for reads in vertical:
        for start in range(0, count * reads.places.size, RUN):
            zeros = Job(
                a_offset=starts[0],
                row=row + start,
                row_end=row + min(start + RUN, count * reads.places.size),
                tap=tap,
                tap_end=tap,
                length=made,
                b_step=_b_step(geometry),
                c_offset=starts[1],
                columns=width * depth,
            )
            yield zeros
            if reads.taps.size:
                yield from _products(geometry, zeros._replace(tap_end=tap + reads.taps.size, accumulate=1))
        row += together * reads.places.size
        tap += reads.taps.size


def _products(geometry, job):
    """The job for each pixel of a row of g."""
    depth, width, kernel = geometry.x_shape[1], geometry.x_shape[3], geometry.w_shape[3]
    for j in range(geometry.out_size[1]):
        left = j * geometry.stride[1] - geometry.padding[1]
        first, end = max(0, -left), min(kernel, width - left)
        if first < end:
            yield job._replace(
                a_offset=job.a_offset + j * job.length,
                b_offset=first * depth,
                c_offset=job.c_offset + (left + first) * depth,
                columns=(end - first) * depth,
            )
