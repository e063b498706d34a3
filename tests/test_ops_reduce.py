"""Reductions and products at the edges of their domains: long sums, types, NaN, zeros, ties, few elements."""

import importlib
import math
import warnings

import numpy as np
import pytest

from minigrad import Tensor, ops
from minigrad.core.tape import grad

INF, NAN = math.inf, math.nan


def both(call, *values):
    """[value, gradient, second gradient] of call(module, *Tensors), by minigrad and by PyTorch."""
    torch = pytest.importorskip("torch")
    found = []
    for module, make, gradients in ((ops, Tensor, grad), (torch, torch.tensor, torch.autograd.grad)):
        leaves = [make(np.array(value, np.float64), requires_grad=True) for value in values]
        out = call(module, *leaves)
        weights = [
            make(np.cos(np.arange(leaf.array.size if module is ops else leaf.numel())).reshape(leaf.shape))
            for leaf in leaves
        ]
        first = gradients(out.sum(), leaves, create_graph=True)
        parts = [(g * w).sum() for g, w in zip(first, weights, strict=True) if g.requires_grad]
        second = gradients(sum(parts[1:], parts[0]), leaves, allow_unused=True) if parts else [None] * len(leaves)
        second = [make(np.zeros(leaf.shape)) if g is None else g + 0 for leaf, g in zip(leaves, second, strict=True)]
        found.append([np.asarray(one.detach()) for one in (out, *[g + 0 for g in first], *second)])
    return found


def assert_like_torch(call, *values, second=True):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, about degrees of freedom
        ours, theirs = both(call, *values)
    for k, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if second or k <= len(values):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


# ---- long sums -------------------------------------------------------------------------------------------------------


def test_long_columns_keep_their_digits():
    """One by one, 1 is lost beside 2^24 in float32."""
    x = np.ones((100_000, 2), np.float32)
    x[0] = 2**24
    np.testing.assert_allclose(ops.sum(Tensor(x), 0).array, 2**24 + 99_999, rtol=1e-6)


@pytest.mark.parametrize(
    "layout, axes",
    [
        (lambda x: x.reshape(50_000, 2, 3), 0),
        (lambda x: x.reshape(50_000, 2, 3), (0, 2)),
        (lambda x: x.reshape(2, 50_000, 3), 1),
        (lambda x: x.reshape(100_000, 3)[:, ::-1], 0),
        (lambda x: x.reshape(3, 100_000).T.copy().T, 1),
        (lambda x: x.reshape(300, 1000), (0, 1)),
        (lambda x: x.reshape(10, 3, 100, 100), (0, 2, 3)),
    ],
)
def test_long_sums_keep_their_digits_in_every_layout(layout, axes):
    x = layout(np.float32(1) + np.random.default_rng(0).random(300_000).astype(np.float32))
    for op in (ops.sum, ops.mean):
        exact = getattr(np, op.__name__)(x, axes, np.float64)
        np.testing.assert_allclose(op(Tensor(x), axes).array, exact, rtol=2e-6)
    np.testing.assert_allclose(ops.var(Tensor(x), axes).array, np.var(x, axes, np.float64, ddof=1), rtol=1e-5)


REDUCED = {  # of arrays large enough for kernels: how they lie, and the axes
    "rows": (lambda x: x.reshape(200, 301), (1,)),
    "columns": (lambda x: x.reshape(200, 301), (0,)),
    "all": (lambda x: x.reshape(200, 301), (0, 1)),
    "middle": (lambda x: x.reshape(7, 100, 86), (1,)),
    "apart": (lambda x: x.reshape(7, 100, 86), (0, 2)),
    "pixels": (lambda x: x.reshape(4, 14, 25, 43).transpose(0, 3, 1, 2), (2, 3)),
    "channels": (lambda x: x.reshape(4, 14, 25, 43).transpose(0, 3, 1, 2), (0, 2, 3)),
    "axes of size 1": (lambda x: x.reshape(1, 200, 1, 301, 1), (0, 1, 2)),
    "nothing to add": (lambda x: x.reshape(1, 200, 1, 301), (0, 2)),
    "turned": (lambda x: x.reshape(200, 301).T, (1,)),
    "backwards": (lambda x: x.reshape(200, 301)[::-1], (0,)),
    "with gaps": (lambda x: x.reshape(301, 200)[:, ::3], (1,)),
}


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("name", REDUCED)
def test_large_arrays_of_every_layout(name, keepdim):
    arrange, axes = REDUCED[name]
    whole = np.random.default_rng(0).integers(-9, 10, 60_200).astype(np.float32)
    x = arrange(whole)
    for op, exact in ((ops.sum, np.sum), (ops.amax, np.max), (ops.amin, np.min)):
        out = op(Tensor(x), axes, keepdim).array
        assert out.dtype == np.float32
        np.testing.assert_array_equal(out, exact(x, axes, keepdims=keepdim), strict=True)
    np.testing.assert_allclose(
        ops.mean(Tensor(x), axes, keepdim).array, x.mean(axes, float, keepdims=keepdim), 1e-6, 1e-6
    )


