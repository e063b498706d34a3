"""Pooling, norms, softmax, ReLU and update rules beside PyTorch."""

from itertools import product

import numpy as np
import pytest

from minigrad_kernels import elementwise, norm, optimizer, pool2d, softmax
from minigrad_kernels.errors import ShapeError
from minigrad_kernels.optimizer import SGD, Adam, RMSprop

torch = pytest.importorskip("torch")
F = torch.nn.functional

CLOSE = dict(rtol=1e-12, atol=1e-12)
NAN, INF = np.nan, np.inf


def image(shape, rng=None, dtype=np.float64):
    n, c, h, w = shape
    values = np.full((n, h, w, c), 99, dtype) if rng is None else rng.standard_normal((n, h, w, c)).astype(dtype)
    return values.transpose(0, 3, 1, 2)


def tensor(array):
    return torch.from_numpy(array.copy()).requires_grad_()


POOLS = [
    ((2, 5, 9, 10), kernel, stride, padding, dilation, ceil_mode)
    for kernel, stride, padding, dilation, ceil_mode in product(
        [(2, 2), (3, 2)], [(1, 2), (2, 3)], [(0, 0), (1, 1)], [(1, 1), (2, 1)], [False, True]
    )
]


@pytest.mark.parametrize("shape, kernel, stride, padding, dilation, ceil_mode", POOLS)
def test_max_pool(shape, kernel, stride, padding, dilation, ceil_mode):
    rng = np.random.default_rng(0)
    # Few different values: ties, which the first of the window must win, and NaN and -inf.
    x = np.round(image(shape, rng))
    x[0, 0, 3, 3], x[0, 1] = NAN, -INF
    theirs = tensor(x)
    want, flat = F.max_pool2d(theirs, kernel, stride, padding, dilation, ceil_mode, return_indices=True)
    geometry = kernel, stride, padding, dilation
    out_shape = pool2d.output_shape("max_pool2d", shape, *geometry, ceil_mode)
    assert out_shape == tuple(want.shape)
    out, positions = image(out_shape), image(out_shape, dtype=np.uint8)
    pool2d.max_forward(x, *geometry, out, positions)
    np.testing.assert_array_equal(out, want.detach().numpy())
    i, j = np.indices(out_shape)[2:]
    h = i * stride[0] - padding[0] + positions // kernel[1] * dilation[0]
    w = j * stride[1] - padding[1] + positions % kernel[1] * dilation[1]
    np.testing.assert_array_equal(h * shape[3] + w, flat.numpy())
    g, dx = image(out_shape, rng), image(shape)
    want.backward(torch.from_numpy(g))
    pool2d.max_input_grad(g, positions, *geometry, dx)
    np.testing.assert_allclose(dx, theirs.grad.numpy(), **CLOSE)


def test_pooling_sizes_and_refusals_are_those_of_pytorch():
    grid = product(range(1, 8), range(1, 5), range(1, 4), range(3), range(1, 4), (False, True))
    for size, kernel, stride, padding, dilation, ceil_mode in grid:
        pairs = [(value, value) for value in (kernel, stride, padding, dilation)]
        try:
            want = tuple(F.max_pool2d(torch.ones(1, 1, size, size), *pairs, ceil_mode).shape)
        except RuntimeError:
            want = None
        try:
            got = pool2d.output_shape("max_pool2d", (1, 1, size, size), *pairs, ceil_mode)
        except ShapeError as error:
            # PyTorch lets windows pass that hold nothing.
            got = want if "covers no element" in str(error) else None
        assert got == want, (size, kernel, stride, padding, dilation, ceil_mode)


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize("divisor", [None, 5])
@pytest.mark.parametrize("kernel, stride, padding", [((2, 2), (2, 2), (0, 0)), ((3, 4), (2, 3), (1, 2))])
def test_average_pool(kernel, stride, padding, divisor, include, ceil_mode):
    rng, shape = np.random.default_rng(0), (2, 5, 9, 10)
    divisors = (None, None) if divisor is None else (divisor, 1)
    tables = [
        pool2d.average_windows(size, k, s, p, ceil_mode, include, d)
        for size, k, s, p, d in zip(shape[2:], kernel, stride, padding, divisors, strict=True)
    ]
    theirs = tensor(image(shape, rng))
    check_average(theirs, F.avg_pool2d(theirs, kernel, stride, padding, ceil_mode, include, divisor), tables, rng)


