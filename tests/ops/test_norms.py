"""Norms beyond what a row can say: running statistics, digits far from 0, infinities, images that lie channels last."""

import numpy as np
import pytest

from minigrad import Tensor, ops
from minigrad.nn import functional as F
from minigrad_kernels import norm
from minigrad_kernels.layout import CHANNELS_LAST, is_dense
from minigrad_kernels.norm import reference
from tests.kernels.kernel_runs import DEVICE, laid_out


def numbers(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("shape", [(2, 3), (2100, 64), (2, 6, 5, 7)], ids=str)
@pytest.mark.parametrize("place", ["cpu", DEVICE])
def test_running_statistics_are_updated(place, shape):
    """In place, by the unbiased variance; results have the bits that they have without."""
    channels, axes = shape[1], (0, 2, 3)[: len(shape) - 1]
    for dtype, momentum in ((np.float32, 0.1), (np.float64, 1.0), (np.float32, 0.0)):
        array = numbers(*shape, dtype=dtype)
        x, mean, variance = (Tensor(one).to(place) for one in (array, numbers(channels), 1 + numbers(channels) ** 2))
        mean, variance = mean.to(dtype), variance.to(dtype)
        before = mean.numpy().copy(), variance.numpy().copy()
        found = ops.batch_norm(x, mean, variance, training=True, momentum=momentum)
        wanted = ops.batch_norm(x, None, None, training=True)
        np.testing.assert_array_equal(found.numpy(), wanted.numpy())
        now = array.mean(axes, dtype=float), array.var(axes, ddof=1, dtype=float)
        for got, was, new in zip((mean, variance), before, now, strict=True):
            bound = 40 * np.finfo(dtype).eps * (np.abs(was) + np.abs(new) + 1)
            assert (np.abs(got.numpy() - (1 - momentum) * was - momentum * new) <= bound).all()


def test_running_statistics_may_lie_with_gaps():
    x, (mean, variance) = Tensor(numbers(6, 3)), (np.zeros(6, "f4"), np.ones(6, "f4"))
    ops.batch_norm(x, Tensor(mean[::2]), Tensor(variance[::2]), training=True, momentum=0.5)
    np.testing.assert_allclose(mean[::2], x.array.mean(0) / 2, rtol=1e-5, atol=1e-7)
    assert not mean[1::2].any() and (variance[1::2] == 1).all() and (variance[::2] != 1).all()


@pytest.mark.parametrize("shape", [(9, 1024), (2100, 64), (4097, 1)], ids=str)
def test_statistics_keep_their_digits(shape):
    """Far from 0, and where one row is far from all others, or infinite; a constant channel has variance 0."""
    mean, variance = np.empty((2, shape[1]), np.float32)
    space = lambda nbytes, like: np.empty(nbytes, np.uint8)
    for centre, row, bound in ((0, 0, 2e-6), (-1e5, 0, 2e-6), (0, 1000, 1e-5)):
        x = numbers(*shape) + np.float32(centre)  # rounded first, so that only the arithmetic is left to lose anything
        x[0] += row
        norm.batch_statistics(x, mean, variance, space)
        true_mean, true_variance = reference.batch_statistics(x)
        assert np.abs(variance / true_variance - 1).max() <= bound
        assert np.abs(mean - true_mean).max() <= 1e-6 + 6e-8 * abs(centre) + 1e-7 * row
    x[...] = 0.1
    norm.batch_statistics(x, mean, variance, space)
    assert (mean == np.float32(0.1)).all() and not variance.any()
    for value in (np.inf, -np.inf, np.nan):
        x[5, -1] = value
        norm.batch_statistics(x, mean, variance, space)
        np.testing.assert_equal(mean[-1], np.float32(value))
        assert np.isnan(variance[-1]) and np.isfinite(mean[:-1]).all() and np.isfinite(variance[:-1]).all()


SHAPE = (3, 6, 5, 4)
NORMS = {  # name: (function, shape of weight and bias)
    "layer": (lambda x, w, b: F.layer_norm(x, SHAPE[1:], w, b), SHAPE[1:]),
    "group": (lambda x, w, b: F.group_norm(x, 2, w, b), SHAPE[1:2]),
    "instance": (lambda x, w, b: F.instance_norm(x, weight=w, bias=b), SHAPE[1:2]),
}


@pytest.mark.parametrize("name", NORMS)
def test_norms_of_samples(name):
    """The same however images lie, which then stay so; a mean far from 0 costs no digits but those of the input."""
    (function, shape), found = NORMS[name], []
    x, w, b, g = (numbers(*size, seed=5, dtype=float) for size in (SHAPE, shape, shape, SHAPE))
    for order in (None, CHANNELS_LAST):
        arguments = [Tensor(array, requires_grad=True) for array in (laid_out(x, order), w, b)]
        out = function(*arguments)
        out.backward(Tensor(laid_out(g, order)))
        found.append([out.array, *[argument.grad.array for argument in arguments]])
    assert name == "layer" or all(is_dense(array, CHANNELS_LAST) for array in found[1][:2])
    for first, other in zip(*found, strict=True):
        np.testing.assert_allclose(other, first, rtol=1e-12, atol=1e-12)
    far = (x * 1e-2 + 1e4).astype(np.float32)
    exact, rounded = (function(*(Tensor(one.astype(t)) for one in (far, w, b))).array for t in (float, np.float32))
    np.testing.assert_allclose(rounded, exact, rtol=1e-4, atol=1e-4)
