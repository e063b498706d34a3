"""Rows for norm: channels about the width of a vector and of a tile, rows about the edges of pieces.

Standardised rows also with means that are a thousand times their deviation.
"""

import numpy as np

from minigrad_kernels import norm
from minigrad_kernels.bias.cpu import SHORT, TILE
from minigrad_kernels.layout import CHANNELS_LAST
from minigrad_kernels.norm.cpu import RUN

from . import KernelCase, Output

EPS = 1e-5


def row(function, shape, inputs, outputs, params=None, **settings):
    """inputs and outputs: "x" for an array as x, "c" for a vector of channels, "+" for one of positive numbers."""
    layout = CHANNELS_LAST if len(shape) == 4 else None
    shapes = {"x": shape, "c": shape[1:2], "+": shape[1:2], "-": None}
    return KernelCase(
        family="norm",
        function=function,
        shapes=tuple(shapes[kind] for kind in inputs),
        params=params or {},
        outputs=tuple(Output(shapes[kind], layout if kind == "x" else None) for kind in outputs),
        layouts=tuple(layout if kind == "x" else None for kind in inputs),
        kinds=tuple("positive" if kind == "+" else "float" for kind in inputs),
        **settings,
    )


def scratch(function):
    return lambda inputs, params, dtype: norm.workspace(function, inputs[0].shape)


def spread(reference, inputs, params):
    """What the roundings of the statistics are relative to: a variance takes those of its mean, twice."""
    mean, variance = reference(np.abs(inputs[0]))
    return mean, mean**2 + variance


def statistics(shape):
    settings = dict(terms=SHORT + 4, exact=False, magnitude=spread, workspace=scratch("batch_statistics"))
    return row("batch_statistics", shape, "x", "cc", **settings)


def normalize_order(inputs, params):
    *vectors, residual = inputs
    return *vectors, params["eps"], residual, params["relu"]


def normalize_size(reference, inputs, params):
    x, mean, variance, weight, bias, residual = (None if v is None else np.abs(v.astype(float)) for v in inputs)
    return reference(x, -mean, variance, weight, bias, params["eps"], residual, False)


def normalize(shape, weight="c", bias="c", residual="-", relu=False):
    inputs = "xc+" + weight + bias + residual
    nan = (0, 5) if shape[0] and residual == "x" else (0,) if shape[0] else ()
    settings = dict(terms=8, exact=False, magnitude=normalize_size, nan=nan, arrange=normalize_order)
    return row("batch_normalize", shape, inputs, "x", {"eps": EPS, "relu": relu}, **settings)


def grads_order(inputs, params):
    *others, out = inputs
    return *others, params["eps"], out


def grads_size(reference, inputs, params):
    """All terms with their absolute values, so that nothing cancels."""
    g, x, mean, variance, weight, _ = (None if v is None else np.abs(v.astype(float)) for v in inputs)
    axes = (0,) if x.ndim == 2 else (0, 2, 3)
    wide = [1 if axis in axes else -1 for axis in range(x.ndim)]
    deviation = np.sqrt(variance + params["eps"])
    normal = (x + mean.reshape(wide)) / deviation.reshape(wide)
    dw, db = (g * normal).sum(axes), g.sum(axes)
    dx = g + (db.reshape(wide) + normal * dw.reshape(wide)) / (x.size / x.shape[1])
    return dx * ((1 if weight is None else weight) / deviation).reshape(wide), dw, db, g


def grads(shape, weight="c", out="-", dresidual=""):
    settings = dict(terms=SHORT + 12, exact=False, magnitude=grads_size, workspace=scratch("batch_norm_grads"))
    settings |= dict(arrange=grads_order, absent=() if dresidual else (None,))
    return row("batch_norm_grads", shape, "xxc+" + weight + out, "xcc" + dresidual, {"eps": EPS}, **settings)


def lifted(array):
    """The array, its mean far from 0."""
    return array + array.dtype.type(1000)


