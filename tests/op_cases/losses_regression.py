"""Rows of the losses of numbers, and of distances between vectors.

Shapes that broadcast make a warning, so they stand in tests/test_losses.py.
"""

from . import Op, classes, flags, real, refusal, sample, ties

KINDS = ((3, 4), (), (0, 3), (1,), (2, 1, 3))


def _samples(*, options=(), kinks=True):
    """Every reduction on every shape, every option on one of them, and points at the kinks."""
    for reduction in ("mean", "sum", "none"):
        for shape in KINDS:
            smooth = 0 not in shape or reduction != "mean"  # the mean of nothing is NaN
            yield sample(real(*shape), real(*shape), reduction=reduction, smooth=smooth)
        for option in options:
            yield sample(real(3, 4), real(3, 4), reduction=reduction, **option)
        if kinks:
            for option in ({}, *options):
                yield sample(ties(5, 6), ties(5, 6), reduction=reduction, smooth=False, **option)


def _refusals(name):
    yield refusal(ValueError, f"{name}: shapes (3, 4) and (3,) do not broadcast", real(3, 4), real(3))
    yield refusal(TypeError, f"{name}: target is a float", real(3), 1.0)
    yield refusal(TypeError, f"{name}: input has elements int64", classes(3, 4), classes(3, 4))
    yield refusal(TypeError, f"{name}: input has elements bool", flags(4), flags(4))
    for value in ("median", "batchmean", None, 2):
        yield refusal(ValueError, f"{name}: reduction is {value!r}", real(3), real(3), reduction=value)


def _wrong_option(name, option, values):
    for error, value in ((TypeError, "a"), (TypeError, None), *((ValueError, value) for value in values)):
        yield refusal(error, f"{name}: {option} is", real(3), real(3), **{option: value})


NAN, INFINITY = float("nan"), float("inf")
BETAS = tuple({"beta": beta} for beta in (0, 0.0, 0.5, 1, 2.0, INFINITY))
DELTAS = tuple({"delta": delta} for delta in (0.3, 1, 2.0, INFINITY))

OPS = [
    Op("mse_loss", (*_samples(kinks=False), sample(real(3, 4), classes(3, 3, 4))), tuple(_refusals("mse_loss"))),
    Op("l1_loss", (*_samples(), sample(classes(3, 3, 4), real(3, 4))), tuple(_refusals("l1_loss"))),
    Op(
        "smooth_l1_loss",
        (*_samples(options=BETAS), sample(real(3, 4), classes(3, 3, 4))),
        (*_refusals("smooth_l1_loss"), *_wrong_option("smooth_l1_loss", "beta", (-1, NAN))),
    ),
    Op(
        "huber_loss",
        (*_samples(options=DELTAS), sample(real(3, 4), real(3, 4), "sum", 0.7)),
        (*_refusals("huber_loss"), *_wrong_option("huber_loss", "delta", (-1, 0, 0.0, NAN))),
    ),
    Op(
        "cosine_similarity",
        (
            sample(real(3, 4), real(3, 4)),
            sample(real(3, 4), real(3, 4), 0),
            sample(real(3, 4), real(3, 4), dim=-1, eps=1e-6),
            sample(real(2, 3, 4), real(2, 3, 4)),
            sample(real(4), real(4), 0),
            sample(real(2, 1, 4), real(3, 1), -1),
            sample(real(5, 4), real(4)),
            sample(real(3, 4), real(3, 4), eps=0),
            sample(real(3, 4), real(3, 4), eps=0.1),
            sample(real(), real(), 0),
            sample(real(2, 0), real(2, 0)),
            sample(real(0, 3), real(0, 3)),
            sample(real(3, 4), classes(5, 3, 4)),
            sample(classes(5, 3, 4), real(3, 4)),
            sample(real(1, 1), real(3, 4)),
        ),
        (
            refusal(IndexError, "dim is 2", real(3, 4), real(3, 4), 2),
            refusal(IndexError, "dim is 1, wanted -1 to 0", real(), real()),
            refusal(ValueError, "cosine_similarity: shapes (3, 4) and (3,) do not", real(3, 4), real(3)),
            refusal(TypeError, "cosine_similarity: x2 is a float", real(3, 4), 1.0),
        ),
    ),
    Op(
        "pairwise_distance",
        (
            sample(real(3, 4), real(3, 4)),
            *(sample(real(3, 4), real(3, 4), p) for p in (1, 1.5, 2, 3.0, INFINITY, -1)),
            sample(real(3, 4), real(3, 4), 0, smooth=False),
            sample(real(3, 4), real(3, 4), p=2.0, eps=0.1, keepdim=True),
            sample(real(2, 3, 4), real(3, 1)),
            sample(real(5, 4), real(4)),
            sample(real(4), real(4), keepdim=True),
            sample(real(), real()),
            sample(real(0, 3), real(0, 3)),
            sample(real(3, 0), real(3, 0), smooth=False),
            sample(real(3, 4), classes(5, 3, 4)),
        ),
        (
            refusal(ValueError, "shapes (3, 4) and (3,) do not", real(3, 4), real(3)),
            refusal(TypeError, "pairwise_distance: x1 is a float", 1.0, real(3, 4)),
            refusal(TypeError, "p is 'a'", real(3, 4), real(3, 4), "a"),
        ),
    ),
    Op(
        "triplet_margin_loss",
        (
            *(sample(real(5, 4), real(5, 4), real(5, 4), reduction=r) for r in ("mean", "sum", "none")),
            sample(real(5, 4), real(5, 4), real(5, 4), 0.5, 1, 1e-3, True),
            sample(real(5, 4), real(5, 4), real(5, 4), margin=2, p=3, eps=0.1, swap=True, reduction="none"),
            sample(real(5, 4), real(1, 4), real(5, 1)),
            sample(real(2, 3, 4), real(2, 3, 4), real(2, 3, 4)),
            sample(real(4), real(4), real(4)),
            sample(real(), real(), real()),
            sample(real(0, 3), real(0, 3), real(0, 3), smooth=False),
        ),
        (
            refusal(ValueError, "shapes (3, 4) and (2, 4)", real(3, 4), real(2, 4), real(3, 4)),
            refusal(ValueError, "reduction is 'most'", real(3, 4), real(3, 4), real(3, 4), reduction="most"),
        ),
    ),
]
