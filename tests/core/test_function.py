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
