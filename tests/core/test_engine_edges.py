"""The engine at its edges: hooks that end a pass, writing to what waits, what errors and pictures say of a Tensor."""

import numpy as np
import pytest

from minigrad import GradcheckError, Tensor, autocast, detect_anomaly, grad, gradcheck, gradgradcheck, ops, primitive
from minigrad.anomaly import AnomalyError, outside
from minigrad.core.modes import determinism, deterministic
from minigrad.core.tape import after_backward, write
from minigrad.device import memory_statistics


def leaf(values, dtype="float64"):
    return Tensor(np.array(values, dtype), requires_grad=True)


def test_what_a_hook_begins_is_ended_when_all_gradients_are_there():
    x, y, order = leaf([1.0, 2.0]), leaf([3.0, 4.0]), []

    def hook(parameter):
        order.append("begun")
        after_backward(lambda: order.append((x.grad is not None, y.grad is not None)))

    x.register_post_accumulate_grad_hook(hook)
    (x * y).sum().backward()
    assert order == ["begun", (True, True)]
    with pytest.raises(RuntimeError, match="^after_backward: no backward pass is under way"):
        after_backward(print)


@pytest.mark.parametrize("option", ["create_graph", "retain_graph"])
def test_options_that_are_no_truth_values_are_named(option):
    x = leaf([1.0])
    with pytest.raises(TypeError, match=f"^backward: {option} is 'no'"):
        x.sum().backward(**{option: "no"})
    with pytest.raises(TypeError, match=f"^grad: {option} is 'no'"):
        grad(x.sum(), x, **{option: "no"})


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_first_gradient_has_the_type_of_the_output(dtype):
    """Of one element with and without dimensions; each type has a 1 of its own."""
    for shape in ((), (1,)):
        x = Tensor(np.full(shape, 2, dtype), requires_grad=True)
        (found,) = grad(x * x, x)
        assert found.dtype == dtype and found.array == 4
        assert grad(x, x)[0].dtype == dtype
        y = x * 1
        y.backward()
        assert x.grad.dtype == dtype


def test_a_hook_may_update_the_gradient_in_place():
    """It has a copy: the other argument of the sum has the same gradient, of which it sees nothing."""
    x, y = leaf([1.0, 2.0]), leaf([3.0, 4.0])

    def hook(g):
        g *= 10

    x.register_hook(hook)
    ((x + y) * 2).sum().backward()
    np.testing.assert_array_equal((x.grad.array, y.grad.array), [[20, 20], [2, 2]])
    dx, dy = grad((x + y).sum(), [x, y])
    dy += 1
    np.testing.assert_array_equal((dx.array, dy.array), [[10, 10], [2, 2]])  # the hook is still there


def test_the_first_gradient_lies_where_the_output_does():
    x = Tensor(np.ones(1)).to("interpreter").requires_grad_()
    assert grad(x, x)[0].device == "interpreter"


def test_an_autocast_block_goes_on_after_a_backward_pass():
    w = leaf([[2.0]], "float32")
    with autocast("float16"):
        (w @ w).sum().backward()
        assert (w @ w).dtype == "float16"


def test_a_leaf_hook_may_keep_the_gradient():
    x, held = leaf([1.0, 2.0]), []
    x.register_hook(held.append)
    for _ in range(2):
        (x * 2).sum().backward()
    np.testing.assert_array_equal(x.grad.array, [4, 4])
    np.testing.assert_array_equal(held[0].array, [2, 2])


def test_a_gradient_that_arrives_second_may_take_the_first():
    """The sum passes a view on, which nothing is added into; the product's gradient is the engine's own."""
    x = leaf([1.0, 2.0])
    y = x * 1
    (y * y).sum().add(y.sum()).backward()
    np.testing.assert_array_equal(x.grad.array, [3, 5])


@pytest.mark.parametrize("own", [0, 1])
def test_gradients_of_many_uses_are_added_in_one_array(own):
    """The first to arrive is a view, as of a sum; the second too, or the engine's own, as of a product."""
    requests = []
    for uses in (0, 4):
        x = leaf(np.ones(10_000))
        y = x * 1
        terms = [y.sum() for _ in range(uses)] + [(y * 1).sum() if own else y.sum(), y.sum()]
        total = sum(terms)
        before = memory_statistics()["requests"]
        total.backward()
        requests.append(memory_statistics()["requests"] - before)
        assert x.grad.array[0] == uses + 2
    assert requests[0] == requests[1]


def test_the_changes_that_an_error_counts_are_those_since_the_beginning():
    x = leaf([1.0, 2.0])
    x.sum().backward()
    y = leaf([3.0, 4.0]) * x.grad
    write(x.grad)[...] = 0
    with pytest.raises(RuntimeError, match=r"^mul: other was changed .* \(version 1, recorded 0\)"):
        y.sum().backward()


def test_a_primitive_of_several_results_returns_as_many():
    @primitive(outputs=("total", "greatest"))
    def summary(x):
        return np.asarray(x.sum()), np.asarray(x.max())

    summary.grads(x=lambda g_total, g_greatest, x: g_total + 0 * x + g_greatest * (x == x.max()).to(x.dtype))
    x = leaf([1.0, 5.0, 2.0])
    total, greatest = summary(x)
    np.testing.assert_array_equal(grad(total, x, retain_graph=True)[0].array, [1, 1, 1])
    np.testing.assert_array_equal(grad(greatest, x)[0].array, [0, 1, 0])


