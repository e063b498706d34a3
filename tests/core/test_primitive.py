"""A primitive: which values its rules get, what becomes of the gradients that they return, what it refuses."""

import numpy as np
import pytest

from minigrad import Tensor, detect_anomaly, grad, ops
from minigrad.anomaly import AnomalyError
from minigrad.core.primitive import primitive
from minigrad.core.tape import write
from tests.device.stand_in_gpus import gpus


def leaf(values, dtype="float64"):
    return Tensor(np.array(values, dtype), requires_grad=True)


def test_several_arguments_in_one_get_a_gradient_each_and_tuples_may_stand_anywhere():
    @primitive(fixed=("shape",))
    def summed(*xs, shape, factor):
        return sum(x.reshape(shape) for x in xs) * factor

    @primitive(fixed=("shape",))
    def shaped(shape, x):
        return x.reshape(shape)

    summed.grads(xs=lambda g, xs_shape, index, factor: ops.reshape(g, xs_shape[index]) * (factor * (index + 1)))
    shaped.grads(x=lambda g, x_shape: ops.reshape(g, x_shape))
    x, y = leaf([1.0, 2.0]), leaf([[3.0, 4.0]])
    out = summed(shaped((2, 1), x), y, shape=(2, 1), factor=3)
    out.sum().backward()
    assert (out.tolist(), x.grad.tolist(), y.grad.tolist()) == ([[12], [18]], [3, 3], [[6, 6]])


@primitive(outputs=("first", "rest", "count"), fixed=("count",))
def split(x):
    return x[:1].copy(), x[1:].copy(), np.asarray(len(x))


def test_several_results():
    """A gradient that did not arrive is zeros of the shape of its output; derivatives go on; changes are seen."""
    split.grads(x=lambda g, g_rest: ops.cat([g, g_rest]))
    for place in ("cpu", "interpreter"):
        x = Tensor(np.array([2.0, 3.0, 4.0])).to(place).requires_grad_()
        first, rest, count = split(x)
        assert first.requires_grad and rest.requires_grad and not count.requires_grad
        for head, expected in ((first, [1, 0, 0]), (rest, [0, 1, 1]), (rest * rest, [0, 6, 8])):
            assert grad(head.sum(), x, retain_graph=True)[0].tolist() == expected
        (slope,) = grad((first * first * rest).sum(), x, create_graph=True)
        assert grad(slope.sum(), x)[0].tolist() == [2 * (3 + 4) + 2 * 2 * 2, 4, 4]
    split.grads(x=lambda g_first, g_rest, first, rest: ops.cat([g_first * first, g_rest * rest]))
    for output, name in enumerate(split.outputs[:2]):
        results = split(leaf([1.0, 2.0, 3.0]))
        write(results[output].detach())[...] = 0
        with pytest.raises(RuntimeError, match=f"^split: {name} was changed after it was used"):
            results[output].sum().backward()


def test_a_view_is_changed_with_its_argument():
    @primitive(view="x")
    def head(x):
        return x[:1]

    x = leaf([1.0, 2.0])
    out = head(x.detach())
    write(x)[...] = 5
    assert out.tolist() == [5] and out.version is x.version


def test_refusals():
    """Rules that name what is not there or return what does not fit, functions that return what was not said."""

    @primitive
    def op(x):
        return x * 1.0

    @primitive(outputs=("one", "two"))
    def pair(x, count):
        return (x,) * count if count else x

    for call, words in (
        (lambda: op.grads(x=lambda g, w: g), r"of x asks for \['w'\], it may ask for g, g_out, index"),
        (lambda: op(), "^op: missing a required argument: 'x'"),
        (lambda: pair(Tensor([1.0]), 3), "^pair: the function returned a ndarray, a ndarray, a"),
        (lambda: pair(Tensor([1.0, 2.0]), 0), "returned a ndarray, wanted a tuple of 2 arrays: one, two"),
        *((lambda w=w: primitive(w), "name of an output") for w in (lambda g: g, lambda index: 1, lambda g_x: 1)),
        *((lambda w=w: primitive(w), "only the first may be starred") for w in (lambda: 1, lambda x, *rest: x)),
    ):
        with pytest.raises(TypeError, match=words):
            call()
    with pytest.raises(RuntimeError, match="x requires a gradient but has no rule"):
        op(leaf(1))
    for rule, error in ((lambda g: g.reshape(3, 1), ValueError), (lambda g: g.array, TypeError)):
        op.grads(x=rule)
        with pytest.raises(error, match="op: the rule of x returned"):
            op(leaf([1.0, 2.0, 3.0])).sum().backward()


