"""Rows for bias: columns about the width of a vector, of a line and of a tile, rows about the edges of parts."""

import numpy as np

from minigrad_kernels import bias
from minigrad_kernels.bias.cpu import SHORT
from minigrad_kernels.bias.plan import LINE, LINES
from minigrad_kernels.errors import KindError, ShapeError
from minigrad_kernels.layout import CHANNELS_LAST

from . import KernelCase, Output, Refusal


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
        **settings,
    )


def scratch(inputs, params, dtype):
    return bias.workspace(inputs[0].shape)


def grad_size(reference, inputs, params):
    return reference(np.abs(inputs[0]), inputs[1])


def rows(shape):
    both = (0, 1) if np.prod(shape) else ()
    return [
        row("bias_relu_grad", shape, "xx", "xc", terms=TERMS, nan=both, magnitude=grad_size, workspace=scratch),
        row("column_sums", shape, "x", "c", terms=TERMS, nan=both[:1], workspace=scratch),
    ]


TERMS = SHORT + LINES  # far fewer than there are rows: sums are taken in parts
PART = LINE * LINES  # elements

SHAPES = [
    (1, 1),
    (7, 5),
    (64, 10),
    (33, 16),
    (0, 3),
    (PART // 4 - 1, 4),
    (PART // 4 + 1, 4),
    (3 * PART // 16, 16),
    (35 * PART // 8, 8),  # more parts than there are threads to add those of a column
    (2000, 6),
    (129, 100),
    (17, 257),
    (2, LINE - 1),
    (9, LINE),
    (19, LINE + 4),
    (3, 2 * LINE + 1),
    (1, 3, 1, 1),
    (2, 6, 5, 7),
    (4, 64, 4, 4),
    (5, 33, 3, 3),
    (0, 4, 2, 2),
]

CASES = [case for shape in SHAPES for case in rows(shape)]


def _call(function, change):
    """A call on float32 arrays of 3 rows and 4 columns, of which one is another."""
    arrays = dict(x=np.ones((3, 4), "f4"), c=np.ones(4, "f4"), y=np.ones((3, 4), "f4"), z=np.ones((3, 4), "f4"))
    arrays["space"] = np.empty(bias.workspace((3, 4)), np.uint8)
    names = {"bias_relu_grad": "xyzc", "column_sums": "xc"}[function]
    arrays |= change
    return lambda: getattr(bias, function)(*(arrays[name] for name in names), arrays["space"])


REFUSALS = [
    Refusal(f"bias, {name}", _call(function, change), error, message)
    for name, function, change, error, message in [
        ("3-D", "column_sums", {"x": np.ones((3, 4, 1))}, ShapeError, "column_sums: x has shape (3, 4, 1), wants (N,"),
        ("no columns", "column_sums", {"x": np.ones((3, 0))}, ShapeError, "column_sums: x has shape (3, 0), wants (N"),
        ("integers", "column_sums", {"x": np.ones((3, 4), int)}, KindError, "column_sums: x has type int64"),
        ("type", "column_sums", {"c": np.ones(4)}, KindError, "column_sums: out has type float64, wants float32"),
        ("length", "column_sums", {"c": np.ones(3, "f4")}, ShapeError, "column_sums: out has shape (3,), wants (4,)"),
        (
            "order",
            "column_sums",
            {"x": np.ones((4, 3), "f4").T},
            ShapeError,
            "column_sums: x has strides",
        ),
        ("shape", "bias_relu_grad", {"y": np.ones((2, 4), "f4")}, ShapeError, "bias_relu_grad: out has shape (2, 4)"),
        ("gaps", "column_sums", {"c": np.ones(8, "f4")[::2]}, ShapeError, "column_sums: out has strides (8,)"),
        ("list", "column_sums", {"c": [1.0] * 4}, KindError, "column_sums: out is builtins.list, wants numpy.ndarray"),
    ]
]
