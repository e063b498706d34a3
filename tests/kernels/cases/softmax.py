"""Rows for softmax: one class, few, many, and enough for a team; ignored targets."""

import numpy as np

from minigrad_kernels import softmax
from minigrad_kernels.errors import KindError, ShapeError
from minigrad_kernels.softmax import reference as softmax_reference

from . import KernelCase, Output, Refusal

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


def _rows(x=(3, 4), target=(0, 1, 2), losses=3, kind="f4"):
    """A call of cross_entropy on arrays of these shapes."""
    arrays = np.ones(x, kind), np.array(target), IGNORED, np.ones(losses, "f4"), np.ones(3, "f4")
    return lambda: softmax.cross_entropy(*arrays)


def _total(mean=True, out=(), divisor=(), space=None):
    x, target = np.ones((3, 4), "f4"), np.zeros(3, np.int64)
    space = np.empty(softmax.workspace(3), np.uint8) if space is None else space
    outputs = np.ones(out, "f4"), np.ones(divisor, "f4"), np.ones(3, "f4")
    return lambda: softmax.cross_entropy_total(x, target, IGNORED, mean, *outputs, space)


def _total_grad(g=(), divisor=(), dx=(3, 4)):
    x, target = np.ones((3, 4), "f4"), np.zeros(3, np.int64)
    arrays = np.ones(g, "f4"), x, target, IGNORED, np.ones(3, "f4"), np.ones(divisor, "f4"), np.ones(dx, "f4")
    return lambda: softmax.cross_entropy_grad(*arrays)


REFUSALS = [
    Refusal("total, mean", _total(mean=1), KindError, "cross_entropy: mean is 1, wants True or False"),
    Refusal("total, out", _total(out=(1,)), ShapeError, "cross_entropy: out has shape (1,), wants ()"),
    Refusal("total, divisor", _total(divisor=(3,)), ShapeError, "cross_entropy: divisor has shape (3,), wants ()"),
    Refusal(
        "total, space", _total(space=np.ones(9)), KindError, "cross_entropy: workspace has type float64, wants uint8"
    ),
    Refusal("total, dx", _total_grad(dx=(4, 3)), ShapeError, "cross_entropy_grad: dx has shape (4, 3), wants"),
    Refusal("total, g", _total_grad(g=(4,)), ShapeError, "cross_entropy_grad: g has shape (4,), wants (3,) or ()"),
    Refusal(
        "total, g's divisor",
        _total_grad(divisor=(1,)),
        ShapeError,
        "cross_entropy_grad: divisor has shape (1,), wants ()",
    ),
] + [
    Refusal(f"cross entropy, {name}", call, error, f"cross_entropy: {message}")
    for name, call, error, message in [
        ("x", _rows(x=(3, 4, 1)), ShapeError, "x has shape (3, 4, 1), wants (rows, classes)"),
        ("type", _rows(kind="i4"), KindError, "x has type int32, wants float32 or float64"),
        ("losses", _rows(losses=4), ShapeError, "losses has shape (4,), wants (3,)"),
        ("number of targets", _rows(target=(0, 1)), ShapeError, "target has shape (2,), wants (3,)"),
        ("target", _rows(target=(0, 4, 9)), ShapeError, "target[1] = 4, but there are 4 classes (0..3)"),
        ("negative target", _rows(target=(0, 1, -1)), ShapeError, "target[2] = -1, but there are 4 classes"),
    ]
]
