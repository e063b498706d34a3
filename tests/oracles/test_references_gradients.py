"""HIPS autograd differentiates the references of pooling, norms, softmax and ReLU: each gradient is that of its op."""

from itertools import product

import numpy as np
import pytest

from minigrad_kernels.elementwise import reference as elementwise
from minigrad_kernels.errors import ShapeError
from minigrad_kernels.norm import reference as norm
from minigrad_kernels.pool2d import adaptive_windows, average_windows, output_shape
from minigrad_kernels.pool2d import reference as pool2d
from minigrad_kernels.softmax import reference as softmax

autograd = pytest.importorskip("autograd")
anp = pytest.importorskip("autograd.numpy")

RNG = np.random.default_rng(3)
CLOSE = dict(rtol=1e-12, atol=1e-12)


def vjp(function, *inputs):
    """The result, and g -> gradients for all inputs."""
    results = [autograd.make_vjp(function, k)(*inputs) for k in range(len(inputs))]
    return results[0][1], lambda g: [pull(g) for pull, _ in results]


def check(function, inputs, gradients):
    """gradients(g, out) against autograd's, which may be fewer."""
    out, pull = vjp(function, *inputs)
    g = RNG.standard_normal(out.shape)
    got = gradients(g, out)
    for mine, theirs in zip(got if isinstance(got, tuple) else (got,), pull(g), strict=True):
        np.testing.assert_allclose(mine, theirs, **CLOSE)


POOLS = [((2, 2), (2, 2), (0, 0), (1, 1)), ((3, 2), (2, 1), (1, 1), (1, 2)), ((3, 3), (1, 2), (1, 0), (2, 1))]


@pytest.mark.parametrize("geometry", POOLS)
def test_max_pool(geometry):
    x = RNG.standard_normal((2, 3, 8, 9))
    sizes = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in zip(x.shape[2:], *geometry, strict=True)]
    positions = pool2d.max_forward(x, *geometry, sizes)[1]
    check(
        lambda x: pool2d.max_forward(x, *geometry, sizes, anp)[0],
        [x],
        lambda g, out: pool2d.max_input_grad(g, positions, *geometry, (8, 9)),
    )
    g = RNG.standard_normal(positions.shape)
    check(
        lambda g: pool2d.max_input_grad(g, positions, *geometry, (8, 9), anp),
        [g],
        lambda v, out: pool2d.max_select(v, positions, *geometry),
    )


TABLES = [
    (average_windows(8, 3, 2, 1, True, True), average_windows(9, 2, 2, 0, False, False)),
    (adaptive_windows(8, 3), adaptive_windows(9, 4)),
]


@pytest.mark.parametrize("tables", TABLES)
def test_average_pool(tables):
    check(
        lambda x: pool2d.average_forward(x, *tables, anp),
        [RNG.standard_normal((2, 3, 8, 9))],
        lambda g, out: pool2d.average_input_grad(g, *tables, (8, 9)),
    )
    check(
        lambda g: pool2d.average_input_grad(g, *tables, (8, 9), anp),
        [RNG.standard_normal((2, 3, len(tables[0]), len(tables[1])))],
        lambda v, out: pool2d.average_forward(v, *tables),
    )


@pytest.mark.parametrize("shape", [(7, 3), (2, 3, 4, 5)])
def test_batch_norm(shape):
    x, weight, bias = RNG.standard_normal(shape), RNG.standard_normal(3), RNG.standard_normal(3)
    statistics = norm.batch_statistics(x)

    def normalized(x, weight, bias):
        return norm.batch_normalize(x, *norm.batch_statistics(x, anp), weight, bias, 1e-3, None, False, anp)

    check(normalized, [x, weight, bias], lambda g, out: norm.batch_norm_grads(g, x, *statistics, weight, 1e-3)[:3])


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax(name):
    check(
        lambda x: getattr(softmax, name)(x, anp),
        [RNG.standard_normal((5, 4))],
        getattr(softmax, f"{name}_grad"),
    )


def test_cross_entropy():
    x, target = RNG.standard_normal((5, 4)), np.array([0, 3, -1, 2, 2])
    logsumexp = softmax.cross_entropy(x, target, -1)[1]
    check(
        lambda x: softmax.cross_entropy(x, target, -1, anp)[0],
        [x],
        lambda g, out: softmax.cross_entropy_grad(g, x, target, -1, logsumexp, None),
    )


def test_relu_and_dropout():
    x = RNG.standard_normal(50)
    check(lambda x: elementwise.relu(x, anp), [x], elementwise.relu_grad)
    check(
        lambda x: elementwise.dropout(x, 0.3, 1, 2, anp),
        [x],
        lambda g, out: elementwise.dropout(g, 0.3, 1, 2),
    )


def test_leaky_relu_and_erf():
    x = RNG.standard_normal(50)
    check(lambda x: elementwise.leaky_relu(x, 0.3, anp), [x], lambda g, out: elementwise.leaky_relu_grad(g, x, 0.3))
    check(lambda x: elementwise.erf(x, anp), [x], lambda g, out: g * 2 / np.sqrt(np.pi) * np.exp(-x * x))


def test_standardized_rows():
    x = RNG.standard_normal((3, 5))
    scale = norm.standardize(x, 1e-3)[1]
    check(lambda x: norm.standardize(x, 1e-3, anp)[0], [x], lambda g, out: norm.standardize_grad(g, out, scale))


@pytest.mark.parametrize("shape, groups", [((3, 5), None), ((2, 6, 2, 3), 3)])
def test_norms_of_samples(shape, groups):
    name = "layer_norm" if groups is None else "group_norm"
    function, gradients = getattr(norm, name), getattr(norm, f"{name}_grads")
    x, w, b = (RNG.standard_normal(size) for size in (shape, shape[1], shape[1]))
    settings = (1e-3,) if groups is None else (1e-3, groups)
    _, *statistics = function(x, w, b, *settings)
    check(
        lambda x, w, b: function(x, w, b, *settings, anp)[0],
        [x, w, b],
        lambda g, out: gradients(g, x, *statistics, w, 1e-3),
    )


def test_pooling_sizes_and_refusals_are_those_of_pytorch():
    pool = pytest.importorskip("torch").nn.functional.max_pool2d
    image = pytest.importorskip("torch").ones
    for size, *settings, ceil_mode in product(range(1, 8), range(1, 5), range(1, 4), range(3), (1, 2), (False, True)):
        pairs = [(value, value) for value in settings]
        try:
            want = tuple(pool(image(1, 1, size, size), *pairs, ceil_mode).shape)
        except RuntimeError:
            want = None
        try:
            got = output_shape("max_pool2d", (1, 1, size, size), *pairs, ceil_mode)
        except ShapeError as error:  # PyTorch lets windows pass that hold nothing
            got = want if "covers no element" in str(error) else None
        assert got == want, (size, settings, ceil_mode)
