"""Rows for transpose: tiles cut at their edges, bands of rows, few rows and few columns."""

import numpy as np

from minigrad_kernels import transpose
from minigrad_kernels.errors import KindError, ShapeError

from . import KernelCase, Output, Refusal

SHAPES = [(1, 16, 16), (2, 17, 33), (3, 16, 5), (2, 5, 16), (1, 1, 1), (2, 257, 18), (1, 256 + 16, 31), (0, 4, 4)]
SHAPES += [(2, 0, 3), (40, 31, 47)]

CASES = [
    KernelCase(
        family="transpose",
        function="transpose",
        shapes=((n, r, c),),
        params={},
        outputs=(Output((n, c, r)),),
        nan=(0,) if n * r * c else (),
    )
    for n, r, c in SHAPES
]

X = np.ones((2, 3, 4), np.float32)
OUT = np.ones((2, 4, 3), np.float32)
WRONG = {
    "transpose matrix": (lambda: transpose.transpose(X[0], OUT), ShapeError, "transpose: x has shape (3, 4), wants"),
    "transpose out": (lambda: transpose.transpose(X, X), ShapeError, "transpose: out has shape (2, 3, 4), wants"),
    "transpose integers": (lambda: transpose.transpose(X.astype(int), OUT), KindError, "transpose: x has type int64"),
    "transpose strides": (
        lambda: transpose.transpose(X[:, ::-1], OUT),
        ShapeError,
        "transpose: x has strides",
    ),
}
REFUSALS = [Refusal(name, *row) for name, row in WRONG.items()]
