"""Runs plans of products: every matrix product and every direction of a convolution is a list of jobs.

A job is one product of vector.py's forms on a block of rows: which rows, columns and taps, and from where on in A, B
and C. It may first copy some images of A into scratch memory, with a border of zeros around each. An item is a run
of jobs that writes what no other item touches; threads own runs of items. A plan depends on shapes and strides
alone, so it is made once for a geometry, and one compiled function runs them all.
"""

from typing import NamedTuple

import numpy as np
from numba import prange

from .cpu import alias, jit, parallel, threads
from .emit import TILE
from .vector import channel_tile, dot_tile, narrow_tile, wide_tile

__all__ = [
    "ALIGNMENT",
    "CHANNELS",
    "DOT",
    "DOT_COLUMNS",
    "DOT_ROWS",
    "GATHER",
    "NOTHING",
    "ROWS",
    "VECTOR_BYTES",
    "Border",
    "Job",
    "aligned",
    "cut",
    "make_plan",
    "memory",
    "pieces",
    "run",
    "scratch_bytes",
]

ROWS, DOT_ROWS, DOT_COLUMNS = TILE.rows, TILE.dot_rows, TILE.dot_columns
VECTOR_BYTES = TILE.vector_bytes
GATHER, DOT, CHANNELS = 0, 1, 2
ALIGNMENT = 64
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


FORM, COPIES, COPY_FROM, A_OFFSET, ROW, ROW_END, TAP, TAP_END = range(8)
LENGTH, A_STEP, B_OFFSET, B_STEP, C_OFFSET, COLUMNS, BIAS_OFFSET, ACCUMULATE = range(8, 16)


class Border(NamedTuple):
    """An image of A as it lies in memory and as it lies in scratch memory, rows as runs of elements."""

    rows: int = 0
    row_length: int = 0
    top: int = 0
    left: int = 0
    full_rows: int = 0
    full_length: int = 0


NOTHING = Border()


class Plan(NamedTuple):
    """What `run` needs to know beside the arrays; all tables are int64."""

    items: np.ndarray  # item i is jobs[items[i]:items[i + 1]]
    jobs: np.ndarray
    a_rows: np.ndarray
    c_rows: np.ndarray
    a_taps: np.ndarray
    b_taps: np.ndarray
    border: np.ndarray
    scratch: int  # elements of scratch memory for each thread; 0 where A is read in place
    shared: bool  # worth more than one thread


def make_plan(work, items, rows, taps, border=NOTHING, images=0):
    """Plan of so many multiplications.

    Items are lists of jobs, rows and taps the tables (a_rows, c_rows) and (a_taps, b_taps); border says how A is
    copied, and images how many lie in scratch memory at a time.
    """
    starts = np.cumsum([0, *(len(item) for item in items)])
    jobs = np.array([job for item in items for job in item], np.int64).reshape(-1, len(Job._fields))
    tables = [np.ascontiguousarray(table, np.int64) for table in (starts, jobs, *rows, *taps, border)]
    return Plan(*tables, images * border.full_rows * border.full_length, work >= SHARED_WORK)


# Plain loops: an assignment to a slice costs two seconds of compilation.


@jit
def _clear(array, start, end):
    for index in range(start, end):
        array[index] = 0


@jit
def _copy_bordered(source, start, images, border, scratch, base):
    rows, length = border[0], border[1]
    for line in range(images * rows):
        image, row = line // rows, line % rows
        here, there = start + line * length, base + (image * border[4] + border[2] + row) * border[5] + border[3]
        for index in range(length):
            scratch[there + index] = source[here + index]


@jit
def _gather_product(a, a_offset, b, bias, c, job, a_rows, c_rows, a_taps, b_taps):
    """The tiles of a job: blocks of columns outside, so that a block of B stays in the nearest cache."""
    lanes = VECTOR_BYTES // a.itemsize
    column, columns, end = 0, job[COLUMNS], job[ROW_END]
    while column < columns:
        wide = columns - column > lanes and job[FORM] == GATHER
        width = min(columns - column, 2 * lanes if wide else lanes)
        b_offset, c_offset = job[B_OFFSET] + column, job[C_OFFSET] + column
        bias_offset = job[BIAS_OFFSET] + column
        for row in range(job[ROW], end, ROWS):
            if wide:
                wide_tile(
                    a, a_rows, a_offset, c, c_rows, c_offset, row, end, bias, bias_offset, b, a_taps, b_taps, b_offset,
                    job[TAP], job[TAP_END], job[LENGTH], job[A_STEP], job[B_STEP], width, job[ACCUMULATE],
                )  # fmt: skip
            elif job[FORM] == CHANNELS:
                channel_tile(
                    a, a_rows, a_offset + column, c, c_rows, c_offset, row, end, bias, bias_offset,
                    b, a_taps, b_taps, b_offset,
                    job[TAP], job[TAP_END], job[LENGTH], job[A_STEP], job[B_STEP], width, job[ACCUMULATE],
                )  # fmt: skip
            else:
                narrow_tile(
                    a, a_rows, a_offset, c, c_rows, c_offset, row, end, bias, bias_offset, b, a_taps, b_taps, b_offset,
                    job[TAP], job[TAP_END], job[LENGTH], job[A_STEP], job[B_STEP], width, job[ACCUMULATE],
                )  # fmt: skip
        column += width


