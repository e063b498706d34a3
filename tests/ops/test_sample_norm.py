"""Layer, group and instance norm on the CPU: images that lie channels last, means far from 0."""

import numpy as np
import pytest

from minigrad import Tensor, gradcheck, gradgradcheck
from minigrad.nn import functional as F
from minigrad_kernels.layout import CHANNELS_LAST, is_dense

SHAPE = (3, 6, 5, 4)
NORMS = {  # name: (function, shape of weight and bias)
    "layer": (lambda x, w, b: F.layer_norm(x, SHAPE[1:], w, b), SHAPE[1:]),
    "layer, width": (lambda x, w, b: F.layer_norm(x, SHAPE[3:], w, b), SHAPE[3:]),
    "layer, height and width": (lambda x, w, b: F.layer_norm(x, SHAPE[2:], w, b), SHAPE[2:]),
    "group": (lambda x, w, b: F.group_norm(x, 2, w, b), SHAPE[1:2]),
    "instance": (lambda x, w, b: F.instance_norm(x, weight=w, bias=b), SHAPE[1:2]),
}
norms = pytest.mark.parametrize("function, shape", NORMS.values(), ids=NORMS)


def drawn(*shapes, dtype="float64", seed=5):
    random = np.random.default_rng(seed)
    return [random.standard_normal(shape).astype(dtype) for shape in shapes]


def channels_last(array):
    return np.ascontiguousarray(array.transpose(CHANNELS_LAST)).transpose(np.argsort(CHANNELS_LAST))


def by_definition(x, axes):
    centred = x - x.mean(axes, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axes, keepdims=True) + 1e-5)


@norms
def test_the_same_however_images_lie(function, shape):
    x, w, b, g = drawn(SHAPE, shape, shape, SHAPE)
    found = []
    for lie in (np.ascontiguousarray, channels_last):
        arguments = [Tensor(array, requires_grad=True) for array in (lie(x), w, b)]
        for upstream in (np.ascontiguousarray(g), channels_last(g)):
            out = function(*arguments)
            for argument in arguments:
                argument.grad = None
            out.backward(Tensor(upstream))
            found.append([out.array, *[argument.grad.array for argument in arguments]])
    for others in found[1:]:
        for first, other in zip(found[0], others, strict=True):
            np.testing.assert_allclose(other, first, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["group", "instance"])
def test_images_stay_channels_last(name):
    function, shape = NORMS[name]
    x, w, b = (Tensor(array, requires_grad=True) for array in drawn(SHAPE, shape, shape))
    x = Tensor(channels_last(x.array), requires_grad=True)
    out = function(x, w, b)
    out.backward(Tensor(np.ones(SHAPE)))
    assert is_dense(out.array, CHANNELS_LAST) and is_dense(x.grad.array, CHANNELS_LAST)
    assert w.grad.shape == b.grad.shape == shape


@norms
def test_derivatives_of_images_that_lie_channels_last(function, shape):
    x, w, b = drawn(SHAPE, shape, shape)
    arguments = [Tensor(array, requires_grad=True) for array in (channels_last(x), w, b)]
    assert gradcheck(function, arguments)
    assert gradgradcheck(function, arguments)


@pytest.mark.parametrize("lie", [np.ascontiguousarray, channels_last])
def test_a_mean_far_from_zero_keeps_its_digits(lie):
    """A million times the deviation: what is left of the elements is right to their own rounding."""
    (noise,) = drawn((4, 8, 6, 6))
    x = lie((noise * 1e-2 + 1e4).astype(np.float32))
    wanted = {
        "layer": (F.layer_norm(Tensor(x), (8, 6, 6)), (1, 2, 3)),
        "rows": (F.layer_norm(Tensor(x), (6,)), 3),
        "instance": (F.instance_norm(Tensor(x)), (2, 3)),
    }
    for out, axes in wanted.values():
        np.testing.assert_allclose(out.array, by_definition(x.astype(float), axes), rtol=1e-4, atol=1e-4)
