"""A primitive: which values its rules get, and what becomes of the gradients that they return."""

import numpy as np
import pytest

from minigrad import Tensor, detect_anomaly, grad, ops
from minigrad.anomaly import AnomalyError
from minigrad.core.primitive import primitive
from minigrad.core.tape import write
from minigrad.fusion import Fusion, extends, waits
from tests.device.stand_in_gpus import gpus


def leaf(values, dtype="float64"):
    return Tensor(np.array(values, dtype), requires_grad=True)


def test_its_name_is_that_of_its_function_without_the_underscore():
    @primitive
    def _twice(x):
        return 2 * x

    assert _twice.name == "twice"


def test_several_arguments_in_one_get_a_gradient_each():
    @primitive
    def scaled_sum(*parts, factor):
        return sum(parts) * factor

    scaled_sum.grads(parts=lambda g, index, factor: g * factor * (index + 1))
    x, y = leaf([1.0]), leaf([2.0])
    scaled_sum(x, y, factor=3).backward()
    assert x.grad.item() == 3 and y.grad.item() == 6


@primitive(outputs=("first", "rest"))
def split(x):
    return x[:1].copy(), x[1:].copy()


def test_a_gradient_that_did_not_arrive_is_zeros_of_the_shape_of_its_output():
    shapes = []
    split.grads(x=lambda g, g_rest: shapes.append((g.shape, g_rest.shape)) or ops.cat([g, g_rest]))
    for output, expected in ((0, [1, 0, 0]), (1, [0, 1, 1])):
        x = leaf([1.0, 2.0, 3.0])
        np.testing.assert_array_equal(grad(split(x)[output].sum(), x)[0].array, expected)
    assert shapes == [((1,), (2,))] * 2
    x = Tensor(np.ones(3)).to("interpreter").requires_grad_()
    np.testing.assert_array_equal(grad(split(x)[1].sum(), x)[0].tolist(), [0, 1, 1])


def test_each_of_several_results_is_refused_once_it_has_changed():
    split.grads(x=lambda g_first, g_rest, first, rest: ops.cat([g_first * first, g_rest * rest]))
    for output, name in enumerate(split.outputs):
        results = split(leaf([1.0, 2.0, 3.0]))
        write(results[output].detach())[...] = 0
        with pytest.raises(RuntimeError, match=f"^split: {name} was changed after it was used"):
            results[output].sum().backward()


def test_results_that_wait_are_as_many():
    @primitive(outputs=("same", "twice"))
    def both(x):
        return x, 2 * x

    @primitive(outputs=("same", "twice", "sum"))
    def more(x):
        return x, 2 * x, x.sum()

    waits(both, lambda x: x.shape)
    extends(more, both)(lambda values: (more, values))
    with Fusion():
        first, *rest = both(Tensor([1.0, 2.0]))
        assert rest == [None]
        second, *rest = more(first)
        assert rest == [None, None] and second.tolist() == [1, 2]


def test_it_has_the_text_of_its_function():
    @primitive
    def _twice(x):
        """2 x."""
        return 2 * x

    assert _twice.__doc__ == "2 x." and _twice.__wrapped__ is _twice.forward and _twice.__name__ == "_twice"


def test_tuples_that_are_no_tensors_may_stand_anywhere():
    @primitive(fixed=("shape",))
    def shaped(shape, x):
        return x.reshape(shape)

    @primitive(fixed=("shape",))
    def summed(*xs, shape):
        return sum(x.reshape(shape) for x in xs)

    shaped.grads(x=lambda g, x_shape: ops.reshape(g, x_shape))
    summed.grads(xs=lambda g, xs_shape, index: ops.reshape(g, xs_shape[index]))
    x, y = leaf([1.0, 2.0]), leaf([[3.0, 4.0]])
    assert shaped((2, 1), x).tolist() == [[1], [2]] and summed(x, y, shape=(2, 1)).tolist() == [[4], [6]]
    summed(x, y, shape=(2, 1)).sum().backward()
    assert x.grad.tolist() == [1, 1] and y.grad.tolist() == [[1, 1]]


def test_a_primitive_has_the_options_that_it_was_made_with():
    @primitive(fixed=("y",), view="x")
    def one_of(x, y):
        return x

    assert (one_of.outputs, one_of.fixed, one_of.view) == (("out",), {"y"}, "x")


