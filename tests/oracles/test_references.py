"""The references of bilinear kernels are right: others compute the same values, and autograd the same gradients."""

import numpy as np
import pytest

from minigrad_kernels.bias import reference as columns
from minigrad_kernels.conv2d import reference as conv2d
from minigrad_kernels.matmul import reference as matmul
from minigrad_kernels.softmax import reference as softmax

GEOMETRIES = [  # x, w, stride, padding, dilation, groups
    ((2, 3, 7, 8), (4, 3, 3, 3), (1, 1), (0, 0), (1, 1), 1),
    ((2, 3, 7, 8), (4, 3, 3, 3), (1, 1), (1, 2), (1, 1), 1),
    ((2, 4, 9, 8), (6, 2, 3, 2), (2, 3), (2, 1), (1, 2), 2),
    ((1, 3, 6, 6), (6, 1, 2, 3), (1, 2), (0, 1), (2, 1), 3),
    ((2, 2, 5, 5), (3, 2, 1, 1), (3, 3), (0, 0), (1, 1), 1),
    ((2, 2, 4, 5), (3, 2, 4, 5), (1, 1), (0, 0), (1, 1), 1),
]
each_geometry = pytest.mark.parametrize("x_shape, w_shape, stride, padding, dilation, groups", GEOMETRIES)


def numbers(*shapes):
    rng = np.random.default_rng(5)
    return [rng.standard_normal(shape) for shape in shapes]


def gradients(function, g, *arguments):
    """What autograd says about the gradients of a function of arrays."""
    autograd = pytest.importorskip("autograd")
    numpy = pytest.importorskip("autograd.numpy")
    total = lambda *inputs: numpy.sum(g * function(*inputs, xp=numpy))
    return [autograd.grad(total, position)(*arguments) for position in range(len(arguments))]


def same(got, want):
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


@each_geometry
def test_conv2d_trio(x_shape, w_shape, stride, padding, dilation, groups):
    """Each of the three has the other two as gradients."""
    settings = stride, padding, dilation, groups
    size, kernel = x_shape[2:], w_shape[2:]
    x, w, bias = numbers(x_shape, w_shape, w_shape[:1])
    out = conv2d.forward(x, w, bias, False, *settings)
    g, x_like, w_like = numbers(out.shape, x_shape, w_shape)

    dx, dw, dbias = gradients(lambda x, w, b, xp: conv2d.forward(x, w, b, False, *settings, xp=xp), g, x, w, bias)
    same(dx, conv2d.input_grad(g, w, *settings, size))
    same(dw, conv2d.weight_grad(g, x, *settings, kernel))
    same(dbias, g.sum((0, 2, 3)))

    dg, dw = gradients(lambda g, w, xp: conv2d.input_grad(g, w, *settings, size, xp=xp), x_like, g, w)
    same(dg, conv2d.forward(x_like, w, None, False, *settings))
    same(dw, conv2d.weight_grad(g, x_like, *settings, kernel))

    dg, dx = gradients(lambda g, x, xp: conv2d.weight_grad(g, x, *settings, kernel, xp=xp), w_like, g, x)
    same(dg, conv2d.forward(x, w_like, None, False, *settings))
    same(dx, conv2d.input_grad(g, w_like, *settings, size))


@each_geometry
def test_conv2d_is_that_of_torch(x_shape, w_shape, stride, padding, dilation, groups):
    torch = pytest.importorskip("torch")
    x, w, bias = numbers(x_shape, w_shape, w_shape[:1])
    want = torch.nn.functional.conv2d(*map(torch.from_numpy, (x, w, bias)), stride, padding, dilation, groups)
    same(conv2d.forward(x, w, bias, False, stride, padding, dilation, groups), want.numpy())


@pytest.mark.parametrize("batch", [(), (3,), (2, 2)], ids=str)
def test_matmul(batch):
    a, b, bias, g = numbers((*batch, 3, 4), (*batch, 4, 5), 5, (*batch, 3, 5))
    same(matmul.forward(a, b, bias), a @ b + bias)
    da, db, dbias = gradients(matmul.forward, g, a, b, bias)
    same(da, matmul.forward(g, b.swapaxes(-1, -2)))
    same(db, matmul.forward(a.swapaxes(-1, -2), g))
    same(dbias, g.reshape(-1, 5).sum(0))


def test_matmul_with_relu():
    a, b, bias, g = numbers((3, 4), (4, 5), 5, (3, 5))
    out = matmul.forward(a, b, bias, relu=True)
    same(out, np.maximum(a @ b + bias, 0))
    da, db, dbias = gradients(lambda a, b, bias, xp: matmul.forward(a, b, bias, True, xp), g, a, b, bias)
    dz = np.where(out > 0, g, 0)
    same(da, matmul.forward(dz, b.T))
    same(db, matmul.forward(a.T, dz))
    same(dbias, columns.column_sums(dz))


@pytest.mark.parametrize("shape", [(6, 3), (2, 3, 4, 5)], ids=str)
def test_bias_relu_grad(shape):
    def bias_relu(x, bias, xp=np):
        z = x + xp.reshape(bias, (1, -1) + (1,) * (len(x.shape) - 2))
        return xp.where(z <= 0, 0.0, z)

    x, bias, g = numbers(shape, 3, shape)
    out = bias_relu(x, bias)
    dx, dbias = gradients(bias_relu, g, x, bias)
    for got, want in zip(columns.bias_relu_grad(g, out), (dx, dbias), strict=True):
        same(got, want)
    (dx,) = gradients(columns.column_sums, numbers(3)[0], x)
    same(columns.column_sums(x), np.moveaxis(x, 1, -1).reshape(-1, 3).sum(0))
    same(dx, np.zeros(shape) + numbers(3)[0].reshape(1, 3, *[1] * (len(shape) - 2)))


def test_cross_entropy_and_its_gradient_are_those_of_torch():
    torch = pytest.importorskip("torch")
    x, target = numbers((6, 5))[0], np.array([0, 4, 2, 1, 4, 3])
    losses, logsumexp = softmax.cross_entropy(x, target, 2)
    dx = softmax.cross_entropy_grad(np.full(6, 0.25), x, target, 2, logsumexp, None)
    theirs = torch.from_numpy(x).requires_grad_()
    wanted = torch.nn.functional.cross_entropy(theirs, torch.from_numpy(target), ignore_index=2, reduction="none")
    (0.25 * wanted).sum().backward()
    same(losses, wanted.detach().numpy())
    same(dx, theirs.grad.numpy())
