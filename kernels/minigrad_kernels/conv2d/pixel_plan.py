"""Plans of forward and input_grad: rows are pixels of the result, columns its channels.

forward      A = x, B = w, read as it is stored: [p][q][c of a group][o]
input_grad   A = g, B = w transposed, in the order of filter_order: [p][q][o][c of a group]

Pixels are read in place, from channels-last memory. Where taps are neighbours and there is one group, a row of the
filter and its channels are one run of memory, and one long sum. Padding is met in one of two ways, whichever costs
less: pixels are sorted into classes by the taps that hit the image, which wastes nothing but fills tiles badly where
classes are small; or images are copied with a border of zeros.
"""

from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np

from ..toolchain.product import CHANNELS, DOT, GATHER, ROWS, VECTOR_BYTES, Job, cut, in_pieces, make_plan, pieces
from .filters import FAR, filter_rows
from .reads import Source, forward_reads, input_grad_reads, without_border

__all__ = ["GroupsOfChannels", "forward_plan", "input_grad_plan", "pixel_plan"]

BLOCK_BYTES = 1 << 19  # of A, which each block of columns reads again: it should stay in the second cache
DEPTH = 256  # of a packed sum, whose panel then stays in the first cache
LEAST_TILES = 2  # of rows, from which on packing pays
FAR_TILES = 16  # of rows, that a packed block of B serves at least where there are so many
TILE_STEPS = 3  # a tile's set-up costs as much as so many steps of its sum


class _Class(NamedTuple):
    """Pixels of the result that read with the same taps."""

    a_rows: np.ndarray
    c_rows: np.ndarray
    a_taps: np.ndarray
    taps: np.ndarray  # places in the filter, row by row
    length: int


class GroupsOfChannels(NamedTuple):
    """What a group of channels reads and makes, and how B holds its filter."""

    groups: int
    reads: int
    makes: int
    b_group: int  # from a group to the next
    b_step: int  # from a channel read to the next
    b_tap: int  # from a tap to the next
    kernel_width: int
    apart: int = 0  # the last channels of what is made, each a product of runs of A and B
    b_apart: int = 0  # where B holds their filters, each of which is [p][q][channels read]
    apart_step: int = 0  # from one of them to the next
    form: int = GATHER
    a_step: int = 1  # from a channel, or a neighbouring pixel of a depthwise convolution, to the next


def _classes(reads, source, target_width, groups):
    """One class for each pair of reads of the two axes."""
    for vertical in reads[0]:
        for horizontal in reads[1]:
            a_rows = source.offsets(vertical.bases, horizontal.bases) + source.origin
            c_rows = np.add.outer(vertical.places * target_width, horizontal.places)
            a_taps, length = source.offsets(vertical.shifts, horizontal.shifts), groups.reads
            taps = np.add.outer(vertical.taps * groups.kernel_width, horizontal.taps)
            if groups.groups == 1 and a_taps.size and np.all(np.diff(horizontal.shifts) == 1):
                length *= a_taps.shape[1]
                a_taps, taps = a_taps[:, :1], taps[:, :1]
            yield _Class(*(table.reshape(-1) for table in (a_rows, c_rows, a_taps, taps)), length)


def _is_far(groups, itemsize):
    return groups.b_step * itemsize >= FAR


