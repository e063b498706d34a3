"""autograd.Function: a gradient of one's own, to second order, for several arguments and results."""

import pytest

import minigrad
from minigrad import Tensor, gradcheck, gradgradcheck
from minigrad.autograd import Function, Variable, backward


class Swapped(Function):
    @staticmethod
    def forward(ctx, x, scale, y):
        assert not ctx.needs_input_grad[1] and not (x * y).requires_grad
        ctx.save_for_backward(x, y)
        ctx.scale = scale
        return x * y, scale * x

    @staticmethod
    def backward(ctx, g, g_scaled):
        x, y = ctx.saved_tensors
        return g * y + ctx.scale * g_scaled, None, g * x


class Clipped(Function):
    """In the newer form, and with a gradient that is not that of the result."""

    @staticmethod
    def forward(x):
        return x.clamp(-1, 1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.shape = inputs[0].shape

    @staticmethod
    def backward(ctx, g):
        assert g.shape == ctx.shape
        return g


def test_gradients():
    x, y = (minigrad.randn(3, dtype="float64", requires_grad=True) for _ in range(2))
    for function in (lambda x, y: Swapped.apply(x, 2.0, y), lambda x, y: Swapped.apply(x, 2.0, y)[1] * y):
        assert gradcheck(function, [x, y]) and gradgradcheck(function, [x, y])
    far = Variable(Tensor([-3.0, 0.5]), requires_grad=True)
    backward([Clipped.apply(far).sum(), far.sum()])
    assert far.grad.tolist() == [2, 2]
    assert not Clipped.apply(far.detach()).requires_grad


def test_a_gradient_too_few_is_refused():
    wrong = type("Wrong", (Swapped,), {"backward": staticmethod(lambda ctx, *g: g[0])})
    x = Tensor([1.0], requires_grad=True)
    with pytest.raises(TypeError, match="Wrong: backward returned 1 gradients, wanted one for each of the 3 arguments"):
        wrong.apply(x, 2.0, x)[0].backward()


class Doubled(Function):
    """One Tensor is the gradient of both arguments."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x)
        return (x + y,)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        both = g * x
        return both, both


def test_passes_over_one_graph_are_apart():
    """Gradients of several passes by one g add up, for each argument in memory of its own; one that is to be
    differentiated is asked for anew; and a saved Tensor that was changed is refused."""
    x, y, g = Tensor([3.0], requires_grad=True), Tensor([1.0], requires_grad=True), minigrad.ones(1)
    (out,) = Doubled.apply(x, y)
    for _ in range(3):
        out.backward(g, retain_graph=True)
    assert x.grad.tolist() == y.grad.tolist() == [9]
    (slope,) = minigrad.grad(out, y, g, create_graph=True)
    assert minigrad.grad(slope, x)[0].tolist() == [1]
    with minigrad.no_grad():
        x += 1
    with pytest.raises(RuntimeError, match="Doubled: a saved Tensor was changed after forward"):
        out.backward(g)
