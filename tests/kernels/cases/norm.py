"""Rows for norm: channels about the width of a vector and of a tile, rows and samples about the edges of parts.

Standardised rows and samples also with means that are a thousand times their deviation, and samples with one element
far from all others.
"""

import numpy as np

from minigrad_kernels.bias.cpu import SHORT, TILE
from minigrad_kernels.layout import CHANNELS_LAST
from minigrad_kernels.norm.cpu import RUN

from . import KernelCase, Output

EPS = {"eps": 1e-5}
SPACED = "batch_statistics", "batch_norm_grads", "group_norm", "layer_norm_grads", "group_norm_grads"
# Statistics of samples are float64 whatever the type under test.
KINDS = {"+": "positive", "r": "positive", "s": lambda rng, shape: rng.random(shape) + 0.1}


def row(function, shape, inputs, outputs, terms, params=EPS, groups=None, nan=(), lies=None, **settings):
    """inputs and outputs: "x" for an array as x, "c" for a vector of channels, "+" for one of positive numbers, "r" for
    one number a row, "s" for one a sample or a group of it, "-" for what is absent; lies: how x is laid out."""
    layout = CHANNELS_LAST if len(shape) == 4 else None
    samples = shape[:1] if groups is None else (shape[0], groups)
    shapes = {"x": shape, "c": shape[1:2], "+": shape[1:2], "r": shape[:1], "s": samples, "-": None}
    layouts = [layout if letter == "x" else None for letter in inputs]
    return KernelCase(
        family="norm",
        function=function,
        shapes=tuple(shapes[letter] for letter in inputs),
        params=params,
        outputs=tuple(
            Output(shapes[letter], layout if letter == "x" else None, "float64" if letter == "s" else "float")
            for letter in outputs
        ),
        layouts=(lies or layouts[0], *layouts[1:]),
        kinds=tuple(KINDS.get(letter, "float") for letter in inputs),
        workspace=function in SPACED,
        terms=terms,
        exact=False,
        relative=True,
        nan=nan if shape[0] else (),
        **settings,
    )


# ---- batches ---------------------------------------------------------------------------------------------------------


def statistics(shape):
    return row("batch_statistics", shape, "x", "cc", SHORT + 4, params={})


def normalize_order(inputs, params):
    *vectors, residual = inputs
    return *vectors, params["eps"], residual, params["relu"]


def normalize(shape, weight="c", bias="c", residual="-", relu=False):
    inputs, nan = "xc+" + weight + bias + residual, (0, 5) if residual == "x" else (0,)
    return row("batch_normalize", shape, inputs, "x", 8, EPS | {"relu": relu}, nan=nan, arrange=normalize_order)


def grads_order(inputs, params):
    *others, out = inputs
    return *others, params["eps"], out


def grads(shape, weight="c", out="-", dresidual=""):
    settings = dict(arrange=grads_order, absent=() if dresidual else (None,))
    return row("batch_norm_grads", shape, "xxc+" + weight + out, "xcc" + dresidual, SHORT + 12, **settings)


# ---- rows and samples ------------------------------------------------------------------------------------------------


def channels_last(array):
    return np.ascontiguousarray(array.transpose(CHANNELS_LAST)).transpose(np.argsort(CHANNELS_LAST))


def lifted(array):
    """The array, its mean far from 0."""
    array = array + array.dtype.type(1000)
    return array if array.ndim == 2 else channels_last(array)


def peaked(array):
    """The array, the first element of each sample far from all others."""
    array = array.copy()
    array[(slice(None), *[0] * (array.ndim - 1))] = 300
    return array if array.ndim == 2 else channels_last(array)


def standardize(shape, lies=None):
    return row("standardize", shape, "x", "xr", 4, nan=(0,), lies=lies)


def standardize_grad(shape):
    return row("standardize_grad", shape, "xxr", "x", 4, params={}, nan=(0, 1, 2))