@pytest.mark.parametrize("sizes", [(1, 1), (3, 4), (9, 10), (11, 2)])
def test_adaptive_average_pool(sizes):
    rng, shape = np.random.default_rng(0), (2, 5, 9, 10)
    tables = [pool2d.adaptive_windows(size, out) for size, out in zip(shape[2:], sizes, strict=True)]
    theirs = tensor(image(shape, rng))
    check_average(theirs, F.adaptive_avg_pool2d(theirs, sizes), tables, rng)


def check_average(theirs, want, tables, rng):
    x = image(theirs.shape)
    x[...] = theirs.detach().numpy()
    out, dx, g = image(want.shape), image(x.shape), image(want.shape, rng)
    pool2d.average_forward(x, *tables, out)
    np.testing.assert_allclose(out, want.detach().numpy(), **CLOSE)
    want.backward(torch.from_numpy(g))
    pool2d.average_input_grad(g, *tables, dx)
    np.testing.assert_allclose(dx, theirs.grad.numpy(), **CLOSE)


@pytest.mark.parametrize("shape", [(16, 5), (3, 7, 4, 5)])
@pytest.mark.parametrize("affine", [False, True])
def test_batch_norm(shape, affine):
    rng, channels = np.random.default_rng(0), shape[1]
    x, g = (image(shape, rng) if len(shape) == 4 else rng.standard_normal(shape) for _ in range(2))
    weight, bias = (rng.standard_normal(channels) if affine else None for _ in range(2))
    theirs = [None if a is None else tensor(a) for a in (x, weight, bias)]
    want = F.batch_norm(theirs[0], None, None, theirs[1], theirs[2], True, 0.1, 1e-5)
    mean, variance, dw, db = np.empty((4, channels))
    out, dx = np.empty_like(x), np.empty_like(x)
    norm.batch_statistics(x, mean, variance, np.empty(norm.workspace("batch_statistics", shape), np.uint8))
    norm.batch_normalize(x, mean, variance, weight, bias, 1e-5, None, False, out)
    np.testing.assert_allclose(out, want.detach().numpy(), **CLOSE)
    want.backward(torch.from_numpy(g))
    space = np.empty(norm.workspace("batch_norm_grads", shape), np.uint8)
    norm.batch_norm_grads(g, x, mean, variance, weight, 1e-5, None, dx, dw, db, None, space)
    for got, tensor_ in zip((dx, dw, db), theirs, strict=True):
        if tensor_ is not None:
            np.testing.assert_allclose(got, tensor_.grad.numpy(), **CLOSE)


LOGITS = [
    np.random.default_rng(0).standard_normal((40, 11)) * 5,
    np.array([[1e30, 0, -1e30], [1e4, 1e4 - 1, 0], [-INF, 0, 1], [-INF] * 3, [INF, 0, 1], [NAN, 0, 1], [0, 1, NAN]]),
]


@pytest.mark.parametrize("x", LOGITS, ids=["ordinary", "extreme"])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax(name, x):
    theirs, g = tensor(x), np.random.default_rng(1).standard_normal(x.shape)
    want, out, dx = getattr(F, name)(theirs, 1), np.empty_like(x), np.empty_like(x)
    getattr(softmax, name)(x, out)
    np.testing.assert_allclose(out, want.detach().numpy(), **CLOSE)
    want.backward(torch.from_numpy(g))
    getattr(softmax, f"{name}_grad")(g, out, dx)
    np.testing.assert_allclose(dx, theirs.grad.numpy(), **CLOSE)


@pytest.mark.parametrize("x", LOGITS, ids=["ordinary", "extreme"])
def test_cross_entropy(x):
    rng = np.random.default_rng(1)
    target, g, theirs = rng.integers(0, x.shape[1], len(x)), rng.standard_normal(len(x)), tensor(x)
    target[0] = -100
    want = F.cross_entropy(theirs, torch.from_numpy(target), ignore_index=-100, reduction="none")
    losses, logsumexp, dx = np.empty(len(x)), np.empty(len(x)), np.empty_like(x)
    softmax.cross_entropy(x, target, -100, losses, logsumexp)
    np.testing.assert_allclose(losses, want.detach().numpy(), **CLOSE)
    want.backward(torch.from_numpy(g))
    softmax.cross_entropy_grad(g, x, target, -100, logsumexp, dx)
    np.testing.assert_allclose(dx, theirs.grad.numpy(), **CLOSE)


