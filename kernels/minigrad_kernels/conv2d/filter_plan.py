"""Plan of weight_grad: A = x, B = g, rows are (p, q, c), columns are o, sums run over images and output pixels.

Blocks of images make partial sums, chosen by shape alone; they are added afterwards. Where dw is large
there is one sum for all images. Rows of a sum are cut into sections for as many threads as there are, which changes
no bits.
"""

from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np

from ..toolchain import jit
from ..toolchain.product import CHANNELS, GATHER, ROWS, VECTOR_BYTES, Job, cut, in_pieces, make_plan, pieces
from .reads import Source, forward_reads

__all__ = [
    "LARGE_FILTER",
    "LEAST_STEPS",
    "Layout",
    "add_parts",
    "fold",
    "neighbours",
    "partial_count",
    "shared_layout",
    "weight_grad_plan",
]

BLOCK_BYTES = 1 << 19  # of A and B, which each tile of dw reads again: they should stay in the second cache
LEAST_STEPS = 96  # of a sum, before its tile is stored
LARGE_STEPS = 512  # the same where dw itself does not stay in a cache
FAR = 512  # bytes between rows of B from which on they are packed
DEPTH = 256  # of a packed sum, whose panel then stays in the first cache
LEAST_TILES = 4  # of rows, from which on packing pays
ODD_TILES = 16  # the same where rows of B are near, but vectors of them lie across lines of the cache
LARGE_FILTER = 1 << 16  # elements of dw from which partial sums cost too much memory
WORTH = 0.8  # of the steps that single pixels take


