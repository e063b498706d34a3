"""Matrix product on the CPU: which of the forms in toolchain/vector.py fits the strides, and how the work is cut.

- few rows of a and columns of b, each of which runs along memory: dot tiles
- else gather tiles, whatever the strides of a; where columns of b do not lie side by side, or its rows lie far apart
  and serve many rows of a, blocks of b are packed

Long sums run in blocks of DEPTH, so that a block of columns stays in cache; the blocks add up in order.
"""

from functools import partial
from math import prod
from operator import mul

import numpy as np

from ..toolchain import alias, product
from ..toolchain.product import DOT, DOT_COLUMNS, DOT_ROWS, GATHER, ROWS, VECTOR_BYTES
from .plan import steps_of

DEPTH = 1024
PACKED_DEPTH = 384  # of a packed block of b: two vectors of its columns fit into the nearest cache
FAR = 1024  # bytes between rows of b from which on they are packed
LEAST_TILES = 3  # of rows, from which on packing pays
FEW_ROWS = 24  # of a: dot tiles then, because turning b would cost more than it saves
BLOCK_BYTES = 1 << 18  # of A: read once for every block of columns, so it should stay in the second cache


def _form(m, n, k, a_step, b_row, b_column, itemsize):
    """(how b is read, whether it is packed)"""
    along = k == 1 or (a_step == 1 and b_row == 1)  # sums run along memory in both
    across = n == 1 or b_column == 1  # columns of b lie side by side
    if along and (n == 1 or (not across and m <= FEW_ROWS)):
        return DOT, False
    far = abs(b_row) * itemsize >= FAR and m >= LEAST_TILES * ROWS
    return GATHER, not across or far


def _blocks(form, packed, m, n, k, itemsize, sections, most):
    """For each section of one product: bounds of columns, rows and k, of which `most` at once, in the order of work."""
    row_tile, column_tile = (DOT_ROWS, DOT_COLUMNS) if form == DOT else (ROWS, 2 * VECTOR_BYTES // itemsize)
    # Threads that share the rows of a packed product would each pack all of b.
    by_columns = n * row_tile > m * column_tile or (packed and n >= sections * column_tile)
    columns = product.cut(n, column_tile, sections if by_columns else 1)
    rows = product.cut(m, row_tile, 1 if by_columns else sections)
    count = max(1, -(-k // most))
    steps = [k * step // count for step in range(count + 1)]
    height = max(1, BLOCK_BYTES // (max(1, min(k, most)) * itemsize * row_tile)) * row_tile
    for column, column_end in zip(columns, columns[1:], strict=False):
        for first, last in zip(rows, rows[1:], strict=False):
            yield [
                (column, column_end, row, min(last, row + height), depth, depth_end)
                for depth, depth_end in zip(steps, steps[1:], strict=False)
                for row in range(first, last, height)
            ]


def ready(a, b):
    """What multiplies arrays that lie like these, whose elements it does not look at."""
    (*batch, m, k), n, itemsize = a.shape, b.shape[-1], a.itemsize
    *a_batch, a_row, a_step = steps_of(a.shape, a.strides, itemsize)
    *b_batch, b_row, b_column = steps_of(b.shape, b.strides, itemsize)
    form, packed = _form(m, n, k, a_step, b_row, b_column, itemsize)
    work, most = prod((*batch, m, n, k)), PACKED_DEPTH if packed else DEPTH
    sections = product.pieces(work, prod(batch), m * n)
    items = [
        [
            product.Job(
                form=form,
                a_offset=sum(map(mul, index, a_batch)) + depth * a_step,
                row=row,
                row_end=row_end,
                length=depth_end - depth,
                a_step=a_step,
                b_offset=sum(map(mul, index, b_batch)) + depth * b_row + column * b_column,
                b_step=b_column if form == DOT else b_row,
                b_column=b_column,
                c_offset=number * m * n + column,
                columns=column_end - column,
                bias_offset=column,
                accumulate=depth > 0,
                last=depth_end == k,
                packed=packed,
            )
            for column, column_end, row, row_end, depth, depth_end in section
        ]
        for number, index in enumerate(np.ndindex(*batch))
        for section in _blocks(form, packed, m, n, k, itemsize, sections, most)
    ]
    plan = product.make_plan(work, itemsize, items, (np.arange(m) * a_row, np.arange(m) * n), ([0], [0]))
    return partial(_multiply, product.runner(plan))


def _multiply(run, a, b, bias, relu, out, workspace):
    c = out.reshape(-1)
    start = c[:0] if bias is None else bias if bias.flags.writeable else alias(bias)
    run(product.memory(a), product.memory(b), start, relu, c, workspace)
