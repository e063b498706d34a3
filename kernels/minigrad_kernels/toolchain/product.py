"""Runs plans of products: every matrix product and every direction of a convolution is a list of jobs.

Plans are made in jobs.py; threads own runs of their items. One compiled function runs them all.
"""

import numpy as np

from .cpu import alias, elements, jit, threads
from .jobs import (
    A_OFFSET,
    A_STEP,
    ACCUMULATE,
    B_COLUMN,
    B_OFFSET,
    B_STEP,
    BIAS_OFFSET,
    C_OFFSET,
    CHANNELS,
    COLUMNS,
    COPIES,
    COPY_FROM,
    DOT,
    DOT_COLUMNS,
    DOT_ROWS,
    FORM,
    GATHER,
    LAST,
    LENGTH,
    LOW_ROWS,
    NOTHING,
    PACKED,
    ROW,
    ROW_END,
    ROWS,
    TAP,
    TAP_END,
    VECTOR_BYTES,
    Border,
    Job,
    Plan,
    cut,
    in_pieces,
    make_plan,
    pieces,
)  # fmt: skip
from .packing import copy_block, pack
from .pooling import NO_WINDOWS, max_images
from .team import share, shared
from .vector import channel_tile, dot_tile, low_tile, narrow_tile, wide_tile

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
    "Plan",
    "aligned",
    "cut",
    "flat",
    "in_pieces",
    "make_plan",
    "memory",
    "pieces",
    "runner",
    "scratch_bytes",
]

ALIGNMENT = 64
APART = 1024  # elements, a page, between the scratch memory of threads: what one asks for ahead the other is writing
NO_POSITIONS = np.zeros(0, np.uint8)


# A plain loop: an assignment to a slice costs two seconds of compilation.
@jit
def _clear(array, start, end):
    for index in range(start, end):
        array[index] = 0


@jit
def _copy_bordered(source, start, images, border, scratch, base):
    rows, length, full = border[0], border[1], border[5]
    for image in range(images):
        for group in range(border[6]):
            outside = border[3] - group * border[7]  # of the group, before the first element of a row
            first = max(0, outside)
            here, there = start + image * rows * length + first - outside, base + border[2] * full + first
            copy_block(source, here, length, scratch, there, full, rows, min(length + outside, full) - first)
            base += border[4] * full


