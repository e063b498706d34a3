"""Interceptors: a tool that sees every op, on one stack."""

import pytest

import minigrad
from minigrad import Tensor, nn
from minigrad.core.interceptors import Interceptor, interceptors, proceed


class Names(Interceptor):
    """Writes down the names of ops, and what it hears."""

    def __init__(self, eager=True):
        self.eager, self.found = eager, []

    def apply(self, primitive, values, below):
        self.found.append(primitive.name)
        return proceed(below, primitive, values)

    def before_write(self, tensor):
        self.found.append(("write", tensor.tolist()))

    def before_gradient(self, leaf, adds):
        self.found.append(("gradient", adds))


def test_every_op_is_seen_and_computed_as_without():
    """And what is written, and gradients that change. After an error the stack is as before."""
    x, names = Tensor([1.0, -2.0], requires_grad=True), Names()
    optimizer = minigrad.optim.SGD([x], lr=0.5)
    with names:
        y = (x * 2).relu().sum()
    assert names.found == ["mul", "relu", "sum"] and y.item() == 2 and interceptors() == ()
    with pytest.raises(ZeroDivisionError), names:
        y.backward()
        assert ("gradient", True) in names.found
        names.found.clear()
        optimizer.step()
        optimizer.zero_grad()
        assert interceptors() == (names,) and 1 / 0
    assert names.found == [("write", [1.0, -2.0]), ("gradient", False)] and x.tolist() == [0, -2]
    assert interceptors() == ()


def test_the_newest_comes_first_but_a_higher_level_before_it():
    class Twice(Names):
        def apply(self, primitive, values, below):
            return super().apply(primitive, values, below) * 2

    class Doubled(Names):
        level, forward_only = 1, True

        def apply(self, primitive, values, below):
            return super().apply(primitive, tuple(2 * value for value in values), below)

    outer, inner = Names(), Twice()
    with outer, inner:
        y = Tensor([3.0]) + 1
    assert y.tolist() == [8] and inner.found[0] == "add" and outer.found == ["add", "mul"]
    changes, names, x = Doubled(), Names(), Tensor([1.0], requires_grad=True)
    with changes, names:
        y = x + x
        y.backward()
    assert y.tolist() == [4] and names.found[:3] == ["mul", "mul", "add"] and changes.found[0] == "add"
    assert x.grad.tolist() == [4] and "mul" in names.found[3:] and "mul" not in changes.found


def test_who_wants_each_op_by_itself_says_so():
    model, x = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU()), minigrad.ones(1, 1, 5, 5)
    for eager, wanted in ((True, ["conv2d", "relu"]), (False, ["conv2d_relu"])):
        with Names(eager) as names:
            out = model(x)
        assert names.found == wanted and out.tolist() == model(x).tolist()
