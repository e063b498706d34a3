"""Runs plans of products: every matrix product and every direction of a convolution is a list of jobs.

A job is one product of vector.py's forms on a block of rows: which rows, columns and taps, and from where on in A, B
and C. It may first copy some images of A into scratch memory, with a border of zeros around each. An item is a run
of jobs that writes what no other item touches; threads own runs of items. A plan depends on shapes, strides and the
number of threads alone, so it is made once for a geometry. One compiled function runs them all.
"""

from typing import NamedTuple

import numpy as np

from .cpu import Memory, alias, elements, jit, share, shared, threads
from .emit import TILE
from .packing import copy_block, pack
from .pooling import NO_WINDOWS, max_images
from .vector import channel_tile, dot_tile, low_tile, narrow_tile, wide_tile

# ---- plans -------------------------------------------------------------------------------------------------------

ROWS, LOW_ROWS, DOT_ROWS, DOT_COLUMNS = TILE.rows, TILE.low_rows, TILE.dot_rows, TILE.dot_columns
VECTOR_BYTES = TILE.vector_bytes
GATHER, DOT, CHANNELS = 0, 1, 2
TILE_STEPS, ACCUMULATE_STEPS = 6, 4  # of a sum, that cost as much as setting up a tile, and as adding to what is there
WAIT = 4  # rows, in whose time a sum is ready for its next product: tiles of fewer are no faster
NARROW = 0.6  # of what a step of two vectors costs, where there is one
SHARED_WORK = 1 << 21  # multiplications; less is done sooner than a second thread wakes up


class Job(NamedTuple):
    """One product; offsets, steps and lengths count elements."""

    form: int = GATHER
    copies: int = 0  # images of A to copy into scratch first
    copy_from: int = 0
    a_offset: int = 0
    row: int = 0
    row_end: int = 0
    tap: int = 0
    tap_end: int = 1
    length: int = 0
    a_step: int = 1
    b_offset: int = 0
    b_step: int = 1
    c_offset: int = 0
    columns: int = 0
    bias_offset: int = 0
    accumulate: int = 0
    last: int = 1  # whether the sums are complete then
    packed: int = 0  # whether B goes into a panel, two vectors of columns at a time
    b_column: int = 1  # from a column of B to the next; only a packed one may have another than 1


JOB = np.dtype([(name, np.int64) for name in Job._fields])  # from which kernels read it by name


class Border(NamedTuple):
    """An image of A as it lies in memory and as it lies in scratch memory, rows as runs of elements.

    There it may lie in groups of columns that overlap, each of them full_rows x full_length, `step` elements of a row
    from one to the next. Where turned, the product takes the image as B, and B as A.
    """

    rows: int = 0
    row_length: int = 0
    top: int = 0
    left: int = 0
    full_rows: int = 0
    full_length: int = 0
    groups: int = 1
    step: int = 0
    turned: int = 0

    @property
    def size(self):
        """Elements of an image in scratch memory."""
        return self.groups * self.full_rows * self.full_length


BORDER = np.dtype([(name, np.int64) for name in Border._fields])
NOTHING = Border()


class Plan(NamedTuple):
    """What `run` needs to know beside the arrays; tables are of int64."""

    items: np.ndarray  # item i is jobs[items[i]:items[i + 1]]
    jobs: np.ndarray  # of JOB
    a_rows: np.ndarray
    c_rows: np.ndarray
    a_taps: np.ndarray
    b_taps: np.ndarray
    panel_taps: np.ndarray  # b_taps in a panel
    border: np.ndarray  # one BORDER
    bounds: np.ndarray  # item i makes images bounds[i] to bounds[i + 1] of C; empty where it makes other parts
    images: int  # elements of scratch memory for each thread; 0 where A is read in place
    panel: int  # elements of scratch memory for each thread, behind the images
    most: int  # how many images of C an item makes at most; 0 where items make other parts
    shared: bool  # worth more than one thread


def make_plan(work, itemsize, items, rows, taps, border=NOTHING, images=0, bounds=()):
    """Plan of so many multiplications of elements of that size.

    Items are lists of jobs, rows and taps the tables (a_rows, c_rows) and (a_taps, b_taps); border says how A is
    copied, and images how many lie in scratch memory at a time; bounds as in Plan.
    """
    jobs = [job for item in items for job in item]
    panel_taps, panel = _panels(jobs, len(taps[0]), itemsize)
    numbers = np.cumsum([0, *map(len, items)]), bounds, *rows, *taps, panel_taps
    starts, bounds, *others = (np.ascontiguousarray(table, np.int64) for table in numbers)
    tables = starts, np.array(jobs, JOB), *others, np.array([border], BORDER), bounds
    most = int(np.diff(bounds).max(initial=0))
    return Plan(*tables, images * border.size, panel, most, work >= SHARED_WORK)


