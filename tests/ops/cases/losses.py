"""Rows of the losses and of distances between vectors, defined as in PyTorch.

Losses that broadcast: tests/ops/test_ops_edges.py.
"""

from . import classes, constant, flags, given, op, positive, probabilities, real, refusal, sample, ties

REDUCTIONS = ("mean", "sum", "none")
INF = float("inf")


def _refused(name, draw=real):
    return (
        refusal(TypeError, f"{name}: target is a float", draw(3), 1.0),
        refusal(TypeError, f"{name}: input has elements int64", classes(3, 3), classes(3, 3)),
    )


# ---- of numbers ------------------------------------------------------------------------------------------------------


def _pairwise(name, *rows):
    """A loss of each element of input and target, of one shape."""
    return op(
        name,
        *(sample(real(3, 4), real(3, 4), reduction=reduction) for reduction in REDUCTIONS),
        sample(ties(5, 6), ties(5, 6), reduction="none", smooth=False),
        *(sample(real(), real()), sample(real(0, 3), real(0, 3), reduction="sum")),
        *rows,
        *_refused(name),
        refusal(ValueError, f"{name}: shapes (3, 4) and (3,) do not broadcast", real(3, 4), real(3)),
    )


def _bent(name, option, low, high, wrong):
    """One with an option that says where it bends."""
    kinks = (sample(ties(5, 6), ties(5, 6), reduction="none", smooth=False, **{option: one}) for one in (low, high))
    smooth = (sample(real(3, 4), real(3, 4), **{option: one}) for one in (low, high))
    return _pairwise(
        name, *smooth, *kinks, refusal(ValueError, f"{name}: {option} is {wrong}", real(3), real(3), **{option: wrong})
    )


NUMBERS = [
    *(_pairwise(name, sample(real(4), classes(3, 4))) for name in ("mse_loss", "l1_loss")),
    _bent("smooth_l1_loss", "beta", 0, 0.5, -1),
    _bent("huber_loss", "delta", 0.3, INF, 0),
]

# ---- of vectors ------------------------------------------------------------------------------------------------------


VECTORS = [
    op(
        "cosine_similarity",
        sample(real(2, 1, 4), real(3, 1), -1),
        sample(real(3, 4), real(3, 4), dim=0, eps=0.1),
        refusal(ValueError, "cosine_similarity: shapes (3, 4) and (3,) do not", real(3, 4), real(3)),
    ),
    op(
        "pairwise_distance",
        sample(real(2, 3, 4), real(3, 1), p=2.0, eps=0.1, keepdim=True),
        *(sample(real(3, 4), real(3, 4), p) for p in (1, 1.5, INF)),
        refusal(ValueError, "shapes (3, 4) and (3,) do not", real(3, 4), real(3)),
    ),
    op(
        "triplet_margin_loss",
        sample(real(5, 4), real(1, 4), real(5, 1), 2.0, 1, 1e-3, True),
        *(sample(*[real(5, 4)] * 3, p=3, reduction=reduction) for reduction in REDUCTIONS),
        refusal(ValueError, "shapes (3, 4) and (2, 4)", real(3, 4), real(2, 4), real(3, 4)),
    ),
]

# ---- of probabilities ------------------------------------------------------------------------------------------------


def _binary(name, draw, *rows):
    return op(
        name,
        sample(draw(3, 4), probabilities(3, 4), constant(3, 1)),
        *(sample(draw(3, 4), probabilities(3, 4), reduction=reduction) for reduction in REDUCTIONS),
        sample(draw(5), probabilities(5), weight=flags(5)),
        sample(draw(0, 3), probabilities(0, 3), reduction="sum"),
        *rows,
        *_refused(name, draw),
        refusal(ValueError, "target (4,); wanted equal shapes", draw(3, 4), probabilities(4)),
    )


BATCHMEAN = (*REDUCTIONS, "batchmean")
LOGITS = "binary_cross_entropy_with_logits"
SHARES = [
    _binary(
        "binary_cross_entropy",
        probabilities,
        refusal(ValueError, "input has elements out of range", real(9), probabilities(9)),
    ),
    _binary(LOGITS, real, sample(real(3, 4), real(3, 4), constant(3, 1), pos_weight=constant(4), reduction="none")),
    op(
        "kl_div",
        sample(real(3, 4), positive(4)),
        *(sample(real(3, 4), real(3, 4), reduction=reduction, log_target=True) for reduction in BATCHMEAN),
        sample(real(3, 4), given([0.0, 1.0, 0.5, 2.0])),
        *_refused("kl_div"),
        refusal(ValueError, "kl_div: shapes (3, 4) and (3,)", real(3, 4), positive(3)),
    ),
]

# ---- of classes ------------------------------------------------------------------------------------------------------


WEIGHT = constant(3)


def _classes(name, *rows):
    return op(
        name,
        sample(real(2, 3, 2), given([1, 0], [-1, 2]), WEIGHT, ignore_index=-1),
        *(sample(real(4, 3), given(1, -100, 0, 2), reduction=how) for how in REDUCTIONS),
        *(sample(real(4, 3), given(1, 1, 0, 2), WEIGHT, ignore_index=1, reduction=how) for how in REDUCTIONS),
        *(sample(real(3), classes(3)), sample(real(4, 3), classes(3, 4))),
        *rows,
        refusal(ValueError, f"{name}: target has shape (2, 1), wanted (2,)", real(2, 3), classes(3, 2, 1)),
        refusal(TypeError, f"{name}: target has elements", real(2, 3), real(2)),
        refusal(RuntimeError, f"{name}: weight requires a gradient", real(2, 3), classes(3, 2), real(3)),
    )


CLASSES = [
    _classes(
        "nll_loss",
        refusal(ValueError, "nll_loss: target has a class out of range, there are 3", real(2, 3), given(3, 0)),
    ),
    _classes(
        "cross_entropy",
        *(sample(real(4, 3), classes(3, 4), WEIGHT, label_smoothing=0.2, reduction=how) for how in REDUCTIONS),
        *(sample(real(4, 3), probabilities(4, 3), WEIGHT, label_smoothing=0.1, reduction=how) for how in REDUCTIONS),
        sample(real(2, 3, 2), probabilities(2, 3, 2), real(3)),
        sample(real(3), probabilities(3)),
        refusal(ValueError, "target[0] = 3, but there are 3 classes (0..2)", real(2, 3), given(3, 0)),
        refusal(ValueError, "floating: one_hot(...).float()", real(2, 3), classes(3, 2, 3)),
        refusal(ValueError, "label_smoothing is 1.5", real(2, 3), classes(3, 2), label_smoothing=1.5),
        refusal(ValueError, "but target holds probabilities", real(2, 3), probabilities(2, 3), ignore_index=1),
    ),
]

OPS = [*NUMBERS, *VECTORS, *SHARES, *CLASSES]
