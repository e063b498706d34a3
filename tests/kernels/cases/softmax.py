"""Rows for softmax: one class, few, many, and enough for a team; ignored targets."""

import numpy as np

from . import KernelCase, Output

SHAPES = [(0, 3), (1, 1), (5, 1), (3, 2), (64, 10), (7, 17), (130, 129)]
SHAPES += [(9, 32), (10, 33), (7, 128), (33, 3), (1003, 10)]  # about the lanes and blocks of a GPU
SHAPES += [(1, 4096), (1, 4100)]  # up to where a block owns a row, and beyond
# About the threads of the block that adds losses, and how many losses a thread adds before their sum.
TOTALS = [*SHAPES, (256, 2), (257, 3), (4096, 2), (4097, 2), (12295, 1)]
IGNORED = -100


def case(function, shapes, outputs, terms, **settings):
    """Roundings of a result: exp has 2, a sum one for each class."""
    outputs, settings = tuple(map(Output, outputs)), dict(params={}, exact=False, relative=True) | settings
    return KernelCase("softmax", function, shapes, outputs=outputs, terms=terms, **settings)


def row(function, shape, logs=False):
    """softmax, or its gradient, of g and of the result."""
    arrays = 2 if function.endswith("grad") else 1
    nan = tuple(range(arrays)) if np.prod(shape) else ()
    return case(function, (shape,) * arrays, (shape,), shape[1] + 8, nan=nan, params=dict(logs=logs))


def rows(shape):
    return [row(function, shape, logs) for function in ("softmax", "softmax_grad") for logs in (False, True)]


def targets(classes):
    """Classes, some of them ignored."""

    def draw(rng, shape):
        target = rng.integers(0, classes, shape)
        target[::3] = IGNORED
        return target

    return draw


def cross_entropy(shape):
    rows = shape[:1]
    settings = dict(params=dict(ignore_index=IGNORED), kinds=("float", targets(shape[1])))
    return case("cross_entropy", (shape, rows), (rows, rows), shape[1] + 8, **settings)


def ignored(rng, size):
    return np.int64(IGNORED)


def cross_entropy_grad(shape, total=False):
    """Of the losses of rows, or of their sum over a divisor."""
    rows, kinds = shape[:1], ("float", "float", targets(shape[1]), ignored, "float", "positive")
    shapes = () if total else rows, shape, rows, (), rows, () if total else None
    return case("cross_entropy_grad", shapes, (shape,), 7, kinds=kinds)


def cross_entropy_total(shape, mean, label=None):
    drawn = targets(shape[1]) if label is None else lambda rng, size: np.full(size, label)
    settings = dict(
        params=dict(ignore_index=IGNORED, mean=mean),
        kinds=("float", drawn),
        workspace=True,
        nan=(0,) if label is None and shape[0] > 1 else (),
    )
    outputs = (), (), shape[:1]
    return case("cross_entropy_total", (shape, shape[:1]), outputs, shape[1] + 48, **settings)


CASES = [
    *(found for shape in SHAPES for found in rows(shape)),
    *(cross_entropy(shape) for shape in SHAPES),
    *(cross_entropy_grad(shape, total) for shape in SHAPES for total in (False, True)),
    *(cross_entropy_total(shape, mean) for shape in TOTALS for mean in (True, False) if shape[0] > 1 or not mean),
    cross_entropy_total((6, 4), False, IGNORED),
]
