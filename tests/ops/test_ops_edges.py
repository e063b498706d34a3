"""Ops at the edges of their domains: types, overflow, NaN, long sums, what is far from 0."""

import math
import warnings

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, device, ops
from minigrad.core.errors import KindError, ShapeError
from minigrad.core.tape import grad, write


def leaf(values, dtype=np.float64):
    return Tensor(np.array(values, dtype), requires_grad=True)


# ---- element types and overflow --------------------------------------------------------------------------------------


def test_integers_compare_with_numbers_that_they_cannot_hold():
    x = Tensor(np.array([1, 255], np.uint8))
    assert (x < 300).tolist() == [True, True] and (x == -1).tolist() == [False, False]
    assert (Tensor(np.array([1])) <= 2**70).tolist() == [True]


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda x: x + 300, ShapeError, "add: a number does not fit in uint8"),
        (lambda x: x.clamp(0, 300), ShapeError, "clamp: a number does not fit in uint8"),
        (lambda x: x.to("uint64") + np.ones(2, np.int64), KindError, "add: no integer type holds both"),
        (lambda x: ops.masked_fill(x.to("float16"), x == 1, 1e6), ShapeError, "masked_fill: value is 1000000.0, which"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(call, error, message):
    with pytest.raises(error, match=message):
        call(Tensor(np.array([1, 2], np.uint8)))


def test_overflow_makes_no_warnings():
    big = Tensor(np.full(2, 3e38, np.float32))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        device.accumulate(big.array.copy(), big.array)
        minigrad.full(2, 1e300), Tensor([1e300]), Tensor(np.array([np.nan]), dtype="int64")
        big + np.array(1e300), ops.where(big > 0, big, 1e300), ops.exp(big) - ops.exp(big)
        ops.sum(big), ops.var(big), ops.logsumexp(big, 0), big.to("float16").amax(0)


@pytest.mark.parametrize("name", ["relu", "leaky_relu", "elu", "silu", "softplus", "gelu", "erf"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_activations_far_out(name, dtype):
    """No overflow, and no NaN in gradients of first or second order."""
    x = leaf([-1e4, -100, -20, 0, 20, 100, 1e4], dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out = getattr(ops, name)(x)
        (first,) = grad(out.sum(), x, create_graph=True)
        (second,) = grad(first.sum(), x)
    assert out.dtype == first.dtype == second.dtype == dtype
    assert all(np.isfinite(one.array).all() for one in (out, first, second))


@pytest.mark.parametrize("dtype, bound", [(np.float32, 4), (np.float64, 2)])
def test_erf_is_exact_to_a_few_roundings(dtype, bound):
    x = np.concatenate([np.linspace(-7, 7, 10_001), np.logspace(-37, 0, 1_000), [np.inf, -np.inf]]).astype(dtype)
    wanted = np.array([math.erf(value) for value in x.tolist()])
    out = ops.erf(Tensor(x)).array
    assert (np.abs(out - wanted) <= bound * np.finfo(dtype).eps * np.abs(wanted)).all() and np.abs(out).max() == 1


def test_whole_powers_at_the_ends_of_the_range():
    x = Tensor(np.array([-math.inf, -1e30, -0.0, 1e-30, math.nan], np.float32))
    for exponent in (-8, -3, -2, -1, 3, 4, 8):
        with np.errstate(all="ignore"):
            np.testing.assert_allclose((x**exponent).array, x.array**exponent, rtol=1e-6)


def test_to_gives_the_tensor_itself_or_a_copy():
    x = leaf([1.0, 2.0])
    for same in (x.to("float64"), x.to("cpu"), x.to(x), x.to("cpu", "float64"), x.to(None), x.to(dtype=None)):
        assert same is x
    for copy in (x.to("float64", copy=True), x.to(x, copy=True)):
        assert not np.shares_memory(copy.array, x.array)
        (copy * copy).sum().backward()
    assert x.grad.tolist() == [4.0, 8.0]
    assert not x.to("bool").to("float64").requires_grad and x.to("float16").requires_grad


# ---- reductions ------------------------------------------------------------------------------------------------------

REDUCED = {  # of arrays large enough for kernels: how they lie, and the axes
    "rows": (lambda x: x.reshape(200, 301), (1,)),
    "columns": (lambda x: x.reshape(200, 301), (0,)),
    "all": (lambda x: x.reshape(200, 301), (0, 1)),
    "middle": (lambda x: x.reshape(7, 100, 86), (1,)),
    "apart": (lambda x: x.reshape(7, 100, 86), (0, 2)),
    "channels": (lambda x: x.reshape(4, 14, 25, 43).transpose(0, 3, 1, 2), (0, 2, 3)),
    "axes of size 1": (lambda x: x.reshape(1, 200, 1, 301, 1), (0, 1, 2)),
    "turned": (lambda x: x.reshape(200, 301).T, (1,)),
    "backwards": (lambda x: x.reshape(200, 301)[::-1], (0,)),
    "with gaps": (lambda x: x.reshape(301, 200)[:, ::3], (1,)),
}


@pytest.mark.parametrize("name", REDUCED)
def test_large_arrays_of_every_layout(name):
    arrange, axes = REDUCED[name]
    x = arrange(np.random.default_rng(0).integers(-9, 10, 60_200).astype(np.float32))
    for keepdim in (False, True):
        for op, exact in ((ops.sum, np.sum), (ops.amax, np.max), (ops.amin, np.min)):
            np.testing.assert_array_equal(op(Tensor(x), axes, keepdim).array, exact(x, axes, keepdims=keepdim))
        mean = x.mean(axes, float, keepdims=keepdim)
        np.testing.assert_allclose(ops.mean(Tensor(x), axes, keepdim).array, mean, 1e-6, 1e-6)


def test_nan_is_the_extreme_of_large_arrays():
    x = np.random.default_rng(0).standard_normal((300, 200), dtype=np.float32)
    x[7, 5] = np.nan
    for op in (ops.amax, ops.amin, ops.sum):
        for axis, at in ((0, 5), (1, 7), (None, ())):
            out = np.isnan(op(Tensor(x), axis).array)
            assert out[at] and out.sum() == 1


def test_long_sums_keep_their_digits():
    """One by one, 1 is lost beside 2^24 in float32."""
    x = np.ones((100_000, 2), np.float32)
    x[0] = 2**24
    np.testing.assert_allclose(ops.sum(Tensor(x), 0).array, 2**24 + 99_999, rtol=1e-6)
    x = np.full(100_000, 1.1, np.float32)
    np.testing.assert_allclose(ops.cumsum(Tensor(x), 0).array, np.cumsum(x, dtype=np.float64), rtol=1e-7)


@pytest.mark.parametrize("rows, dtype", [(4095, np.float32), (4096, np.float32), (5000, np.float16), (5000, np.int32)])
def test_long_columns_of_every_type(rows, dtype):
    x = np.random.default_rng(0).integers(-1, 2, (rows, 3)).astype(dtype)
    for array in (x, x[:, ::-1], x.T.copy().T):
        out = ops.sum(Tensor(array), 0, keepdim=True)
        assert out.shape == (1, 3) and out.dtype == (np.int64 if dtype == np.int32 else dtype)
        np.testing.assert_array_equal(out.array, array.sum(0, np.int64, keepdims=True))


def test_float16_is_added_up_in_float32():
    x = leaf(1000 + np.arange(300) * 100, np.float16)
    for out in (ops.sum(x / 300), ops.mean(x), ops.std(x, 0), ops.norm(x / 30, 2), ops.logsumexp(x, 0)):
        assert out.dtype == np.float16 and np.isfinite(out.item())
        assert grad(out, x)[0].dtype == np.float16


@pytest.mark.parametrize("dtype", [np.uint8, np.bool_, np.int32])
def test_sums_of_integers_are_int64(dtype):
    x = Tensor(np.ones((300, 2), dtype))
    for out, wanted in ((x.sum(0), 300), (x.cumsum(0)[-1], 300), (x.prod(0), 1), (x.cumprod(0)[-1], 1)):
        assert out.dtype == np.int64 and out.tolist() == [wanted, wanted]


@pytest.mark.parametrize("far", [1e4, 1e5])
def test_spread_of_what_is_far_from_0(far):
    """Two passes: the mean of squares minus the square of the mean would have no digit left."""
    x = (far + np.random.default_rng(0).standard_normal((1000, 8))).astype(np.float32)
    np.testing.assert_allclose(ops.var(Tensor(x), 0).array, np.var(x, 0, dtype=np.float64, ddof=1), rtol=1e-5)


def test_products_do_not_overflow_on_the_way():
    """out / input is finite where the product of all elements behind one is not."""
    x = leaf([1e-10, 1e-10, 1e20, 1e20], np.float32)
    np.testing.assert_allclose(grad(ops.prod(x), x)[0].array, [1e30, 1e30, 1, 1], rtol=1e-6)


def test_results_of_several_parts_have_names():
    out = Tensor(np.array([[1.0, 5.0, 5.0], [7.0, 2.0, 7.0]])).max(1)
    assert out.values.tolist() == [5, 7] and out.indices.tolist() == [1, 0]
    x = Tensor(np.arange(5.0))
    assert x.sort(descending=True).values.tolist() == [4, 3, 2, 1, 0] and x.topk(2).indices.tolist() == [4, 3]


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(30))
def test_einsum_of_random_equations(seed):
    """Up to four operands with summed, kept and broadcast letters, beside NumPy."""
    rng = np.random.default_rng(seed)
    sizes = dict(zip("abcdef", rng.permutation([1, 2, 3, 4, 2, 3]), strict=True))
    words = ["".join(rng.permutation(list(sizes))[: rng.integers(0, 4)]) for _ in range(rng.integers(1, 5))]
    letters = sorted(set("".join(words)))
    equation = ",".join(words) + "->" + "".join(rng.permutation(letters)[: rng.integers(0, len(letters) + 1)])
    operands = [rng.integers(-2, 3, [sizes[one] for one in word]).astype(float) for word in words]
    np.testing.assert_allclose(ops.einsum(equation, *map(Tensor, operands)).array, np.einsum(equation, *operands))


# ---- normalisation ---------------------------------------------------------------------------------------------------


def test_running_statistics():
    """Of the batch where it trains, with the variance of N - 1; a call that is refused changes neither."""
    x = np.random.default_rng(0).standard_normal((4, 3, 5))
    mean, var = Tensor(np.full(3, 2.0)), Tensor(np.full(3, 4.0))
    with pytest.raises(ValueError, match="batch_norm: running_var"):
        ops.batch_norm(Tensor(x), mean, Tensor(np.ones(4)), training=True)
    assert mean.version == [0] and mean.tolist() == [2.0] * 3
    ops.batch_norm(Tensor(x), mean, var, momentum=0.3, training=True)
    np.testing.assert_allclose(mean.array, 0.7 * 2 + 0.3 * x.mean((0, 2)))
    np.testing.assert_allclose(var.array, 0.7 * 4 + 0.3 * x.var((0, 2), ddof=1))


@pytest.mark.parametrize("name, rest", [("layer_norm", ((6, 50),)), ("group_norm", (3,)), ("instance_norm", ())])
def test_norms_far_from_zero(name, rest):
    x = (np.random.default_rng(0).standard_normal((4, 6, 50)) + 1000).astype(np.float32)
    near, exact = (getattr(ops, name)(Tensor(x.astype(t)), *rest).array for t in (np.float32, np.float64))
    np.testing.assert_allclose(near, exact, rtol=1e-6, atol=1e-6)


# ---- what an op kept for backward ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda x, i: x[i],
        lambda x, i: x.gather(0, i),
        lambda x, i: x.index_select(0, i),
        lambda x, i: x.scatter_add(0, i, x[:2]),
        lambda x, i: ops.embedding(i, x.reshape(-1, 1)),
        lambda x, i: ops.cross_entropy(x[:4].reshape(2, 2), i),
        lambda x, i: ops.nll_loss(x[:4].reshape(2, 2), i),
    ],
)
def test_indices_that_change_are_seen(call):
    x, i = leaf(np.arange(5.0)), Tensor(np.array([1, 0]))
    out = call(x, i).sum()
    write(i)[...] = 0
    with pytest.raises(RuntimeError, match="was changed after it was used"):
        out.backward()