@jit
def _pack(b, b_offset, job, b_taps, columns, panel, place):
    """The columns of B from an offset on, for all taps of a job."""
    rows = job[LENGTH] * (2 * VECTOR_BYTES // b.itemsize)
    for tap in range(job[TAP], job[TAP_END]):
        here = place + (tap - job[TAP]) * rows
        pack(b, b_offset + b_taps[tap], job[B_STEP], job[B_COLUMN], job[LENGTH], columns, panel, here)


@jit
def _gather_product(
    a, start, b, b_start, bias, c, c_start, job, relu, a_rows, c_rows, a_taps, b_taps, panel_taps, panel, place
):  # fmt: skip
    """The tiles of a job: blocks of columns outside, so that a block of B stays in the nearest cache."""
    lanes = VECTOR_BYTES // a.itemsize
    column, columns, end, rest = 0, job[COLUMNS], job[ROW_END], (job[ROW_END] - job[ROW]) % ROWS
    tap, tap_end, length, a_step, accumulate = job[TAP], job[TAP_END], job[LENGTH], job[A_STEP], job[ACCUMULATE]
    source, taps, b_step, packed, relu = b, b_taps, job[B_STEP], job[PACKED] > 0, relu * job[LAST]
    if packed:
        source, taps, b_step = panel, panel_taps, 2 * lanes
    while column < columns:
        wide = columns - column > lanes and job[FORM] == GATHER
        width = min(columns - column, 2 * lanes if wide else lanes)
        b_offset = b_start + job[B_OFFSET] + column * job[B_COLUMN]
        c_offset, bias_offset = c_start + job[C_OFFSET] + column, job[BIAS_OFFSET] + column
        if packed:
            _pack(b, b_offset, job, b_taps, width, panel, place)
            b_offset = place - panel_taps[tap]
        whole = end - rest if wide and rest <= 2 * LOW_ROWS else end
        for row in range(job[ROW], whole, ROWS):
            if wide:
                wide_tile(
                    a, a_rows, start, c, c_rows, c_offset, row, end, bias, bias_offset, source, a_taps, taps,
                    b_offset, tap, tap_end, length, a_step, b_step, width, accumulate, relu,
                )  # fmt: skip
            elif job[FORM] == CHANNELS:
                channel_tile(
                    a, a_rows, start + column, c, c_rows, c_offset, row, end, bias, bias_offset, source, a_taps, taps,
                    b_offset, tap, tap_end, length, a_step, b_step, width, accumulate, relu,
                )  # fmt: skip
            else:
                narrow_tile(
                    a, a_rows, start, c, c_rows, c_offset, row, end, bias, bias_offset, source, a_taps, taps,
                    b_offset, tap, tap_end, length, a_step, b_step, width, accumulate, relu,
                )  # fmt: skip
        for row in range(whole, end, LOW_ROWS):
            low_tile(
                a, a_rows, start, c, c_rows, c_offset, row, end, bias, bias_offset, source, a_taps, taps,
                b_offset, tap, tap_end, length, a_step, b_step, width, accumulate, relu,
            )  # fmt: skip
        column += width


@jit
def _dot_product(a, start, b, bias, c, c_start, job, relu, a_rows, c_rows):
    end, c_offset = job[ROW_END], c_start + job[C_OFFSET]
    for column in range(0, job[COLUMNS], DOT_COLUMNS):
        for row in range(job[ROW], end, DOT_ROWS):
            dot_tile(
                a, a_rows, start, c, c_rows, c_offset, row, end, bias, job[BIAS_OFFSET],
                b, job[B_OFFSET], job[LENGTH], job[B_STEP], column, job[COLUMNS], job[ACCUMULATE], relu * job[LAST],
            )  # fmt: skip


@shared
def _run(
    team, shares, items, jobs, a_rows, c_rows, a_taps, b_taps, panel_taps, border, bounds, images, panel, pooled,
    windows, relu, a, b, bias, c, positions, scratch,
):  # fmt: skip
    for own in share(shares, team):
        base = own * (images + panel + pooled + APART)
        turned = border[8] > 0
        inner = scratch if images > 0 else a
        source, other = (b, inner) if turned else (inner, b)
        target = scratch if pooled > 0 else c
        _clear(scratch, base, base + images)
        count = items.size - 1
        for item in range(own * count // shares, (own + 1) * count // shares):
            made, start = base + images + panel, np.int64(0)
            if pooled > 0:  # the images of this item lie there
                start = made - bounds[item] * (windows[8] * windows[9] * windows[12])
            for number in range(items[item], items[item + 1]):
                job = jobs[number]
                if job[COPIES] > 0:
                    _copy_bordered(a, job[COPY_FROM], job[COPIES], border, scratch, base)
                offset = job[A_OFFSET] if turned or images == 0 else base + job[A_OFFSET]
                if job[FORM] == DOT:
                    _dot_product(source, offset, other, bias, target, start, job, relu, a_rows, c_rows)
                else:
                    copied = base if turned and images > 0 else 0
                    _gather_product(
                        source, offset, other, copied, bias, target, start, job, relu, a_rows, c_rows, a_taps, b_taps,
                        panel_taps, scratch, base + images,
                    )  # fmt: skip
            if pooled > 0:
                max_images(scratch, made, bounds[item], bounds[item + 1], windows, c, positions)


def _shares(plan):
    """How many threads take part."""
    return min(threads() if plan.shared else 1, plan.items.size - 1)


def _share(plan, pooled):
    """Elements of scratch memory for a thread; pooled: elements of an image of C that is pooled, or 0."""
    used = plan.images + plan.panel + pooled * plan.most
    return used and used + APART


def scratch_bytes(plan, itemsize, pooled=0):
    """Bytes of scratch memory that a plan takes for as many threads as there are now; pooled as for _share."""
    return max(1, _shares(plan)) * _share(plan, pooled) * itemsize


def aligned(workspace, dtype):
    """The workspace, ALIGNMENT bytes more than are wanted, as elements."""
    return elements(workspace, dtype, (workspace.size - ALIGNMENT) // dtype.itemsize)


def runner(plan, windows=NO_WINDOWS):
    """What runs a plan on 1-D arrays of one float type, for as many threads as there are now: a function of

        a, b, bias, relu, c, scratch, positions

    A bias of size 0 is none; with relu, C is the positive part. With windows, a table of pooling.py, C is made in
    scratch memory, and c and positions receive its max pooling. Scratch holds scratch_bytes.
    """
    pooled = int(windows[8] * windows[9] * windows[12]) if windows.size else 0
    shares = _shares(plan)
    tables = (*plan[:-2], pooled * plan.most, windows)

    def run(a, b, bias, relu, c, scratch, positions=NO_POSITIONS):
        if shares:
            _run.on(shares, shares, *tables, int(relu), a, b, bias, c, positions, scratch)

    return run


def flat(array):
    """The elements of an array without gaps in the order in which they lie."""
    elements = array.ravel("K")
    return elements if elements.flags.writeable else alias(elements)


def memory(array):
    """The memory of an array as a 1-D array, and where in it the element [0, 0, ...] lies.

    Kernels read arrays of any strides this way: one type for Numba, offsets for the rest.
    """
    if array.flags.c_contiguous or (array.ndim > 1 and array.swapaxes(-1, -2).flags.c_contiguous):
        return flat(array), 0
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