def sample(shape, groups=None, lies=None):
    """group_norm, or layer_norm where there are no groups."""
    name, extra = ("layer_norm", {}) if groups is None else ("group_norm", {"num_groups": groups})
    return row(name, shape, "xcc", "xss", 8, groups=groups, nan=(0, 1, 2), lies=lies, reference_params=extra)


def sample_grads(shape, groups=None):
    name = "layer_norm_grads" if groups is None else "group_norm_grads"
    return row(name, shape, "xxssc", "xcc", SHORT + 12, groups=groups, nan=(0, 1))


ROWS = [(1, 1), (1, 2), (3, 3), (5, 4), (2, 7), (17, 64), (2, 300)]
ROWS[:0] = [(33, 16), (31, 32), (9, 33), (3, 128), (2, 129), (1003, 10)]  # about the lanes and blocks of a GPU
LONG = [(1, 4096), (2, 4099)]  # up to where a block owns a row, and beyond
SHAPES = [(1, 1), (7, 5), (64, 10), (SHORT - 1, 3), (SHORT + 1, 17), (131, 16), (3, TILE - 1), (70, TILE + 1)]
SHAPES += [(31, 32), (32, 33), (2, 256), (3, 1025), (9, 1028), (1001, 4), (4200, 2)]
SHAPES += [(2100, 64)]  # many parts, the last line short
SHAPES += [(1, 3, 1, 1), (2, 6, 5, 7), (8, 64, 4, 4), (5, 33, 3, 3)]
# Channels of no whole vector, of one, of a line and more; rows of no whole line, of a run and more.
EXTENDED = [(7, 1), (131, 3), (2, 6, 5, 7), (70, 17), (33, 100), (9, 1028), (RUN // 64 + 1, 64)]
ENDS = [("x", False), ("-", True), ("x", True)]  # a residual, and whether ReLU follows
MANY = (4200, 64)  # more parts than threads of a GPU that add those of a column
SAMPLES = [(1, 1), (1, 2), (3, 3), (2, 7), (5, 16), (17, 17), (33, 64), (2, 300), (3, 1025)]
SAMPLES += [(1003, 10), (32 * SHORT + 40, 33)]  # parts of several SHORTs of rows, the last one short
# (shape, groups): a column, a vector, a tile and about them; one row; many images, in parts of several
IMAGES = [((1, 1, 1, 2), 1), ((2, 3, 1, 2), 3), ((3, 4, 1, 1), 2), ((2, 6, 5, 7), 3), ((5, 33, 3, 3), 11)]
IMAGES += [((2, 16, 8, 8), 16), ((1, TILE - 1, 2, 1), 5), ((2, TILE + 4, 2, 2), 4), ((1, 1028, 1, 3), 2)]
IMAGES += [((2, 64, 9, 31), 1), ((70, 8, 6, 6), 4)]
ALL = [*((shape,) for shape in SAMPLES), *IMAGES]

CASES = [
    *(statistics(shape) for shape in (*SHAPES, MANY)),
    *(normalize(shape) for shape in SHAPES),
    *(normalize((5, 6, 3, 3), *affine) for affine in ("c-", "-c", "--")),
    *(normalize(shape, residual=residual, relu=relu) for shape in EXTENDED for residual, relu in ENDS),
    *(grads(shape) for shape in (*SHAPES, MANY)),
    grads((5, 6, 3, 3), "-"),
    *(grads(shape, out="x", dresidual=dresidual) for shape in EXTENDED for dresidual in ("", "x")),
    *(standardize(shape, lies) for shape in (*ROWS, *LONG) for lies in (None, lifted)),
    *(standardize_grad(shape) for shape in (*ROWS, *LONG)),
    *(sample(*of) for of in ALL),
    *(sample(shape, *groups or (None,), lies) for shape, *groups in ALL if shape[1] > 1 for lies in (lifted, peaked)),
    *(sample_grads(*of) for of in ALL),
]