# ---- gradients at once -----------------------------------------------------------------------------------------------


def with_gradient_at_once(rule, at_once):
    @primitive
    def root(x):
        return np.sqrt(x)

    root.grads(x=rule)
    root.fast_grads(at_once)
    return root


def test_the_array_made_at_once_is_the_gradient_and_is_looked_at_as_others():
    made = []
    rule = lambda g, x: 0.5 * g / ops.sqrt(x)
    root = with_gradient_at_once(rule, lambda g, out: made.append(0.5 * g / out) or {"x": made[-1]})
    x = leaf([4.0, 16.0])
    root(x).sum().backward()
    assert x.grad.array is made[0] and x.grad.tolist() == [0.25, 0.125]
    root = with_gradient_at_once(rule, lambda g, x: {"x": g * np.where(x > 1, np.nan, 1)})
    with detect_anomaly(), pytest.raises(AnomalyError, match="^root: the gradient of x has NaN.*: x .* from 4 to 4"):
        root(leaf([4.0])).sum().backward()


def test_gradients_at_once_keep_no_array_where_rules_keep_none():
    keeps_array, keeps_shape, sevens = (lambda g, x: g * x), (lambda g, x_shape: g), {"x": np.full(2, 7.0)}
    for rule, at_once, used in (
        (keeps_array, lambda g, out: sevens, True),
        (keeps_shape, lambda g, x_shape: sevens, True),
        (keeps_shape, lambda g, x: sevens, False),
    ):
        (found,) = grad(with_gradient_at_once(rule, at_once)(x := leaf([1.0, 4.0])).sum(), x)
        assert found.tolist() == ([7, 7] if used else [1, 1])


def test_gradients_at_once_are_made_on_the_device_of_the_gradient():
    seen = []
    with gpus(2):
        import cupy

        note = lambda g, x: seen.append(cupy.cuda.Device().id) or {"x": g + 0}
        for place in ("cuda:0", "cuda:1"):
            x = Tensor([1.0, 4.0]).to(place).requires_grad_()
            with_gradient_at_once(lambda g, x: g, note)(x).sum().backward()
            assert x.grad.tolist() == [1, 1]
    assert seen == [0, 1]


def test_gradients_at_once_fit_their_arguments_and_leave_the_others_to_the_rules():
    """Where the gradient of the first output did not arrive, the rules are asked."""
    asked = []

    @primitive(outputs=("product", "square"))
    def both(x, y):
        return x * y, x * x

    both.grads(
        x=lambda g, g_square, x, y: asked.append("x") or g * y + 2 * x * g_square,
        y=lambda g, x: asked.append("y") or g * x,
    )

    @both.fast_grads
    def at_once(g, g_square, x, y, needs):
        asked.append("at once")
        found = {"x": g * y + (0 if g_square is None else 2 * x * g_square)}
        return found | ({"y": g * x} if y.dtype == "float32" else {})

    for shape, dtype in (((2,), "float64"), ((2, 2), "float32"), ((2,), "float32")):
        x, y = leaf([[1.0, 2.0], [3.0, 4.0]]), leaf(np.ones(shape), dtype)
        product, square = both(x, y)
        (product + square).sum().backward()
        np.testing.assert_array_equal(x.grad.array, 1 + 2 * x.array)
        np.testing.assert_array_equal(y.grad.array, x.array if shape == (2, 2) else [4, 6])
        assert y.grad.dtype == dtype and y.grad.shape == shape
    assert asked == ["at once", "y"] + ["at once"] * 2
