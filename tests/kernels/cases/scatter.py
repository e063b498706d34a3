"""Rows for scatter: places that repeat, that nobody names, and none at all."""

import numpy as np

from . import KernelCase, Output


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
