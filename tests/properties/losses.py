"""Rules of losses, normalisation and dropout."""

import numpy as np

from .draws import Rule, Value, call


def _reduce(values, reduction):
    return {"none": values, "sum": values.sum(), "mean": values.mean() if values.size else np.nan}[reduction]


def _reduction(draws):
    return {"reduction": draws.choice("mean", "sum", "none")}


def _pairwise(name, formula, draw=None, repeats=True):
    """A loss of each element of input and target, of one shape."""

    def drawn(draws):
        size = draws.shape(empty=False)
        x, target = draw(draws, size) if draw else (draws.real(size), draws.real(size))
        return call(x, target, **_reduction(draws))

    return Rule(name, drawn, lambda x, y, reduction: _reduce(formula(x, y), reduction), repeats=repeats)


def _apart(draws, shape):
    """Two whose differences are away from 0 and from 1."""
    return draws.real(shape, "away"), Value(np.zeros(shape), grad=False)


def _probability(draws, shape):
    first, second = (np.asarray(draws.rng.random(shape)) for _ in range(2))
    return Value(np.asarray(0.1 + 0.8 * first)), Value(second, grad=False)


def _smooth_l1(x, y, beta=1.0):
    size = np.abs(x - y)
    return np.where(size < beta, 0.5 * size**2 / beta, size - 0.5 * beta)


def _huber(x, y, delta=1.0):
    size = np.abs(x - y)
    return np.where(size <= delta, 0.5 * size**2, delta * (size - 0.5 * delta))


def _with_logits(x, y):
    return np.maximum(x, 0) - x * y + np.log1p(np.exp(-np.abs(x)))


def _kl_div(draws):
    shape = draws.shape(1, 3, empty=False)
    log = draws.flag()
    target = draws.real(shape) if log else draws.real(shape, "positive")
    reduction = draws.choice("mean", "sum", "none", "batchmean")
    return call(draws.real(shape), target, reduction=reduction, log_target=log)


def _divergence(x, y, reduction, log_target):
    values = np.exp(y) * (y - x) if log_target else y * (np.log(y) - x)
    return values.sum() / len(x) if reduction == "batchmean" else _reduce(values, reduction)


def _classes(draws):
    """Scores, right classes, and what both losses of classes take beside them."""
    batch, count, rest = draws.integer(1, 5), draws.integer(1, 7), draws.shape(0, 2, empty=False)
    target = draws.whole((batch, *rest), 0, count, ("int64",))
    options = _reduction(draws)
    if draws.flag():
        options["weight"] = Value(0.5 + draws.rng.random(count), grad=False)
    if count > 1 and draws.chance(30):
        options["ignore_index"] = draws.integer(0, count - 1)
        target.array[(0,) * target.array.ndim] = (options["ignore_index"] + 1) % count  # one counts
    return draws.real((batch, count, *rest)), target, options


def _nll_loss(draws):
    x, target, options = _classes(draws)
    return call(x, target, **options)


def _cross_entropy(draws):
    x, target, options = _classes(draws)
    if draws.chance(30):
        options["label_smoothing"] = draws.choice(0.125, 0.5)
    return call(x, target, **options)


def _picked(x, target, weight, ignore_index):
    """(log probability of the right class, its weight)"""
    counts = target != ignore_index
    places = np.where(counts, target, 0)
    chosen = np.take_along_axis(x, places[:, None], 1)[:, 0]
    return chosen, counts * (1.0 if weight is None else weight[places])


def _weighted(values, weights, reduction):
    if reduction == "mean":
        return values.sum() / weights.sum()
    return _reduce(values, reduction)


def _likelihood(x, target, weight=None, ignore_index=-100, reduction="mean"):
    chosen, weights = _picked(x, target, weight, ignore_index)
    return _weighted(-chosen * weights, weights, reduction)


def _entropy(x, target, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0):
    x = x - np.log(np.exp(x).sum(1, keepdims=True))
    chosen, weights = _picked(x, target, weight, ignore_index)
    each = np.ones(x.shape[1]) if weight is None else weight
    spread = -np.tensordot(np.moveaxis(x, 1, -1), each, 1) * (target != ignore_index) / x.shape[1]
    values = (1 - label_smoothing) * -chosen * weights + label_smoothing * spread
    return _weighted(values, weights, reduction)


def _distance(x, y, p, eps, keepdim=False):
    return (np.abs(x - y + eps) ** p).sum(-1, keepdims=keepdim) ** (1 / p)


def _pairwise_distance(draws):
    shape = draws.shape(1, 2, empty=False)
    return call(draws.real(shape), draws.real(shape), draws.choice(2.0, 3.0), keepdim=draws.flag())


def _cosine(draws):
    shape = draws.shape(1, 3, empty=False)
    return call(draws.real(shape, "away"), draws.real(shape, "away"), draws.dim(shape))


def _similarity(x, y, dim, eps=1e-8):
    lengths = [np.maximum(np.sqrt((one * one).sum(dim, keepdims=True)), eps) for one in (x, y)]
    return (x / lengths[0] * y / lengths[1]).sum(dim)


def _triplet(draws):
    shape = (draws.integer(1, 4), draws.integer(2, 6))
    parts = [draws.real(shape) for _ in range(3)]
    return call(*parts, margin=draws.choice(1.0, 9.0), swap=draws.flag(), **_reduction(draws))


