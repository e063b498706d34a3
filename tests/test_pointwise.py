"""Elementwise kernels of float32 on the CPU: every op by its reference, functions over their whole range, threads."""

import numpy as np
import pytest

from minigrad_kernels import pointwise
from minigrad_kernels.errors import KindError, ShapeError
from minigrad_kernels.layout import CHANNELS_LAST
from minigrad_kernels.pointwise import reference
from minigrad_kernels.pointwise.plan import ONES, TWOS
from minigrad_kernels.toolchain import set_threads, threads
from minigrad_kernels.toolchain.loops import PIECE
from minigrad_kernels.toolchain.runs import RUN, SMALL

EPS = np.finfo(np.float32).eps
P, Q = 0.5, 1.5
POSITIVE = {"divergence", "log", "log1p", "sqrt"}
LOSSES = {"absolute_error", "divergence", "huber", "logistic_loss", "squared_error"}
each_op = pytest.mark.parametrize("op", sorted(ONES | TWOS))


def numbers(op, size, count):
    rng = np.random.default_rng(size)
    arrays = [rng.standard_normal(size, dtype=np.float32) for _ in range(count)]
    return [np.abs(a) + np.float32(0.01) for a in arrays] if op in POSITIVE else arrays


def call(module, op, arrays, *out):
    return (module.one if op in ONES else module.two)(*arrays, op, P, Q, *out)


def inputs_of(op, size):
    return numbers(op, size, 1 if op in ONES else 2)


@each_op
@pytest.mark.parametrize("size", [0, 1, 7, 16, 33, RUN - 1, RUN, 2 * RUN + 5])
def test_ops_within_rounding(op, size):
    arrays = inputs_of(op, size)
    out = np.full(size + 2, np.nan, np.float32)
    call(pointwise, op, arrays, out[1:-1])
    want = call(reference, op, arrays)
    scale = np.maximum(np.abs(want), np.abs(arrays[0]) + np.abs(arrays[-1]) + 1)
    assert np.isnan(out[[0, -1]]).all(), "written outside"
    assert (np.abs(out[1:-1] - want) <= 8 * EPS * scale).all()


@each_op
def test_same_bits_for_any_number_of_threads_and_in_place(op):
    arrays, before, results = inputs_of(op, 3 * RUN + 11), threads(), []
    try:
        for count in (1, 2):
            set_threads(count)
            results.append(np.empty_like(arrays[0]))
            call(pointwise, op, arrays, results[-1])
            for k in range(len(arrays)):
                copies = [array.copy() for array in arrays]
                call(pointwise, op, copies, copies[k])
                results.append(copies[k])
    finally:
        set_threads(before)
    for result in results[1:]:
        assert result.tobytes() == results[0].tobytes()


@each_op
def test_nan_reaches_results(op):
    for position in range(1 if op in ONES else 2):
        arrays = inputs_of(op, 50)
        arrays[position][20] = np.nan
        out = np.empty(50, np.float32)
        call(pointwise, op, arrays, out)
        with np.errstate(invalid="ignore"):
            want = call(reference, op, arrays)
        np.testing.assert_array_equal(np.isnan(out), np.isnan(want))


@pytest.mark.parametrize("layout", [CHANNELS_LAST, (1, 0, 3, 2)])
def test_any_order_of_axes(layout):
    rng = np.random.default_rng(0)
    x = np.ascontiguousarray(rng.standard_normal((3, 4, 5, 6), dtype=np.float32).transpose(layout))
    x = x.transpose(np.argsort(layout))
    out = np.empty(x.transpose(layout).shape, np.float32).transpose(np.argsort(layout))
    pointwise.two(x, x, "mul", 0, 0, out)
    np.testing.assert_array_equal(out, x * x)


@pytest.mark.parametrize("op", sorted(LOSSES))
@pytest.mark.parametrize("size", [0, 1, PIECE + 1, RUN + 7, SMALL + RUN + 5])
def test_totals_in_one_order_for_any_number_of_threads(op, size):
    x, y = numbers(op, size, 2)
    out, before = np.full(3, np.nan, np.float32), threads()
    want, sizes = reference.total(x, y, op, P, Q, 2.0), np.abs(reference.two(x, y, op, P, Q)).sum()
    seen = set()
    try:
        for count in (1, 2):
            set_threads(count)
            space = np.empty(pointwise.workspace(size), np.uint8)
            pointwise.total(x, y, op, P, Q, 2.0, out[1:2].reshape(()), space)
            seen.add(out[1].tobytes())
    finally:
        set_threads(before)
    assert len(seen) == 1 and np.isnan(out[[0, 2]]).all()
    assert abs(out[1] - want) <= 8 * EPS * (sizes + size * EPS)