@jit
def _dot_product(a, a_offset, b, bias, c, job, a_rows, c_rows):
    end = job[ROW_END]
    for column in range(0, job[COLUMNS], DOT_COLUMNS):
        for row in range(job[ROW], end, DOT_ROWS):
            dot_tile(
                a, a_rows, a_offset, c, c_rows, job[C_OFFSET], row, end, bias, job[BIAS_OFFSET],
                b, job[B_OFFSET], job[LENGTH], job[B_STEP], column, job[COLUMNS], job[ACCUMULATE],
            )  # fmt: skip


@parallel
def _run(shares, items, jobs, a_rows, c_rows, a_taps, b_taps, border, a, b, bias, c, scratch):
    for share in prange(shares):
        size = scratch.size // shares
        base = share * size
        source = scratch if size > 0 else a
        _clear(scratch, base, base + size)
        count = items.size - 1
        for number in range(items[share * count // shares], items[(share + 1) * count // shares]):
            job = jobs[number]
            if job[COPIES] > 0:
                _copy_bordered(a, job[COPY_FROM], job[COPIES], border, scratch, base)
            if job[FORM] == DOT:
                _dot_product(a, job[A_OFFSET], b, bias, c, job, a_rows, c_rows)
            else:
                offset = base + job[A_OFFSET] if size > 0 else job[A_OFFSET]
                _gather_product(source, offset, b, bias, c, job, a_rows, c_rows, a_taps, b_taps)


def _shares(plan):
    """How many threads take part."""
    return min(threads() if plan.shared else 1, plan.items.size - 1)


def scratch_bytes(plan, itemsize):
    """Bytes of scratch memory that `run` takes for as many threads as there are now."""
    return max(1, _shares(plan)) * plan.scratch * itemsize


def aligned(workspace, dtype):
    """The workspace, bytes, as elements from its first aligned address on."""
    start = -workspace.__array_interface__["data"][0] % ALIGNMENT
    end = start + (workspace.size - start) // dtype.itemsize * dtype.itemsize
    return workspace[start:end].view(dtype)


def run(plan, a, b, bias, c, scratch):
    """Run a plan on 1-D arrays of one float type; a bias of size 0 is none.

    Scratch holds whole shares of plan.scratch elements: at most so many threads take part.
    """
    shares = _shares(plan)
    if plan.scratch:
        shares = min(shares, scratch.size // plan.scratch)
    if not shares:
        return
    scratch = scratch[: shares * plan.scratch]
    call = _run if shares > 1 else _run.alone
    call(shares, *plan[:-2], a, b, bias, c, scratch)


def pieces(work, blocks, tiles):
    """Into how many sections each of some equal blocks of work, multiplications in all, is worth cutting.

    How work is cut never changes the order of a sum, so this may follow the number of threads.
    """
    if work < SHARED_WORK or blocks >= 4 * threads() or blocks % threads() == 0:
        return 1
    return max(1, min(threads(), tiles))


def cut(count, tile, sections):
    """Bounds of the sections of a range, multiples of the tile but for the end."""
    tiles = -(-count // tile)
    return [min(count, section * tiles // sections * tile) for section in range(sections + 1)]


def memory(array):
    """The memory of an array as a 1-D array, and where in it the element [0, 0, ...] lies.

    Kernels read arrays of any strides this way: one type for Numba, offsets for the rest.
    """
    if array.flags.c_contiguous:
        return alias(array).reshape(-1), 0
    if array.ndim > 1 and array.swapaxes(-1, -2).flags.c_contiguous:
        return alias(array).swapaxes(-1, -2).reshape(-1), 0
    reach = [step * (size - 1) for step, size in zip(array.strides, array.shape, strict=True)]
    start = sum(min(0, step) for step in reach)
    span = sum(abs(step) for step in reach) // array.itemsize + 1
    return np.asarray(_Span(array, start, span)), -start // array.itemsize


class _Span:
    """A door to all the memory between the lowest and the highest element of an array, which it keeps alive."""

    def __init__(self, array, start, span):
        self.array = array
        place = (array.ctypes.data + start, False)
        self.__array_interface__ = array.__array_interface__ | {
            "data": place,
            "shape": (span,),
            "strides": None,
        }
