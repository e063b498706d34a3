"""Rows of the losses, and of distances between vectors. Losses that broadcast: tests/ops/test_ops_edges.py."""

import numpy as np

from . import Op, classes, constant, flags, given, positive, probabilities, real, refusal, sample, ties

REDUCTIONS = ("mean", "sum", "none")
INF = float("inf")


def _reduced(values, reduction):
    return {"none": values, "sum": values.sum(), "mean": values.mean() if values.size else np.nan}[reduction]


def _refused(name, draw=real):
    target = probabilities(3)
    return (
        refusal(TypeError, f"{name}: target is a float", draw(3), 1.0),
        refusal(TypeError, f"{name}: input has elements int64", classes(3, 3), classes(3, 3)),
        refusal(ValueError, f"{name}: reduction is 'avg'", draw(3), target, reduction="avg"),
    )


# ---- of numbers ------------------------------------------------------------------------------------------------------


def _pairwise(name, formula, *options, refusals=()):
    """A loss of each element of input and target, of one shape; options: keywords that it takes."""

    def reference(x, y, reduction="mean", *rest, **settings):
        return _reduced(formula(x, y, *rest, **settings), reduction)

    samples = (
        *(sample(real(3, 4), real(3, 4), reduction=reduction) for reduction in REDUCTIONS),
        *(sample(real(3, 4), real(3, 4), **option) for option in options),
        *(sample(ties(5, 6), ties(5, 6), reduction="none", smooth=False, **option) for option in ({}, *options)),
        sample(real(), real()),
        sample(real(0, 3), real(0, 3), reduction="sum"),
    )
    if not options:
        samples += (sample(real(3, 4), classes(3, 3, 4)),)
    shapes = refusal(ValueError, f"{name}: shapes (3, 4) and (3,) do not broadcast", real(3, 4), real(3))
    return Op(name, samples, (*_refused(name), shapes, *refusals), reference)


def _smooth_l1(x, y, beta=1.0):
    size = np.abs(x - y)
    return np.where(size < beta, 0.5 * size**2 / (beta or 1), size - 0.5 * beta)


def _huber(x, y, delta=1.0):
    size = np.abs(x - y)
    return np.where(size <= delta, 0.5 * size**2, delta * (size - 0.5 * delta) if delta < INF else 0)


def _beyond(name, option, value):
    return (refusal(ValueError, f"{name}: {option} is {value}", real(3), real(3), **{option: value}),)


NUMBERS = [
    _pairwise("mse_loss", lambda x, y: (x - y) ** 2),
    _pairwise("l1_loss", lambda x, y: np.abs(x - y)),
    _pairwise("smooth_l1_loss", _smooth_l1, {"beta": 0.5}, {"beta": 0}, refusals=_beyond("smooth_l1_loss", "beta", -1)),
    _pairwise("huber_loss", _huber, {"delta": 0.3}, {"delta": INF}, refusals=_beyond("huber_loss", "delta", 0)),
]

# ---- of vectors ------------------------------------------------------------------------------------------------------


def _distance(x, y, p=2.0, eps=1e-6, keepdim=False):
    size = np.abs(x - y + eps)
    if p in (0, INF):
        return (size.max(-1, keepdims=keepdim) if p else (size != 0).sum(-1, keepdims=keepdim)) * 1.0
    return (size**p).sum(-1, keepdims=keepdim) ** (1 / p)


def _similarity(x, y, dim=1, eps=1e-8):
    x, y = np.broadcast_arrays(x, y)
    lengths = [np.maximum(np.sqrt((one * one).sum(dim, keepdims=True)), eps) for one in (x, y)]
    return (x / lengths[0] * y / lengths[1]).sum(dim)


def _triplets(anchor, positive, negative, margin=1.0, p=2.0, eps=1e-6, swap=False, reduction="mean"):
    far, near = _distance(anchor, negative, p, eps), _distance(anchor, positive, p, eps)
    far = np.minimum(far, _distance(positive, negative, p, eps)) if swap else far
    return _reduced(np.maximum(margin + near - far, 0), reduction)


