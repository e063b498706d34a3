"""Rows for scatter: places that repeat, that nobody names, and none at all."""

import numpy as np

from minigrad_kernels import scatter
from minigrad_kernels.errors import KindError, ShapeError

from . import KernelCase, Output, Refusal


def add_rows(count, columns, size):
    """count rows of x to size places."""

    def places(rng, shape):
        return np.random.default_rng(count).integers(0, max(size - 1, 1), shape)  # the last one stays free

    def order(rng, shape):
        return places(rng, shape).argsort(kind="stable")

    return KernelCase(
        family="scatter",
        function="add_rows",
        shapes=((count, columns), (count,), (count,)),
        params={},
        outputs=(Output((size, columns)),),
        kinds=("float", places, order),
        reference_params={"size": size},
        terms=count + 1,
        nan=(0,) if count * columns else (),
    )


CASES = [
    add_rows(*sizes) for sizes in [(1, 1, 1), (7, 3, 4), (300, 2, 5), (40, 33, 100), (5, 600, 2), (0, 3, 2), (3, 0, 2)]
]


def _call(x=(3, 2), places=3, order=3, out=(4, 2), kind="f4", number="i8"):
    """A call on arrays of these shapes and types."""
    arrays = np.ones(x, kind), np.zeros(places, number), np.zeros(order, "i8"), np.ones(out, "f4")
    return lambda: scatter.add_rows(*arrays)


REFUSALS = [
    Refusal(f"add_rows, {name}", call, error, f"add_rows: {message}")
    for name, call, error, message in [
        ("x", _call(x=(3, 2, 1)), ShapeError, "x has shape (3, 2, 1), wants (K, C)"),
        ("type", _call(kind="i4"), KindError, "x has type int32, wants float32 or float64"),
        ("columns", _call(out=(4, 3)), ShapeError, "out has shape (4, 3), wants (R, 2)"),
        ("number of places", _call(places=2), ShapeError, "places has shape (2,), wants (3,)"),
        ("type of places", _call(number="i4"), KindError, "places has type int32, wants int64"),
        ("order", _call(order=4), ShapeError, "order has shape (4,), wants (3,)"),
    ]
]
