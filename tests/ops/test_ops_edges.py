"""Ops at the edges of their domains: types, overflow, NaN, long sums, what is far from 0."""

import math

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, device, ops
from minigrad.core.errors import KindError, ShapeError
from minigrad.core.tape import grad, write


def leaf(values, dtype=np.float64):
    return Tensor(np.array(values, dtype), requires_grad=True)


# ---- element types and overflow --------------------------------------------------------------------------------------


def test_numbers_that_a_type_cannot_hold():
    x, halves = Tensor(np.array([1, 255], np.uint8)), minigrad.ones(2, dtype="float16")
    assert (x < 300).tolist() == [True, True] and (x == -1).tolist() == [False, False]
    assert (Tensor(np.array([1])) <= 2**70).tolist() == [True]
    for call, error, message in (
        (lambda: x + 300, ShapeError, "add: a number does not fit in uint8"),
        (lambda: x.clamp(0, 300), ShapeError, "clamp: a number does not fit in uint8"),
        (lambda: x.to("uint64") + np.ones(2, np.int64), KindError, "add: no integer type holds both"),
        (lambda: ops.masked_fill(halves, x == 1, 1e6), ShapeError, "masked_fill: value is 1000000.0, which"),
    ):
        with pytest.raises(error, match=message):
            call()
    big = Tensor(np.full(2, 3e38, np.float32))
    device.accumulate(big.array.copy(), big.array)  # overflow makes no warning, which would be an error here
    minigrad.full(2, 1e300), Tensor([1e300]), Tensor(np.array([np.nan]), dtype="int64")
    big + np.array(1e300), ops.where(big > 0, big, 1e300), ops.exp(big) - ops.exp(big)
    ops.sum(big), ops.var(big), ops.logsumexp(big, 0), big.to("float16").amax(0)


def test_what_is_added_or_drawn_beside_others():
    nothing, rows = Tensor(np.ones(0)), Tensor(np.ones((2, 3)))
    assert ops.cat([nothing, rows, nothing], 1).tolist() == rows.tolist()
    assert ops.cosine_similarity(rows * 0.1, rows * 0.2).numpy() == pytest.approx([1, 1])
    assert ops.sum(rows, 0, keepdim=0).shape == (3,) and ops.sum(rows, 0, keepdim=1).shape == (1, 3)
    assert ops.dropout2d(Tensor(np.ones((2, 3, 4, 4)))).dtype == np.float64


def test_to_gives_the_tensor_itself_or_a_copy():
    x = leaf([1.0, 2.0])
    for same in (x.to("float64"), x.to("cpu"), x.to(x), x.to("cpu", "float64"), x.to(None), x.to(dtype=None)):
        assert same is x
    for copy in (x.to("float64", copy=True), x.to(x, copy=True)):
        assert not np.shares_memory(copy.array, x.array)
        (copy * copy).sum().backward()
    assert x.grad.tolist() == [4.0, 8.0]
    assert not x.to("bool").to("float64").requires_grad and x.to("float16").requires_grad


def test_large_arrays_meet_numbers_as_small_ones_do():
    edges = [np.nan, -np.inf, -2.0, -0.5, 0.0, 0.5, 3.0, np.inf]
    x = np.resize(np.array(edges, np.float32), 9000)  # NumPy's clip limits it, maximum and minimum small ones
    for number in (*edges, -1, 2):
        for op, exact in ((ops.maximum, np.maximum), (ops.minimum, np.minimum)):
            np.testing.assert_array_equal(op(Tensor(x), number).array, exact(x, np.float32(number)))
        for where, wanted in ((x > 0, np.where(x > 0, x, number)), (x <= 0, np.where(x <= 0, x, number))):
            np.testing.assert_array_equal(ops.where(Tensor(where), Tensor(x), number).array, wanted)
    assert np.signbit(ops.where(Tensor(x < 0), Tensor(x), -0.0).array[4])  # 0 has a sign


def test_whole_powers():
    x = np.array([-2.5, -0.7, 0.0, 1.1, 300.0], np.float32)
    for dtype, places in (("float32", 5e-7), ("float16", 5e-4), ("bfloat16", 4e-3)):
        rounded = Tensor(x[:4]).to(dtype)  # numbers of 16 bits round once, at the end
        for exponent in (*range(1, 10), 4.0):
            exact = rounded.to("float64").numpy() ** exponent
            np.testing.assert_allclose((rounded**exponent).to("float64").numpy(), exact, rtol=places, atol=1e-7)
    assert (Tensor(x) ** 1).array is not x and np.isinf((Tensor(x).to("float16") ** 3).array[4])


# ---- reductions ------------------------------------------------------------------------------------------------------

REDUCED = {  # of arrays large enough for kernels: how they lie, and the axes
    "all": (lambda x: x.reshape(200, 301), (0, 1)),
    "apart": (lambda x: x.reshape(7, 100, 86), (0, 2)),
    "channels": (lambda x: x.reshape(4, 14, 25, 43).transpose(0, 3, 1, 2), (0, 2, 3)),
    "turned": (lambda x: x.reshape(200, 301).T, (1,)),
    "with gaps": (lambda x: x.reshape(301, 200)[:, ::3], (1,)),
}


