"""Statistics of batches: running ones, updated in place; digits, infinities; gradients where not all are wanted."""

import re
from math import prod

import numpy as np
import pytest

from minigrad import Tensor, ops
from minigrad_kernels import norm
from minigrad_kernels.errors import ShapeError
from minigrad_kernels.layout import CHANNELS_LAST
from minigrad_kernels.norm import reference
from tests.kernels.kernel_runs import DEVICE, guarded, laid_out, moved, on_host, same_bits


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("shape", [(2, 3), (70, 40), (2100, 64), (2, 6, 5, 7)], ids=str)
@pytest.mark.parametrize("device", ["cpu", DEVICE])
@pytest.mark.parametrize("momentum", [0.1, 1.0, 0.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_running_statistics_are_updated(device, shape, momentum, dtype):
    """In place, by the unbiased variance; mean and variance have the bits that they have without."""
    x, columns = laid_out(numbers(*shape).astype(dtype), CHANNELS_LAST if len(shape) == 4 else None), shape[1]
    before = [numbers(columns, seed=1).astype(dtype), numbers(columns, seed=2).astype(dtype) ** 2]

    def call(*running):
        made = [guarded(columns, dtype, np.nan) for _ in range(2)]
        out = [moved(array, device, whole) for array, whole in made]
        scratch = moved(np.zeros(norm.workspace("batch_statistics", shape), np.uint8), device)
        norm.batch_statistics(moved(x, device), *(array for array, _ in out), scratch, *running, momentum)
        return [on_host(array) for array, _ in out]

    running = [moved(array.copy(), device) for array in before]
    same_bits(call(*running), call(None, None))
    mean, variance = reference.batch_statistics(x)
    count = prod(shape) // columns
    for got, was, new in zip(running, before, (mean, variance * count / (count - 1)), strict=True):
        wanted = (1 - momentum) * was + momentum * new
        size = np.abs(was) + np.abs(new) + 1
        assert (np.abs(on_host(got) - wanted) <= 40 * np.finfo(dtype).eps * size).all()


@pytest.mark.parametrize(
    "rows, change, words",
    [
        (4, {1: None}, "batch_statistics: wants running_mean and running_var, or neither"),
        (1, {}, "batch_statistics: x has shape (1, 3), wants two elements a channel for running statistics"),
        (4, {0: np.ones(2, "f4")}, "batch_statistics: running_mean has shape (2,), wants (3,)"),
        (4, {1: np.ones(6, "f4")[::2]}, "batch_statistics: running_var has strides (8,) (shape (3,)), wants C order"),
    ],
)
def test_running_statistics_that_cannot_be_updated_are_refused(rows, change, words):
    running = [change.get(i, np.ones(3, "f4")) for i in range(2)]
    scratch = np.zeros(norm.workspace("batch_statistics", (rows, 3)), np.uint8)
    with pytest.raises(ShapeError, match="^" + re.escape(words)):
        norm.batch_statistics(numbers(rows, 3), *np.empty((2, 3), "f4"), scratch, *running, 0.1)


def test_running_statistics_may_lie_with_gaps():
    x, (mean, variance) = Tensor(numbers(6, 3)), (np.zeros(6, "f4"), np.ones(6, "f4"))
    ops.batch_norm(x, Tensor(mean[::2]), Tensor(variance[::2]), training=True, momentum=0.5)
    np.testing.assert_allclose(mean[::2], x.array.mean(0) / 2, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(variance[::2], (1 + x.array.var(0, ddof=1)) / 2, rtol=1e-5)
    assert not mean[1::2].any() and (variance[1::2] == 1).all()


def both_statistics(x):
    """Mean and variance by the kernel of the CPU, and by definition."""
    mean, variance = np.empty((2, x.shape[1]), np.float32)
    norm.batch_statistics(x, mean, variance, np.empty(norm.workspace("batch_statistics", x.shape), np.uint8))
    with np.errstate(invalid="ignore"):
        return mean, variance, *reference.batch_statistics(x)


@pytest.mark.parametrize("shape", [(9, 1024), (100, 17), (2100, 64), (5000, 3), (4097, 1)], ids=str)
@pytest.mark.parametrize("centre", [0, 1e3, -1e5])
def test_statistics_of_the_cpu_keep_their_digits_far_from_0(shape, centre):
    """The inputs are rounded to float32 first, so that only the arithmetic is left to lose anything."""
    x = numbers(*shape) + np.float32(centre)
    mean, variance, true_mean, true_variance = both_statistics(x)
    assert np.abs(variance / true_variance - 1).max() <= 2e-6
    assert np.abs(mean - true_mean).max() <= 1e-6 + 6e-8 * abs(centre)


def test_on_the_cpu_too_a_first_row_far_from_all_others_costs_few_digits():
    x = numbers(3001, 8)
    x[0] += 1000
    mean, variance, true_mean, true_variance = both_statistics(x)
    assert np.abs(variance / true_variance - 1).max() <= 1e-5 and np.abs(mean - true_mean).max() <= 1e-4


def test_an_infinity_stays_the_mean_of_its_channel():
    others = np.arange(12) != 5
    for row in (0, 1, 100, 199):
        for value in (np.inf, -np.inf, np.nan):
            x = numbers(200, 12)
            x[row, 5] = value
            mean, variance, *_ = both_statistics(x)
            np.testing.assert_equal(mean[5], np.float32(value))
            assert np.isnan(variance[5]) and np.isfinite(mean[others]).all() and np.isfinite(variance[others]).all()


def test_a_constant_channel_has_variance_0():
    x = np.full((1001, 3), 0.1, np.float32)
    mean, variance, *_ = both_statistics(x)
    assert (mean == x[0]).all() and not variance.any()


@pytest.mark.parametrize("device", ["cpu", DEVICE])
def test_both_sums_alone_are_those_that_come_with_dx(device):
    shape, results = (130, 24), []
    g, x, vectors = numbers(*shape), numbers(*shape, seed=1), np.abs(numbers(2, 24, seed=2)) + 1
    for wanted in (True, False):
        outputs = [moved(np.full(size, np.nan, np.float32), device) for size in (shape, 24, 24)]
        dx = outputs[0] if wanted else None
        space = moved(np.zeros(norm.workspace("batch_norm_grads", shape), np.uint8), device)
        arguments = [moved(array, device) for array in (g, x, *vectors)]
        norm.batch_norm_grads(*arguments, None, 1e-5, None, dx, *outputs[1:], None, space)
        results.append([on_host(array) for array in outputs[1:]])
    same_bits(*results)