def test_nan_is_the_extreme_of_large_arrays():
    x = np.random.default_rng(0).standard_normal((300, 200), dtype=np.float32)
    x[7, 5] = np.nan
    for op in (ops.amax, ops.amin, ops.sum):
        for axis, at in ((0, 5), (1, 7), (None, ())):
            out = np.isnan(op(Tensor(x), axis).array)
            assert out[at] and out.sum() == 1


@pytest.mark.parametrize("rows, dtype", [(4095, np.float32), (4096, np.float32), (5000, np.float16), (5000, np.int32)])
def test_long_columns_of_every_type(rows, dtype):
    x = np.random.default_rng(0).integers(-1, 2, (rows, 3)).astype(dtype)
    for array in (x, x[:, ::-1], x.T.copy().T):
        out = ops.sum(Tensor(array), 0, keepdim=True)
        assert out.shape == (1, 3) and out.dtype == (np.int64 if dtype == np.int32 else dtype)
        np.testing.assert_array_equal(out.array, array.sum(0, np.int64, keepdims=True))


def test_long_running_sums_keep_their_digits():
    x = np.full(1_000_000, 1.1, np.float32)
    exact = np.cumsum(x, dtype=np.float64)
    np.testing.assert_allclose(ops.cumsum(Tensor(x), 0).array, exact, rtol=1e-7)


