"""Losses by their formulas in NumPy: weights, smoothing, reductions, what is left out, what refusals name."""

import warnings

import numpy as np
import pytest

from minigrad import Tensor, grad, gradcheck, nn, ops
from minigrad.ops import loss as losses

RNG = np.random.default_rng(0)
SCORES, WEIGHT = RNG.standard_normal((4, 3)), np.array([0.5, 2.0, 3.0])
LOGS = SCORES - np.log(np.exp(SCORES).sum(1, keepdims=True))
CLASSES, IGNORED = np.array([2, 0, 1, 1]), np.array([2, -1, 1, 0])
SHARES = np.exp(RNG.standard_normal((4, 3)))
SHARES /= SHARES.sum(1, keepdims=True)


def found(loss, *arrays, **options):
    options = {name: Tensor(value) if isinstance(value, np.ndarray) else value for name, value in options.items()}
    return loss(*map(Tensor, arrays), **options).array


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


# ---- classes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [ops.cross_entropy, ops.nll_loss])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint64"])
def test_classes_of_any_integers(loss, dtype):
    np.testing.assert_array_equal(found(loss, LOGS, CLASSES.astype(dtype)), found(loss, LOGS, CLASSES))


def test_classes_of_images_are_not_copied():
    target = Tensor(np.zeros((2, 4, 5), np.int64))
    _, labels = losses._rows("op", Tensor(np.zeros((2, 3, 4, 5))), target)
    assert np.shares_memory(labels.array, target.array)


@pytest.mark.parametrize("loss", [ops.cross_entropy, ops.nll_loss])
def test_classes_that_do_not_fit_hear_what_is_wanted(loss):
    name, scores = loss.__name__, Tensor(np.zeros((2, 3, 4)))
    wanted = "wanted (2, 4) for an input of shape (2, 3, 4), the number of a class for each"
    for shape, hint in ((2,), ""), ((2, 3, 4), "; class probabilities are floating: one_hot(...).float()"):
        with pytest.raises(ValueError) as refused:
            loss(scores, Tensor(np.zeros(shape, int)))
        assert str(refused.value) == f"{name}: target has shape {shape}, {wanted}{hint}"


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1])
@pytest.mark.parametrize("loss", [ops.cross_entropy, ops.nll_loss])
def test_what_is_ignored_is_a_number_of_64_bits(loss, number):
    with pytest.raises(ValueError, match=f"ignore_index is {number}, wanted an integer of 64 bits"):
        found(loss, LOGS, CLASSES, ignore_index=number)


@pytest.mark.parametrize("loss", [ops.cross_entropy, ops.nll_loss])
def test_classes_out_of_range(loss):
    for wrong in 3, -1, 2**62:
        target = np.array([2, 0, wrong, wrong - 1])
        with pytest.raises(ValueError, match=rf"^{loss.__name__}: target\[2\] = {wrong}, but there are 3 classes"):
            found(loss, LOGS, target)
    np.testing.assert_allclose(found(loss, LOGS, np.array([2, 3, 3, 3]), ignore_index=3), -LOGS[0, 2])


# ---- gradients -------------------------------------------------------------------------------------------------------


def test_the_class_minus_100_is_ignored_unless_another_is_named():
    target = np.array([2, -100, 1, -100])
    assert found(ops.cross_entropy, SCORES, target) == found(ops.cross_entropy, SCORES[::2], target[::2])


@pytest.mark.parametrize("place", ["cpu", "interpreter"])
def test_the_gradient_of_scores_needs_no_further_ops(place, monkeypatch):
    """One kernel computes it."""

    def wrong(*_):
        raise AssertionError

    monkeypatch.setattr(losses, "_dinput_of_cross_entropy", wrong)
    scores = Tensor(SCORES.astype("f")).to(place)
    scores.requires_grad = True
    ops.cross_entropy(scores, Tensor(CLASSES).to(place)).backward()
    np.testing.assert_allclose(scores.grad.numpy(), (np.exp(LOGS) - np.eye(3)[CLASSES]) / 4, rtol=1e-5, atol=1e-7)


def test_weights_of_elements_have_gradients():
    shares, scores, weight, yes = (
        Tensor(RNG.uniform(0.1, 0.9, shape), requires_grad=True) for shape in ((2, 3), (2, 3), (3,), (3,))
    )
    assert gradcheck(lambda x, w: ops.binary_cross_entropy(x, shares.detach(), w), [shares, weight])
    losses = lambda x, w, yes: ops.binary_cross_entropy_with_logits(x, shares.detach(), w, pos_weight=yes)
    assert gradcheck(losses, [scores, weight, yes])


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_likelihood_of_rows_has_gradients_to_any_order(reduction):
    scores, count = Tensor(SCORES.astype("f"), requires_grad=True), 4 if reduction == "mean" else 1
    loss = ops.nll_loss(scores, Tensor(CLASSES), reduction=reduction)
    (loss * loss).backward(retain_graph=True)
    wanted = -SCORES[np.arange(4), CLASSES].sum() / count
    np.testing.assert_allclose(loss.item(), wanted, rtol=1e-6)
    own = -np.eye(3)[CLASSES] / count
    np.testing.assert_allclose(scores.grad.numpy(), 2 * wanted * own, rtol=1e-6)
    (first,) = grad(loss * loss, scores, create_graph=True)
    (second,) = grad(ops.sum(first * first), scores)
    np.testing.assert_allclose(second.numpy(), 8 * wanted * (own**2).sum() * own, rtol=1e-5)
