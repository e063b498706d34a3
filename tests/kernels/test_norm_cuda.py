"""Batch normalisation and standardised rows on CUDA: digits that float32 keeps, infinities, rungs, what they move."""

from functools import partial
from itertools import product
from math import prod

import numpy as np
import pytest

from minigrad_kernels import interpreter, norm
from minigrad_kernels.bias.plan import LINES, cut
from minigrad_kernels.errors import ShapeError
from minigrad_kernels.norm import cuda, reference

from .cases.norm import EPS, lifted, standardize, standardize_grad
from .kernel_runs import DEVICE, check, moved, on_host, same_bits, told

pytestmark = pytest.mark.deep
each_rung = pytest.mark.parametrize("rung", ["plain", "vector"])


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def there(array):
    return moved(array, DEVICE)


def fresh(*shape):
    return there(np.full(shape, np.nan, np.float32))


def space(function, shape):
    return there(np.zeros(norm.workspace(function, shape), np.uint8))


def statistics(x, rung=None):
    """(mean, variance) of the columns of a NumPy array."""
    out = fresh(x.shape[1]), fresh(x.shape[1])
    cuda.batch_statistics(there(x), *out, space("batch_statistics", x.shape), None, None, 0, rung)
    return [on_host(array) for array in out]


# ---- digits ----------------------------------------------------------------------------------------------------------


# A thread's own lines; lines joined in a block; parts, the last of fewer rows; a narrow matrix, one column.
SHAPES = [(9, 1024), (100, 16), (2100, 64), (3001, 8), (4096, 1)]


@each_rung
def test_statistics_keep_their_digits(rung):
    """Far from 0, where inputs are rounded first, so that only arithmetic is left to lose anything; about a first row
    that is far from all others."""
    for shape, centre in product(SHAPES, (0, 1e3, -1e5)):
        x = numbers(*shape) + np.float32(centre)
        (mean, variance), (true_mean, true_variance) = statistics(x, rung), reference.batch_statistics(x)
        with told(shape, centre):
            assert np.abs(variance / true_variance - 1).max() <= 2e-6
            assert np.abs(mean - true_mean).max() <= 1e-6 + 6e-8 * abs(centre)
    x = numbers(3000, 8)
    x[0] += 1000
    (mean, variance), (true_mean, true_variance) = statistics(x, rung), reference.batch_statistics(x)
    assert np.abs(variance / true_variance - 1).max() <= 1e-5 and np.abs(mean - true_mean).max() <= 1e-4


