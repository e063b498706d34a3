"""Rows for reduce: rows and columns about the sizes of lines, tiles and parts, one column, and nothing."""

import numpy as np

from minigrad_kernels import reduce
from minigrad_kernels.errors import KindError, ShapeError
from minigrad_kernels.reduce.cpu import FEW, RUN, SHORT
from minigrad_kernels.reduce.plan import PART, TILE
from minigrad_kernels.toolchain.rows import ABREAST

from . import KernelCase, Output, Refusal

GROUP = ABREAST * 16  # elements of a column that are taken at once, with the longest vectors
COLUMN = [1, 5, FEW, FEW + 1, GROUP, GROUP + 1, RUN, RUN + 1, 2 * RUN + 7, 3 * PART + 5]
SHAPES = [(1, 1, 1), *((3, k, 1) for k in COLUMN), (1, 3 * PART + 5, 1)]
SHAPES += [(4, 3, 7), (2, 40, 15), (3, 2 * SHORT * 4 + 3, TILE // 4), (5, 9, TILE), (2, SHORT + 3, TILE + 1)]
SHAPES += [(1, 50, 2 * TILE + 17), (1, 4 * PART // 100 + 1, 100), (1, PART, 3), (20, 2, 33), (2, 1, 6)]
TERMS = RUN // 8 + 8  # at most: of vectors of two lanes, four of them abreast
NOTHING = [(0, 3, 4), (2, 3, 0)]


def row(function, shape, params, terms):
    a, k, b = shape
    return KernelCase(
        family="reduce",
        function=function,
        shapes=(shape,),
        params=params,
        outputs=(Output((a, b)),),
        terms=terms,
        nan=(0,) if a * k * b else (),
    )


CASES = [row("sums", shape, {}, TERMS) for shape in [*SHAPES, *NOTHING, (2, 0, 3)]]
CASES += [
    row("extremes", shape, {"greatest": greatest}, 1) for shape in [*SHAPES, *NOTHING] for greatest in (True, False)
]

X, OUT = np.ones((2, 3, 4), np.float32), np.ones((2, 4), np.float32)
WRONG = {
    "sums matrix": (lambda: reduce.sums(X[0], OUT), ShapeError, "sums: x has shape (3, 4), wants (A, K, B)"),
    "sums out": (lambda: reduce.sums(X, OUT[:1]), ShapeError, "sums: out has shape (1, 4), wants (2, 4)"),
    "sums integers": (lambda: reduce.sums(X.astype(int), OUT), KindError, "sums: x has type int64"),
    "sums strides": (lambda: reduce.sums(X[:, ::-1], OUT), ShapeError, "sums: x (shape (2, 3, 4)) has strides"),
    "extremes nothing": (
        lambda: reduce.extremes(X[:, :0], True, OUT),
        ShapeError,
        "extremes: x has shape (2, 0, 4), wants a row in each block",
    ),
    "extremes greatest": (
        lambda: reduce.extremes(X, "max", OUT),
        KindError,
        "extremes: greatest is 'max', wants True or False",
    ),
}
REFUSALS = [Refusal(name, *row) for name, row in WRONG.items()]