THREE = [real(5, 4)] * 3
VECTORS = [
    Op(
        "cosine_similarity",
        (
            sample(real(2, 1, 4), real(3, 1), -1),
            sample(real(3, 4), real(3, 4)),
            sample(real(3, 4), real(3, 4), dim=0, eps=0.1),
        ),
        (
            refusal(IndexError, "dim is 2", real(3, 4), real(3, 4), 2),
            refusal(ValueError, "cosine_similarity: shapes (3, 4) and (3,) do not", real(3, 4), real(3)),
        ),
        _similarity,
    ),
    Op(
        "pairwise_distance",
        (
            sample(real(2, 3, 4), real(3, 1), p=2.0, eps=0.1, keepdim=True),
            *(sample(real(3, 4), real(3, 4), p) for p in (1, 1.5, 2, INF)),
        ),
        (refusal(ValueError, "shapes (3, 4) and (3,) do not", real(3, 4), real(3)),),
        _distance,
    ),
    Op(
        "triplet_margin_loss",
        (
            sample(*THREE, 2.0, 1, 1e-3, True),
            *(sample(*THREE, reduction=reduction) for reduction in REDUCTIONS),
            sample(*THREE, margin=2, p=3, eps=0.1, swap=True, reduction="none"),
            sample(real(5, 4), real(1, 4), real(5, 1)),
        ),
        (refusal(ValueError, "shapes (3, 4) and (2, 4)", real(3, 4), real(2, 4), real(3, 4)),),
        _triplets,
    ),
]

# ---- of probabilities ------------------------------------------------------------------------------------------------


def _with_logits(x, y, weight=None, pos_weight=None, reduction="mean"):
    more = 1 + (0 if pos_weight is None else pos_weight - 1) * y
    values = (1 - y) * x + more * np.logaddexp(0, -x)
    return _reduced(values if weight is None else values * weight, reduction)


def _entropy_of_two(x, y, weight=None, reduction="mean"):
    values = -y * np.log(x) - (1 - y) * np.log1p(-x)
    return _reduced(values if weight is None else values * weight, reduction)


def _binary(name, draw, reference, *samples, refusals=()):
    drawn = (
        sample(draw(3, 4), probabilities(3, 4), constant(3, 1)),
        *(sample(draw(3, 4), probabilities(3, 4), reduction=reduction) for reduction in REDUCTIONS),
        sample(draw(5), probabilities(5), weight=flags(5)),
        sample(draw(0, 3), probabilities(0, 3), reduction="sum"),
    )
    shapes = refusal(ValueError, "target (4,); wanted equal shapes", draw(3, 4), probabilities(4))
    weight = refusal(ValueError, f"{name}: shapes", draw(3, 4), probabilities(3, 4), constant(3))
    return Op(name, (*drawn, *samples), (*_refused(name, draw), shapes, weight, *refusals), reference)


def _divergence(x, y, reduction="mean", log_target=False):
    with np.errstate(all="ignore"):
        values = np.exp(y) * (y - x) if log_target else np.where(y == 0, 0, y * (np.log(y) - x))
    return values.sum() / len(values) if reduction == "batchmean" else _reduced(values, reduction)


BATCHMEAN = (*REDUCTIONS, "batchmean")
LOGITS = "binary_cross_entropy_with_logits"
SHARES = [
    _binary(
        "binary_cross_entropy",
        probabilities,
        _entropy_of_two,
        refusals=(refusal(ValueError, "input has elements out of range", real(9), probabilities(9)),),
    ),
    _binary(
        LOGITS,
        real,
        _with_logits,
        sample(real(3, 4), probabilities(3, 4), constant(3, 1), pos_weight=constant(4), reduction="none"),
        sample(real(3, 4), real(3, 4), pos_weight=constant(4)),
        refusals=(refusal(ValueError, f"{LOGITS}: ", real(3), probabilities(3), pos_weight=constant(2)),),
    ),
    Op(
        "kl_div",
        (
            sample(real(3, 4), positive(3, 4), reduction="batchmean"),
            *(sample(real(3, 4), real(3, 4), reduction=reduction, log_target=True) for reduction in BATCHMEAN),
            *(sample(real(3, 4), positive(4), reduction=reduction) for reduction in REDUCTIONS),
            sample(real(3, 4), given([0.0, 1.0, 0.5, 2.0])),
        ),
        (*_refused("kl_div"), refusal(ValueError, "kl_div: shapes (3, 4) and (3,)", real(3, 4), positive(3))),
        _divergence,
    ),
]

