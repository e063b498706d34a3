"""Rows for elementwise: runs cut at their edges, both orders of axes in memory."""

import numpy as np

from minigrad_kernels.elementwise.cpu import DRAWN, SMALL
from minigrad_kernels.layout import CHANNELS_LAST

from . import KernelCase, Output

SHAPES = [(), (1,), (0,), (7,), (3, 0, 2), (13, 17), (2, 5, 3, 4), (SMALL - 1,), (SMALL,), (2 * SMALL + 1,)]


def row(function, shape, layout=None, arrays=1, nan=(), **options):
    return KernelCase(
        family="elementwise",
        function=function,
        shapes=(shape,) * arrays,
        params=options.pop("params", {}),
        outputs=(Output(shape, layout),),
        layouts=(layout,) * arrays,
        nan=nan if np.prod(shape) else (),
        **options,
    )


def leaky(function, shape, negative_slope, layout=None):
    settings = dict(params=dict(negative_slope=negative_slope), terms=2, exact=negative_slope != 0.1)
    arrays = 2 if function.endswith("grad") else 1
    return row(function, shape, layout, arrays, nan=tuple(range(arrays)), **settings)


def dropout(shape, p, seed=11, step=3, layout=None):
    return KernelCase(
        family="elementwise",
        function="dropout",
        shapes=(shape,),
        params=dict(p=p, seed=seed, step=step),
        outputs=(Output(shape, layout),),
        layouts=(layout,),
        terms=3,  # 1 - p, its inverse, the product
        exact=p in (0, 0.5, 1),
        nan=(0,) if np.prod(shape) and p < 1 else (),
    )


CASES = [
    *(row("relu", shape, nan=(0,)) for shape in SHAPES),
    *(row("relu_grad", shape, arrays=2, nan=(0, 1)) for shape in SHAPES),
    row("relu", (2, 5, 3, 4), CHANNELS_LAST, nan=(0,)),
    row("relu", (3, 4, 5), (1, 2, 0), nan=(0,)),
    row("relu_grad", (2, 5, 3, 4), CHANNELS_LAST, arrays=2),
    *(leaky(name, shape, 0.25) for name in ("leaky_relu", "leaky_relu_grad") for shape in SHAPES),
    *(leaky(name, (997,), slope) for name in ("leaky_relu", "leaky_relu_grad") for slope in (0.1, 0, 1, -0.5)),
    leaky("leaky_relu", (2, 5, 3, 4), 0.25, CHANNELS_LAST),
    leaky("leaky_relu_grad", (3, 4, 5), 0.25, (1, 2, 0)),
    # terms: float32's polynomials round 4 times; in float64 the reference does, in e^{-x^2} and in its sum
    *(row("erf", shape, nan=(0,), exact=False, terms=20) for shape in SHAPES),
    row("erf", (2, 5, 3, 4), CHANNELS_LAST, nan=(0,), exact=False, terms=20),
    *(
        dropout(shape, 0.5)
        for shape in ((1,), (0,), (3,), (4,), (5,), (6, 7), (DRAWN - 1,), (DRAWN + 1,), (SMALL + 3,))
    ),
    *(dropout((997,), p) for p in (0, 0.1, 0.25, 0.9, 1, 1e-9, 1 - 2**-30, 1 - 2**-34)),
    dropout((101,), 0.5, seed=2**64 - 1, step=2**64 - 1),
    dropout((101,), 0.5, seed=2**32, step=2**32 + 5),
]
