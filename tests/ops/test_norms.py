"""Norms beyond what a row can say: running statistics, digits far from 0, infinities, images that lie channels last."""

from math import prod

import numpy as np
import pytest

from minigrad import Tensor, ops
from minigrad.nn import functional as F
from minigrad_kernels import norm
from minigrad_kernels.layout import CHANNELS_LAST, is_dense
from minigrad_kernels.norm import reference
from tests.kernels.kernel_runs import DEVICE, guarded, laid_out, moved, on_host, same_bits


def numbers(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


# ---- running statistics ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(2, 3), (70, 40), (2100, 64), (2, 6, 5, 7)], ids=str)
@pytest.mark.parametrize("device", ["cpu", DEVICE])
def test_running_statistics_are_updated(device, shape):
    """In place, by the unbiased variance; mean and variance have the bits that they have without."""

    def call(x, momentum, *running):
        out = [moved(array, device, whole) for array, whole in (guarded(shape[1], x.dtype, np.nan) for _ in range(2))]
        scratch = moved(np.zeros(norm.workspace("batch_statistics", shape), np.uint8), device)
        norm.batch_statistics(moved(x, device), *(array for array, _ in out), scratch, *running, momentum)
        return [on_host(array) for array, _ in out]

    for dtype, momentum in ((np.float32, 0.1), (np.float64, 1.0), (np.float32, 0.0)):
        x = laid_out(numbers(*shape).astype(dtype), CHANNELS_LAST if len(shape) == 4 else None)
        before = [numbers(shape[1], seed=1).astype(dtype), numbers(shape[1], seed=2).astype(dtype) ** 2]
        running = [moved(array.copy(), device) for array in before]
        same_bits(call(x, momentum, *running), call(x, momentum, None, None))
        mean, variance = reference.batch_statistics(x)
        count = prod(shape) // shape[1]
        for got, was, new in zip(running, before, (mean, variance * count / (count - 1)), strict=True):
            wanted = (1 - momentum) * was + momentum * new
            bound = 40 * np.finfo(dtype).eps * (np.abs(was) + np.abs(new) + 1)
            assert (np.abs(on_host(got) - wanted) <= bound).all()


def test_running_statistics_may_lie_with_gaps():
    """A call that is refused changes neither."""
    x, (mean, variance) = Tensor(numbers(6, 3)), (np.zeros(6, "f4"), np.ones(6, "f4"))
    with pytest.raises(ValueError, match="batch_norm: running_var"):
        ops.batch_norm(x, Tensor(mean[::2]), Tensor(np.ones(4, "f4")), training=True)
    assert not mean.any()
    ops.batch_norm(x, Tensor(mean[::2]), Tensor(variance[::2]), training=True, momentum=0.5)
    np.testing.assert_allclose(mean[::2], x.array.mean(0) / 2, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(variance[::2], (1 + x.array.var(0, ddof=1)) / 2, rtol=1e-5)
    assert not mean[1::2].any() and (variance[1::2] == 1).all()


@pytest.mark.parametrize("device", ["cpu", DEVICE])
def test_both_sums_alone_are_those_that_come_with_dx(device):
    shape, results = (130, 24), []
    g, x, vectors = numbers(*shape), numbers(*shape, seed=1), np.abs(numbers(2, 24, seed=2)) + 1
    for wanted in (True, False):
        outputs = [moved(np.full(size, np.nan, np.float32), device) for size in (shape, 24, 24)]
        space = moved(np.zeros(norm.workspace("batch_norm_grads", shape), np.uint8), device)
        arguments = [moved(array, device) for array in (g, x, *vectors)]
        dx = outputs[0] if wanted else None
        norm.batch_norm_grads(*arguments, None, 1e-5, None, dx, *outputs[1:], None, space)
        results.append([on_host(array) for array in outputs[1:]])
    same_bits(*results)


# ---- digits ----------------------------------------------------------------------------------------------------------


def both_statistics(x):
    """Mean and variance by the kernel of the CPU, and by definition."""
    mean, variance = np.empty((2, x.shape[1]), np.float32)
    norm.batch_statistics(x, mean, variance, np.empty(norm.workspace("batch_statistics", x.shape), np.uint8))
    with np.errstate(invalid="ignore"):
        return mean, variance, *reference.batch_statistics(x)


@pytest.mark.parametrize("shape", [(9, 1024), (100, 17), (2100, 64), (5000, 3), (4097, 1)], ids=str)
def test_statistics_keep_their_digits(shape):
    """Far from 0, and where one row is far from all others; a constant channel has variance 0. Inputs are rounded to
    float32 first, so that only the arithmetic is left to lose anything."""
    for centre, row, bound in ((0, 0, 2e-6), (1e3, 0, 2e-6), (-1e5, 0, 2e-6), (0, 1000, 1e-5)):
        x = numbers(*shape) + np.float32(centre)
        x[0] += row
        mean, variance, true_mean, true_variance = both_statistics(x)
        assert np.abs(variance / true_variance - 1).max() <= bound
        assert np.abs(mean - true_mean).max() <= 1e-6 + 6e-8 * abs(centre) + 1e-7 * row
    mean, variance, *_ = both_statistics(np.full(shape, 0.1, np.float32))
    assert (mean == np.float32(0.1)).all() and not variance.any()


def test_an_infinity_stays_the_mean_of_its_channel():
    others = np.arange(12) != 5
    for row, value in ((0, np.inf), (100, -np.inf), (199, np.nan)):
        x = numbers(200, 12)
        x[row, 5] = value
        mean, variance, *_ = both_statistics(x)
        np.testing.assert_equal(mean[5], np.float32(value))
        assert np.isnan(variance[5]) and np.isfinite(mean[others]).all() and np.isfinite(variance[others]).all()


SHAPE = (3, 6, 5, 4)
NORMS = {  # name: (function, shape of weight and bias)
    "layer": (lambda x, w, b: F.layer_norm(x, SHAPE[1:], w, b), SHAPE[1:]),
    "layer, width": (lambda x, w, b: F.layer_norm(x, SHAPE[3:], w, b), SHAPE[3:]),
    "group": (lambda x, w, b: F.group_norm(x, 2, w, b), SHAPE[1:2]),
    "instance": (lambda x, w, b: F.instance_norm(x, weight=w, bias=b), SHAPE[1:2]),
}


@pytest.mark.parametrize("name", NORMS)
def test_norms_of_samples(name):
    """The same however images lie, which then stay so; a mean far from 0 costs no digits but those of the input."""
    (function, shape), found = NORMS[name], []
    x, w, b, g = (numbers(*size, seed=5, dtype=float) for size in (SHAPE, shape, shape, SHAPE))
    for order in (None, CHANNELS_LAST):
        for upstream in (None, CHANNELS_LAST):
            arguments = [Tensor(array, requires_grad=True) for array in (laid_out(x, order), w, b)]
            out = function(*arguments)
            out.backward(Tensor(laid_out(g, upstream)))
            found.append([out.array, *[argument.grad.array for argument in arguments]])
            if order and upstream and not name.startswith("layer"):
                assert is_dense(out.array, order) and is_dense(arguments[0].grad.array, order)
    for others in found[1:]:
        for first, other in zip(found[0], others, strict=True):
            np.testing.assert_allclose(other, first, rtol=1e-12, atol=1e-12)
    far = (x * 1e-2 + 1e4).astype(np.float32)
    exact, rounded = (function(*(Tensor(one.astype(t)) for one in (far, w, b))).array for t in (float, np.float32))
    np.testing.assert_allclose(rounded, exact, rtol=1e-4, atol=1e-4)
