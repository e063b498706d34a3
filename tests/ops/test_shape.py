"""Ops that rearrange elements and order them, beyond what a row can say: memory, keys, ties, NaN, types, layouts."""

import numpy as np
import pytest

from minigrad import Tensor, nn
from minigrad.core.tape import grad


def numbers(*shape):
    return Tensor(np.arange(float(np.prod(shape))).reshape(shape), requires_grad=True)


# ---- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "turned, shape, view",
    [
        (lambda a: a.transpose(0, 2, 3, 1), (2, 12, 5), True),  # channels last: pixels merge
        (lambda a: a[:, ::-1], (2, 5, 12), True),
        (lambda a: np.broadcast_to(a[:1], (4, 5, 3, 4)), (4, 60), True),
        (lambda a: a.transpose(0, 2, 3, 1), (-1,), False),
        (lambda a: a[:, ::2], (2, -1), False),
    ],
)
def test_a_shape_that_memory_allows_is_a_view(turned, shape, view):
    x = Tensor(turned(np.random.default_rng(0).standard_normal((2, 5, 3, 4))))
    out = x.reshape(shape)
    np.testing.assert_array_equal(out.array, x.array.reshape(shape))
    assert np.shares_memory(out.array, x.array) == view
    if view:
        assert np.shares_memory(x.view(shape).array, x.array)
    else:
        with pytest.raises(RuntimeError, match=r"view: size is .* use reshape"):
            x.view(shape)


def test_results_that_lie_channels_last_can_be_seen_flat():
    """As in PyTorch, where they lie channels first: x.view(x.size(0), -1) after a convolution."""
    layer = nn.Conv2d(3, 4, 3).double()
    out = layer(numbers(2, 3, 6, 6))
    for x, size in ((out, (2, -1)), (layer.weight, (4, -1))):
        np.testing.assert_array_equal(x.view(size).detach().numpy(), x.detach().numpy().reshape(size))
    weights = np.arange(128.0).reshape(2, 64)
    (found,) = grad((out.view(2, -1) * Tensor(weights)).sum(), out)
    np.testing.assert_array_equal(found.array, weights.reshape(2, 4, 4, 4))
    with pytest.raises(RuntimeError, match="use reshape"):
        out.transpose(2, 3).view(2, -1)


def test_contiguous_and_clone():
    x = numbers(2, 3, 4)
    assert x.contiguous() is x
    turned = x.permute(2, 0, 1)
    dense, copied = turned.contiguous(), turned.clone()
    assert dense.array.flags.c_contiguous and copied.array.strides == turned.array.strides
    assert not any(np.shares_memory(out.array, x.array) for out in (dense, copied))
    (both,) = grad((dense + 2 * copied).sum(), x)
    np.testing.assert_array_equal(both.array, np.full(x.shape, 3))


# ---- picking and putting ---------------------------------------------------------------------------------------------


def test_keys_hold_tensors():
    x, places = numbers(3, 4), np.array([2, 0, 2])
    for key, same in (
        (Tensor(places), places),
        ((1, Tensor(places.astype(np.int32))), (1, places)),
        ((slice(Tensor(np.array(1)), None), Tensor(np.array(-1))), (slice(1, None), -1)),
        ([Tensor(np.array(2)), Tensor(np.array(0))], [2, 0]),
        ((Tensor(np.array([True, False, True])), Tensor(np.array([0, 3]))), ([0, 2], [0, 3])),
    ):
        np.testing.assert_array_equal(x[key].array, x.array[same])


# ---- order -----------------------------------------------------------------------------------------------------------

SPECIAL = [0.0, -0.0, 1.0, -1.0, 3.0, np.inf, -np.inf, np.nan, 1e-7]


def places_of(x, axis, descending):
    """Where elements belong by NumPy's sort of two keys, which leaves equals as they are; NaN is the largest."""
    unknown = np.isnan(x)
    return np.lexsort((np.where(unknown, 0, -x if descending else x), unknown != descending), axis)


@pytest.mark.parametrize("dtype", "bfloat16 float32 int8 uint64 bool".split())
def test_order_keeps_equals_and_puts_nan_last(dtype):
    rng = np.random.default_rng(0)
    for shape, axis in (((5, 90), 1), ((90, 3), 0), ((3, 40, 2), -2)):
        drawn = rng.choice(SPECIAL, shape) if "float" in dtype else rng.integers(0, 2 if dtype == "bool" else 5, shape)
        x = Tensor(drawn).to(dtype)
        values = x.to("float64").numpy()
        for descending in (False, True):
            wanted = places_of(values, axis, descending)
            in_order = np.take_along_axis(values, wanted, axis)
            np.testing.assert_array_equal(x.argsort(axis, descending).numpy(), wanted)
            ordered = x.sort(axis, descending)
            np.testing.assert_array_equal(ordered.indices.numpy(), wanted)
            np.testing.assert_array_equal(ordered.values.to("float64").numpy(), in_order)
            for k in (0, 2, shape[axis]):
                top, first = x.topk(k, axis, descending), range(k)
                np.testing.assert_array_equal(top.indices.numpy(), wanted.take(first, axis))
                np.testing.assert_array_equal(top.values.to("float64").numpy(), in_order.take(first, axis))
    x = Tensor(np.array([[1.0, 3, 3, 2, 3]], np.float32), requires_grad=True)
    assert grad(x.topk(2).values.sum(), x)[0].tolist() == [[0, 1, 1, 0, 0]]  # goes to the first of equals
