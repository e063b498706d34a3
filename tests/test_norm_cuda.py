"""Batch normalisation and standardised rows on CUDA: digits that float32 keeps, infinities, rungs, what they move."""

from functools import partial
from math import prod

import numpy as np
import pytest

from minigrad_kernels import interpreter, norm
from minigrad_kernels.bias.plan import LINES, cut
from minigrad_kernels.errors import ShapeError
from minigrad_kernels.norm import cuda, reference

from .cases.norm import EPS, lifted, standardize, standardize_grad
from .kernel_runs import DEVICE, make_inputs, moved, on_host, run, same_bits, within_rounding

pytestmark = pytest.mark.deep


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
    cuda.batch_statistics(there(x), *out, space("batch_statistics", x.shape), None, None, False, 0, rung)
    return [on_host(array) for array in out]


# ---- digits ----------------------------------------------------------------------------------------------------------


# A thread's own lines; lines joined in a block; parts, the last of fewer rows; a narrow matrix, one column.
@pytest.mark.parametrize("shape", [(9, 1024), (100, 16), (2100, 64), (5000, 4), (3001, 8), (4096, 1)], ids=str)
@pytest.mark.parametrize("rung", ["plain", "vector"])
@pytest.mark.parametrize("centre", [0, 1e3, -1e5])
def test_statistics_keep_their_digits_far_from_0(rung, shape, centre):
    """The inputs are rounded to float32 first, so that only the arithmetic is left to lose anything."""
    x = numbers(*shape) + np.float32(centre)
    mean, variance = statistics(x, rung)
    true_mean, true_variance = reference.batch_statistics(x)
    assert np.abs(variance / true_variance - 1).max() <= 2e-6
    assert np.abs(mean - true_mean).max() <= 1e-6 + 6e-8 * abs(centre)


@pytest.mark.parametrize("rung", ["plain", "vector"])
def test_a_first_row_far_from_all_others_costs_few_digits(rung):
    """It is what all others are compared with, here from a thousand deviations of theirs away."""
    x = numbers(3001, 8)[:3000]
    x[0] += 1000
    mean, variance = statistics(x, rung)
    true_mean, true_variance = reference.batch_statistics(x)
    assert np.abs(variance / true_variance - 1).max() <= 1e-5 and np.abs(mean - true_mean).max() <= 1e-4


