"""Rows for bias: columns about the width of a vector, of a line and of a tile, rows about the edges of parts."""

import numpy as np

from minigrad_kernels.bias.cpu import SHORT
from minigrad_kernels.bias.plan import LINE, LINES
from minigrad_kernels.layout import CHANNELS_LAST

from . import KernelCase, Output


def row(function, shape, inputs, outputs, **settings):
    """inputs and outputs: "x" for an array as x, "c" for a vector of columns."""
    layout = CHANNELS_LAST if len(shape) == 4 else None
    shapes = {"x": shape, "c": shape[1:2]}
    return KernelCase(
        family="bias",
        function=function,
        shapes=tuple(shapes[kind] for kind in inputs),
        params={},
        outputs=tuple(Output(shapes[kind], layout if kind == "x" else None) for kind in outputs),
        layouts=tuple(layout if kind == "x" else None for kind in inputs),
        workspace=True,
        **settings,
    )


def rows(shape):
    both = (0, 1) if np.prod(shape) else ()
    return [
        row("bias_relu_grad", shape, "xx", "xc", terms=TERMS, nan=both, relative=True),
        row("column_sums", shape, "x", "c", terms=TERMS, nan=both[:1]),
    ]


TERMS = SHORT + LINES  # far fewer than there are rows: sums are taken in parts
PART = LINE * LINES  # elements

SHAPES = [(1, 1), (7, 5), (64, 10), (33, 16), (0, 3), (2000, 6), (129, 100), (17, 257)]
SHAPES += [(PART // 4 - 1, 4), (PART // 4 + 1, 4), (3 * PART // 16, 16)]
SHAPES += [(35 * PART // 8, 8)]  # more parts than there are threads to add those of a column
SHAPES += [(2, LINE - 1), (9, LINE), (19, LINE + 4), (3, 2 * LINE + 1)]
SHAPES += [(1, 3, 1, 1), (2, 6, 5, 7), (4, 64, 4, 4), (5, 33, 3, 3), (0, 4, 2, 2)]

CASES = [case for shape in SHAPES for case in rows(shape)]