# ---- of classes ------------------------------------------------------------------------------------------------------


def _likelihood(x, target, weight=None, ignore_index=-100, reduction="mean"):
    x = np.moveaxis(x, 1, 0) if x.ndim > 1 else x
    counts = target != ignore_index
    places = np.where(counts, target, 0)
    weights = counts * (1.0 if weight is None else weight[places])
    values = -np.take_along_axis(x, places[None], 0)[0] * weights
    return values.sum() / weights.sum() if reduction == "mean" else _reduced(values, reduction)


def _entropy(x, target, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0):
    axis = 1 if x.ndim > 1 else 0
    logs = x - np.log(np.exp(x).sum(axis, keepdims=True))
    count, shape = x.shape[axis], [-1 if d == axis else 1 for d in range(x.ndim)]
    each = (np.ones(count) if weight is None else weight).reshape(shape)
    if target.dtype.kind == "f":
        values = -(logs * each * ((1 - label_smoothing) * target + label_smoothing / count)).sum(axis)
        return values.sum() / max(values.size, 1) if reduction == "mean" else _reduced(values, reduction)
    counts = target != ignore_index
    hard = _likelihood(logs, target, weight, ignore_index, "none")
    even = -(logs * each).sum(axis) * counts / count
    values = (1 - label_smoothing) * hard + label_smoothing * even
    total = (counts * (1.0 if weight is None else weight[np.where(counts, target, 0)])).sum()
    return values.sum() / total if reduction == "mean" else _reduced(values, reduction)


WEIGHT = constant(3)


def _classes(name, reference, *samples, refusals=()):
    drawn = (
        sample(real(2, 3, 2), given([1, 0], [-1, 2]), WEIGHT, ignore_index=-1),
        *(sample(real(4, 3), classes(3, 4), reduction=reduction) for reduction in REDUCTIONS),
        *(sample(real(4, 3), given(1, 1, 0, 2), WEIGHT, ignore_index=1, reduction=how) for how in REDUCTIONS),
        sample(real(3), classes(3)),
        sample(real(2, 3, 2, 2), classes(3, 2, 2, 2), reduction="none"),
        sample(real(4, 3), given(1, -100, 0, -100)),
        sample(real(65, 10), classes(10, 65)),
    )
    refused = (
        refusal(ValueError, f"{name}: target has shape (2, 1), wanted (2,)", real(2, 3), classes(3, 2, 1)),
        refusal(ValueError, "target[0] = 3, but there are 3 classes (0..2)", real(2, 3), given(3, 0)),
        refusal(TypeError, f"{name}: target has elements", real(2, 3), real(2)),
        refusal(ValueError, f"{name}: reduction is 'avg'", real(2, 3), classes(3, 2), reduction="avg"),
        refusal(RuntimeError, f"{name}: weight requires a gradient", real(2, 3), classes(3, 2), real(3)),
    )
    return Op(name, (*drawn, *samples), (*refused, *refusals), reference)


CLASSES = [
    _classes("nll_loss", _likelihood),
    _classes(
        "cross_entropy",
        _entropy,
        *(sample(real(4, 3), classes(3, 4), WEIGHT, label_smoothing=0.2, reduction=how) for how in REDUCTIONS),
        *(sample(real(4, 3), probabilities(4, 3), WEIGHT, label_smoothing=0.1, reduction=how) for how in REDUCTIONS),
        sample(real(2, 3, 2), probabilities(2, 3, 2), real(3)),
        sample(real(3), probabilities(3)),
        refusals=(
            refusal(ValueError, "label_smoothing is 1.5", real(2, 3), classes(3, 2), label_smoothing=1.5),
            refusal(ValueError, "but target holds probabilities", real(2, 3), probabilities(2, 3), ignore_index=1),
        ),
    ),
]

OPS = [*NUMBERS, *VECTORS, *SHARES, *CLASSES]
