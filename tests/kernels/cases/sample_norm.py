"""Rows for group_norm and layer_norm: columns about the width of a vector and of a tile, samples about those of a part.

Forward also with means that are a thousand times the deviation from them, and with an element far from all others.
"""

import numpy as np

from minigrad_kernels import norm
from minigrad_kernels.bias.cpu import SHORT, TILE
from minigrad_kernels.layout import CHANNELS_LAST

from . import KernelCase, Output

EPS = 1e-5


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


def per_column(vector, x):
    return vector.reshape(1, -1, *[1] * (x.ndim - 2))


def per_group(statistic, x):
    """A statistic of (N,) or (N, groups) for the elements of x, and how many each belongs to."""
    groups = statistic.shape[1] if statistic.ndim == 2 else 1
    wide = np.repeat(statistic.reshape(len(x), groups), x.shape[1] // groups, axis=1)
    return wide.reshape(len(x), x.shape[1], *[1] * (x.ndim - 2))


def forward_size(reference, inputs, params):
    """What is rounded: the distance from the mean, the standardised element, the result.

    In float64 also the mean, and squares of distances from an element, which may be far from the mean itself.
    """
    x, weight, bias = inputs
    groups = params["groups"]
    settings = (EPS,) if groups is None else (EPS, groups)
    normal, mean, variance = reference(x, np.ones_like(weight), np.zeros_like(bias), *settings)
    deviation = np.sqrt(variance + EPS)
    rows = normal.reshape(*mean.shape, -1) if x.size else np.zeros((*mean.shape, 1))
    inner = np.finfo(float).eps / np.finfo(x.dtype).eps
    far = 1 + inner * (np.abs(mean) / deviation + (rows**2).max(-1))
    out = (1 + np.abs(normal)) * per_column(np.abs(weight), x) * per_group(far, x) + per_column(np.abs(bias), x)
    return out, deviation * far, deviation**2 * far


def forward(shape, groups=None, lies=None):
    """A row of group_norm, or of layer_norm where there are no groups."""
    function, order = ("layer_norm", None) if groups is None else ("group_norm", CHANNELS_LAST)
    statistics = shape[:1] if groups is None else (shape[0], groups)
    return KernelCase(
        family="norm",
        function=function,
        shapes=(shape, shape[1:2], shape[1:2]),
        params={"eps": EPS},
        outputs=(Output(shape, order), *[Output(statistics, kind="float64")] * 2),
        layouts=(lies or order,),
        terms=8,
        exact=False,
        magnitude=lambda reference, inputs, params: forward_size(reference, inputs, {"groups": groups}),
        reference_params={} if groups is None else {"num_groups": groups},
        workspace=None if groups is None else lambda inputs, params, dtype: norm.workspace(function, shape),
        nan=(0, 1, 2) if shape[0] else (),
    )


def grads_size(reference, inputs, params):
    """All terms with their absolute values, so that nothing cancels."""
    g, x, mean, variance, weight = (np.abs(v.astype(float)) for v in inputs)
    deviation = np.sqrt(per_group(variance, x) + EPS)
    z, h = (x + per_group(mean, x)) / deviation, g * per_column(weight, x)
    count = max(x.size // max(mean.size, 1), 1)

    def average(array):
        return per_group(array.reshape(*mean.shape, array.size // max(mean.size, 1)).sum(-1) / count, x)

    axes = (0, *range(2, x.ndim))
    return (h + average(h) + z * average(h * z)) / deviation, (g * z).sum(axes), g.sum(axes)


def doubles(rng, shape):
    """Means, which are of float64 whatever the type under test."""
    return rng.standard_normal(shape)


def positive_doubles(rng, shape):
    return rng.random(shape) + 0.1


def grads(shape, groups=None):
    function, order = ("layer_norm_grads", None) if groups is None else ("group_norm_grads", CHANNELS_LAST)
    statistics = shape[:1] if groups is None else (shape[0], groups)
    return KernelCase(
        family="norm",
        function=function,
        shapes=(shape, shape, statistics, statistics, shape[1:2]),
        params={"eps": EPS},
        outputs=(Output(shape, order), Output(shape[1:2]), Output(shape[1:2])),
        layouts=(order, order),
        kinds=("float", "float", doubles, positive_doubles),
        terms=SHORT + 12,
        exact=False,
        magnitude=grads_size,
        workspace=lambda inputs, params, dtype: norm.workspace(function, shape),
        nan=(0, 1) if shape[0] else (),
    )


ROWS = [(1, 1), (1, 2), (3, 3), (2, 7), (5, 16), (17, 17), (33, 64), (2, 300), (3, 1025)]
ROWS += [(1003, 10), (32 * SHORT + 40, 33)]  # parts of several SHORTs of rows, the last one short
# (shape, groups): a column, a vector, a tile and about them; one row; many images, in parts of several
IMAGES = [((1, 1, 1, 2), 1), ((2, 3, 1, 2), 3), ((3, 4, 1, 1), 2), ((2, 6, 5, 7), 3), ((5, 33, 3, 3), 11)]
IMAGES += [((2, 16, 8, 8), 16), ((1, TILE - 1, 2, 1), 5), ((2, TILE + 4, 2, 2), 4), ((1, 1028, 1, 3), 2)]
IMAGES += [((2, 64, 9, 31), 1), ((70, 8, 6, 6), 4)]
NARROW = [shape for shape in ROWS if 1 < shape[1]]

CASES = [
    *(forward(shape) for shape in ROWS),
    *(forward(*image) for image in IMAGES),
    *(forward(shape, None, lies) for shape in NARROW for lies in (lifted, peaked)),
    *(forward(*image, lies) for image in IMAGES for lies in (lifted, peaked)),
    *(grads(shape) for shape in ROWS),
    *(grads(*image) for image in IMAGES),
]
