"""Interceptors: a tool that sees every op, on one stack."""

import threading

import pytest

import minigrad
from minigrad import Tensor, detect_anomaly, nn
from minigrad.core.interceptors import Interceptor, interceptors, proceed


class Names(Interceptor):
    """Writes down the names of ops."""

    def __init__(self, eager=True):
        self.eager, self.found = eager, []

    def apply(self, primitive, values, below):
        self.found.append(primitive.name)
        return proceed(below, primitive, values)


def test_every_op_is_seen_and_computed_as_without():
    x, names = Tensor([1.0, -2.0], requires_grad=True), Names()
    with names:
        y = (x * 2).relu().sum()
    assert names.found == ["mul", "relu", "sum"] and y.item() == 2
    y.backward()
    assert x.grad.tolist() == [2, 0] and len(names.found) == 3 and interceptors() == ()


def test_the_newest_comes_first_and_may_do_something_else():
    class Twice(Names):
        def apply(self, primitive, values, below):
            return super().apply(primitive, values, below) * 2

    outer, inner = Names(), Twice()
    with outer, inner:
        y = Tensor([3.0]) + 1
    assert y.tolist() == [8] and inner.found[0] == "add" and outer.found == ["add", "mul"]


@pytest.mark.parametrize(("eager", "wanted"), [(True, ["conv2d", "relu"]), (False, ["conv2d_relu"])])
def test_who_wants_each_op_by_itself_says_so(eager, wanted):
    model, names = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU()), Names(eager)
    with names:
        out = model(minigrad.ones(1, 1, 5, 5))
    assert names.found == wanted and out.tolist() == model(minigrad.ones(1, 1, 5, 5)).tolist()


def test_it_is_a_decorator_and_leaves_the_stack_after_an_error():
    @detect_anomaly()
    def inside():
        assert isinstance(interceptors()[-1], detect_anomaly)
        raise KeyError

    with pytest.raises(KeyError):
        inside()
    assert interceptors() == ()


def test_threads_have_stacks_of_their_own():
    names = Names()
    with names:
        thread = threading.Thread(target=lambda: Tensor([1.0]) + 1)
        thread.start()
        thread.join()
    assert names.found == []


def test_it_hears_of_what_is_written_and_of_gradients():
    class Writes(Interceptor):
        def before_write(self, tensor):
            found.append(("write", tensor.tolist()))

        def before_gradient(self, leaf, adds):
            found.append(("gradient", adds))

    found, x = [], Tensor([1.0], requires_grad=True)
    optimizer = minigrad.optim.SGD([x], lr=0.5)
    with Writes():
        x.sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert found == [("gradient", True), ("write", [1.0]), ("gradient", False)] and x.tolist() == [0.5]


def test_a_higher_level_comes_first_whenever_it_was_opened():
    class Doubled(Names):
        level, forward_only = 1, True

        def apply(self, primitive, values, below):
            return super().apply(primitive, tuple(2 * value for value in values), below)

    changes, names, x = Doubled(), Names(), Tensor([1.0], requires_grad=True)
    with changes, names:
        y = x + x
        y.backward()
    assert y.tolist() == [4] and names.found == ["mul", "mul", "add", "mul", "mul"] and changes.found == ["add"]
    assert x.grad.tolist() == [4]
