"""Matrix product on the CPU: which of the forms in toolchain/vector.py fits the strides, and how the work is cut.

- columns of b side by side in memory: gather tiles, whatever the strides of a (NN, TN)
- rows of a and columns of b each run along memory: dot tiles (NT: Linear's forward)
- else b is copied with its columns side by side (TT)

Long sums run in blocks of DEPTH, so that a block of columns stays in cache; the blocks add up in order.
"""

from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np

from .. import elementwise
from ..toolchain import alias, threads
from ..toolchain.product import (
    ALIGNMENT,
    DOT,
    DOT_COLUMNS,
    DOT_ROWS,
    GATHER,
    ROWS,
    VECTOR_BYTES,
    Job,
    aligned,
    cut,
    make_plan,
    memory,
    pieces,
    run,
)

__all__ = ["forward", "workspace"]

DEPTH = 1024
BLOCK_BYTES = 1 << 18  # of A: read once for every block of columns, so it should stay in the second cache


class _Strides(NamedTuple):
    """Strides in elements, and the form that fits them: GATHER, DOT, or None where b must be copied first."""

    a: tuple
    b: tuple
    form: int | None


@lru_cache(maxsize=1024)
def _strides(a_shape, a_strides, b_shape, b_strides, itemsize):
    a, b = (
        tuple(0 if size == 1 else step // itemsize for size, step in zip(shape, strides, strict=True))
        for shape, strides in ((a_shape, a_strides), (b_shape, b_strides))
    )
    k, n = b_shape[-2:]
    along = k == 1 or (a[-1] == 1 and b[-2] == 1)  # sums run along memory in both
    across = n == 1 or b[-1] == 1  # columns of b lie side by side
    form = DOT if along and (n == 1 or not across) else GATHER if across else None
    return _Strides(a, b, form)


def workspace(a, b):
    """Bytes of workspace that `forward` wants for these arrays, whose elements it does not look at."""
    copied = b.size and _strides(a.shape, a.strides, b.shape, b.strides, b.itemsize).form is None
    return b.size * b.itemsize + ALIGNMENT if copied else 0


def _offsets(shape, steps):
    """Offset of every matrix of a batch."""
    total = np.zeros((), np.int64)
    for size, step in zip(shape, steps, strict=True):
        total = np.add.outer(total, np.arange(size) * step)
    return total.reshape(-1)


def _blocks(form, m, n, k, itemsize, sections):
    """For each section of one product: bounds of columns, rows and k, in the order of work."""
    row_tile, column_tile = (DOT_ROWS, DOT_COLUMNS) if form == DOT else (ROWS, 2 * VECTOR_BYTES // itemsize)
    by_columns = n * row_tile > m * column_tile
    columns = cut(n, column_tile, sections if by_columns else 1)
    rows = cut(m, row_tile, 1 if by_columns else sections)
    height = max(1, BLOCK_BYTES // (min(k, DEPTH) * itemsize * row_tile)) * row_tile if k else m
    for column, column_end in zip(columns, columns[1:], strict=False):
        for first, last in zip(rows, rows[1:], strict=False):
            yield [
                (column, column_end, row, min(last, row + height), depth, min(k, depth + DEPTH))
                for depth in range(0, max(k, 1), DEPTH)
                for row in range(first, last, height)
            ]


@lru_cache(maxsize=256)
def _plan(batch, m, n, k, a_steps, b_steps, form, itemsize, _threads):
    *a_batch, a_row, a_step = a_steps
    *b_batch, b_row, b_column = b_steps
    b_step = b_column if form == DOT else b_row
    places = zip(_offsets(batch, a_batch), _offsets(batch, b_batch), range(prod(batch)), strict=True)
    tiles = -(-m // ROWS) * -(-n // DOT_COLUMNS)
    work = prod(batch) * m * n * k
    sections = pieces(work, prod(batch), tiles)
    items = [
        [
            Job(
                form,
                0,
                0,
                a + depth * a_step,
                row,
                row_end,
                0,
                1,
                depth_end - depth,
                a_step,
                b + depth * b_row + column * b_column,
                b_step,
                number * m * n + column,
                column_end - column,
                column,
                depth > 0,
            )  # fmt: skip
            for column, column_end, row, row_end, depth, depth_end in section
        ]
        for a, b, number in places
        for section in _blocks(form, m, n, k, itemsize, sections)
    ]
    return make_plan(work, items, (np.arange(m) * a_row, np.arange(m) * n), ([0], [0]))


def forward(a, b, bias, relu, out, workspace):
    """Matrix product; see the launcher."""
    *batch, m, n = out.shape
    if out.size == 0:
        return
    strides = _strides(a.shape, a.strides, b.shape, b.strides, b.itemsize)
    if strides.form is None:
        packed = aligned(workspace, b.dtype)[: b.size].reshape(b.shape)
        np.copyto(packed, b)
        b = packed
        strides = _strides(a.shape, a.strides, b.shape, b.strides, b.itemsize)
    plan = _plan(tuple(batch), m, n, a.shape[-1], *strides, a.itemsize, threads())
    none = np.empty(0, out.dtype)
    run(plan, _from_first(a), _from_first(b), none if bias is None else alias(bias), out.reshape(-1), none)
    if relu:
        elementwise.relu(out, out)


def _from_first(array):
    """The memory of an array from its element [0, 0, ...] on; kernels reach the rest by offsets."""
    if not array.size:
        return np.empty(0, array.dtype)
    whole, start = memory(array)
    return whole[start:] if start else whole
