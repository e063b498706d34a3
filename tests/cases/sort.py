"""Rows for argsort: few and many of each row's elements, ties, NaN, both zeros, infinities, and nothing at all."""

import numpy as np

from minigrad_kernels import sort
from minigrad_kernels.errors import KindError, ShapeError

from . import KernelCase, Output, Refusal


def argsort(rows, columns, size, descending, kind="float"):
    return KernelCase(
        family="sort",
        function="argsort",
        shapes=((rows, columns),),
        params={"descending": descending},
        outputs=(Output((rows, size), kind="int64"),),
        kinds=(kind,),
        reference_params={"size": size},
        workspace=lambda inputs, params, dtype: sort.workspace(inputs[0].shape, size, inputs[0].dtype),
    )


SPECIAL = 0.0, -0.0, 1.0, -1.0, 1e-45, -1e-45, np.inf, -np.inf, np.nan, -np.nan


def special(dtype):
    """Elements that are equal though their bits differ, and others that look larger than they are."""
    return lambda rng, shape: rng.choice(np.array(SPECIAL), shape).astype(dtype)


SIZES = [(1, 1, 1), (3, 5, 2), (2, 7, 7), (4, 33, 33), (2, 64, 5), (3, 300, 32), (3, 300, 40), (2, 70, 0), (0, 4, 2)]
SIZES += [(2, 0, 0), (20, 900, 3), (9, 1200, 1200)]

CASES = [argsort(*sizes, descending) for sizes in SIZES for descending in (False, True)]
CASES += [
    argsort(*sizes, descending, special(dtype))
    for sizes in [(4, 50, 10), (4, 200, 7), (3, 300, 300)]
    for descending in (False, True)
    for dtype in (np.float32, np.float64)
]


def _call(x=(2, 3), out=(2, 3), kind="f4", number="i8", bytes=0):
    """A call on arrays of these shapes and types."""
    arrays = np.ones(x, kind), False, np.zeros(out, number), np.zeros(bytes, np.uint8)
    return lambda: sort.argsort(*arrays)


REFUSALS = [
    Refusal(f"argsort, {name}", call, error, f"argsort: {message}")
    for name, call, error, message in [
        ("x", _call(x=(3,)), ShapeError, "x has shape (3,), out (2, 3), wants (N, C) and (N, K)"),
        ("type", _call(kind="i4"), KindError, "x has type int32, wants float32 or float64"),
        ("rows", _call(out=(3, 3)), ShapeError, "out has shape (3, 3), wants (2, 3)"),
        ("columns", _call(out=(2, 4)), ShapeError, "out has shape (2, 4), wants no more columns than x (shape (2, 3))"),
        ("type of out", _call(number="i4"), KindError, "out has type int32, wants int64"),
        ("workspace", _call((2, 90), (2, 90)), ShapeError, "workspace has shape (0,), wants"),
        (
            "strides",
            lambda: sort.argsort(np.ones((3, 2), np.float32).T, True, np.zeros((2, 1), int), np.zeros(0, np.uint8)),
            ShapeError,
            "x (shape (2, 3)) has strides (4, 8), wants C order",
        ),
    ]
]