def test_what_a_rule_returned_is_the_gradient_that_is_kept():
    returned = []

    @primitive
    def twice(x):
        return 2 * x

    twice.grads(x=lambda g: returned.append(g * 2) or returned[-1])
    x = leaf([1.0, 2.0])
    twice(x).sum().backward()
    assert x.grad is returned[0]


# ---- gradients at once -----------------------------------------------------------------------------------------------


def with_gradient_at_once(function):
    @primitive
    def root(x):
        return np.sqrt(x)

    root.grads(x=lambda g, x: 0.5 * g / ops.sqrt(x))
    root.fast_grads(function)
    return root


def test_the_array_made_at_once_is_kept_as_the_gradient():
    made = []
    root = with_gradient_at_once(lambda g, x: made.append(0.5 * g / np.sqrt(x)) or {"x": made[-1]})
    x = leaf([4.0, 16.0])
    root(x).sum().backward()
    assert x.grad.array is made[0]
    np.testing.assert_array_equal(made[0], [0.25, 0.125])


def test_gradients_at_once_get_what_no_rule_asks_for():
    root = with_gradient_at_once(lambda g, out: {"x": 0.5 * g / out})
    x = leaf([4.0, 16.0])
    root(x).sum().backward()
    np.testing.assert_array_equal(x.grad.array, [0.25, 0.125])


KEEPS_ARRAY, KEEPS_SHAPE = (lambda g, x: ops.expand(g, x.shape)), (lambda g, x_shape: ops.expand(g, x_shape))


@pytest.mark.parametrize("rule, at_once, used", [
    (KEEPS_ARRAY, lambda g, x: {"x": np.full(2, 7.0)}, True),
    (KEEPS_ARRAY, lambda g, out: {"x": np.full(2, 7.0)}, True),
    (KEEPS_SHAPE, lambda g, x_shape: {"x": np.full(2, 7.0)}, True),
    (KEEPS_SHAPE, lambda g, x: {"x": np.full(2, 7.0)}, False),
], ids=["array", "another array", "shape", "array beside a shape"])  # fmt: skip
def test_gradients_at_once_keep_no_array_where_rules_keep_none(rule, at_once, used):
    @primitive
    def total(x):
        return x.sum()

    total.grads(x=rule)
    total.fast_grads(at_once)
    x = leaf([1.0, 2.0])
    total(x).backward()
    assert x.grad.tolist() == ([7, 7] if used else [1, 1])


@pytest.mark.parametrize("place", ["cuda:0", "cuda:1"])
def test_gradients_at_once_are_made_on_the_device_of_the_gradient(place):
    seen = []
    with gpus(2):
        import cupy

        @primitive
        def same(x):
            return x + 0

        same.grads(x=lambda g, x: g)
        same.fast_grads(lambda g, x: seen.append(cupy.cuda.Device().id) or {"x": g + 0})
        x = Tensor([1.0, 2.0], requires_grad=True)
        same(x.to(place)).sum().backward()
    assert seen == [int(place[-1])] and x.grad.tolist() == [1, 1]


def test_a_gradient_at_once_with_nan_is_found():
    root = with_gradient_at_once(lambda g, x: {"x": g * np.where(x > 1, np.nan, 1)})
    root(leaf([4.0])).sum().backward()
    with detect_anomaly(), pytest.raises(AnomalyError, match="^root: the gradient of x has NaN.*: x .* from 4 to 4"):
        root(leaf([4.0])).sum().backward()


@pytest.mark.parametrize("shape, dtype", [((2,), "float64"), ((2, 2), "float32"), ((2,), "float32")])
def test_a_gradient_at_once_is_brought_to_the_shape_and_the_type_of_its_argument(shape, dtype):
    asked = []

    @primitive
    def product(x, y):
        return x * y

    product.grads(x=lambda g, y: g * y, y=lambda g, x: g * x)
    product.fast_grads(lambda g, x, y: asked.append("at once") or {"x": g * y, "y": g * x})
    x, y = leaf([[1.0, 2.0], [3.0, 4.0]]), leaf(np.ones(shape), dtype)
    product(x, y).sum().backward()
    np.testing.assert_array_equal(x.grad.array, np.ones((2, 2)))
    np.testing.assert_array_equal(y.grad.array, x.array if shape == (2, 2) else [4, 6])
    assert y.grad.dtype == dtype and asked == ["at once"]
