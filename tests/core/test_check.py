"""gradcheck and anomaly mode find what is wrong."""

import numpy as np
import pytest

import minigrad
from minigrad import GradcheckError, Tensor, gradcheck, gradgradcheck, ops, primitive
from minigrad.anomaly import outside


def leaf(*shape):
    return Tensor(np.random.default_rng(0).standard_normal(shape), requires_grad=True)


def with_rule(rule):
    @primitive
    def wrong(x):
        return x**3

    wrong.grads(x=rule)
    return wrong


def test_right_gradients_pass_and_wrong_ones_are_found():
    op = with_rule(lambda g, x: 3 * g * x * x)
    assert gradcheck(op, [leaf(4)]) and gradgradcheck(op, [leaf(4)])
    for rule in (
        lambda g, x: 3 * g * x,
        lambda g, x: -3 * g * x * x,
        lambda g, x: 3 * g * x * x + 1e-2,
        lambda g, x: 3 * g * x * x * np.nan,
        lambda g: None,
    ):
        with pytest.raises(GradcheckError, match=r"inputs\[0\].*finite differences give"):
            gradcheck(with_rule(rule), [leaf(4)])
    two, bad = lambda x, y: [ops.exp(x) * y, ops.matmul(x, y)], with_rule(lambda g, x: g)
    assert gradcheck(two, [leaf(3, 3), leaf(3, 3)])
    with pytest.raises(GradcheckError, match=r"inputs\[1\]"):
        gradcheck(lambda x, y: x * bad(y), [leaf(3), leaf(3)])
    for rule, words in (  # right in value, but not to be differentiated by the argument, or by the gradient that came
        (lambda g, x: 3 * g * (x * x).detach(), r"inputs\[0\]"),
        (lambda g, x: 3 * g.detach() * x * x, r"inputs\[1\]"),
    ):
        assert gradcheck(with_rule(rule), [leaf(4)])
        with pytest.raises(GradcheckError, match=words):
            gradgradcheck(with_rule(rule), [leaf(4)])


def test_refusals():
    for inputs, function, error, message in (
        ([Tensor(np.ones(2, np.float32), requires_grad=True)], ops.exp, TypeError, "wanted float64"),
        ([Tensor(np.ones(2))], ops.exp, RuntimeError, "none of the inputs"),
        ([leaf(2)], lambda x: 1.0, RuntimeError, "returned a float, wanted Tensors"),
        ([leaf(2)], lambda x: x > 0, RuntimeError, "returned no floating Tensor"),
    ):
        with pytest.raises(error, match=message):
            gradcheck(function, inputs)


# ---- anomaly mode ----------------------------------------------------------------------------------------------------


def test_a_nan_is_named_where_it_is_born():
    x = Tensor(np.array([1.0, -2.0]), requires_grad=True)
    with minigrad.detect_anomaly():
        with pytest.raises(RuntimeError, match=r"log: the result has NaN.*input \(2,\) from -2 to 1; at .*test_check"):
            ops.log(x).sum()
        with pytest.raises(RuntimeError, match="log: the result has NaN"):
            ops.exp(ops.log(x))
    assert np.isnan(ops.log(x).array[1])


def test_a_nan_gradient_is_named_with_the_line_that_applied_the_op():
    x = Tensor(np.array([0.0, 1.0]), requires_grad=True)
    with minigrad.detect_anomaly():
        y = ops.sqrt(x) * Tensor(np.zeros(2))  # 0 * inf in the gradient of the root
        with pytest.raises(
            RuntimeError, match="sqrt: the gradient of input has NaN.*test_check.*test_a_nan_gradient"
        ) as at:
            y.sum().backward()
        assert "none: out (2,) from 0 to 1; the gradient that came (2,) from 0 to 0; applied at" in str(at.value)
    (ops.sqrt(x) * Tensor(np.zeros(2))).sum().backward()
    assert np.isnan(x.grad.array[0])


def test_a_nan_that_was_given_is_nobodys_fault():
    x = Tensor(np.array([np.nan, 1.0]), requires_grad=True)
    with minigrad.detect_anomaly():
        (x * 2).sum().backward()
        (ops.cat([x, x * 0 + 1]) + ops.stack([x[0], x[1]]).sum()).sum().backward()
        (leaf(2) * 2).backward(Tensor(np.array([np.nan, 1.0])))


def test_the_line_outside_is_that_of_who_called():
    frame, depth = outside()
    assert frame.f_code.co_name == "test_the_line_outside_is_that_of_who_called" and depth == 0
    with pytest.warns(UserWarning, match="^mse_loss: ") as found:
        ops.mse_loss(Tensor([[1.0], [2.0]]), Tensor([1.0, 2.0]))
    assert found[0].filename == __file__
