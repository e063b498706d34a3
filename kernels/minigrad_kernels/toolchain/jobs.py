"""Plans of products: lists of jobs, and the tables that these look up.

A job is one product of vector.py's forms on a block of rows: which rows, columns and taps, and from where on in A, B
and C. It may first copy some images of A into scratch memory, with a border of zeros around each. An item is a run
of jobs that writes what no other item touches. A plan depends on shapes, strides and the number of threads alone, so
it is made once for a geometry; product.py runs it.
"""

from typing import NamedTuple

import numpy as np

from .cpu import threads
from .emit import TILE

__all__ = [
    "A_OFFSET", "A_STEP", "ACCUMULATE", "B_COLUMN", "B_OFFSET", "B_STEP", "BIAS_OFFSET", "C_OFFSET", "CHANNELS",
    "COLUMNS", "COPIES", "COPY_FROM", "DOT", "DOT_COLUMNS", "DOT_ROWS", "FORM", "GATHER", "LAST", "LENGTH", "LOW_ROWS",
    "NOTHING", "PACKED", "ROW", "ROWS", "ROW_END", "TAP", "TAP_END", "VECTOR_BYTES", "Border", "Job", "Plan", "cut",
    "in_pieces", "make_plan", "pieces",
]  # fmt: skip

ROWS, DOT_ROWS, DOT_COLUMNS = TILE.rows, TILE.dot_rows, TILE.dot_columns
LOW_ROWS = max(1, ROWS // 3)  # of a tile for what whole tiles leave
VECTOR_BYTES = TILE.vector_bytes
GATHER, DOT, CHANNELS = 0, 1, 2
TILE_STEPS, ACCUMULATE_STEPS = 6, 4  # of a sum, that cost as much as setting up a tile, and as adding to what is there
WAIT = 4  # rows, in whose time a sum is ready for its next product: tiles of fewer are no faster
NARROW = 0.6  # of what a step of two vectors costs, where there is one
SHARED_WORK = 1 << 19  # multiplications; less is done sooner than a second thread wakes up


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


FORM, COPIES, COPY_FROM, A_OFFSET, ROW, ROW_END, TAP, TAP_END = range(8)
LENGTH, A_STEP, B_OFFSET, B_STEP, C_OFFSET, COLUMNS, BIAS_OFFSET, ACCUMULATE = range(8, 16)
LAST, PACKED, B_COLUMN = range(16, 19)


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


NOTHING = Border()


class Plan(NamedTuple):
    """What `run` needs to know beside the arrays; all tables are int64."""

    items: np.ndarray  # item i is jobs[items[i]:items[i + 1]]
    jobs: np.ndarray
    a_rows: np.ndarray
    c_rows: np.ndarray
    a_taps: np.ndarray
    b_taps: np.ndarray
    panel_taps: np.ndarray  # b_taps in a panel
    border: np.ndarray
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
    starts = np.cumsum([0, *(len(item) for item in items)])
    jobs = np.array([job for item in items for job in item], np.int64).reshape(-1, len(Job._fields))
    panel_taps, panel = _panels(jobs, len(taps[0]), itemsize)
    tables = [
        np.ascontiguousarray(table, np.int64) for table in (starts, jobs, *rows, *taps, panel_taps, border, bounds)
    ]
    most = int(np.diff(tables[-1]).max(initial=0))
    return Plan(*tables, images * border.size, panel, most, work >= SHARED_WORK)


def _panels(jobs, taps, itemsize):
    """Where the taps of packed jobs lie in a panel, and how many elements it needs."""
    width, places, largest = 2 * VECTOR_BYTES // itemsize, np.zeros(taps, np.int64), 0
    kinds = jobs[jobs[:, PACKED] > 0][:, [TAP, TAP_END, LENGTH]]
    for tap, tap_end, length in np.unique(kinds, axis=0):
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