def _panels(jobs, taps, itemsize):
    """Where the taps of packed jobs lie in a panel, and how many elements it needs."""
    width, places, largest = 2 * VECTOR_BYTES // itemsize, np.zeros(taps, np.int64), 0
    for tap, tap_end, length in sorted({(job.tap, job.tap_end, job.length) for job in jobs if job.packed}):
        places[tap:tap_end] = np.arange(tap_end - tap) * length * width
        largest = max(largest, ((tap_end - tap) * length + width) * width)
    return places, int(largest)


def in_pieces(job, depth):
    """The job as several, one after the other, each of which adds at most so many products to its results."""
    taps = job.tap_end - job.tap
    if taps * job.length <= depth:
        return [job]
    together = max(1, depth // job.length)
    together = -(-taps // -(-taps // together))  # pieces of one size
    step = -(-job.length // -(-job.length // depth))
    parts = [
        job._replace(
            tap=tap,
            tap_end=min(tap + together, job.tap_end),
            a_offset=job.a_offset + start * job.a_step,
            b_offset=job.b_offset + start * job.b_step,
            length=min(step, job.length - start),
            accumulate=job.accumulate or tap > job.tap or start > 0,
            last=False,
        )
        for tap in range(job.tap, job.tap_end, together)
        for start in range(0, job.length, step)
    ]
    return [*parts[:-1], parts[-1]._replace(last=job.last)]


def pieces(work, blocks, tiles, count=None):
    """Into how many sections each of some equal blocks of work, multiplications in all, is worth cutting.

    How work is cut never changes the order of a sum, so this may follow the number of threads: count, or as many as
    there are.
    """
    count = count or threads()
    if work < SHARED_WORK or blocks >= 4 * count or blocks % count == 0:
        return 1
    return max(1, min(count, tiles))


def cut(count, tile, sections):
    """Bounds of the sections of a range, multiples of the tile but for the end."""
    tiles = -(-count // tile)
    return [min(count, section * tiles // sections * tile) for section in range(sections + 1)]


# ---- running them ------------------------------------------------------------------------------------------------

APART = 1024  # elements, a page, between the scratch memory of threads: what one asks for ahead the other is writing
NO_POSITIONS = np.zeros(0, np.uint8)


# A plain loop: an assignment to a slice costs two seconds of compilation.
@jit
def _clear(array, start, end):
    for index in range(start, end):
        array[index] = 0


@jit
def _copy_bordered(source, start, images, border, scratch, base):
    rows, length, full = border.rows, border.row_length, border.full_length
    for image in range(images):
        for group in range(border.groups):
            outside = border.left - group * border.step  # of the group, before the first element of a row
            first = max(0, outside)
            here, there = start + image * rows * length + first - outside, base + border.top * full + first
            copy_block(source, here, length, scratch, there, full, rows, min(length + outside, full) - first)
            base += border.full_rows * full


@jit
def _pack(b, b_offset, job, b_taps, columns, panel, place):
    """The columns of B from an offset on, for all taps of a job."""
    rows = job.length * (2 * VECTOR_BYTES // b.itemsize)
    for tap in range(job.tap, job.tap_end):
        here = place + (tap - job.tap) * rows
        pack(b, b_offset + b_taps[tap], job.b_step, job.b_column, job.length, columns, panel, here)


@jit
def _gather_product(
    a, start, b, b_start, bias, c, c_start, job, relu, a_rows, c_rows, a_taps, b_taps, panel_taps, panel, place
):  # fmt: skip
    """The tiles of a job: blocks of columns outside, so that a block of B stays in the nearest cache."""
    lanes = VECTOR_BYTES // a.itemsize
    column, columns, end, rest = 0, job.columns, job.row_end, (job.row_end - job.row) % ROWS
    tap, tap_end, length, a_step, accumulate = job.tap, job.tap_end, job.length, job.a_step, job.accumulate
    source, taps, b_step, packed, relu = b, b_taps, job.b_step, job.packed > 0, relu * job.last
    if packed:
        source, taps, b_step = panel, panel_taps, 2 * lanes
    while column < columns:
        wide = columns - column > lanes and job.form == GATHER
        width = min(columns - column, 2 * lanes if wide else lanes)
        b_offset = b_start + job.b_offset + column * job.b_column
        c_offset, bias_offset = c_start + job.c_offset + column, job.bias_offset + column
        if packed:
            _pack(b, b_offset, job, b_taps, width, panel, place)
            b_offset = place - panel_taps[tap]
        whole = end - rest if wide and rest <= 2 * LOW_ROWS else end
        after = (
            end, bias, bias_offset, source, a_taps, taps, b_offset, tap, tap_end, length, a_step, b_step, width,
            accumulate, relu,
        )  # fmt: skip
        for row in range(job.row, whole, ROWS):
            if wide:
                wide_tile(a, a_rows, start, c, c_rows, c_offset, row, *after)
            elif job.form == CHANNELS:
                channel_tile(a, a_rows, start + column, c, c_rows, c_offset, row, *after)
            else:
                narrow_tile(a, a_rows, start, c, c_rows, c_offset, row, *after)
        for row in range(whole, end, LOW_ROWS):
            low_tile(a, a_rows, start, c, c_rows, c_offset, row, *after)
        column += width


@jit
def _dot_product(a, start, b, bias, c, c_start, job, relu, a_rows, c_rows):
    end, c_offset = job.row_end, c_start + job.c_offset
    for column in range(0, job.columns, DOT_COLUMNS):
        for row in range(job.row, end, DOT_ROWS):
            dot_tile(
                a, a_rows, start, c, c_rows, c_offset, row, end, bias, job.bias_offset,
                b, job.b_offset, job.length, job.b_step, column, job.columns, job.accumulate, relu * job.last,
            )  # fmt: skip


@shared
def _run(
    team, shares, items, jobs, a_rows, c_rows, a_taps, b_taps, panel_taps, borders, bounds, images, panel, pooled,
    windows, relu, a, b, bias, c, positions, scratch,
):  # fmt: skip
    border = borders[0]
    for own in share(shares, team):
        base = own * (images + panel + pooled + APART)
        turned = border.turned > 0
        inner = scratch if images > 0 else a
        source, other = (b, inner) if turned else (inner, b)
        target = scratch if pooled > 0 else c
        _clear(scratch, base, base + images)
        count = items.size - 1
        for item in range(own * count // shares, (own + 1) * count // shares):
            made, start = base + images + panel, np.int64(0)
            if pooled > 0:  # the images of this item lie there
                start = made - bounds[item] * (windows[0].size[0] * windows[0].size[1] * windows[0].channels)
            for number in range(items[item], items[item + 1]):
                job = jobs[number]
                if job.copies > 0:
                    _copy_bordered(a, job.copy_from, job.copies, border, scratch, base)
                offset = job.a_offset if turned or images == 0 else base + job.a_offset
                if job.form == DOT:
                    _dot_product(source, offset, other, bias, target, start, job, relu, a_rows, c_rows)
                else:
                    copied = base if turned and images > 0 else 0
                    _gather_product(
                        source, offset, other, copied, bias, target, start, job, relu, a_rows, c_rows, a_taps, b_taps,
                        panel_taps, scratch, base + images,
                    )  # fmt: skip
            if pooled > 0:
                max_images(scratch, made, bounds[item], bounds[item + 1], windows[0], c, positions)


def runner(plan, windows=NO_WINDOWS):
    """What runs a plan on 1-D arrays of one float type, for as many threads as there are now: a function of

        a, b, bias, relu, c, workspace, positions

    A bias of size 0 is none; with relu, C is the positive part. With windows of pooling.py C is made in
    scratch memory, and c and positions receive its max pooling.
    """
    pooled = plan.most * sum(int(one["size"].prod() * one["channels"]) for one in windows)  # elements
    shares, used = min(threads() if plan.shared else 1, plan.items.size - 1), plan.images + plan.panel + pooled
    size, tables = shares * (used + APART), (*plan[:-2], pooled, windows)

    def run(a, b, bias, relu, c, workspace, positions=NO_POSITIONS):
        if shares:
            scratch = elements(workspace, c, c.dtype, size) if used else c[:0]
            _run.on(shares, shares, *tables, int(relu), a, b, bias, c, positions, scratch)

    return run


def flat(array):
    """The elements of an array without gaps in the order in which they lie."""
    elements = array.ravel("K")
    return elements if elements.flags.writeable else alias(elements)


def memory(array):
    """The memory of an array from its element [0, 0, ...] on, 1-D.

    Kernels read arrays of any strides this way, by offsets from there: one type for Numba.
    """
    if array.flags.c_contiguous or (array.ndim > 1 and array.swapaxes(-1, -2).flags.c_contiguous):
        return flat(array)
    return np.asarray(Memory(array, shape=(1,), strides=None))
