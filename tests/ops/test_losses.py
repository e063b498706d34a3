"""Losses where the table of rows does not reach: broadcasting, digits, rows that do not count, other integers."""

import warnings

import numpy as np
import pytest

from minigrad import Tensor, nn, ops
from minigrad.core.tape import grad

NAN = float("nan")


def leaf(values, dtype=np.float64):
    return Tensor(np.array(values, dtype), requires_grad=True)


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"])
@pytest.mark.parametrize("shapes", [((4, 1), (4,)), ((), (2, 3))])
def test_shapes_that_broadcast_make_a_warning(name, shapes):
    rng = np.random.default_rng(0)
    x, y = (leaf(rng.standard_normal(shape)) for shape in shapes)
    wide = [leaf(one) for one in np.broadcast_arrays(x.array, y.array)]
    for reduction in ("mean", "none"):
        with pytest.warns(UserWarning, match=f"^{name}: input has shape .* they broadcast to"):
            found = getattr(ops, name)(x, y, reduction=reduction)
        wanted = getattr(ops, name)(*wide, reduction=reduction)
        np.testing.assert_allclose(found.array, wanted.array, rtol=1e-12)
        for a, b in zip(grad(ops.sum(found), [x, y]), grad(ops.sum(wanted), wide), strict=True):
            np.testing.assert_allclose(a.array.sum(), b.array.sum(), rtol=1e-12)


def test_a_warning_of_shapes_stands_where_the_loss_is_called():
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        ops.mse_loss(Tensor(np.zeros((2, 1))), Tensor(np.zeros(2)))
        nn.L1Loss()(Tensor(np.zeros((2, 1))), Tensor(np.zeros(2)))
    assert [warning.filename for warning in heard] == [__file__] * 2


@pytest.mark.parametrize("name", ["mse_loss", "smooth_l1_loss", "cross_entropy", "kl_div"])
def test_options_are_given_by_name(name):
    """By position they would stand where PyTorch has its old size_average and reduce."""
    with pytest.raises(TypeError, match="positional arguments"):
        getattr(ops, name)(leaf([[0.5]]), Tensor([0]), None, "sum")


def test_logits_keep_their_digits():
    x = leaf([-40.0, 40.0, -15.0, 15.0], np.float32)
    loss = ops.binary_cross_entropy_with_logits(x, Tensor(np.array([0, 1, 0, 1], np.float32)), reduction="none")
    small = np.exp(np.array([-40, -40, -15, -15.0]))
    np.testing.assert_allclose(loss.array, np.log1p(small), rtol=1e-6)
    gradient = grad(ops.sum(loss), x)[0].array
    np.testing.assert_allclose(gradient[::2], small[::2] / (1 + small[::2]), rtol=1e-6)


@pytest.mark.parametrize("wrong", [1.0000001, -1e-9, NAN])
@pytest.mark.parametrize("place", [0, 1])
def test_what_is_no_probability_is_refused(wrong, place):
    arguments = [[0.2, 0.5, 0.1], [0.0, 1.0, 0.5]]
    arguments[place][1] = wrong
    with pytest.raises(ValueError, match=f"{('input', 'target')[place]} has elements out of range"):
        ops.binary_cross_entropy(*map(leaf, arguments))


@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
@pytest.mark.parametrize("target", [[0, 2, -1, 1], [-1, -1, -1, -1]], ids=str)
@pytest.mark.parametrize("place", ["cpu", "interpreter"])
def test_rows_that_do_not_count_neither_give_nor_take(name, target, place):
    """NaN there reaches neither the loss nor the gradient; the mean of no row is NaN, its gradient 0."""
    target, scores = np.array(target), np.random.default_rng(0).standard_normal((4, 3))
    used = target != -1
    scores[~used] = NAN
    x = Tensor(scores).to(place).requires_grad_()
    for reduction in ("mean", "sum", "none"):
        loss = getattr(ops, name)(x, Tensor(target).to(place), ignore_index=-1, reduction=reduction)
        whole = getattr(ops, name)(Tensor(scores[used]), Tensor(target[used]), reduction="none").array
        wanted = whole.sum() / (max(used.sum(), 1) if reduction == "mean" else 1) if used.any() else 0.0
        assert np.isnan(loss.item()) if reduction == "mean" and not used.any() else True
        if used.any() or reduction != "mean":
            np.testing.assert_allclose(ops.sum(loss).item(), wanted, rtol=1e-14)
        for create_graph in (False, True):
            gradient = grad(ops.sum(loss), x, retain_graph=True, create_graph=create_graph)[0].detach().numpy()
            assert not gradient[~used].any() and np.isfinite(gradient).all()


@pytest.mark.parametrize("loss", [ops.cross_entropy, ops.nll_loss])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint64"])
def test_classes_of_any_integers(loss, dtype):
    scores, target = Tensor(np.random.default_rng(0).standard_normal((4, 3))), np.array([2, 0, 1, 1])
    assert loss(scores, Tensor(target.astype(dtype))).item() == loss(scores, Tensor(target)).item()