# ---- element types ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda ops, x: ops.sum(x / 300),
        lambda ops, x: ops.mean(x),
        lambda ops, x: ops.var(x / 100, 0),
        lambda ops, x: ops.std(x, 0),
        lambda ops, x: ops.norm(x / 30, 2),
        lambda ops, x: ops.norm(x / 300, 3, 0),
        lambda ops, x: ops.logsumexp(x, 0),
        lambda ops, x: ops.cumsum(x / 300, 0),
        lambda ops, x: ops.prod(x[::100] / 600),
    ],
)
def test_float16_is_added_up_in_float32(call):
    torch = pytest.importorskip("torch")
    x = (1000 + np.arange(300) * 100).astype(np.float16)
    ours, theirs = Tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    out, wanted = call(ops, ours), call(torch, theirs)
    assert out.dtype == np.float16
    np.testing.assert_allclose(out.array.astype(float), wanted.detach().numpy().astype(float), rtol=2e-3)
    (gradient,) = grad(out.sum(), ours)
    (expected,) = torch.autograd.grad(wanted.sum(), theirs)
    assert gradient.dtype == np.float16
    np.testing.assert_allclose(gradient.array.astype(float), expected.numpy().astype(float), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("name", ["sum", "mean", "prod", "cumsum", "cumprod", "norm"])
@pytest.mark.parametrize("given, wanted", [("float16", "float32"), ("float32", "float64"), ("float32", "float32")])
def test_dtype_converts_first(name, given, wanted):
    x = Tensor(np.array([[3.0, 0.1], [2.0, 5.0]], given), requires_grad=True)
    out = getattr(ops, name)(x, dim=0, dtype=wanted)
    assert out.dtype == wanted
    np.testing.assert_array_equal(out.array, getattr(ops, name)(x.to(wanted), dim=0).array)
    assert grad(out.sum(), x)[0].dtype == given


@pytest.mark.parametrize("name", ["sum", "mean", "prod", "cumsum", "cumprod"])
def test_dtype_may_hold_less(name):
    x = Tensor(np.array([3.0, 0.1]), requires_grad=True)
    out = getattr(ops, name)(x, dim=0, dtype="float16")
    assert out.dtype == np.float16 and grad(out.sum(), x)[0].dtype == np.float64


@pytest.mark.parametrize("dtype", [np.uint8, np.bool_, np.int32, np.uint64])
def test_sums_of_integers_are_int64(dtype):
    x = Tensor(np.ones((300, 2), dtype))
    for out, wanted in ((x.sum(0), 300), (x.cumsum(0)[-1], 300), (x.prod(0), 1), (x.cumprod(0)[-1], 1)):
        assert out.dtype == np.int64 and out.tolist() == [wanted, wanted]


@pytest.mark.parametrize(
    "shapes", [((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((4,), (2, 4, 3)), ((2, 1, 3, 4), (5, 4, 2))]
)
def test_float16_is_multiplied_in_float32(shapes):
    a, b = (np.random.default_rng(0).integers(-3, 4, shape).astype(np.float16) for shape in shapes)
    x, y = Tensor(a, requires_grad=True), Tensor(b, requires_grad=True)
    out = x @ y
    assert out.dtype == np.float16
    np.testing.assert_array_equal(out.array, a @ b)
    assert [g.dtype for g in grad(out.sum(), [x, y])] == [np.float16] * 2
    assert ops.linear(x, Tensor(np.ones((2, a.shape[-1]), np.float16))).dtype == np.float16


# ---- values and gradients at special points, beside PyTorch ----------------------------------------------------------

POINTS = ([3.0], [0.0, 0.0], [3.0, -4.0], [0.0, 2.0, 0.0], [2.0, -2.0, 1.0], [NAN, 1.0], [1.0, NAN, 2.0, NAN])
POINTS += ([INF, 1.0], [-INF, 2.0], [-INF, -INF], [INF, INF, 1.0], [2.0, 3.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 2.0], [])
NAMES = ("amax", "amin", "prod", "cumprod", "cumsum", "logsumexp", "mean")


@pytest.mark.parametrize("point", POINTS, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_like_torch_at(name, point):
    exact = (
        name in ("prod", "cumprod") and not np.isfinite(point).all()
    )  # where PyTorch divides the result by NaN or inf
    if not exact and (point or name not in ("amax", "amin")):
        assert_like_torch(lambda module, x: getattr(module, name)(x, 0), point)


@pytest.mark.parametrize("point", POINTS[:-1], ids=str)
@pytest.mark.parametrize("name", ["max", "min"])
def test_extremes_like_torch_at(name, point):
    assert_like_torch(lambda module, x: getattr(module, name)(x), point)
    assert_like_torch(lambda module, x: getattr(module, name)(x, 0).values, point)


SPREADS = [(n, point) for n in (0, 1, 2, 3, 1.5, -1) for point in POINTS if len(point) > n]  # degrees of freedom


@pytest.mark.parametrize("correction, point", SPREADS, ids=str)
@pytest.mark.parametrize("name", ["var", "std"])
def test_spreads_like_torch_at(name, correction, point):
    assert_like_torch(lambda module, x: getattr(module, name)(x, correction=correction), point)


@pytest.mark.parametrize("point", POINTS[:-1], ids=str)
@pytest.mark.parametrize("p", [0.5, 1, 1.5, 2, 2.5, 3, 4, INF, -INF, -1, -2, -0.5])
def test_norms_like_torch_at(p, point):
    """Where an element is 0, PyTorch's second gradient may be NaN."""
    assert_like_torch(lambda module, x: module.norm(x, p), point, second=0.0 not in point and INF not in point)


def test_norm_of_nothing_and_of_order_0():
    assert (
        ops.norm(Tensor(np.zeros((0, 3)))).item() == 0 and ops.norm(Tensor(np.zeros((0, 3))), 1, 0).tolist() == [0] * 3
    )
    x = Tensor(np.array([NAN, 0.0, -2.0]), requires_grad=True)
    assert ops.norm(x, 0).item() == 2
    assert grad(ops.norm(x, 0), x, allow_unused=True) == (None,)


@pytest.mark.parametrize("correction", [3, 4, 1.5, 0])
@pytest.mark.parametrize("values", [[1.0, 2.0, 4.0], [1.0], []])
def test_var_with_few_elements(values, correction):
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's about degrees of freedom
        wanted = torch.var(torch.tensor(values), dim=0, correction=correction).item()
    out = ops.var(Tensor(np.array(values, np.float32)), 0, correction=correction)
    np.testing.assert_allclose(out.item(), wanted, rtol=1e-6)


@pytest.mark.parametrize("name", ["var", "std"])
@pytest.mark.parametrize("correction", [3, 4, 3.5])
@pytest.mark.parametrize("dim", [0, (0, 1)])
def test_gradients_without_degrees_of_freedom_like_torch(name, correction, dim):
    points = [[1.0, 5.0], [2.0, 5.0], [4.0, 5.0]]
    correction = correction + 3 if dim != 0 else correction
    assert_like_torch(lambda module, x: getattr(module, name)(x, dim, correction=correction), points, second=False)


def test_var_over_no_dimensions_named_is_over_all():
    x = Tensor(np.arange(6.0).reshape(2, 3))
    assert ops.var(x, ()).item() == ops.var(x).item() and ops.var(x, (), keepdim=True).shape == (1, 1)


def test_spread_of_what_is_far_from_0():
    """Two passes: the mean of squares minus the square of the mean would have no digit left."""
    x = (1e4 + np.random.default_rng(0).standard_normal(1000)).astype(np.float32)
    np.testing.assert_allclose(ops.var(Tensor(x)).item(), np.var(x, dtype=np.float64, ddof=1), rtol=1e-5)


def test_spread_of_what_is_so_far_from_0_that_the_mean_is_rounded():
    x = (1e5 + np.random.default_rng(0).standard_normal((1000, 8))).astype(np.float32)
    np.testing.assert_allclose(ops.var(Tensor(x), 0).array, np.var(x, 0, dtype=np.float64, ddof=1), rtol=1e-5)


def test_products_do_not_overflow_on_the_way():
    """out / input is finite where the product of all elements behind one is not."""
    x = Tensor(np.array([1e-10, 1e-10, 1e20, 1e20], np.float32), requires_grad=True)
    np.testing.assert_allclose(grad(ops.prod(x), x)[0].array, [1e30, 1e30, 1, 1], rtol=1e-6)


@pytest.mark.parametrize("zeros", [(), (3,), (3, 500), (0,), (999,)])
def test_running_products_of_many_elements(zeros):
    """Gradients of a running product with zeros are taken by products of products, without division."""
    x = np.random.default_rng(0).choice([-1.0, 1.0], 1000) * 2.0 ** np.random.default_rng(1).integers(-1, 2, 1000)
    x[list(zeros)] = 0
    assert_like_torch(lambda module, x: module.cumprod(x, 0), x)


def test_extremes_along_a_dimension_have_names():
    out = Tensor(np.array([[1.0, 5.0, 5.0], [7.0, 2.0, 7.0]])).max(1)
    assert out.values.tolist() == [5, 7] and out.indices.tolist() == [1, 0]
    values, indices = Tensor(np.array([3.0, NAN, NAN])).min(0, keepdim=True)
    assert np.isnan(values.array).all() and indices.tolist() == [1]


# ---- products --------------------------------------------------------------------------------------------------------


def test_a_stack_times_a_matrix_is_one_product(monkeypatch):
    module = importlib.import_module("minigrad.ops.matmul")
    seen, product = [], module.product
    monkeypatch.setattr(module, "product", lambda a, b: seen.append((a.shape, b.shape)) or product(a, b))
    ops.matmul(Tensor(np.ones((5, 2, 3))), Tensor(np.ones((3, 4))))
    assert seen == [((10, 3), (3, 4))]


@pytest.mark.parametrize("seed", range(30))
def test_einsum_of_random_equations(seed):
    """Up to four operands with summed, kept and broadcast letters, beside NumPy."""
    rng = np.random.default_rng(seed)
    sizes = dict(zip("abcdef", rng.permutation([1, 2, 3, 4, 2, 3]), strict=True))
    words = ["".join(rng.permutation(list(sizes))[: rng.integers(0, 4)]) for _ in range(rng.integers(1, 5))]
    letters = sorted(set("".join(words)))
    result = "".join(rng.permutation(letters)[: rng.integers(0, len(letters) + 1)])
    operands = [rng.integers(-2, 3, [sizes[one] for one in word]).astype(float) for word in words]
    for equation in (",".join(words) + "->" + result, ",".join(words)):
        out = ops.einsum(equation, *map(Tensor, operands))
        np.testing.assert_allclose(out.array, np.einsum(equation, *operands), rtol=1e-12)
        assert out.shape == np.einsum(equation, *operands).shape
