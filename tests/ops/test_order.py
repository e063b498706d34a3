"""Order and running sums of every kind of tensor: ties, NaN, element types, layouts."""

import numpy as np
import pytest

from minigrad import Tensor
from minigrad.core.tape import grad

TYPES = "float16 bfloat16 float32 float64 int8 uint8 int32 int64 uint64 bool".split()
SPECIAL = [0.0, -0.0, 1.0, -1.0, 3.0, np.inf, -np.inf, np.nan, 1e-7]


def drawn(shape, dtype, seed=0):
    """Elements of which many are equal, and for floating types some that are NaN, infinite or -0."""
    rng = np.random.default_rng(seed)
    values = rng.choice(SPECIAL, shape) if "float" in dtype else rng.integers(0, 2 if dtype == "bool" else 5, shape)
    return Tensor(values).to(dtype)


def order(values, descending):
    """Where the elements of a list belong, by Python's sort, which leaves equals as they are."""
    key = lambda k: (values[k] != values[k], 0 if values[k] != values[k] else values[k])
    reverse = lambda k: (values[k] == values[k], 0 if values[k] != values[k] else -values[k])
    return sorted(range(len(values)), key=reverse if descending else key)


def numbers(x):
    return x.to("float64").numpy()


def by_definition(x, axis, descending):
    lines = lambda line: order(line.tolist(), descending)
    return np.apply_along_axis(lines, axis, numbers(x))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape, axis", [((5, 90), 1), ((90, 3), 0), ((3, 40, 2), -2), ((2, 3, 7), 2)])
def test_order_keeps_equals_and_puts_nan_last(dtype, shape, axis):
    x = drawn(shape, dtype)
    for descending in (False, True):
        wanted = by_definition(x, axis, descending)
        indices = x.argsort(axis, descending)
        np.testing.assert_array_equal(indices.numpy(), wanted)
        values, same = x.sort(axis, descending)
        np.testing.assert_array_equal(same.numpy(), wanted)
        np.testing.assert_array_equal(numbers(values), np.take_along_axis(numbers(x), wanted, axis))
        for k in {0, 1, 5, shape[axis] - 1, shape[axis]}:
            values, indices = x.topk(k, axis, descending)
            first = np.take(wanted, range(k), axis)
            assert indices.dtype == np.int64 and values.dtype == x.dtype and indices.array.flags.c_contiguous
            np.testing.assert_array_equal(indices.numpy(), first)
            np.testing.assert_array_equal(numbers(values), np.take_along_axis(numbers(x), first, axis))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_order_of_views_and_of_arrays_that_lie_anywhere(dtype):
    x = drawn((40, 60), dtype).numpy()
    odd = np.frombuffer(b"." + x.tobytes(), np.uint8)[1:].view(dtype).reshape(x.shape)  # no multiple of an element
    views = x.T, x[::-1, ::-2], x[:, 7:], np.broadcast_to(x[:1], x.shape), np.asfortranarray(x), odd
    for view in views:
        for axis in (0, 1):
            wanted = by_definition(Tensor(view.copy()), axis, True)
            np.testing.assert_array_equal(Tensor(view).topk(9, axis).indices.numpy(), wanted.take(range(9), axis))
            np.testing.assert_array_equal(Tensor(view).argsort(axis, True).numpy(), wanted)


def test_the_gradient_of_topk_goes_to_the_first_of_equals():
    x = Tensor(np.array([[1.0, 3, 3, 2, 3]], np.float32), requires_grad=True)
    (dx,) = grad(x.topk(2).values.sum(), x)
    assert dx.tolist() == [[0, 1, 1, 0, 0]]


@pytest.mark.parametrize(
    "axis, shape", [(1, (7, 33)), (0, (33, 7)), (1, (3, 20, 5)), (2, (2, 3, 9)), (1, (2, 5, 3, 3))]
)
def test_running_sums_of_views_and_their_gradients(axis, shape):
    rng = np.random.default_rng(0)
    for dtype in ("float16", "float32", "float64", "int32"):
        x = rng.integers(-9, 9, shape).astype(dtype)
        lying = np.asfortranarray(x), x[tuple([slice(None, None, -1)] * x.ndim)], x, x.swapaxes(0, -1).swapaxes(0, -1)
        for array in lying:
            np.testing.assert_array_equal(Tensor(array).cumsum(axis).numpy(), array.cumsum(axis, dtype=np.int64))
    x, g = Tensor(x.astype("float64"), requires_grad=True), rng.integers(-9, 9, shape).astype("float64")
    (dx,) = grad(x.cumsum(axis), x, Tensor(g))
    np.testing.assert_array_equal(dx.numpy(), np.flip(np.flip(g, axis).cumsum(axis), axis))


def test_running_sums_of_infinities_and_nan():
    x = np.array([1, np.inf, 2, -np.inf, 3], np.float32)
    np.testing.assert_array_equal(Tensor(x).cumsum(0).numpy(), [1, np.inf, np.inf, np.nan, np.nan])
