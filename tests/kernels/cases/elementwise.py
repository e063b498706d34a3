"""Rows for elementwise: runs cut at their edges, both orders of axes in memory."""

import numpy as np

from minigrad_kernels.elementwise.cpu import DRAWN
from minigrad_kernels.layout import CHANNELS_LAST
from minigrad_kernels.toolchain.cpu import SMALL

from . import KernelCase, Output

SHAPES = [(), (1,), (0,), (7,), (3, 0, 2), (13, 17), (2, 5, 3, 4), (SMALL - 1,), (SMALL,), (2 * SMALL + 1,)]


FORMS = [*((shape, None) for shape in SHAPES), ((2, 5, 3, 4), CHANNELS_LAST), ((3, 4, 5), (1, 2, 0))]


def row(function, shape, layout=None, **options):
    arrays = 2 if function.endswith("grad") else 1
    settings = dict(params={}, nan=tuple(range(arrays)) if np.prod(shape) else ()) | options
    shapes, layouts, outputs = (shape,) * arrays, (layout,) * arrays, (Output(shape, layout),)
    return KernelCase("elementwise", function, shapes, outputs=outputs, layouts=layouts, **settings)


def leaky(function, shape, negative_slope, layout=None):
    params = dict(negative_slope=negative_slope)
    return row(function, shape, layout, params=params, terms=2, exact=negative_slope != 0.1)


def dropout(shape, p, seed=11, step=3):
    """Roundings: 1 - p, its inverse, the product."""
    settings = {} if p < 1 else {"nan": ()}
    return row("dropout", shape, params=dict(p=p, seed=seed, step=step), terms=3, exact=p in (0, 0.5, 1), **settings)


DROPPED = (1,), (0,), (3,), (4,), (5,), (6, 7), (DRAWN - 1,), (DRAWN + 1,), (SMALL + 3,)
CASES = [
    *(row(name, *form) for name in ("relu", "relu_grad") for form in FORMS),
    *(leaky(name, shape, 0.25, layout) for name in ("leaky_relu", "leaky_relu_grad") for shape, layout in FORMS),
    *(leaky(name, (997,), slope) for name in ("leaky_relu", "leaky_relu_grad") for slope in (0.1, 0, 1, -0.5)),
    # terms: float32's polynomials round 4 times; in float64 the reference does, in e^{-x^2} and in its sum
    *(row("erf", *form, exact=False, terms=20) for form in FORMS),
    *(dropout(shape, 0.5) for shape in DROPPED),
    *(dropout((997,), p) for p in (0, 0.1, 0.25, 0.9, 1, 1e-9, 1 - 2**-30, 1 - 2**-34)),
    dropout((101,), 0.5, seed=2**64 - 1, step=2**64 - 1),
    dropout((101,), 0.5, seed=2**32, step=2**32 + 5),
]
