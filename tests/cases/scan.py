"""Rows for running sums: rows in fours and the rest, columns in blocks and the rest, in both directions."""

import numpy as np

from minigrad_kernels import scan
from minigrad_kernels.errors import KindError, ShapeError

from . import KernelCase, Output, Refusal

SHAPES = [(1, 1, 1), (4, 9, 1), (7, 5, 1), (3, 6, 2), (2, 30, 300), (1, 40, 256), (9, 130, 1), (40, 1000, 1)]
SHAPES += [(0, 3, 2), (2, 0, 2), (2, 0, 1), (2, 3, 0), (2, 80, 257)]

CASES = [
    KernelCase(
        family="scan",
        function="cumsum",
        shapes=(shape,),
        params={"reverse": reverse},
        outputs=(Output(shape),),
        terms=shape[1] + 1,
        nan=(0,) if np.prod(shape) else (),
    )
    for shape in SHAPES
    for reverse in (False, True)
]

X = np.ones((2, 3, 4), np.float32)
OUT = np.ones((2, 3, 4), np.float32)
WRONG = {
    "cumsum matrix": (lambda: scan.cumsum(X[0], False, OUT), ShapeError, "cumsum: x has shape (3, 4), wants"),
    "cumsum out": (lambda: scan.cumsum(X, False, OUT[:1]), ShapeError, "cumsum: out has shape (1, 3, 4), wants"),
    "cumsum integers": (lambda: scan.cumsum(X.astype(int), False, OUT), KindError, "cumsum: x has type int64"),
    "cumsum strides": (
        lambda: scan.cumsum(X[:, ::-1], False, OUT),
        ShapeError,
        "cumsum: x (shape (2, 3, 4)) has strides",
    ),
}
REFUSALS = [Refusal(name, *row) for name, row in WRONG.items()]
