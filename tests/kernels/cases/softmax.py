"""Rows for softmax: one class, few, many, and enough for a team; ignored targets."""

import numpy as np

from minigrad_kernels import softmax
from minigrad_kernels.softmax import reference as softmax_reference

from . import KernelCase, Output

SHAPES = [(0, 3), (1, 1), (5, 1), (3, 2), (64, 10), (7, 17), (130, 129)]
SHAPES += [(9, 32), (10, 33), (7, 128), (33, 3), (1003, 10)]  # about the lanes and blocks of a GPU
# About the threads of the block that adds losses, and how many losses a thread adds before their sum.
TOTALS = [*SHAPES, (256, 2), (257, 3), (4096, 2), (4097, 2), (12295, 1)]
IGNORED = -100


def relative(classes):
    """Roundings of a result: exp has 2, a sum one per class."""
    return classes + 8


def absolute(reference, inputs, params):
    """exp(x - m) takes the rounding of x - m as a relative error: at most the largest difference of logits."""
    results = reference(*inputs, *params.values())
    results = results if isinstance(results, tuple) else (results,)
    largest = 1 + 2 * max((np.abs(v).max() for v in inputs if v is not None and v.size), default=0)
    return tuple((1 + np.abs(result)) * largest for result in results)


def case(function, shapes, outputs, terms, **settings):
    outputs = tuple(map(Output, outputs))
    return KernelCase("softmax", function, shapes, settings.pop("params", {}), outputs, terms=terms, **settings)


def row(function, shape):
    return case(function, (shape,), (shape,), relative(shape[1]), exact=False, magnitude=absolute)


def softmax_grad(shape):
    def size(reference, inputs, params):
        g, out = map(np.abs, inputs)
        return out * (g + (g * out).sum(1, keepdims=True))

    nan = (0, 1) if np.prod(shape) else ()
    return case("softmax_grad", (shape, shape), (shape,), shape[1] + 2, magnitude=size, nan=nan)


def log_softmax_grad(shape):
    def size(reference, inputs, params):
        g, out = (np.abs(v.astype(float)) for v in inputs)
        return g + np.exp(inputs[1].astype(float)) * (1 + out) * g.sum(1, keepdims=True)

    nan = (0,) if np.prod(shape) else ()
    return case("log_softmax_grad", (shape, shape), (shape,), shape[1] + 8, exact=False, magnitude=size, nan=nan)


def targets(classes):
    """Classes, some of them ignored."""

    def draw(rng, shape):
        target = rng.integers(0, classes, shape)
        target[::3] = IGNORED
        return target

    return draw


def cross_entropy(shape):
    rows = shape[:1]
    settings = dict(params=dict(ignore_index=IGNORED), kinds=("float", targets(shape[1])), exact=False)
    size = lambda reference, inputs, params: absolute(reference, (inputs[0], inputs[1] * 0), params)
    return case("cross_entropy", (shape, rows), (rows, rows), relative(shape[1]), magnitude=size, **settings)


def ignored(rng, size):
    return np.int64(IGNORED)


def cross_entropy_grad(shape, total=False):
    """Of the losses of rows, or of their sum over a divisor."""

    def size(reference, inputs, params):
        g, x, _, _, logsumexp, divisor = inputs
        weight, shift = np.abs(g / (divisor if total else 1)).reshape(-1, 1), logsumexp[:, None]
        return weight * (1 + np.exp(x.astype(float) - shift) * (1 + np.abs(x) + np.abs(shift)))

    rows, kinds = shape[:1], ("float", "float", targets(shape[1]), ignored, "float", "positive")
    shapes = () if total else rows, shape, rows, (), rows, () if total else None
    return case("cross_entropy_grad", shapes, (shape,), 7, kinds=kinds, exact=False, magnitude=size)


def cross_entropy_total(shape, mean, label=None):
    def size(reference, inputs, params):
        """A sum takes the roundings of its terms, a mean their mean."""
        losses, logsumexp = absolute(softmax_reference.cross_entropy, (inputs[0], inputs[1] * 0), {"ignore_index": 1})
        divisor = max((inputs[1] != IGNORED).sum(), 1) if mean else 1
        return losses.sum() / divisor, divisor, logsumexp

    drawn = targets(shape[1]) if label is None else lambda rng, size: np.full(size, label)
    settings = dict(
        params=dict(ignore_index=IGNORED, mean=mean),
        kinds=("float", drawn),
        exact=False,
        magnitude=size,
        workspace=lambda inputs, params, dtype: softmax.workspace(len(inputs[0])),
        nan=(0,) if label is None and shape[0] > 1 else (),
    )
    outputs = (), (), shape[:1]
    return case("cross_entropy_total", (shape, shape[:1]), outputs, relative(shape[1]) + 40, **settings)


CASES = [
    *(row("softmax", shape) for shape in SHAPES),
    *(row("log_softmax", shape) for shape in SHAPES),
    *(softmax_grad(shape) for shape in SHAPES),
    *(log_softmax_grad(shape) for shape in SHAPES),
    *(cross_entropy(shape) for shape in SHAPES),
    *(cross_entropy_grad(shape, total) for shape in SHAPES for total in (False, True)),
    *(cross_entropy_total(shape, mean) for shape in TOTALS for mean in (True, False) if shape[0] > 1 or not mean),
    cross_entropy_total((6, 4), False, IGNORED),
]
