"""Memory and keys of the ops that rearrange elements, beyond what a row can say."""

import numpy as np
import pytest

from minigrad import Tensor, nn, ops
from minigrad.core.tape import grad


def numbers(*shape):
    return Tensor(np.arange(float(np.prod(shape))).reshape(shape), requires_grad=True)


# ---- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "turned, shape, view",
    [
        (lambda a: a.transpose(0, 2, 3, 1), (2, 12, 5), True),  # channels last: pixels merge
        (lambda a: a[::2], (1, 60), True),
        (lambda a: a[:, ::-1], (2, 5, 12), True),
        (lambda a: np.broadcast_to(a[:1], (4, 5, 3, 4)), (4, 60), True),
        (lambda a: a.transpose(0, 2, 3, 1), (-1,), False),
        (lambda a: a[:, ::2], (2, -1), False),
        (lambda a: a[..., ::-1], (2, 5, 12), False),
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
    for x, size in ((out, (2, -1)), (layer.weight, (4, -1)), (out.permute(0, 2, 3, 1).contiguous(), (-1, 4))):
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


# ---- keys ------------------------------------------------------------------------------------------------------------

IDX = np.array([2, 0, 2])


@pytest.mark.parametrize(
    "key, same",
    [
        (Tensor(IDX), IDX),
        ((slice(None), Tensor(IDX)), (slice(None), IDX)),
        ((1, Tensor(IDX.astype(np.int32))), (1, IDX)),
        ((slice(Tensor(np.array(1)), None), Tensor(np.array(-1))), (slice(1, None), -1)),
        ([Tensor(np.array(2)), Tensor(np.array(0))], [2, 0]),
        (np.uint8(1), 1),
        (Tensor(np.array(True)), True),
        ((Tensor(np.array([True, False, True])), Tensor(np.array([0, 3]))), ([0, 2], [0, 3])),
    ],
)
def test_keys_hold_tensors(key, same):
    x = numbers(3, 4)
    np.testing.assert_array_equal(x[key].array, x.array[same])


def test_gradients_add_where_one_was_picked_twice():
    x = numbers(3, 2)
    np.testing.assert_array_equal(grad(x[[2, 0, 2, 2]].sum(), x)[0].array, [[1, 1], [0, 0], [3, 3]])
    np.testing.assert_array_equal(grad(x[[2, 0, 2], [1, 1, 1]].sum(), x)[0].array, [[0, 1], [0, 0], [0, 2]])
    np.testing.assert_array_equal(grad(x[x > 2].sum(), x)[0].array, x.array > 2)


def test_random_keys_without_arrays_are_those_of_numpy():
    rng, x = np.random.default_rng(0), numbers(3, 4, 5)

    def part():
        start, stop, step = (int(n) for n in rng.integers(-6, 7, 3))
        return [slice(start, stop, step or None), slice(None, None, step or 1), int(rng.integers(-3, 3)), None][
            rng.integers(4)
        ]

    for _ in range(100):
        key = [part() for _ in range(rng.integers(0, 5))]
        key = key[: next((i for i in range(len(key)) if sum(p is not None for p in key[: i + 1]) > 3), len(key))]
        if rng.random() < 0.5:
            key.insert(rng.integers(len(key) + 1), ...)
        out, marked = x[tuple(key)], np.zeros(x.shape)
        np.testing.assert_array_equal(out.array, x.array[tuple(key)])
        marked[tuple(key)] = 1
        np.testing.assert_array_equal(grad(out.sum(), x)[0].array, marked)


# ---- picking and putting ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", [ops.scatter_add, ops.scatter])
def test_source_larger_than_index(op):
    """PyTorch has no gradient for it; here what is not used gets 0."""
    x, src, i = numbers(3, 4), numbers(3, 4), Tensor(np.array([[1, 0], [3, 2]]))
    used = np.zeros((3, 4))
    used[:2, :2] = 1
    np.testing.assert_array_equal(grad(op(x, 1, i, src).sum(), src)[0].array, used)


@pytest.mark.parametrize("padding", [1, -2])
def test_a_padding_row_gets_no_gradient_of_any_order(padding):
    words, weight = Tensor(np.array([0, 2, 2, 1])), numbers(3, 2)
    (once,) = grad((ops.embedding(words, weight, padding) ** 3).sum(), weight, create_graph=True)
    (again,) = grad(once.sum(), weight)
    np.testing.assert_allclose(once.array, 3 * weight.array**2 * [[1], [0], [2]], rtol=1e-12)
    np.testing.assert_allclose(again.array, 6 * weight.array * [[1], [0], [2]], rtol=1e-12)