def _triplets(anchor, positive, negative, margin, swap, reduction):
    far, near = _distance(anchor, negative, 2, 1e-6), _distance(anchor, positive, 2, 1e-6)
    far = np.minimum(far, _distance(positive, negative, 2, 1e-6)) if swap else far
    return _reduce(np.maximum(margin + near - far, 0), reduction)


# ---- normalisation ---------------------------------------------------------------------------------------------------


def _affine(draws, shape):
    """weight and bias, each or none."""
    return {name: draws.real(shape) if draws.flag() else None for name in ("weight", "bias")}


def _shifted(out, weight, bias, axis=1):
    shape = [-1 if d == axis else 1 for d in range(out.ndim)]
    out = out if weight is None else out * weight.reshape(shape)
    return out if bias is None else out + bias.reshape(shape)


def _standard(x, axes, eps):
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


def _batch(least, rest):
    def drawn(draws):
        channels = draws.integer(1, 5)
        x = draws.real((draws.integer(least, 5), channels, *draws.shape(rest, 2, empty=False)))
        affine = _affine(draws, (channels,))
        if draws.chance(30):
            statistics = draws.real((channels,), grad=False), draws.real((channels,), "positive", grad=False)
            return x, statistics, affine, False
        return x, (None, None), affine, True

    return drawn


def _batch_norm(draws):
    x, statistics, affine, training = _batch(2, 0)(draws)
    return call(x, *statistics, **affine, training=training, eps=draws.choice(1e-5, 0.125))


def _batch_normed(x, mean, var, weight, bias, eps, training):
    axes = tuple(d for d in range(x.ndim) if d != 1)
    if training:
        return _shifted(_standard(x, axes, eps), weight, bias)
    shape = [-1 if d == 1 else 1 for d in range(x.ndim)]
    return _shifted((x - mean.reshape(shape)) / np.sqrt(var.reshape(shape) + eps), weight, bias)


def _instance_norm(draws):
    x, _, affine, _ = _batch(1, 1)(draws)
    if np.prod(x.array.shape[2:]) == 1:  # of which there is nothing to normalise
        x = draws.real((*x.array.shape[:2], 3))
    return call(x, **affine, eps=draws.choice(1e-5, 0.125))


def _layer_norm(draws):
    shape = (*draws.shape(0, 2, empty=False), draws.integer(2, 9))
    inner = shape[draws.integer(0, len(shape) - 1) :]
    return call(draws.real(shape), inner, **_affine(draws, inner), eps=draws.choice(1e-5, 0.125))


def _layer_normed(x, inner, weight, bias, eps):
    out = _standard(x, tuple(range(-len(inner), 0)), eps)
    return out * (1 if weight is None else weight) + (0 if bias is None else bias)


def _group_norm(draws):
    groups, each = draws.integer(1, 3), draws.integer(1, 3)
    x = draws.real((draws.integer(1, 3), groups * each, *draws.shape(0, 1, empty=False), draws.integer(2, 5)))
    return call(x, groups, **_affine(draws, (groups * each,)), eps=draws.choice(1e-5, 0.125))


def _group_normed(x, groups, weight, bias, eps):
    return _shifted(_standard(x.reshape(len(x), groups, -1), -1, eps).reshape(x.shape), weight, bias)


def _dropout(least, most):
    """Where chance has no say: the masks have tests of their own."""

    def drawn(draws):
        x = draws.real(draws.shape(least, most))
        return call(x, draws.choice(0.0, 1.0)) if draws.flag() else call(x, draws.choice(0.125, 0.5), False)

    return drawn


def _dropped(x, p, training=True):
    return x * (1 - p) if training else x


RULES = [
    _pairwise("mse_loss", lambda x, y: (x - y) ** 2),
    _pairwise("l1_loss", lambda x, y: np.abs(x - y), _apart, repeats=False),
    _pairwise("smooth_l1_loss", _smooth_l1, _apart, repeats=False),
    _pairwise("huber_loss", _huber, _apart, repeats=False),
    _pairwise("binary_cross_entropy", lambda x, y: -y * np.log(x) - (1 - y) * np.log1p(-x), _probability),
    _pairwise("binary_cross_entropy_with_logits", _with_logits, lambda draws, s: (draws.real(s), draws.real(s))),
    Rule("kl_div", _kl_div, _divergence),
    Rule("nll_loss", _nll_loss, _likelihood, floats=("float64", "float32")),
    Rule("cross_entropy", _cross_entropy, _entropy),
    Rule("pairwise_distance", _pairwise_distance, lambda x, y, p, keepdim: _distance(x, y, p, 1e-6, keepdim)),
    Rule("cosine_similarity", _cosine, _similarity, floats=("float64", "float32")),
    Rule("triplet_margin_loss", _triplet, _triplets, floats=("float64", "float32"), repeats=False),
    Rule("batch_norm", _batch_norm, _batch_normed, repeats=False, floats=("float64", "float32")),
    Rule(
        "instance_norm",
        _instance_norm,
        lambda x, weight, bias, eps: _shifted(_standard(x, tuple(range(2, x.ndim)), eps), weight, bias),
        floats=("float64", "float32"),
        repeats=False,
    ),
    Rule("layer_norm", _layer_norm, _layer_normed, repeats=False, floats=("float64", "float32")),
    Rule("group_norm", _group_norm, _group_normed, repeats=False, floats=("float64", "float32")),
    Rule("dropout", _dropout(0, 4), _dropped),
    Rule("dropout1d", _dropout(2, 3), _dropped),
    Rule("dropout2d", _dropout(3, 4), _dropped),
]
