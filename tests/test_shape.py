"""Memory, keys and gradients of the ops that rearrange elements, beyond what a row can say."""

import numpy as np
import pytest

from minigrad import Tensor, gradcheck, gradgradcheck, nn, ops
from minigrad.core.tape import grad, write


def leaf(*shape):
    return Tensor(np.random.default_rng(0).standard_normal(shape), requires_grad=True)


def numbers(*shape):
    return Tensor(np.arange(float(np.prod(shape))).reshape(shape), requires_grad=True)


# ---- memory ----------------------------------------------------------------------------------------------------------

VIEWS = {
    "reshape": lambda x: x.reshape(4, 3, 2),
    "view": lambda x: x.view(2, 3, 2, 2),
    "flatten": lambda x: x.flatten(1),
    "unflatten": lambda x: x.unflatten(2, (2, 2)),
    "squeeze": lambda x: x[:1].squeeze(0),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "permute": lambda x: x.permute(2, 0, 1),
    "transpose": lambda x: x.transpose(0, 2),
    "movedim": lambda x: x.movedim(0, -1),
    "expand": lambda x: x.expand(5, -1, -1, -1),
    "broadcast_to": lambda x: x.broadcast_to((5, 2, 3, 4)),
    "getitem": lambda x: x[1, ::-1, None, 1:],
    "split": lambda x: x.split(2, 2)[1],
    "chunk": lambda x: x.chunk(2)[1],
    "unbind": lambda x: x.unbind(1)[2],
    "flip": lambda x: x.flip(0, 2),
    "diagonal": lambda x: x.diagonal(1, 1, 2),
    "contiguous": lambda x: x.contiguous(),
}
COPIES = {
    "clone": lambda x: x.clone(),
    "cat": lambda x: ops.cat([x]),
    "stack": lambda x: ops.stack([x]),
    "tile": lambda x: x.tile(1),
    "repeat": lambda x: x.repeat(1, 1, 1),
    "roll": lambda x: x.roll(0),
    "tril": lambda x: x.tril(9),
    "pad": lambda x: ops.pad(x, (-1, 0)),
    "reflect": lambda x: ops.pad(x, (-1, 0), mode="reflect"),
    "index_select": lambda x: x.index_select(0, Tensor(np.arange(2))),
    "getitem": lambda x: x[[0, 1]],
    "mask": lambda x: x[x == x],
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_share_memory_and_version(name):
    x = leaf(2, 3, 4)
    out = VIEWS[name](x)
    assert np.shares_memory(out.array, x.array) and out.version is x.version
    gradcheck(VIEWS[name], [x])
    loss = (out * out).sum()
    write(x)[...] = 0
    assert not out.array.any()
    with pytest.raises(RuntimeError, match="was changed after it was used"):
        loss.backward()


@pytest.mark.parametrize("name", COPIES)
def test_copies_have_memory_of_their_own(name):
    x = leaf(2, 3, 4)
    out = COPIES[name](x)
    before = out.array.copy()
    write(x)[...] = 0
    np.testing.assert_array_equal(out.array, before)


@pytest.mark.parametrize(
    "turned, shape",
    [
        (lambda a: a.transpose(0, 2, 3, 1), (2, 12, 5)),  # channels last: pixels merge
        (lambda a: a[::2], (1, 60)),
        (lambda a: a[:, ::-1], (2, 5, 12)),
        (lambda a: a.transpose(0, 2, 3, 1), (2, 1, 3, 2, 2, 5)),
        (lambda a: np.broadcast_to(a[:1], (4, 5, 3, 4)), (4, 60)),
        (lambda a: np.broadcast_to(a[0, 0, 0, 0], (3, 4)), (12,)),
    ],
)
def test_a_shape_that_memory_allows_is_a_view(turned, shape):
    x = Tensor(turned(np.random.default_rng(0).standard_normal((2, 5, 3, 4))))
    out = x.view(shape)
    assert np.shares_memory(out.array, x.array) and np.shares_memory(x.reshape(shape).array, x.array)
    np.testing.assert_array_equal(out.array, x.array.reshape(shape))


@pytest.mark.parametrize(
    "turned, shape",
    [
        (lambda a: a.transpose(0, 2, 3, 1), (-1,)),
        (lambda a: a[:, ::2], (2, -1)),
        (lambda a: a[..., ::-1], (2, 5, 12)),
        (lambda a: np.broadcast_to(a[:1], (2, 5, 3, 4)), (10, 12)),
        (lambda a: a.transpose(0, 2, 3, 1), (2, 3, 20)),
    ],
)
def test_a_shape_that_memory_does_not_allow_is_a_copy_and_no_view(turned, shape):
    x = Tensor(turned(np.random.default_rng(0).standard_normal((2, 5, 3, 4))))
    np.testing.assert_array_equal(x.reshape(shape).array, x.array.reshape(shape))
    assert not np.shares_memory(x.reshape(shape).array, x.array)
    with pytest.raises(RuntimeError, match=r"view: size is .* use reshape"):
        x.view(shape)


def test_results_that_lie_channels_last_can_be_seen_flat():
    """As in PyTorch, where they lie channels first: x.view(x.size(0), -1) after a convolution."""
    image, layer = leaf(2, 3, 6, 6), nn.Conv2d(3, 4, 3).double()
    out = layer(image)
    for x, size in ((out, (2, -1)), (layer.weight, (4, -1)), (out.permute(0, 2, 3, 1).contiguous(), (-1, 4))):
        np.testing.assert_array_equal(x.view(size).detach().numpy(), x.detach().numpy().reshape(size))
    weights = np.arange(128.0).reshape(2, 64)
    (found,) = grad((out.view(2, -1) * Tensor(weights)).sum(), out)
    np.testing.assert_array_equal(found.array, weights.reshape(2, 4, 4, 4))
    with pytest.raises(RuntimeError, match="use reshape"):
        out.transpose(2, 3).view(2, -1)


def test_contiguous_and_clone():
    x = leaf(2, 3, 4)
    assert x.contiguous() is x
    turned = x.permute(2, 0, 1)
    dense, copied = turned.contiguous(), turned.clone()
    assert dense.array.flags.c_contiguous and copied.array.strides == turned.array.strides
    for out in (dense, copied):
        np.testing.assert_array_equal(out.array, turned.array)
        assert not np.shares_memory(out.array, x.array)
    (both,) = grad((dense + 2 * copied).sum(), x)
    np.testing.assert_array_equal(both.array, np.full(x.shape, 3))


# ---- keys ------------------------------------------------------------------------------------------------------------

IDX = np.array([2, 0, 2])


@pytest.mark.parametrize(
    "key, same",
    [
        (Tensor(IDX), IDX),
        ((slice(None), Tensor(IDX)), (slice(None), IDX)),
        ((Tensor(IDX), Tensor(IDX[::-1].copy())), (IDX, IDX[::-1])),
        ((1, Tensor(IDX.astype(np.int32))), (1, IDX)),
        (Tensor(np.array(2)), 2),
        ((slice(Tensor(np.array(1)), None), Tensor(np.array(-1))), (slice(1, None), -1)),
        ([Tensor(np.array(2)), Tensor(np.array(0))], [2, 0]),
        ([[Tensor(IDX), IDX]], [[IDX, IDX]]),
        (np.array([]), []),
        (np.uint8(1), 1),
        (np.bool_(True), True),
        (Tensor(np.array(True)), True),
        ((Tensor(np.array([True, False, True])), Tensor(np.array([0, 3]))), ([0, 2], [0, 3])),
    ],
)
def test_keys_hold_tensors(key, same):
    x = numbers(3, 4)
    np.testing.assert_array_equal(x[key].array, x.array[same])
    gradcheck(lambda x: x[key], [x])
    gradgradcheck(lambda x: x[key], [x])


def test_integers_act_before_arrays():
    """As in PyTorch: NumPy takes an integer beside an array for an array."""
    x = numbers(2, 3, 4)
    assert x[0, :, [0, 1]].shape == (3, 2) and x.array[0, :, [0, 1]].shape == (2, 3)


def test_gradients_add_where_one_was_picked_twice():
    x = numbers(3, 2)
    (twice,) = grad(x[[2, 0, 2, 2]].sum(), x)
    np.testing.assert_array_equal(twice.array, [[1, 1], [0, 0], [3, 3]])
    (twice,) = grad(x[[2, 0, 2], [1, 1, 1]].sum(), x)
    np.testing.assert_array_equal(twice.array, [[0, 1], [0, 0], [0, 2]])


def test_masks_from_comparisons():
    x = leaf(3, 4)
    np.testing.assert_array_equal(x[x > 0].array, x.array[x.array > 0])
    np.testing.assert_array_equal(grad(x[x > 0].sum(), x)[0].array, x.array > 0)
    assert x[x > 99].shape == (0,) and not grad(x[x > 99].sum(), x)[0].array.any()


def test_random_keys_without_arrays_are_those_of_numpy():
    rng, x = np.random.default_rng(0), numbers(3, 4, 5)

    def part():
        start, stop, step = (int(n) for n in rng.integers(-6, 7, 3))
        return [slice(start, stop, step or None), slice(None, None, step or 1), int(rng.integers(-3, 3)), None][
            rng.integers(4)
        ]

    for _ in range(200):
        key = [part() for _ in range(rng.integers(0, 5))]
        key = key[: next((i for i in range(len(key)) if sum(p is not None for p in key[: i + 1]) > 3), len(key))]
        if rng.random() < 0.5:
            key.insert(rng.integers(len(key) + 1), ...)
        out, wanted = x[tuple(key)], x.array[tuple(key)]
        np.testing.assert_array_equal(out.array, wanted)
        marked = np.zeros(x.shape)
        marked[tuple(key)] = 1
        np.testing.assert_array_equal(grad(out.sum(), x)[0].array, marked)


@pytest.mark.parametrize(
    "call",
    [
        lambda x, i: x[i],
        lambda x, i: x.gather(0, i),
        lambda x, i: x.index_select(0, i),
        lambda x, i: x.scatter_add(0, i, x[:2]),
        lambda x, i: x.scatter(0, i, x[:2]),
        lambda x, i: ops.embedding(i, x.reshape(-1, 1)),
    ],
)
def test_indices_that_change_are_seen(call):
    x, i = leaf(5), Tensor(np.array([3, 1]))
    out = call(x, i).sum()
    write(i)[...] = 0
    with pytest.raises(RuntimeError, match="was changed after it was used"):
        out.backward()


# ---- picking and putting ---------------------------------------------------------------------------------------------


def test_source_larger_than_index():
    """PyTorch has no gradient for it; here what is not used gets 0."""
    x, src, i = leaf(3, 4), leaf(3, 4), Tensor(np.array([[1, 0], [3, 2]]))
    for op in (ops.scatter_add, ops.scatter):
        used = np.zeros((3, 4))
        used[:2, :2] = 1
        np.testing.assert_array_equal(grad(op(x, 1, i, src).sum(), src)[0].array, used)
        gradcheck(lambda x, src, op=op: op(x, 1, i, src), [x, src])


def test_embedding_with_many_rows():
    rng = np.random.default_rng(0)
    words, weight = rng.integers(0, 50, (30, 7)), leaf(50, 3)
    g = rng.standard_normal((30, 7, 3))
    (found,) = grad(ops.embedding(Tensor(words), weight), weight, Tensor(g))
    wanted = np.zeros((50, 3))
    np.add.at(wanted, words, g)
    np.testing.assert_allclose(found.array, wanted, rtol=1e-12, atol=1e-12)


def test_a_padding_row_gets_no_gradient_of_any_order():
    words, weight = Tensor(np.array([0, 2, 2, 1])), leaf(3, 2)
    (once,) = grad((ops.embedding(words, weight, 1) ** 3).sum(), weight, create_graph=True)
    (again,) = grad(once.sum(), weight)
    np.testing.assert_allclose(once.array, 3 * weight.array**2 * [[1], [0], [2]], rtol=1e-12)
    np.testing.assert_allclose(again.array, 6 * weight.array * [[1], [0], [2]], rtol=1e-12)


def test_values_and_indices_have_names():
    x = numbers(5)
    assert x.sort(descending=True).values.tolist() == [4, 3, 2, 1, 0]
    assert x.topk(2).indices.tolist() == [4, 3]
    assert x.argsort(descending=True).dtype == np.int64
