"""Losses by their formulas in NumPy: weights, smoothing, reductions, what is left out, what refusals name."""

import warnings

import numpy as np
import pytest

from minigrad import Tensor, nn, ops

RNG = np.random.default_rng(0)
SCORES, WEIGHT = RNG.standard_normal((4, 3)), np.array([0.5, 2.0, 3.0])
LOGS = SCORES - np.log(np.exp(SCORES).sum(1, keepdims=True))
CLASSES, IGNORED = np.array([2, 0, 1, 1]), np.array([2, -1, 1, 0])
SHARES = np.exp(RNG.standard_normal((4, 3)))
SHARES /= SHARES.sum(1, keepdims=True)


def found(loss, *arrays, **options):
    options = {name: Tensor(value) if isinstance(value, np.ndarray) else value for name, value in options.items()}
    return loss(*map(Tensor, arrays), **options).data


@pytest.mark.parametrize("smoothing", [0.0, 0.25])
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
@pytest.mark.parametrize("target", [CLASSES, IGNORED], ids=["all", "one ignored"])
def test_cross_entropy_of_classes(smoothing, weight, target):
    w = np.ones(3) if weight is None else weight
    used = target >= 0
    own = np.where(used, -w[target] * LOGS[np.arange(4), target], 0)
    rest = np.where(used, -(LOGS * w).sum(1) / 3, 0)
    wanted = (1 - smoothing) * own + smoothing * rest
    options = dict(weight=weight, label_smoothing=smoothing, ignore_index=-1)
    np.testing.assert_allclose(found(ops.cross_entropy, SCORES, target, reduction="none", **options), wanted)
    np.testing.assert_allclose(found(ops.cross_entropy, SCORES, target, reduction="sum", **options), wanted.sum())
    mean = wanted.sum() / w[target[used]].sum()
    np.testing.assert_allclose(found(ops.cross_entropy, SCORES, target, **options), mean)


@pytest.mark.parametrize("smoothing", [0.0, 0.25])
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
def test_cross_entropy_of_probabilities(smoothing, weight):
    w = np.ones(3) if weight is None else weight
    wanted = -(w * ((1 - smoothing) * SHARES + smoothing / 3) * LOGS).sum(1)
    options = dict(weight=weight, label_smoothing=smoothing)
    np.testing.assert_allclose(found(ops.cross_entropy, SCORES, SHARES, reduction="none", **options), wanted)
    np.testing.assert_allclose(found(ops.cross_entropy, SCORES, SHARES, reduction="sum", **options), wanted.sum())
    np.testing.assert_allclose(found(ops.cross_entropy, SCORES, SHARES, **options), wanted.sum() / 4)


@pytest.mark.parametrize("log_target", [False, True])
def test_divergence(log_target):
    wanted = SHARES * (np.log(SHARES) - LOGS)
    target = np.log(SHARES) if log_target else SHARES
    options = dict(log_target=log_target)
    np.testing.assert_allclose(found(ops.kl_div, LOGS, target, reduction="none", **options), wanted)
    batchmean = found(ops.kl_div, LOGS, target, reduction="batchmean", **options)
    np.testing.assert_allclose(batchmean, wanted.sum() / 4)


def test_nothing_diverges_where_the_target_is_0():
    """0 ln 0 is 0, also where the other has no share."""
    target, other = np.array([[0.0, 1.0]]), np.array([[-3.0, -0.5]])
    np.testing.assert_array_equal(found(ops.kl_div, other, target, reduction="none"), [[0.0, 0.5]])


def test_distances():
    """eps is added to each difference; the margin is what the far one must be further away."""
    x, y, z = (RNG.standard_normal((4, 3)) for _ in range(3))
    distance = lambda a, b: np.sqrt(((a - b + 1e-6) ** 2).sum(1))
    np.testing.assert_allclose(found(ops.pairwise_distance, x, y), distance(x, y), rtol=1e-12)
    wanted = np.maximum(distance(x, y) - distance(x, z) + 0.75, 0)
    assert (wanted > 0).any()
    triplet = found(ops.triplet_margin_loss, x, y, z, margin=0.75, reduction="none")
    np.testing.assert_allclose(triplet, wanted, rtol=1e-12)
    with pytest.raises(TypeError, match="^pairwise_distance: x1 is"):
        ops.pairwise_distance("x", Tensor(y))
    with pytest.raises(TypeError, match="^pairwise_distance: x2 is"):
        ops.pairwise_distance(Tensor(x), "y")


def test_arguments_are_named():
    scores, labels = Tensor(np.zeros((2, 3))), Tensor(np.ones((2, 3)))
    with pytest.raises(TypeError, match="^binary_cross_entropy_with_logits: pos_weight"):
        ops.binary_cross_entropy_with_logits(scores, labels, pos_weight="x")
    with pytest.raises(TypeError, match="^binary_cross_entropy_with_logits: weight"):
        ops.binary_cross_entropy_with_logits(scores, labels, weight="x")


def test_a_warning_of_shapes_stands_where_the_loss_is_called():
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        ops.mse_loss(Tensor(np.zeros((2, 1))), Tensor(np.zeros(2)))
        nn.L1Loss()(Tensor(np.zeros((2, 1))), Tensor(np.zeros(2)))
    assert [warning.filename for warning in heard] == [__file__] * 2