@pytest.mark.parametrize("rung", ["plain", "vector"])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("row", [0, 1, 77])
def test_infinities_and_nan_in_statistics_are_as_on_the_cpu(rung, value, row):
    """They stay in their column, also where they are the number that the others are compared with."""
    x = numbers(80, 12)
    x[row, 5] = value
    wanted = np.empty(12, np.float32), np.empty(12, np.float32)
    with np.errstate(invalid="ignore"):
        norm.batch_statistics(x, *wanted, np.empty(norm.workspace("batch_statistics", x.shape), np.uint8))
    for got, want in zip(statistics(x, rung), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    assert np.isnan(wanted[1][5])


@pytest.mark.parametrize("columns", [12, 40, 1500, 4100])
def test_infinities_and_nan_in_rows_are_as_on_the_cpu(columns):
    x = numbers(6, columns)
    x[1, 0], x[2, -1], x[3, 0], x[4, 3] = np.nan, np.nan, np.inf, -np.inf
    wanted, results = (np.empty_like(x), np.empty(6, np.float32)), (fresh(6, columns), fresh(6))
    with np.errstate(invalid="ignore"):
        norm.standardize(x, EPS, *wanted)
    cuda.standardize(there(x), EPS, *results)
    for got, want in zip(results, wanted, strict=True):
        np.testing.assert_allclose(on_host(got), want, rtol=1e-4, atol=1e-5)
    assert np.isnan(wanted[1][1:5]).all() and np.isfinite(wanted[1][[0, 5]]).all()


# ---- rungs -----------------------------------------------------------------------------------------------------------


MAKERS = {
    "": standardize,
    " far from 0": partial(standardize, layout=lifted),
    " gradient": standardize_grad,
}


@pytest.mark.parametrize("shape", [(33, 1), (2, 1024), (3, 4096), (2, 4099)], ids=str)
@pytest.mark.parametrize("name", MAKERS)
def test_long_rows(name, shape):
    """Up to where blocks begin, and beyond."""
    case = MAKERS[name](shape)
    inputs = make_inputs(case, np.float32)
    results = run(case, np.float32, inputs, DEVICE)
    within_rounding(case, np.float32, inputs, results)
    same_bits(results, run(case, np.float32, inputs, DEVICE))


@pytest.mark.parametrize("rung", ["plain", "vector"])
@pytest.mark.parametrize("has_weight, has_bias", [(True, False), (False, True)])
def test_rungs_leave_out_what_is_not_there(rung, has_weight, has_bias):
    """The vectors that stand in for them must not show."""
    x, mean, variance, weight, bias = numbers(64, 16), *np.abs(numbers(4, 16, seed=1)) + 1
    out = fresh(64, 16)
    cuda.batch_normalize(
        *map(there, (x, mean, variance, weight)), has_weight, there(bias), has_bias, EPS, None, False, out, rung
    )
    wanted = reference.batch_normalize(
        x, mean, variance, weight if has_weight else None, bias if has_bias else None, EPS, None, False
    )
    np.testing.assert_allclose(on_host(out), wanted, rtol=1e-5, atol=1e-5)


def test_empty_batches():
    """Statistics are NaN, sums are 0, as on the CPU; nothing is launched for the rest."""
    x = np.empty((0, 3), np.float32)
    assert np.isnan(statistics(x)).all()
    vectors, sums = [there(np.ones(3, np.float32)) for _ in range(3)], (fresh(3), fresh(3))
    norm.batch_norm_grads(
        there(x), there(x), *vectors, EPS, None, fresh(0, 3), *sums, None, space("batch_norm_grads", x.shape)
    )
    assert not on_host(sums[0]).any() and not on_host(sums[1]).any()
    norm.batch_normalize(there(x), *vectors, None, EPS, None, False, fresh(0, 3))


# ---- choice ----------------------------------------------------------------------------------------------------------


def array(*shape):
    return interpreter.array(numbers(*shape))


def late(*shape):
    """An array that begins 4 bytes after a multiple of 16."""
    return interpreter.array(np.zeros(prod(shape) + 1, np.float32))[1:].reshape(shape)


def launched(call):
    """[(name of the kernel, its counts)]"""
    with interpreter.recording() as launches:
        call()
    return [(name, report.counts) for name, report in launches]


def interpreted_space(function, shape):
    return interpreter.empty(norm.workspace(function, shape), np.uint8)


def test_arrays_off_the_grid_take_the_plain_rung():
    """Any of them."""
    shape, vectors = (8, 16), [array(16) for _ in range(4)]
    assert len(launched(lambda: norm.batch_normalize(late(*shape), *vectors, EPS, None, False, array(*shape)))) == 1
    for arrays in ((late, array, array), (array, late, array), (array, array, late)):
        g, x, dx = (make(*shape) for make in arrays)
        outputs = dx, array(16), array(16), None, interpreted_space("batch_norm_grads", shape)
        names = [name for name, _ in launched(lambda: norm.batch_norm_grads(g, x, *vectors[:3], EPS, None, *outputs))]  # noqa: B023
        assert names == ["norm_products_plain_f32", "norm_total_grads_f32", "norm_grads_plain_f32"]


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: statistics(numbers(3, 5), "vector"), "batch_statistics: the rung vector wants float32, sizes that"),
        (lambda: statistics(numbers(3, 5), "warp"), "batch_statistics: rung is 'warp', wants one of plain, vector"),
    ],
)
def test_rungs_that_do_not_fit_are_refused(call, words):
    with pytest.raises(ShapeError, match="^" + words):
        call()


def test_more_elements_than_places_are_refused():
    far = np.broadcast_to(array(1), (1 << 31, 1)).view(interpreter.Array)
    calls = {
        "batch_statistics": partial(cuda.batch_statistics, far, *[None] * 5, False, 0),
        "batch_normalize": partial(cuda.batch_normalize, far, *[None] * 3, False, None, False, EPS, None, False, far),
        "batch_norm_grads": partial(cuda.batch_norm_grads, far, far, *[None] * 3, False, EPS, None, far, *[None] * 4),
        "standardize": partial(cuda.standardize, far, EPS, far, None),
        "standardize_grad": partial(cuda.standardize_grad, far, far, None, far),
    }
    for name, call in calls.items():
        with pytest.raises(ShapeError, match=f"^{name}: shape .* elements, wants less than"):
            call()


# ---- traffic ---------------------------------------------------------------------------------------------------------


# Rows and columns: a line of many rows; of 4; of 3 tiles; of a width that is no multiple of 4.
SHAPES = [(1024, 16), (64, 256), (16, 3072), (768, 10)]
each_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)


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
    (name, first), (second, totals) = launched(
        lambda: norm.batch_statistics(x, *outputs, interpreted_space("batch_statistics", shape))
    )
    assert (name, second) == ("norm_statistics_vector", "norm_total_statistics_f32")
    line, partial_bytes = plan.fold * columns, 4 * plan.parts * columns
    assert first.bytes_loaded == {"x": x.nbytes + 4 * line * plan.parts}  # and a shift for each place of a line
    assert first.bytes_stored == {"sums": partial_bytes, "squares": partial_bytes}
    assert totals.bytes_loaded["sums"] == totals.bytes_loaded["squares"] == partial_bytes
    assert totals.bytes_stored == {"mean": 4 * columns, "variance": 4 * columns}


