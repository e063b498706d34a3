"""Rows for copy: dense arrays, parts of them, runs that are short, axes that meet and axes that run backwards."""

import numpy as np

from minigrad_kernels import copy
from minigrad_kernels.errors import KindError, ShapeError

from . import KernelCase, Output, Refusal

LAST = (0, 2, 3, 1)  # channels last


def part(*key, order=None):
    """A layout: the part that a key picks of a larger array."""

    def laid(array):
        shape = [
            n + 2 if one == "inner" else 2 * n if one == "back" else n for n, one in zip(array.shape, key, strict=True)
        ]
        order_ = order or tuple(range(array.ndim))
        whole = np.full([shape[axis] for axis in order_], 7, array.dtype).transpose(np.argsort(order_))
        picks = {"inner": slice(1, -1), "back": slice(None, None, -2), "all": slice(None)}
        view = whole[tuple(picks[one] for one in key)]
        view[...] = array
        return view

    return laid


ROWS = [  # shape, how the input lies, how the output lies
    ((5,), None, None),
    ((70000,), None, None),
    ((4, 40000), part("back", "inner"), None),
    ((3, 40), part("back", "all"), None),
    ((3, 40), part("all", "back"), None),
    ((2, 64, 5, 6), None, LAST),
    ((2, 64, 5, 6), part("all", "inner", "inner", "inner", order=LAST), LAST),
    ((2, 64, 5, 6), part("inner", "all", "back", "inner", order=LAST), LAST),
    ((2, 3, 4, 2, 30), part("back", "inner", "inner", "inner", "all"), None),
    ((1, 1, 30, 1), None, None),
    ((0, 3), None, None),
]

CASES = [
    KernelCase(
        family="copy",
        function="copy",
        shapes=(shape,),
        params={},
        outputs=(Output(shape, out_layout),),
        layouts=(layout,),
        nan=(0,) if np.prod(shape) else (),
    )
    for shape, layout, out_layout in ROWS
]

X = np.ones((2, 3), np.float32)
WRONG = {
    "copy shape": (lambda: copy.copy(X, X.T), ShapeError, "copy: out has shape (3, 2), wants (2, 3)"),
    "copy type": (lambda: copy.copy(X, X.astype("f8")), KindError, "copy: out has type float64, wants float32"),
    "copy list": (lambda: copy.copy([1.0], X), KindError, "backend: got builtins.list"),
}
REFUSALS = [Refusal(name, *row) for name, row in WRONG.items()]