@pytest.mark.parametrize("name", REDUCED)
def test_large_arrays_of_every_layout(name):
    """NaN is the extreme and the sum where it is, and nowhere else."""
    arrange, axes = REDUCED[name]
    x = arrange(np.random.default_rng(0).integers(-9, 10, 60_200).astype(np.float32))
    for keepdim in (False, True):
        for op, exact in ((ops.sum, np.sum), (ops.amax, np.max), (ops.amin, np.min)):
            np.testing.assert_array_equal(op(Tensor(x), axes, keepdim).array, exact(x, axes, keepdims=keepdim))
        mean = x.mean(axes, float, keepdims=keepdim)
        np.testing.assert_allclose(ops.mean(Tensor(x), axes, keepdim).array, mean, 1e-6, 1e-6)
    x[tuple(n // 2 for n in x.shape)] = np.nan
    for op in (ops.amax, ops.amin, ops.sum):
        assert np.isnan(op(Tensor(x), axes).array).sum() == 1


def test_sums_and_products_keep_digits_range_and_type():
    x = np.ones((100_000, 2), np.float32)
    x[0] = 2**24  # one by one, 1 is lost beside it
    np.testing.assert_allclose(ops.sum(Tensor(x), 0).array, 2**24 + 99_999, rtol=1e-6)
    x = np.full(100_000, 1.1, np.float32)
    np.testing.assert_allclose(ops.cumsum(Tensor(x), 0).array, np.cumsum(x, dtype=np.float64), rtol=1e-7)
    x = (1e5 + np.random.default_rng(0).standard_normal((1000, 8))).astype(np.float32)
    np.testing.assert_allclose(ops.var(Tensor(x), 0).array, np.var(x, 0, dtype=np.float64, ddof=1), rtol=1e-5)
    x = leaf([1e-10, 1e-10, 1e20, 1e20], np.float32)  # out / input is finite, the product of all behind one is not
    np.testing.assert_allclose(grad(ops.prod(x), x)[0].array, [1e30, 1e30, 1, 1], rtol=1e-6)
    x = leaf(1000 + np.arange(300) * 100, np.float16)  # is added up in float32
    for out in (ops.sum(x / 300), ops.mean(x), ops.std(x, 0), ops.norm(x / 30, 2), ops.logsumexp(x, 0)):
        assert out.dtype == grad(out, x)[0].dtype == np.float16 and np.isfinite(out.item())
    for dtype in (np.uint8, np.bool_, np.int32):
        x = Tensor(np.ones((5000, 2), dtype))
        for out, wanted in ((x.sum(0), 5000), (x.cumsum(0)[-1], 5000), (x.prod(0), 1), (x.cumprod(0)[-1], 1)):
            assert out.dtype == np.int64 and out.tolist() == [wanted, wanted]
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype("f4")  # sums of channels have a kernel
    for keepdim in (False, True):
        out = ops.sum(Tensor(x).to("interpreter"), (0, 2, 3), keepdim)
        np.testing.assert_allclose(out.numpy(), x.sum((0, 2, 3), keepdims=keepdim), rtol=1e-5, atol=1e-6)


# ---- losses, and what is picked by index -----------------------------------------------------------------------------


def test_indices_that_change_before_backward_are_seen():
    def calls(x, i):
        yield from (x[i], x.gather(0, i), x.index_select(0, i), x.scatter_add(0, i, x[:2]))
        yield ops.embedding(i, x.reshape(-1, 1))
        yield from (loss(x[:4].reshape(2, 2), i) for loss in (ops.cross_entropy, ops.nll_loss))

    x, i = leaf(np.arange(5.0)), Tensor(np.array([1, 0]))
    found = [*calls(x, i)]
    write(i)[...] = 0
    for out in found:
        with pytest.raises(RuntimeError, match="was changed after it was used"):
            out.sum().backward()


@pytest.mark.parametrize("name", ["mse_loss", "huber_loss"])
def test_losses_of_shapes_that_broadcast_warn_where_they_are_called(name):
    for shapes in (((4, 1), (4,)), ((), (2, 3))):
        x, y = (leaf(np.random.default_rng(n).standard_normal(shape)) for n, shape in enumerate(shapes))
        wide = [leaf(one) for one in np.broadcast_arrays(x.array, y.array)]
        with pytest.warns(UserWarning, match=f"^{name}: input has shape .* they broadcast to") as heard:
            found = getattr(ops, name)(x, y, reduction="none")
        assert heard[0].filename == __file__
        wanted = getattr(ops, name)(*wide, reduction="none")
        np.testing.assert_allclose(found.array, wanted.array, rtol=1e-12)
        for a, b in zip(grad(found.sum(), [x, y]), grad(wanted.sum(), wide), strict=True):
            np.testing.assert_allclose(a.array.sum(), b.array.sum(), rtol=1e-12)


@pytest.mark.parametrize("function", [ops.cross_entropy, ops.nll_loss])
@pytest.mark.parametrize("place", ["cpu", "interpreter"])
def test_rows_that_do_not_count_neither_give_nor_take(function, place):
    """NaN there reaches neither the loss nor the gradient; the mean of no row is NaN, its gradient 0."""
    scores = np.random.default_rng(0).standard_normal((4, 3))
    for target in (np.array([0, 2, -1, 1]), np.full(4, -1)):
        used = target != -1
        x = Tensor(np.where(used[:, None], scores, math.nan)).to(place).requires_grad_()
        whole = function(Tensor(scores[used]), Tensor(target[used]), reduction="none").array
        mean = whole.mean() if used.any() else math.nan
        for reduction, wanted in (("mean", mean), ("sum", whole.sum()), ("none", whole.sum())):
            loss = function(x, Tensor(target).to(place), ignore_index=-1, reduction=reduction)
            np.testing.assert_allclose(loss.sum().item(), wanted, rtol=1e-14)
            for create_graph in (False, True):
                gradient = grad(loss.sum(), x, retain_graph=True, create_graph=create_graph)[0].detach().numpy()
                assert not gradient[~used].any() and np.isfinite(gradient).all()
    exact = function(Tensor(scores), Tensor(np.array([2, 0, 1, 1]))).item()
    for dtype in ("int8", "uint8", "int32", "uint64"):
        assert function(Tensor(scores), Tensor(np.array([2, 0, 1, 1], dtype))).item() == exact
