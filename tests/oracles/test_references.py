"""The gradients that references of kernels define are those that HIPS autograd finds; sizes of pools are PyTorch's.

Their values: the ops that the kernels compute, beside PyTorch's, in tests/oracles/test_ops_torch.py.
"""

from functools import partial
from itertools import product

import numpy as np
import pytest

from minigrad_kernels.conv2d import reference as conv2d
from minigrad_kernels.errors import ShapeError
from minigrad_kernels.norm import reference as norm
from minigrad_kernels.pool2d import output_shape
from minigrad_kernels.softmax import reference as softmax

autograd = pytest.importorskip("autograd")
anp = pytest.importorskip("autograd.numpy")


def numbers(*shapes, seed=5):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape) for shape in shapes]


def check(function, inputs, gradients):
    """gradients(g, out) of function(*inputs) are those that autograd finds."""
    out = function(*inputs)
    (g,) = numbers(np.shape(out), seed=6)
    got = gradients(g, out)
    wanted = [autograd.make_vjp(function, k)(*inputs)[0](g) for k in range(len(inputs))]
    for mine, theirs in zip(got if isinstance(got, tuple | list) else (got,), wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12, atol=1e-12)
    return out


def test_conv2d_trio():
    """Each of the three has the other two as gradients."""
    settings = (2, 3), (2, 1), (1, 2), 2  # stride, padding, dilation, groups
    x, w, bias = numbers((2, 4, 9, 8), (6, 2, 3, 2), 6)
    forward = lambda x, w, bias=None, xp=anp: conv2d.forward(x, w, bias, False, *settings, xp=xp)
    input_grad = lambda g, w, xp=anp: conv2d.input_grad(g, w, *settings, x.shape[2:], xp=xp)
    weight_grad = lambda g, x, xp=anp: conv2d.weight_grad(g, x, *settings, w.shape[2:], xp=xp)
    out = check(forward, (x, w, bias), lambda g, out: (input_grad(g, w, np), weight_grad(g, x, np), g.sum((0, 2, 3))))
    check(input_grad, (out, w), lambda v, _: (forward(v, w, None, np), weight_grad(out, v, np)))
    check(weight_grad, (out, x), lambda v, _: (forward(x, v, None, np), input_grad(out, v, np)))


def test_norms():
    x, weight, bias = numbers((2, 6, 4, 5), 6, 6)

    def over_the_batch(x, weight, bias):
        return norm.batch_normalize(x, *norm.batch_statistics(x, anp), weight, bias, 1e-3, None, False, anp)

    statistics = norm.batch_statistics(x)
    check(over_the_batch, (x, weight, bias), lambda g, out: norm.batch_norm_grads(g, x, *statistics, weight, 1e-3)[:3])
    _, *statistics = norm.group_norm(x, weight, bias, 1e-3, 3)
    grouped = lambda x, weight, bias: norm.group_norm(x, weight, bias, 1e-3, 3, anp)[0]
    check(grouped, (x, weight, bias), lambda g, out: norm.group_norm_grads(g, x, *statistics, weight, 1e-3))


def test_softmax_and_cross_entropy():
    (x,), target = numbers((5, 4)), np.array([0, 3, -1, 2, 2])
    for logs in (False, True):
        forward, backward = (partial(of, logs=logs) for of in (softmax.softmax, softmax.softmax_grad))
        check(partial(forward, xp=anp), (x,), backward)
    _, logsumexp = softmax.cross_entropy(x, target, -1)
    gradient = lambda g, out: softmax.cross_entropy_grad(g, x, target, -1, logsumexp, None)
    check(lambda x: softmax.cross_entropy(x, target, -1, anp)[0], (x,), gradient)


def test_pooling_sizes_and_refusals_are_those_of_pytorch():
    torch = pytest.importorskip("torch")
    for size, *settings, ceil_mode in product(range(1, 8), range(1, 5), range(1, 4), range(3), (1, 2), (False, True)):
        pairs = [(value, value) for value in settings]
        try:
            want = tuple(torch.nn.functional.max_pool2d(torch.ones(1, 1, size, size), *pairs, ceil_mode).shape)
        except RuntimeError:
            want = None
        try:
            got = output_shape("max_pool2d", (1, 1, size, size), *pairs, ceil_mode)
        except ShapeError as error:  # PyTorch lets windows pass that hold nothing
            got = want if "covers no element" in str(error) else None
        assert got == want, (size, settings, ceil_mode)