@each_rung
def test_infinities_and_nan_in_statistics_are_as_on_the_cpu(rung):
    """They stay in their column, also where they are the number that the others are compared with."""
    for value, row in product((np.inf, -np.inf, np.nan), (0, 1, 40, 77)):
        x = numbers(80, 12)
        x[row, 5] = value
        wanted = np.empty(12, np.float32), np.empty(12, np.float32)
        norm.batch_statistics(x, *wanted, np.empty(norm.workspace("batch_statistics", x.shape), np.uint8))
        for got, want in zip(statistics(x, rung), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
        assert np.isnan(wanted[1][5])


@pytest.mark.parametrize("rung", ["plain", "warp"])
def test_infinities_and_nan_in_rows_are_as_on_the_cpu(rung):
    for columns in (12, 40, 4100):
        x = numbers(6, columns)
        x[1, 0], x[2, -1], x[3, 0], x[4, 3] = np.nan, np.nan, np.inf, -np.inf
        wanted, results = (np.empty_like(x), np.empty(6, np.float32)), (fresh(6, columns), fresh(6))
        with np.errstate(invalid="ignore"):
            norm.standardize(x, EPS, *wanted)
        cuda.standardize(there(x), EPS, *results, rung)
        for got, want in zip(results, wanted, strict=True):
            np.testing.assert_allclose(on_host(got), want, rtol=1e-4, atol=1e-5)
        assert np.isnan(wanted[1][1:5]).all() and np.isfinite(wanted[1][[0, 5]]).all()


def test_long_rows():
    """Up to where blocks begin, and beyond."""
    for make, shape in product(
        (standardize, partial(standardize, layout=lifted), standardize_grad), ((33, 1), (1, 4096), (2, 4099))
    ):
        check(make(shape), np.float32, DEVICE)


def test_empty_batches():
    """Statistics are NaN, sums are 0, as on the CPU; nothing is launched for the rest."""
    x = np.empty((0, 3), np.float32)
    found = there(np.zeros(3, np.float32)), there(np.zeros(3, np.float32))
    norm.batch_statistics(there(x), *found, space("batch_statistics", x.shape))
    assert np.isnan(list(map(on_host, found))).all()
    vectors, sums = [there(np.ones(3, np.float32)) for _ in range(3)], (fresh(3), fresh(3))
    outputs = fresh(0, 3), *sums, None, space("batch_norm_grads", x.shape)
    norm.batch_norm_grads(there(x), there(x), *vectors, EPS, None, *outputs)
    assert not on_host(sums[0]).any() and not on_host(sums[1]).any()
    norm.batch_normalize(there(x), *vectors, None, EPS, None, False, fresh(0, 3))


# ---- rungs -----------------------------------------------------------------------------------------------------------


def array(*shape, seed=0):
    return interpreter.array(numbers(*shape, seed=seed))


def late(*shape):
    """An array that begins 4 bytes after a multiple of 16."""
    return interpreter.array(np.zeros(prod(shape) + 1, np.float32))[1:].reshape(shape)


def vectors_of(columns, count):
    return [array(columns, seed=seed) ** 2 + 1 for seed in range(count)]


def launched(call):
    """[(name of the kernel, its counts)]"""
    with interpreter.recording() as launches:
        call()
    return [(name, report.counts) for name, report in launches]


def grads(g, x, out, wanted, vectors, masked=None):
    """(the launches, dx, dw, db)"""
    columns = x.shape[1]
    results = wanted, interpreter.empty(columns), interpreter.empty(columns)
    memory = interpreter.empty(norm.workspace("batch_norm_grads", x.shape), np.uint8)
    seen = launched(lambda: norm.batch_norm_grads(g, x, *vectors, EPS, out, *results, masked, memory))
    return seen, *results


def test_arrays_off_the_grid_take_the_plain_rung():
    """Any of them."""
    shape, vectors = (8, 16), vectors_of(16, 4)
    ((name, _),) = launched(lambda: norm.batch_normalize(late(*shape), *vectors, EPS, None, False, array(*shape)))
    assert name == "norm_finish_plain_f32"
    for arrays in ((late, array, array), (array, late, array), (array, array, late)):
        g, x, dx = (make(*shape) for make in arrays)
        names = [name for name, _ in grads(g, x, None, dx, vectors[:3])[0]]
        assert names == ["norm_sums_plain_f32", "norm_total_grads_f32", "norm_finish_plain_f32"]


def test_what_does_not_fit_is_refused():
    with pytest.raises(ShapeError, match="^batch_statistics: the rung vector wants float32, sizes that"):
        statistics(numbers(3, 5), "vector")
    with pytest.raises(ShapeError, match="^batch_statistics: rung is 'warp', wants one of plain, vector"):
        statistics(numbers(3, 5), "warp")
    far = np.broadcast_to(array(1), (1 << 20, 1 << 11)).view(interpreter.Array)
    with pytest.raises(ShapeError, match="^batch_normalize: x has shape .*, wants less than"):
        norm.batch_normalize(far, *[None] * 4, EPS, None, False, far)


# ---- traffic ---------------------------------------------------------------------------------------------------------


# Rows and columns: a line of many rows; of 4; of 3 tiles; of a width that is no multiple of 4.
each_shape = pytest.mark.parametrize("shape", [(1024, 16), (64, 256), (16, 3072), (768, 10)], ids=str)


def whole_sectors(counts, *names):
    return all(
        counts.sector_bytes_loaded[name] == counts.bytes_loaded[name]
        and counts.sector_bytes_stored[name] == counts.bytes_stored[name]
        for name in names
    )


@each_shape
def test_statistics_read_x_once(shape):
    x, columns, plan = array(*shape), shape[1], cut(*shape)
    outputs = interpreter.empty(columns), interpreter.empty(columns)
    memory = interpreter.empty(norm.workspace("batch_statistics", shape), np.uint8)
    (name, first), (second, totals) = launched(lambda: norm.batch_statistics(x, *outputs, memory))
    assert (name, second) == ("norm_sums_vector", "norm_total_statistics_f32")
    line, partial_bytes = plan.fold * columns, 4 * plan.parts * columns
    assert first.bytes_loaded == {"x": x.nbytes + 3 * 4 * line * plan.parts}  # and the pivot for each place of a line
    assert first.bytes_stored == {"sums": partial_bytes, "products": partial_bytes, "mean": 4 * columns}
    assert totals.bytes_loaded["sums"] == totals.bytes_loaded["squares"] == partial_bytes
    assert totals.bytes_stored == {"mean": 4 * columns, "variance": 4 * columns}


@each_shape
def test_normalisation_reads_and_writes_once(shape):
    """In one launch, a residual and a ReLU included; lines come in fours and singly."""
    x, residual, out, vectors = array(*shape), array(*shape, seed=1), interpreter.empty(shape), vectors_of(shape[1], 4)
    ((name, counts),) = launched(lambda: norm.batch_normalize(x, *vectors, EPS, residual, True, out))
    assert name == "norm_finish_vector" and whole_sectors(counts, "x", "more", "out")
    assert counts.bytes_loaded["x"] == counts.bytes_loaded["more"] == counts.bytes_stored["out"] == x.nbytes
    plan = cut(*shape)
    for vector in ("mean", "variance", "weight", "bias"):
        assert counts.bytes_loaded[vector] <= 4 * plan.fold * shape[1] * -(-shape[0] // (plan.fold * LINES))
    wanted = reference.batch_normalize(x, *vectors, EPS, residual, True)
    np.testing.assert_allclose(on_host(out), wanted, rtol=1e-5, atol=1e-5)


@each_shape
@pytest.mark.parametrize("relu, residual", [(False, False), (True, False), (True, True)])
def test_gradients_read_twice_and_write_once(shape, relu, residual):
    """A ReLU costs no pass of its own: one more array is read, and the masked g, where it is wanted, is written once
    and then read in the place of g. It changes no bit."""
    g, x, vectors = array(*shape), array(*shape, seed=1), vectors_of(shape[1], 3)
    out = interpreter.array(np.maximum(numbers(*shape, seed=2), 0)) if relu else None
    masked = interpreter.empty(shape) if residual else None
    ((name, sums), (middle, totals), (last, finish)), *results = grads(
        g, x, out, interpreter.empty(shape), vectors, masked
    )
    assert (name, middle, last) == ("norm_sums_vector", "norm_total_grads_f32", "norm_finish_vector")
    width, columns = x.nbytes, shape[1]
    partial_bytes = 4 * cut(*shape).parts * columns
    assert sums.bytes_loaded["g"] == sums.bytes_loaded["x"] == width and whole_sectors(sums, "g", "x")
    assert sums.bytes_loaded.get("out", 0) == width * relu
    stored = {"sums": partial_bytes, "products": partial_bytes} | ({"masked": width} if residual else {})
    assert sums.bytes_stored == stored and totals.bytes_stored == {"dw": 4 * columns, "db": 4 * columns}
    assert finish.bytes_loaded["more"] == finish.bytes_loaded["x"] == finish.bytes_stored["out"] == width
    assert finish.bytes_loaded.get("passed", 0) == width * (relu and not residual)
    assert whole_sectors(finish, "more", "x", "out")
    if relu:
        hidden = interpreter.array(np.where(on_host(out) <= 0, np.float32(0), on_host(g)))
        _, *wanted = grads(hidden, x, None, interpreter.empty(shape), vectors)
        same_bits(map(on_host, results), map(on_host, wanted))
        assert masked is None or (on_host(masked) == on_host(hidden)).all()


def test_rows_are_read_once_for_each_pass():
    for (rows, columns), lanes in (((9, 12), 16), ((9, 128), 32), ((9, 4104), 256)):
        x, out, scale = array(rows, columns), interpreter.empty((rows, columns)), interpreter.empty(rows)
        ((name, counts),) = launched(lambda: norm.standardize(x, EPS, out, scale))  # noqa: B023
        assert name == "norm_standardize_warp_f32"
        assert counts.bytes_loaded == {"x": 3 * x.nbytes + 4 * rows * lanes}  # and the shift by every lane
        assert counts.bytes_stored == {"out": x.nbytes, "scale": 4 * rows}
        dx = interpreter.empty((rows, columns))
        ((name, counts),) = launched(lambda: norm.standardize_grad(x, out, scale, dx))  # noqa: B023
        assert name == "norm_standardize_grad_warp_f32"
        assert counts.bytes_loaded["g"] == counts.bytes_loaded["out"] == 2 * x.nbytes
        assert counts.bytes_stored == {"dx": x.nbytes}