def test_relu():
    x = np.array([-1, -0.0, 0, 2, INF, -INF, NAN])
    theirs, g, out, dx = tensor(x), np.arange(1.0, 8), np.empty_like(x), np.empty_like(x)
    want = torch.relu(theirs)
    elementwise.relu(x, out)
    np.testing.assert_array_equal(out, want.detach().numpy())
    want.backward(torch.from_numpy(g))
    elementwise.relu_grad(g, out, dx)
    np.testing.assert_array_equal(dx, theirs.grad.numpy())


SHAPES = [(3, 4), (1,), (17,)]


def steps(rule, theirs, settings, states, dtype):
    """Three steps of our rule and of PyTorch's optimiser, then the largest relative difference."""
    rng = np.random.default_rng(0)
    parameters = [rng.standard_normal(shape).astype(dtype) for shape in SHAPES]
    tensors = [tensor(p) for p in parameters]
    other = theirs(tensors)
    lists = [[np.zeros_like(p) for p in parameters] if state else None for state in states]
    for step in (1, 2, 3):
        gradients = [rng.standard_normal(shape).astype(dtype) for shape in SHAPES]
        for t, gradient in zip(tensors, gradients, strict=True):
            t.grad = torch.from_numpy(gradient.copy())
        other.step()
        rule(parameters, gradients, *lists, settings(step))
    # Three steps of some 16 roundings each, on numbers of order 1.
    bound = 1e-12 if dtype == np.float64 else 50 * np.finfo(dtype).eps
    for p, t in zip(parameters, tensors, strict=True):
        np.testing.assert_allclose(p, t.detach().numpy(), rtol=bound, atol=bound)


each_type = pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
each_decay = pytest.mark.parametrize("decay", [0, 0.1])
each_sign = pytest.mark.parametrize("maximize", [False, True])


@each_type
@each_decay
@each_sign
@pytest.mark.parametrize("momentum, dampening, nesterov", [(0, 0, 0), (0.9, 0, 0), (0.9, 0.3, 0), (0.9, 0, 1)])
def test_sgd(momentum, dampening, nesterov, maximize, decay, dtype):
    options = dict(momentum=momentum, dampening=dampening, nesterov=bool(nesterov))

    def settings(step):
        hyper = np.zeros(len(SGD))
        hyper[[SGD.RATE, SGD.MOMENTUM, SGD.DAMPENING, SGD.WEIGHT_DECAY]] = 0.1, momentum, dampening, decay
        hyper[[SGD.NESTEROV, SGD.MAXIMIZE, SGD.FIRST]] = nesterov, maximize, step == 1
        return hyper

    def theirs(tensors):
        return torch.optim.SGD(tensors, 0.1, weight_decay=decay, maximize=maximize, **options)

    steps(optimizer.sgd, theirs, settings, [bool(momentum)], dtype)


@each_type
@each_decay
@each_sign
@pytest.mark.parametrize("greatest", [False, True])
@pytest.mark.parametrize("decoupled", [False, True])
def test_adam(decoupled, greatest, maximize, decay, dtype):
    def settings(step):
        hyper = np.zeros(len(Adam))
        hyper[[Adam.RATE, Adam.BETA1, Adam.BETA2, Adam.EPS]] = 0.01, 0.9, 0.99, 1e-6
        hyper[[Adam.WEIGHT_DECAY, Adam.STEP, Adam.DECOUPLED, Adam.MAXIMIZE]] = decay, step, decoupled, maximize
        return hyper

    def theirs(tensors):
        make = torch.optim.AdamW if decoupled else torch.optim.Adam
        return make(tensors, 0.01, (0.9, 0.99), 1e-6, weight_decay=decay, amsgrad=greatest, maximize=maximize)

    steps(optimizer.adam, theirs, settings, [True, True, greatest], dtype)


@each_type
@each_decay
@each_sign
@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("momentum", [0, 0.9])
def test_rmsprop(momentum, centred, maximize, decay, dtype):
    def settings(step):
        hyper = np.zeros(len(RMSprop))
        hyper[[RMSprop.RATE, RMSprop.ALPHA, RMSprop.EPS]] = 0.01, 0.9, 1e-2
        hyper[[RMSprop.WEIGHT_DECAY, RMSprop.MOMENTUM, RMSprop.MAXIMIZE]] = decay, momentum, maximize
        return hyper

    def theirs(tensors):
        options = dict(weight_decay=decay, momentum=momentum, centered=centred, maximize=maximize)
        return torch.optim.RMSprop(tensors, 0.01, 0.9, 1e-2, **options)

    steps(optimizer.rmsprop, theirs, settings, [True, centred, bool(momentum)], dtype)