def partial_count(geometry):
    """How many partial sums dw is made of: one for each block of images, chosen by shape alone."""
    if prod(geometry.w_shape) > LARGE_FILTER:
        return 1
    return min(8, -(-geometry.x_shape[0] // 8))


def _window(geometry, pixels):
    """Pixels of x in a row that the taps of so many neighbouring output pixels meet."""
    return geometry.w_shape[3] + (pixels - 1) * geometry.stride[1]


def neighbours(geometry):
    """How many neighbouring output pixels share a vector, where few channels are made; see shared_layout."""
    made, depth, height, kernel = geometry.w_shape
    if geometry.groups > 1 or geometry.dilation[1] > 1 or not geometry.work:
        return 1
    width, lanes = geometry.out_size[1], VECTOR_BYTES // geometry.itemsize

    def cost(pixels):
        tiles = -(-height * (_window(geometry, pixels) if pixels > 1 else kernel) * depth // ROWS)
        return tiles * -(-pixels * made // lanes) * (width // pixels)

    counts = [pixels for pixels in range(1, 2 * lanes // made + 1) if width % pixels == 0]
    best = min(counts, key=cost, default=1)
    return best if cost(best) < WORTH * cost(1) else 1


class Layout(NamedTuple):
    """How a partial sum lies: dw[p, q, c, o] is the sum over j below `pixels` of the elements at

    steps[0] * p + steps[1] * (q + j * stride) + steps[2] * c + steps[3] * j + steps[4] * o
    """

    size: int
    pixels: int
    steps: tuple
    folded: bool  # whether dw itself lies otherwise


def shared_layout(geometry):
    """Of sums [p][pixel of x][c][j][o]: columns are the channels of neighbouring pixels j.

    These lie side by side in g. What no tap meets is not used.
    """
    made, depth, height, _ = geometry.w_shape
    pixels = neighbours(geometry)
    columns, window = pixels * made, _window(geometry, pixels)
    steps = window * depth * columns, depth * columns, columns, made, 1
    return Layout(height * steps[0], pixels, steps, pixels > 1)


@jit
def fold(sums, pixels, steps, stride, dw):
    """dw, [p][q][c][o], from a partial sum; see Layout."""
    for p in range(dw.shape[0]):
        for q in range(dw.shape[1]):
            for c in range(dw.shape[2]):
                for o in range(dw.shape[3]):
                    place = p * steps[0] + q * steps[1] + c * steps[2] + o * steps[4]
                    total = sums[place]
                    for pixel in range(1, pixels):
                        total += sums[place + pixel * (stride * steps[1] + steps[3])]
                    dw[p, q, c, o] = total


@np.errstate(all="ignore")  # infinities and NaN are the user's
def add_parts(partials, total):
    """The sum of the rows of `partials`, in their order."""
    np.add.reduce(partials, out=total)


def _filter_rows(geometry, source):
    """Rows of A and of the sums: (p, q, c) of one group, without the place of the group."""
    depth, height, _ = geometry.w_shape[1:]
    pixels, step = neighbours(geometry), geometry.dilation
    shifts = np.arange(height) * step[0], np.arange(_window(geometry, pixels)) * step[1]
    a_rows = np.add.outer(source.offsets(*shifts), np.arange(depth)).reshape(-1)
    return a_rows, np.arange(a_rows.size) * geometry.w_shape[0] * pixels


def _pixel_taps(geometry, source):
    """Taps of one image: rows of output pixels, summed along the row. Runs that touch are joined."""
    (height, width), pixels = geometry.out_size, neighbours(geometry)
    starts = np.arange(height) * geometry.stride[0] - geometry.padding[0]
    a_taps = source.offsets(starts, [-geometry.padding[1]]).reshape(-1) + source.origin
    b_taps, a_step = np.arange(height) * width * geometry.w_shape[0], geometry.stride[1] * source.channels
    step = geometry.stride[0] * source.full[1] * source.channels
    if step == width * a_step and source.size * geometry.itemsize <= BLOCK_BYTES:
        return a_taps[:1], b_taps[:1], height * width // pixels, pixels * a_step
    return a_taps, b_taps, width // pixels, pixels * a_step


class _Sums(NamedTuple):
    """weight_grad: images that share tables, taps of one image, and taps summed at once."""

    images: int
    taps: int
    run: int


def _least_tiles(step):
    """Tiles of rows from which on packing pays, where so many bytes lie between rows of B."""
    if step >= FAR:
        return LEAST_TILES
    return ODD_TILES if step % VECTOR_BYTES else float("inf")


def _weight_item(geometry, source, block, rows, base, sums):
    """Jobs that sum a run of images, in order, into some rows of one partial sum."""
    (made, depth), pixels = geometry.w_shape[:2], neighbours(geometry)
    *_, length, a_step = _pixel_taps(geometry, source)
    row, row_end = rows
    form, groups = (CHANNELS, 1) if geometry.depthwise else (GATHER, geometry.groups)
    for first in range(*block, sums.images):
        count, jobs = min(sums.images, block[1] - first), []
        for tap in range(0, count * sums.taps, sums.run):
            for group in range(groups):
                jobs.append(
                    Job(
                        form=form,
                        a_offset=group * depth + (0 if source.bordered else first * source.size),
                        row=row,
                        row_end=row_end,
                        tap=tap,
                        tap_end=min(tap + sums.run, count * sums.taps),
                        length=length,
                        a_step=a_step,
                        b_offset=first * prod(geometry.out_size) * made + group * (made // groups),
                        b_step=made * pixels,
                        c_offset=base + group * (made // groups),
                        columns=made * pixels // groups,
                        accumulate=first > block[0] or tap > 0,
                    )
                )
        if form == GATHER and row_end - row >= _least_tiles(made * geometry.itemsize) * ROWS:
            jobs = [piece for job in jobs for piece in in_pieces(job._replace(packed=True), DEPTH)]
        yield from source.with_copy(jobs, first, count)


@lru_cache(maxsize=256)
def weight_grad_plan(geometry):
    """Rows are (p, q, c) and B is g; blocks of images make partial sums, sections of rows share one."""
    _, channels, *size = geometry.x_shape
    axes = zip(
        geometry.out_size,
        geometry.w_shape[2:],
        geometry.stride,
        geometry.padding,
        geometry.dilation,
        strict=True,
    )
    source = Source.of(size, channels, [forward_reads(*axis) for axis in axes])
    a_rows, c_rows = _filter_rows(geometry, source)
    a_taps, b_taps, length, _ = _pixel_taps(geometry, source)
    images, partials = geometry.x_shape[0], partial_count(geometry)
    pixels = prod(geometry.out_size)
    image_bytes = (source.size + pixels * geometry.w_shape[0]) * geometry.itemsize
    large = prod(geometry.w_shape) > LARGE_FILTER
    block, steps = (4 * BLOCK_BYTES, LARGE_STEPS) if large else (BLOCK_BYTES // 2, LEAST_STEPS)
    together = max(1, min(images, block // image_bytes, -(-steps // pixels)))
    run = max(1, BLOCK_BYTES * a_taps.size // image_bytes)
    sums = _Sums(together, a_taps.size, run if run < a_taps.size else together * a_taps.size)
    sections = pieces(geometry.work, partials, -(-a_rows.size // ROWS))
    blocks = [block * images // partials for block in range(partials + 1)] if partials else [0]
    bounds = cut(a_rows.size, ROWS, sections)
    items = [
        list(_weight_item(geometry, source, block, rows, number * shared_layout(geometry).size, sums))
        for number, block in enumerate(zip(blocks, blocks[1:], strict=False))
        for rows in zip(bounds, bounds[1:], strict=False)
    ]
    numbers = np.arange(together)
    taps = (
        np.add.outer(numbers * source.size, a_taps).reshape(-1),
        np.add.outer(numbers * pixels * geometry.w_shape[0], b_taps).reshape(-1),
    )
    return make_plan(geometry.work, geometry.itemsize, items, (a_rows, c_rows), taps, source.border(), together)
