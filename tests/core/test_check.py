"""gradcheck and anomaly mode find what is wrong."""

import numpy as np
import pytest

import minigrad
from minigrad import GradcheckError, Tensor, gradcheck, gradgradcheck, ops, primitive


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
    for rule in (lambda g, x: 3 * g * x, lambda g, x: 3 * g * x * x + 1e-2, lambda g, x: g * np.nan, lambda g: None):
        with pytest.raises(GradcheckError, match=r"inputs\[1\].*finite differences give"):
            gradcheck(lambda x, y: [x, x * with_rule(rule)(y)], [leaf(4), leaf(4)])  # noqa: B023
    for rule, words in (  # right in value, but not to be differentiated by the argument, or by the gradient that came
        (lambda g, x: 3 * g * (x * x).detach(), r"inputs\[0\]"),
        (lambda g, x: 3 * g.detach() * x * x, r"inputs\[1\]"),
    ):
        assert gradcheck(with_rule(rule), [leaf(4)])
        with pytest.raises(GradcheckError, match=words):
            gradgradcheck(with_rule(rule), [leaf(4)])
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
            ops.exp(ops.log(x))
    x = Tensor(np.array([0.0, 1.0]), requires_grad=True)
    words = "sqrt: the gradient of input has NaN.*: out .2,. from 0 to 1; the gradient that came .2,. from 0 to 0; "
    with minigrad.detect_anomaly():
        y = ops.sqrt(x) * Tensor(np.zeros(2))  # 0 * inf in the gradient of the root
        with pytest.raises(RuntimeError, match=f"{words}applied at.*test_check.*test_a_nan"):
            y.sum().backward()
    (ops.sqrt(x) * Tensor(np.zeros(2))).sum().backward()
    assert np.isnan(x.grad.array[0])


def test_a_nan_that_was_given_is_nobodys_fault():
    x = Tensor(np.array([np.nan, 1.0]), requires_grad=True)
    with minigrad.detect_anomaly():
        (ops.cat([x, x * 0 + 1]) + ops.stack([x[0], x[1]]).sum()).sum().backward()
        (leaf(2) * 2).backward(Tensor(np.array([np.nan, 1.0])))