def test_totals_lose_nothing_in_long_sums():
    """Ten million equal numbers: added one by one in float32 they would come to half of what they are."""
    x, out = np.full(10_000_000, 3, np.float32), np.empty((), np.float32)
    pointwise.total(
        x, np.zeros_like(x), "squared_error", 0, 0, x.size, out, lambda nbytes, like: np.empty(nbytes, "u1")
    )
    assert out == 9


# ---- functions over their whole range --------------------------------------------------------------------------------

EDGES = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1.2e-38, 88.72, 88.73, -87.4, -103.9, -104.1, -1, 3.4e38]
FUNCTIONS = {
    "exp": (np.exp, 2),
    "expm1": (np.expm1, 2),
    "log": (np.log, 2),
    "log1p": (np.log1p, 2),
    "sqrt": (np.sqrt, 0.5),
    "tanh": (np.tanh, 2),
    "sigmoid": (lambda x: np.where(x < 0, np.exp(np.minimum(x, 0)), 1) / (1 + np.exp(-np.abs(x))), 3),
}


@pytest.mark.parametrize("op", FUNCTIONS)
def test_functions_are_within_their_promise(op):
    """All kinds of float32: every 4099th of the 2^32, more of them near 0, and the edges."""
    bits = np.arange(0, 2**32, 4099, dtype=np.uint64).astype(np.uint32)
    x = np.concatenate([bits.view(np.float32), np.linspace(-110, 100, 1 << 17, dtype=np.float32)])
    x = np.concatenate([x, np.linspace(-1.5, 3, 1 << 17, dtype=np.float32), np.array(EDGES, np.float32)])
    function, units = FUNCTIONS[op]
    out = np.empty_like(x)
    pointwise.one(x, op, 0, 0, out)
    with np.errstate(all="ignore"):
        exact = function(x.astype(float))
        want = exact.astype(np.float32)
        error = np.abs(out - exact) / np.spacing(np.abs(want))
    np.testing.assert_array_equal(np.isnan(out), np.isnan(want))
    np.testing.assert_array_equal(np.isinf(out), np.isinf(want))
    finite = np.isfinite(want)
    np.testing.assert_array_equal(np.signbit(out[finite]), np.signbit(want[finite]))
    assert error[finite].max() <= units + 1e-3


# ---- what is refused -------------------------------------------------------------------------------------------------

X, BIG = np.ones((3, 4), np.float32), np.ones(SMALL, np.float32)
REFUSED = {
    "one: an op": (lambda: pointwise.one(X, "sine", 0, 0, X), ShapeError, "one: op is 'sine', wants one of"),
    "one: two": (lambda: pointwise.one(X, "add", 0, 0, X), ShapeError, "one: op is 'add', wants one of"),
    "one: type": (lambda: pointwise.one(X.astype("f8"), "exp", 0, 0, X), KindError, "one: x has type float64"),
    "one: out": (lambda: pointwise.one(X, "exp", 0, 0, X[:2]), ShapeError, "one: out has shape (2, 4), wants (3, 4)"),
    "two: shape": (lambda: pointwise.two(X, X[:2], "add", 0, 0, X), ShapeError, "two: y has shape (2, 4)"),
    "two: kind": (lambda: pointwise.two(X, 1.0, "add", 0, 0, X), KindError, "two: y is a float"),
    "total: out": (
        lambda: pointwise.total(X, X, "sub", 0, 0, 1, X, None),
        ShapeError,
        "total: out has shape (3, 4), wants ()",
    ),
    "total: workspace": (
        lambda: pointwise.total(BIG, BIG, "sub", 0, 0, 1, X[0, 0:1].reshape(()), np.empty(9, "u1")),
        ShapeError,
        "total: workspace has shape (9,), wants",
    ),
    "two: order": (lambda: pointwise.two(X, X.copy("F"), "add", 0, 0, X), ShapeError, "two: y (shape (3, 4)) has"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses(name):
    call, error, message = REFUSED[name]
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value).startswith(message)