def test_a_result_too_many_is_an_error():
    @primitive(outputs=("one", "two"))
    def three(x):
        return x, x, x

    three.grads(x=lambda g_one: g_one)
    for x in (Tensor([1.0]), leaf([1.0])):
        with pytest.raises(
            TypeError,
            match=r"^three: the function returned a ndarray, a ndarray, a ndarray, wanted a tuple of 2 arrays: one",
        ):
            three(x)


def test_a_result_alone_is_not_taken_for_several():
    @primitive(outputs=("one", "two"))
    def alone(x):
        return x + x

    with pytest.raises(TypeError, match=r"^alone: the function returned a ndarray, wanted a tuple of 2 arrays: one, t"):
        alone(Tensor([1.0, 2.0]))


def test_a_number_of_the_cpu_goes_along_unless_it_wants_a_gradient():
    x, factor = Tensor(np.ones(3, "float32")).to("interpreter"), Tensor(np.float32(2))
    assert (x * factor).tolist() == [2, 2, 2]
    with pytest.raises(RuntimeError, match="^mul: other is on cpu, input on interpreter"):
        x * Tensor(np.float32(2), requires_grad=True)


def test_a_result_with_nan_is_told_with_the_ranges_of_what_has_elements():
    @primitive(fixed=("labels", "none"))
    def op(x, labels, none):
        return x * np.nan

    op.grads(x=lambda g: g)
    arguments = Tensor(np.array([7])), Tensor(np.ones((0, 2)))
    with detect_anomaly(), pytest.raises(AnomalyError) as found:
        op(leaf([-1.5, 2.0]), *arguments)
    assert "the arguments had none: x (2,) from -1.5 to 2; at " in str(found.value) and __file__ in str(found.value)
    with detect_anomaly():
        op(Tensor([1.0]), *arguments)  # nothing flows back to it


def test_the_line_outside_is_that_of_who_called():
    frame, depth = outside()
    assert frame.f_code.co_name == "test_the_line_outside_is_that_of_who_called" and depth == 0
    with pytest.warns(UserWarning, match="^mse_loss: ") as found:
        ops.mse_loss(leaf([[1.0], [2.0]]), leaf([1.0, 2.0]))
    assert found[0].filename == __file__


def test_gradients_for_outputs_that_are_not_there_are_refused():
    x = leaf([0.5, 1.0])
    assert gradcheck(lambda x: (x * x, x * 3), (x,))
    with pytest.raises(ValueError, match="2 grad_outputs for 1 outputs"):
        grad(x.sum(), x, grad_outputs=[None, None])


def test_a_rule_may_ask_for_nothing():
    @primitive
    def sum_of_all(x):
        return np.asarray(x.sum())

    sum_of_all.grads(x=lambda: Tensor(np.ones(2)))
    x = leaf([3.0, 4.0])
    sum_of_all(x).backward()
    np.testing.assert_array_equal(x.grad.array, [1, 1])


def test_gradients_at_once_may_ask_for_those_of_each_result():
    @primitive(outputs=("twice", "square"))
    def both(x):
        return 2 * x, x * x

    both.grads(x=lambda g_twice, g_square, x: 2 * g_twice + 2 * x * g_square)

    @both.fast_grads
    def both_at_once(g_twice, g_square, x):
        return {"x": 2 * g_twice + (0 if g_square is None else 2 * x * g_square)}

    x = leaf([3.0, 4.0])
    twice, square = both(x)
    (twice + 10 * square).sum().backward()
    np.testing.assert_array_equal(x.grad.array, [62, 82])


@pytest.mark.parametrize("size", [1e-3, 1.0])
def test_a_wrong_second_gradient_is_found_however_small(size):
    @primitive
    def cube(x):
        return x * x * x

    cube.grads(x=lambda g, x: g * (3 * x * x).detach())
    x = leaf([size, 2 * size])
    assert gradcheck(cube, (x,), eps=1e-6 * size)
    with pytest.raises(GradcheckError):
        gradgradcheck(cube, (x,))
    assert gradgradcheck(lambda x: x * x * x, (x,))


def test_gradients_that_are_not_made_at_once_come_from_their_rules():
    asked = []

    @primitive
    def product(x, y):
        return x * y

    product.grads(x=lambda g, y: asked.append("x") or g * y, y=lambda g, x: asked.append("y") or g * x)

    @product.fast_grads
    def product_at_once(g, y):
        return {"x": g * y}

    x, y = leaf([2.0]), leaf([3.0])
    product(x, y).sum().backward()
    assert x.grad.array == 3 and y.grad.array == 2 and asked == ["y"]


def test_a_rule_that_asks_for_what_is_not_there_hears_what_is():
    @primitive
    def same(x):
        return x

    with pytest.raises(TypeError) as found:
        same.grads(x=lambda g, w: g)
    assert str(found.value) == "same: the rule of x asks for ['w'], it may ask for g, g_out, index, out, x, x_shape"


def test_deterministic_unless_told_otherwise():
    with deterministic(False):
        assert not determinism.get()
        with deterministic():
            assert determinism.get()