@each_shape
def test_normalisation_reads_and_writes_once(shape):
    x, out, vectors, (rows, columns), plan = (
        array(*shape),
        interpreter.empty(shape),
        [array(shape[1]) for _ in range(4)],
        shape,
        cut(*shape),
    )
    vectors[1][...] = 1
    ((name, counts),) = launched(lambda: norm.batch_normalize(x, *vectors, EPS, None, False, out))
    assert name == "norm_normalize_vector"
    assert counts.bytes_loaded["x"] == counts.bytes_stored["out"] == x.nbytes and whole_sectors(counts, "x", "out")
    groups = -(-rows // (plan.fold * LINES))
    for vector in ("mean", "variance", "weight", "bias"):
        assert counts.bytes_loaded[vector] <= 4 * plan.fold * columns * groups


@pytest.mark.parametrize("rung", ["plain_f32", "vector"])
def test_residual_and_relu_are_part_of_the_normalisation(rung):
    """One launch, in which the residual is read once; both parts are found whether lines come in fours or singly."""
    shape, vectors = (1856, 16), [there(np.abs(numbers(16, seed=seed)) + 1) for seed in range(4)]
    x, residual, out = (interpreter.array(numbers(*shape, seed=seed)) for seed in range(3))
    if rung != "vector":
        residual = late(*shape)
        residual[...] = numbers(*shape, seed=1)
    ((name, counts),) = launched(lambda: norm.batch_normalize(x, *vectors, EPS, residual, True, out))
    assert name == f"norm_normalize_{rung}"
    assert counts.bytes_loaded["x"] == counts.bytes_loaded["residual"] == counts.bytes_stored["out"] == x.nbytes
    wanted = reference.batch_normalize(x, *vectors, EPS, residual, True)
    np.testing.assert_allclose(on_host(out), wanted, rtol=1e-5, atol=1e-5)


def test_a_masked_gradient_may_begin_anywhere():
    shape, vectors = (8, 4), [there(np.abs(numbers(4, seed=seed)) + 1) for seed in range(3)]
    g, x, out = (interpreter.array(numbers(*shape, seed=seed)) for seed in range(3))
    found = []
    for masked in (interpreter.empty(shape), late(*shape)):
        dx, dw, db = interpreter.empty(shape), interpreter.empty(4), interpreter.empty(4)
        memory = space("batch_norm_grads", shape)
        norm.batch_norm_grads(g, x, *vectors, EPS, out, dx, dw, db, masked, memory)
        found.append([on_host(array) for array in (dx, dw, db, masked)])
    for one, two in zip(*found, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-5)


@each_shape
def test_gradients_read_twice_and_write_once(shape):
    g, x, dx, columns, plan = array(*shape), array(*shape), interpreter.empty(shape), shape[1], cut(*shape)
    vectors = [interpreter.array(np.ones(columns, np.float32)) for _ in range(3)]
    outputs = (
        dx,
        interpreter.empty(columns),
        interpreter.empty(columns),
        None,
        interpreted_space("batch_norm_grads", shape),
    )
    call = partial(norm.batch_norm_grads, g, x, *vectors, EPS, None, *outputs)
    names, counts = zip(*launched(call), strict=True)
    assert names == ("norm_products_vector", "norm_total_grads_f32", "norm_grads_vector")
    sums, totals, last = counts
    assert sums.bytes_loaded["g"] == sums.bytes_loaded["x"] == x.nbytes and whole_sectors(sums, "g", "x")
    assert sums.bytes_stored == {"sums": 4 * plan.parts * columns, "products": 4 * plan.parts * columns}
    assert totals.bytes_stored == {"dw": 4 * columns, "db": 4 * columns}
    assert last.bytes_loaded["g"] == last.bytes_loaded["x"] == last.bytes_stored["dx"] == x.nbytes
    assert whole_sectors(last, "g", "x", "dx")


@pytest.mark.parametrize("columns, lanes", [(12, 16), (128, 32), (4104, 256)])
def test_rows_are_read_once_for_each_pass(columns, lanes):
    rows = 9
    x, out, scale = array(rows, columns), interpreter.empty((rows, columns)), interpreter.empty(rows)
    ((name, counts),) = launched(lambda: norm.standardize(x, EPS, out, scale))
    assert name == "norm_standardize_f32"
    assert counts.bytes_loaded == {"x": 3 * x.nbytes + 4 * rows * lanes}  # and the shift by every lane
    assert counts.bytes_stored == {"out": x.nbytes, "scale": 4 * rows}
    dx = interpreter.empty((rows, columns))
    ((name, counts),) = launched(lambda: norm.standardize_grad(x, out, scale, dx))
    assert name == "norm_standardize_grad_f32"
    assert counts.bytes_loaded["g"] == counts.bytes_loaded["out"] == 2 * x.nbytes
    assert counts.bytes_stored == {"dx": x.nbytes}


def test_statistics_are_no_sums_of_squares_of_large_numbers():
    """What float32 makes of E x**2 - (E x)**2 where the mean is 1000, as a measure of the test of digits."""
    x = numbers(4096, 1) + np.float32(1000)
    naive = np.float32(np.mean(x * x)) - np.float32(np.mean(x)) ** 2
    assert abs(naive / x.astype(float).var() - 1) > 1e-3