def inner_rounding(array):
    """A rounding of float64, in which the sums over rows are taken, in units of the array's own."""
    return np.finfo(np.float64).eps / np.finfo(array.dtype).eps


def standardized_size(reference, inputs, params):
    """What is rounded lies about as far from 0 as out and the deviation, 1, however far from 0 the row's mean is.

    The CPU subtracts that in float64; GPUs first subtract the row's first element, which leaves its own distance.
    """
    (x,) = inputs
    out, scale = reference(x, params["eps"])
    far = 1 + inner_rounding(x) * np.abs(x).max(initial=1, axis=1) * scale * x.shape[1]
    return (1 + np.abs(out) + np.abs(out[:, :1])) * far[:, None], scale * far


def standardize(shape, layout=None):
    outputs, nan = (Output(shape), Output(shape[:1])), (0,) if shape[0] else ()
    settings = dict(layouts=(layout,), terms=4, exact=False, magnitude=standardized_size, nan=nan)
    return KernelCase("norm", "standardize", (shape,), {"eps": EPS}, outputs, **settings)


def standardize_grad_size(reference, inputs, params):
    """All terms with their absolute values, so that nothing cancels."""
    g, out, scale = (np.abs(array.astype(float)) for array in inputs)
    sums = g + g.mean(1, keepdims=True) + out * (g * out).mean(1, keepdims=True)
    return scale[:, None] * sums * (1 + inner_rounding(inputs[0]) * g.shape[1])


def standardize_grad(shape):
    settings = dict(kinds=("float", "float", "positive"), terms=4, exact=False, magnitude=standardize_grad_size)
    shapes, nan = (shape, shape, shape[:1]), (0, 1, 2) if shape[0] else ()
    return KernelCase("norm", "standardize_grad", shapes, {}, (Output(shape),), nan=nan, **settings)


ROW_SHAPES = [(1, 1), (1, 2), (3, 3), (5, 4), (2, 7), (17, 64), (2, 300)]
ROW_SHAPES[:0] = [(33, 16), (31, 32), (9, 33), (3, 128), (2, 129), (1003, 10)]  # about the lanes and blocks of a GPU
SHAPES = [(1, 1), (7, 5), (64, 10), (SHORT - 1, 3), (SHORT + 1, 17), (131, 16), (3, TILE - 1), (70, TILE + 1)]
SHAPES += [(31, 32), (32, 33), (2, 256), (3, 1025), (9, 1028), (1001, 4), (4200, 2)]
SHAPES += [(2100, 64)]  # many parts, the last line short
SHAPES += [(1, 3, 1, 1), (2, 6, 5, 7), (8, 64, 4, 4), (5, 33, 3, 3)]
# Channels of no whole vector, of one, of a line and more; rows of no whole line, of a run and more.
EXTENDED = [(7, 1), (131, 3), (2, 6, 5, 7), (70, 17), (33, 100), (9, 1028), (RUN // 64 + 1, 64)]
ENDS = [("x", False), ("-", True), ("x", True)]  # a residual, and whether ReLU follows
MANY = (4200, 64)  # more parts than threads of a GPU that add those of a column

CASES = [
    *(statistics(shape) for shape in (*SHAPES, MANY)),
    *(normalize(shape) for shape in (*SHAPES, (0, 3))),
    *(normalize((5, 6, 3, 3), *affine) for affine in ("c-", "-c", "--")),
    *(normalize(shape, residual=residual, relu=relu) for shape in EXTENDED for residual, relu in ENDS),
    *(grads(shape) for shape in (*SHAPES, MANY)),
    grads((5, 6, 3, 3), "-"),
    *(grads(shape, out="x", dresidual=dresidual) for shape in EXTENDED for dresidual in ("", "x")),
    *(standardize(shape) for shape in ROW_SHAPES),
    *(standardize(shape, lifted) for shape in ROW_SHAPES[:-1]),
    *(standardize_grad(shape) for shape in ROW_SHAPES),
]
