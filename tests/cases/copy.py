"""Rows for copy: dense arrays, parts of them, runs that are short, axes that meet and axes that run backwards.

Rows for take_rows: places that repeat, single elements, and none at all.
"""

import numpy as np

from minigrad_kernels import copy
from minigrad_kernels.errors import KindError, ShapeError

from . import KernelCase, Output, Refusal

LAST = (0, 2, 3, 1)  # channels last


def part(*key, order=None):
    """A layout: the part that a key picks of a larger array."""

    def laid(array):
        shape = [
            n + 2 if one == "inner" else 2 * n if one == "back" else n for n, one in zip(array.shape, key, strict=True)
        ]
        order_ = order or tuple(range(array.ndim))
        whole = np.full([shape[axis] for axis in order_], 7, array.dtype).transpose(np.argsort(order_))
        picks = {"inner": slice(1, -1), "back": slice(None, None, -2), "all": slice(None)}
        view = whole[tuple(picks[one] for one in key)]
        view[...] = array
        return view

    return laid


ROWS = [  # shape, how the input lies, how the output lies
    ((5,), None, None),
    ((70000,), None, None),
    ((4, 40000), part("back", "inner"), None),
    ((3, 40), part("back", "all"), None),
    ((3, 40), part("all", "back"), None),
    ((2, 64, 5, 6), None, LAST),
    ((2, 64, 5, 6), part("all", "inner", "inner", "inner", order=LAST), LAST),
    ((2, 64, 5, 6), part("inner", "all", "back", "inner", order=LAST), LAST),
    ((2, 3, 4, 2, 30), part("back", "inner", "inner", "inner", "all"), None),
    ((1, 1, 30, 1), None, None),
    ((0, 3), None, None),
]

CASES = [
    KernelCase(
        family="copy",
        function="copy",
        shapes=(shape,),
        params={},
        outputs=(Output(shape, out_layout),),
        layouts=(layout,),
        nan=(0,) if np.prod(shape) else (),
    )
    for shape, layout, out_layout in ROWS
]
CASES += [
    KernelCase(
        family="copy",
        function="take_rows",
        shapes=((rows, columns), (count,)),
        params={},
        outputs=(Output((count, columns)),),
        kinds=("float", f"index {rows}"),
        nan=(),
    )
    for rows, columns, count in [
        (1, 1, 1),
        (7, 3, 4),
        (5, 33, 9),
        (40, 1, 100),
        (30, 1, 20000),
        (9, 70, 300),
        (3, 2, 0),
    ]
]

X = np.ones((2, 3), np.float32)
PLACES = np.zeros(2, np.int64)
WRONG = {
    "copy shape": (lambda: copy.copy(X, X.T), ShapeError, "copy: out has shape (3, 2), wants (2, 3)"),
    "copy type": (lambda: copy.copy(X, X.astype("f8")), KindError, "copy: out has type float64, wants float32"),
    "take_rows x": (
        lambda: copy.take_rows(X[0], PLACES, X),
        ShapeError,
        "take_rows: x has shape (3,), places (2,), wants (R, C) and (K,)",
    ),
    "take_rows out": (
        lambda: copy.take_rows(X, PLACES, X[:1]),
        ShapeError,
        "take_rows: out has shape (1, 3), wants (2, 3)",
    ),
    "take_rows places": (
        lambda: copy.take_rows(X, PLACES.astype("i4"), X),
        KindError,
        "take_rows: places has type int32, wants int64",
    ),
    "take_rows strides": (
        lambda: copy.take_rows(np.asfortranarray(X), PLACES, X),
        ShapeError,
        "take_rows: x (shape (2, 3)) has strides (4, 8), wants C order",
    ),
    "copy list": (lambda: copy.copy([1.0], X), KindError, "backend: got builtins.list"),
}
REFUSALS = [Refusal(name, *row) for name, row in WRONG.items()]