def _cost(classes, source, groups, itemsize, images):
    """Steps for one image, in units of one vector operation, when so many images share tables."""
    packing = 2 * _is_far(groups, itemsize)  # costs about as much as so many tiles
    tiles = sum(
        (packing - (-images * kind.a_rows.size // ROWS)) * (kind.a_taps.size * kind.length + TILE_STEPS)
        for kind in classes
    )
    blocks = groups.groups * -(-(groups.makes - groups.apart) * itemsize // (2 * VECTOR_BYTES))
    copying = 2 * source.size * itemsize // VECTOR_BYTES if source.bordered else 0
    return blocks * 2 * ROWS * tiles / images + copying


class _Choice(NamedTuple):
    cost: float
    together: int  # images that share tables
    source: Source
    classes: list


def _choose(geometry, reads, size, channels, target_width, made, groups):
    """The cheapest way to meet the padding, and number of images in a block; made: elements of an image of C."""
    images, choices = geometry.x_shape[0], []
    split = [without_border(*axis) for axis in zip(reads, size, strict=True)]
    for sets in (split, reads):
        source = Source.of(size, channels, sets)
        classes = [kind for kind in _classes(sets, source, target_width, groups) if kind.a_rows.size]
        block = BLOCK_BYTES << _is_far(groups, geometry.itemsize)
        most = min(images // 4, block // max(1, max(source.size, made) * geometry.itemsize))
        for together in range(1, max(1, most) + 1):
            cost = _cost(classes, source, groups, geometry.itemsize, together)
            choices.append(_Choice(cost, together, source, classes))
    return min(choices, key=lambda choice: choice.cost)


def _templates(classes, groups, images):
    """For each class its rows for one image, the place of its first row, and a job for each group."""
    row = tap = 0
    for kind in classes:
        yield (
            kind.a_rows.size,
            row,
            [
                Job(
                    form=groups.form,
                    a_step=groups.a_step,
                    a_offset=group * groups.reads,
                    tap=tap,
                    tap_end=tap + kind.a_taps.size,
                    length=kind.length,
                    b_offset=group * groups.b_group,
                    b_step=groups.b_step,
                    c_offset=group * groups.makes,
                    columns=groups.makes - groups.apart,
                    bias_offset=group * groups.makes,
                )
                for group in range(groups.groups)
            ]
            + (_runs(kind, groups) if groups.apart else []),
        )
        row += images * kind.a_rows.size
        tap += kind.a_taps.size


def _runs(kind, groups):
    """Jobs for the channels that are apart: a run of the sum at a time, each of which goes on with the one before."""
    whole, pairs = groups.makes - groups.apart, list(zip(kind.a_taps.tolist(), kind.taps.tolist(), strict=True))
    return [
        Job(
            form=DOT,
            a_offset=a_tap,
            length=kind.length if pairs else 0,
            b_offset=groups.b_apart + tap * groups.reads,
            b_step=groups.apart_step,
            c_offset=whole,
            columns=groups.apart,
            bias_offset=whole,
            accumulate=number > 0,
            last=number >= len(pairs) - 1,
        )
        for number, (a_tap, tap) in enumerate(pairs or [(0, 0)])
    ]


class _Cuts(NamedTuple):
    """How the rows of a block of images are cut: into sections, and these into runs that stay in cache."""

    sections: int
    run: int
    far: bool  # rows of B


def _packed(job, far):
    """The job, or several that pack B, where its rows lie far apart and there are enough rows of A to repay it."""
    if far and job.form == GATHER and job.row_end - job.row >= LEAST_TILES * ROWS:
        return in_pieces(job._replace(packed=True), DEPTH)
    return [job]


def _section_jobs(templates, images, section, cuts, a_start, c_start):
    """Jobs of one section of a block of images."""
    for count, start, jobs in templates:
        row, end = cut(images * count, ROWS, cuts.sections)[section : section + 2]
        while row < end:
            stop = min(row + cuts.run, end)
            for job in jobs:
                moved = job._replace(
                    a_offset=job.a_offset + a_start,
                    row=start + row,
                    row_end=start + stop,
                    c_offset=job.c_offset + c_start,
                )
                yield from _packed(moved, cuts.far)
            row = stop


def pixel_plan(geometry, reads, size, channels, target, groups):
    """The plan: A has images of (height, width) and channels, C those of `target` (height, width, channels)."""
    height, width, made = target
    images, image = geometry.x_shape[0], height * width * made
    _, together, source, classes = _choose(geometry, reads, size, channels, width, image, groups)
    numbers, blocks = np.arange(together), -(-images // together)
    blocks = min(images, -(-blocks // geometry.threads) * geometry.threads)
    bounds = [block * images // blocks for block in range(blocks + 1)] if blocks else [0]
    a_rows = [np.add.outer(numbers * source.size, kind.a_rows).reshape(-1) for kind in classes]
    c_rows = [np.add.outer(numbers * height * width, kind.c_rows).reshape(-1) * made for kind in classes]
    taps = [kind.a_taps for kind in classes], [kind.taps * groups.b_tap for kind in classes]
    templates = list(_templates(classes, groups, together))
    rows, image_bytes = sum(kind.a_rows.size for kind in classes), max(1, source.size * geometry.itemsize)
    far = _is_far(groups, geometry.itemsize)
    cuts = _Cuts(
        pieces(geometry.work, blocks, -(-together * rows // ROWS), geometry.threads),
        ROWS * max(FAR_TILES if far else 1, BLOCK_BYTES // 2 * rows // (ROWS * image_bytes)),
        far,
    )
    items = []
    for first, last in zip(bounds, bounds[1:], strict=False):
        a_start, c_start = 0 if source.bordered else first * source.size, first * image
        for section in range(cuts.sections):
            jobs = _section_jobs(templates, last - first, section, cuts, a_start, c_start)
            items.append(source.with_copy(jobs, first, last - first))
    tables = [np.concatenate([*lists, np.empty(0, np.int64)]) for lists in (a_rows, c_rows, *taps)]
    whole = bounds if cuts.sections == 1 and images else ()
    return make_plan(geometry.work, geometry.itemsize, items, tables[:2], tables[2:], source.border(), together, whole)


def _reads(geometry, of, sizes):
    kernel = geometry.w_shape[2:]
    axes = zip(sizes, kernel, geometry.stride, geometry.padding, geometry.dilation, strict=True)
    return [of(*axis) for axis in axes]


def _depthwise(channels, kernel_width):
    """All groups at once: each lane is one of them, and the sum runs over taps alone."""
    sizes = 1, 1, channels, 0, channels, channels, kernel_width
    return GroupsOfChannels(*sizes, form=CHANNELS, a_step=channels)


@lru_cache(maxsize=256)
def forward_plan(geometry):
    made, depth, *kernel = geometry.w_shape
    makes, (step, apart) = made // geometry.groups, filter_rows("forward", geometry)
    groups = GroupsOfChannels(geometry.groups, depth, makes, makes, step, depth * step, kernel[1])
    groups = groups._replace(apart=apart, b_apart=prod(kernel) * depth * step, apart_step=prod(kernel) * depth)
    if geometry.depthwise:
        groups = _depthwise(made, kernel[1])
    _, channels, *size = geometry.x_shape
    reads = _reads(geometry, forward_reads, geometry.out_size)
    return pixel_plan(geometry, reads, size, channels, (*geometry.out_size, made), groups)


@lru_cache(maxsize=256)
def input_grad_plan(geometry):
    made, depth, *kernel = geometry.w_shape
    reads, (step, apart) = made // geometry.groups, filter_rows("input_grad", geometry)
    groups = GroupsOfChannels(geometry.groups, reads, depth, reads * depth, step, made * step, kernel[1])
    groups = groups._replace(apart=apart, b_apart=prod(kernel) * made * step, apart_step=prod(kernel) * made)
    if geometry.depthwise:
        groups = _depthwise(made, kernel[1])
    _, channels, *size = geometry.x_shape
    reads = _reads(geometry, input_grad_reads, size)
    return pixel_plan(geometry, reads, geometry.out_size, made, (*size, channels), groups)
