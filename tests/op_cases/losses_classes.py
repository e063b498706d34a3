"""Rows of the losses of classes."""

import numpy as np

from . import Draw, Op, classes, given, probabilities, real, refusal, sample

WEIGHT = Draw((3,), "positive", False)
SHAPES = (((4, 3), (4,)), ((3,), ()), ((2, 3, 5), (2, 5)), ((2, 3, 2, 2), (2, 2, 2)), ((2, 3, 2, 1, 2), (2, 2, 1, 2)))


def _samples():
    """Those of both losses."""
    for reduction in ("mean", "sum", "none"):
        for scores, target in SHAPES:
            yield sample(real(*scores), classes(3, *target), reduction=reduction)
        yield sample(real(4, 3), classes(3, 4), WEIGHT, reduction=reduction)
        yield sample(real(6, 3), given(1, 1, 0, 2, 1, 0), WEIGHT, ignore_index=1, reduction=reduction)
        yield sample(real(2, 3, 2), classes(3, 2, 2), WEIGHT, ignore_index=-1, reduction=reduction)
        yield sample(real(0, 3), classes(3, 0), reduction=reduction, smooth=reduction != "mean")  # of nothing, NaN
    yield sample(real(4, 3), given(1, 7, 0, 7), ignore_index=7, reduction="none")
    yield sample(real(4, 3), given(1, -5, 0, -5), ignore_index=-5)
    yield sample(real(4, 3), given(1, 1, 1, 1), ignore_index=1, reduction="sum")
    yield sample(real(4, 1), classes(1, 4))
    yield sample(real(1, 3), classes(3, 1))
    yield sample(real(2, 3, 0), classes(3, 2, 0), reduction="sum")
    yield sample(real(65, 10), classes(10, 65))


def _smoothed():
    """Those of cross_entropy alone: label smoothing and class probabilities."""
    for reduction in ("mean", "sum", "none"):
        yield sample(real(4, 3), classes(3, 4), label_smoothing=0.2, reduction=reduction)
        yield sample(real(4, 3), given(1, 1, 0, 2), WEIGHT, label_smoothing=0.2, ignore_index=1, reduction=reduction)
        for shape in ((4, 3), (3,), (2, 3, 2), (2, 3, 2, 2), (0, 3)):
            smooth = 0 not in shape or reduction != "mean"
            yield sample(real(*shape), probabilities(*shape), reduction=reduction, smooth=smooth)
        yield sample(real(4, 3), probabilities(4, 3), WEIGHT, label_smoothing=0.1, reduction=reduction)
        yield sample(real(2, 3, 2), probabilities(2, 3, 2), real(3), reduction=reduction)
    yield sample(real(4, 3), classes(3, 4), label_smoothing=1)
    yield sample(real(2, 3, 2), classes(3, 2, 2), WEIGHT, label_smoothing=0.3)
    yield sample(real(4, 3), real(4, 3), label_smoothing=0.3)
    yield sample(real(4, 1), probabilities(4, 1))


def _refusals(name):
    for shape in ((3,), (2, 1), ()):
        yield refusal(ValueError, f"{name}: target has shape {shape}, wanted (2,)", real(2, 3), classes(3, *shape))
    yield refusal(ValueError, f"{name}: target has shape (2,), wanted ()", real(3), classes(3, 2))
    yield refusal(ValueError, "target[0] = 3, but there are 3 classes (0..2)", real(2, 3), given(3, 0))
    yield refusal(ValueError, "target[1] = -1, but there are 3 classes (0..2)", real(2, 3), given(2, -1))
    yield refusal(TypeError, f"{name}: target has elements", real(2, 3), real(2))
    yield refusal(TypeError, f"{name}: target is a list", real(2, 3), [1, 2])
    yield refusal(ValueError, f"{name}: input has shape ()", real(), classes(3))
    yield refusal(TypeError, f"{name}: input has elements int64", classes(3, 2, 3), classes(3, 2))
    yield refusal(TypeError, f"{name}: input has elements int64", classes(3, 2, 3), real(2, 3))
    yield refusal(ValueError, f"{name}: ", real(2, 0), classes(1, 2))
    for value in ("median", "batchmean", None, 1):
        yield refusal(ValueError, f"{name}: reduction is", real(2, 3), classes(3, 2), reduction=value)
    yield refusal(ValueError, f"{name}: weight has shape", real(2, 3), classes(3, 2), real(2))
    yield refusal(RuntimeError, f"{name}: weight requires a gradient", real(2, 3), classes(3, 2), real(3))
    yield refusal(TypeError, f"{name}: weight is a ndarray", real(2, 3), classes(3, 2), np.ones(3))
    for value in (1.5, None, True):
        yield refusal(TypeError, f"{name}: ignore_index is", real(2, 3), classes(3, 2), ignore_index=value)


def _refusals_of_smoothing():
    for error, value in ((TypeError, "a"), (ValueError, float("nan")), (ValueError, 1.5)):
        text = "cross_entropy: label_smoothing is"
        yield refusal(error, text, real(2, 3), classes(3, 2), label_smoothing=value)
    text = "cross_entropy: ignore_index is 1, but target holds probabilities"
    yield refusal(ValueError, text, real(2, 3), probabilities(2, 3), ignore_index=1)
    yield refusal(ValueError, "cross_entropy: weight has shape (2,)", real(2, 3), probabilities(2, 3), real(2))
    yield refusal(TypeError, "cross_entropy: target has elements float64", real(2, 3), probabilities(1, 3))


OPS = [
    Op("nll_loss", tuple(_samples()), tuple(_refusals("nll_loss"))),
    Op(
        "cross_entropy",
        (*_samples(), *_smoothed()),
        (*_refusals("cross_entropy"), *_refusals_of_smoothing()),
    ),
]
