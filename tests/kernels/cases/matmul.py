"""Rows for matmul: every way that a and b may lie in memory, at the edges of tiles and of blocks of a long sum."""

import numpy as np

from minigrad_kernels.toolchain.product import DOT_COLUMNS, DOT_ROWS, ROWS, VECTOR_BYTES

from . import KernelCase, Output


def transposed(array):
    """The last two axes lie the other way round in memory."""
    return np.ascontiguousarray(array.swapaxes(-1, -2)).swapaxes(-1, -2)


def backwards(array):
    """Negative strides."""
    return np.ascontiguousarray(array[..., ::-1, ::-1])[..., ::-1, ::-1]


def spread(array):
    """Gaps between neighbours."""
    return np.repeat(array, 2, axis=-1)[..., ::2]


def repeated(array):
    """The first matrix of a stack for all of them: read-only, strides of 0."""
    return np.broadcast_to(array[:1], array.shape)


def row(m, k, n, batch=(), bias=False, layouts=(), relu=False):
    return KernelCase(
        family="matmul",
        function="forward",
        shapes=((*batch, m, k), (*batch, k, n), (n,) if bias else None),
        params={"relu": relu},
        outputs=(Output((*batch, m, n)),),
        layouts=layouts,
        terms=k + 1,
        workspace=True,
        nan=(0, 1) if min((m, k, n, *batch)) and repeated not in layouts else (),
    )


def around(tile):
    return tile - 1, tile, tile + 1


LANES = VECTOR_BYTES // 4

CASES = [
    *(
        row(13, 17, 33, bias=True, layouts=layouts)
        for layouts in ((), (None, transposed), (transposed, None), (transposed, transposed), (backwards, spread))
    ),
    row(13, 17, 33, layouts=(spread, backwards), relu=True),
    *(row(5, 6, 7, (3,), layouts=layouts) for layouts in ((), (transposed, repeated), (repeated, transposed))),
    *(
        row(m, 3, n)
        for m, n in zip((*around(ROWS), ROWS - 1, ROWS, ROWS + 1), around(LANES) + around(2 * LANES), strict=True)
    ),
    *(
        row(m, 2 * LANES + 1, n, layouts=(None, transposed))
        for m, n in zip(around(DOT_ROWS) * 2, around(DOT_COLUMNS) + around(DOT_COLUMNS)[::-1], strict=True)
    ),
    *(row(7, k, 5, bias=True, layouts=(None, transposed)) for k in around(LANES)),
    row(3, 1025, 2, bias=True, layouts=(None, transposed)),
    row(1, 1, 1, bias=True, relu=True),
    *(row(m, k, n, bias=True) for m, k, n in ((0, 3, 4), (3, 4, 0))),
    row(3, 0, 4, bias=True, relu=True),
    row(2, 3, 4, (0,)),
    row(2, 3, 4, (2, 3), bias=True),
    row(600, 40, 50, bias=True),  # enough rows for blocks of A, enough work for two threads
    row(97, 101, 103, layouts=(None, transposed)),
    row(97, 101, 103, layouts=(transposed, None)),
    row(101, 53, 211, (3,)),
]
