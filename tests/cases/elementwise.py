"""Rows for elementwise: runs cut at their edges, both orders of axes in memory."""

import numpy as np

from minigrad_kernels.elementwise.cpu import RUN
from minigrad_kernels.layout import CHANNELS_LAST

from . import KernelCase, Output

SHAPES = [(), (1,), (0,), (7,), (3, 0, 2), (13, 17), (2, 5, 3, 4), (RUN - 1,), (RUN,), (2 * RUN + 1,)]


def row(function, shape, layout=None, arrays=1, nan=()):
    return KernelCase(
        family="elementwise",
        function=function,
        shapes=(shape,) * arrays,
        params={},
        outputs=(Output(shape, layout),),
        layouts=(layout,) * arrays,
        nan=nan if np.prod(shape) else (),
    )


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
    *(dropout(shape, 0.5) for shape in ((1,), (0,), (3,), (4,), (5,), (6, 7), (RUN + 3,))),
    *(dropout((997,), p) for p in (0, 0.1, 0.25, 0.9, 1)),
    dropout((101,), 0.5, seed=2**64 - 1, step=2**64 - 1),
    dropout((101,), 0.5, seed=2**32, step=2**32 + 5),
]
