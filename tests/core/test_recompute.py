"""Activations that are computed again: the same bits, less memory, the same state of everything around."""

import gc

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, device, graph, nn, ops, recompute
from minigrad.core.errors import MinigradError
from minigrad.core.tape import write
from tests.device.stand_in_gpus import gpus

SHAPE = (4, 3, 12, 12)


def network():
    minigrad.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.3), nn.Conv2d(8, 8, 3, padding=1),
        nn.ReLU(), nn.MaxPool2d(2), nn.Dropout2d(0.5), nn.Flatten(), nn.Linear(288, 5),
    )  # fmt: skip


def images(requires_grad=False, scale=1.0):
    return Tensor(np.random.default_rng(1).standard_normal(SHAPE, dtype=np.float32) * np.float32(scale), requires_grad)


def gradients(model, run, x):
    """(scores, the gradients of all parameters and of x, buffers), NumPy's, after a draw from the seed."""
    scores = run(model, x)
    ops.sum(scores * scores).backward()
    found = [scores, *(parameter.grad for parameter in (*model.parameters(), x)), *model.buffers()]
    return [np.array(tensor.detach()) for tensor in found], minigrad.default_generator.get_state()


def nested(model, x):
    inner = lambda h: recompute(model[4:7], recompute(model[2:4], h))
    return model[9](recompute(lambda h: model[7:9](inner(model[:2](h))), x))


WAYS = {
    "whole": lambda model, x: recompute(model, x),
    "one after the other": lambda model, x: recompute(model[7:], recompute(model[3:7], recompute(model[:3], x))),
    "nested": nested,
    "layer by layer": lambda model, x: __import__("functools").reduce(lambda h, layer: recompute(layer, h), model, x),
    "without Modules": lambda model, x: recompute(
        lambda h, slope=0: nn.Sequential.forward(model, h) * slope, x, slope=1
    ),
}


def plain(name):
    """The same without recompute, with the same operations fused."""
    cuts = {"one after the other": (3, 7), "nested": (2, 4, 7, 9), "layer by layer": range(1, 10)}.get(name, ())
    edges = [0, *cuts, 10]

    def run(model, x):
        if name == "without Modules":
            return nn.Sequential.forward(model, x)
        for start, stop in zip(edges, edges[1:], strict=False):
            x = model[start:stop](x)
        return x

    return run


@pytest.mark.parametrize("name", WAYS)
def test_the_same_bits_and_state(name):
    wanted, generator = gradients(network(), plain(name), images(True))
    found, after = gradients(network(), WAYS[name], images(True))
    assert after == generator
    for one, two in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, two)


def test_an_input_without_gradient_and_parameters_used_outside_too():
    weight = nn.Parameter(np.random.default_rng(0).standard_normal((5, 5)).astype("f4"))
    x, grads = Tensor(np.ones((2, 5), "f4")), []
    for wrap in (lambda f, *given: f(*given), recompute):
        weight.grad = None
        h = wrap(lambda x: ops.tanh(x @ weight), x)
        ops.sum((h @ weight) * h).backward()
        grads.append(np.array(weight.grad))
    np.testing.assert_array_equal(*grads)


def test_several_outputs_in_any_nesting():
    x = images(True)
    out = recompute(lambda x: {"a": (ops.exp(x), [ops.sin(x)]), "n": 7, "x": x}, x)
    assert out["n"] == 7 and out["x"] is x
    ops.sum(out["a"][0] * out["a"][1][0]).backward()
    wanted = np.exp(x.array) * (np.sin(x.array) + np.cos(x.array))
    np.testing.assert_allclose(x.grad.array, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("inner", [lambda f, x: f(x), recompute])
def test_second_derivatives(inner):
    x = Tensor(np.array([0.3, -0.7]), requires_grad=True)
    function = lambda x: inner(lambda h: ops.sin(h) * h, ops.exp(x))
    found = []
    for wrap in (lambda f, x: f(x), recompute):
        (first,) = minigrad.grad(ops.sum(wrap(function, x)), x, create_graph=True)
        (second,) = minigrad.grad(ops.sum(first * first), x)
        found.append((np.array(first.detach()), np.array(second)))
    np.testing.assert_array_equal(found[0], found[1])


def test_grad_of_inputs_and_a_second_backward():
    x, w = images(True), Tensor(np.ones(12, "f4"), requires_grad=True)
    calls = []
    out = recompute(lambda x: calls.append(1) or ops.exp(x) * w, x)
    first = minigrad.grad(ops.sum(out), [w, x], retain_graph=True)
    second = minigrad.grad(ops.sum(out), [w, x])
    assert len(calls) == 2  # forward, and once for both
    for one, two in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, two)
    with pytest.raises(MinigradError, match="freed by an earlier backward"):
        ops.sum(out).backward()


def test_it_runs_again_in_the_modes_of_before():
    seen = []

    def function(x):
        seen.append((minigrad.is_deterministic(), minigrad.is_grad_enabled()))
        with minigrad.no_grad():
            factor = ops.exp(x)
        return x * factor

    x = images(True)
    with minigrad.deterministic(False):
        out = recompute(function, x)
    total = ops.sum(out)
    with minigrad.no_grad():
        total.backward()
    assert seen == [(False, True)] * 2 and minigrad.is_deterministic()
    np.testing.assert_allclose(x.grad.array, np.exp(x.array), rtol=1e-6)


def test_nothing_is_kept_where_nothing_is_recorded():
    with minigrad.no_grad():
        out = recompute(network().eval(), images())
    assert out.is_leaf and not out.requires_grad


@pytest.mark.parametrize("requires_grad", [True, False])  # where not, no gradient wants the weight itself
def test_arguments_changed_since_are_refused(requires_grad):
    weight, x = nn.Parameter(np.ones((3, 3), "f4")), Tensor(np.ones((2, 3), "f4"), requires_grad=requires_grad)
    out = recompute(lambda x: ops.tanh(x @ weight), x)
    weight.grad = Tensor(np.ones((3, 3), "f4"))
    minigrad.optim.SGD([weight], lr=1.0).step()
    with pytest.raises(MinigradError, match="was changed after it was used"):
        ops.sum(out).backward()


def test_an_input_changed_since_is_refused():
    weight, x = nn.Parameter(np.ones((2, 3), "f4")), Tensor(np.ones((2, 3), "f4"))
    out = recompute(lambda x: ops.tanh(weight + x), x)
    write(x)[...] = 2
    with pytest.raises(MinigradError, match="an input was changed after it was used"):
        ops.sum(out).backward()


def test_refuses_what_is_no_function_and_one_that_changes_its_mind():
    with pytest.raises(TypeError, match="recompute: function is a int"):
        recompute(3)
    calls = []

    def fickle(x):
        calls.append(1)
        return ops.exp(x) if len(calls) > 1 else ops.sin(x)

    out = recompute(fickle, images(True))
    with pytest.raises(RuntimeError, match="recompute: .*fickle applied exp in backward, before it was sin"):
        ops.sum(out).backward()


def test_hooks_of_parameters_fire_once_with_all_of_the_gradient():
    model, fired = network(), []
    for parameter in model.parameters():
        parameter.register_hook(lambda g: fired.append(g.shape) and None)
    ops.sum(recompute(model, images())).backward()
    assert sorted(map(len, fired)) == sorted(len(parameter.shape) for parameter in model.parameters())


def most_bytes(run):
    """How far the memory of arrays rises above what is in use before, forward and backward."""
    gc.collect()
    device.memory_statistics()
    before, peak = device.memory_statistics()["used_bytes"], []

    class Watch:
        def look(self, *ignored):
            peak.append(device.memory_statistics()["used_bytes"])

    run(Watch().look)
    return max(peak) - before


def test_memory_is_that_of_the_largest_part():
    """Sixteen layers that keep one map each, in four parts: four maps between the parts, and the four of one part."""
    x = Tensor(np.random.default_rng(0).standard_normal((64, 4096), dtype=np.float32), requires_grad=True)
    layers, size = 16, x.array.nbytes

    def part(h, look, count):
        for _ in range(count):
            h = ops.sin(h)
            look()
        return h

    def whole(look):
        out = ops.sum(part(x, look, layers))
        out.backward()
        look()

    def in_parts(look):
        h = x
        for _ in range(4):
            h = recompute(part, h, look, layers // 4)
        out = ops.sum(h)
        del h
        out.backward()
        look()

    one, two = most_bytes(whole), most_bytes(in_parts)
    assert one >= layers * size and two <= 10 * size, (one / size, two / size)


# ---- in a graph of a GPU ---------------------------------------------------------------------------------------------


def test_replays_draw_again_what_they_drew():
    """Draws before the part and between two calls, which a count of the part's own would not know of."""

    def run(wrap):
        minigrad.manual_seed(0)
        layer = nn.Linear(4, 4, bias=False).to("cuda")
        part = nn.Sequential(layer, nn.Dropout(0.5))

        @wrap
        def step(x):
            layer.weight.grad = None
            ops.sum(recompute(part, ops.dropout(x, 0.5))).backward()
            return layer.weight.grad

        found = []
        for number in range(5):
            found.append(step(Tensor(np.ones((3, 4), np.float32)).to("cuda")).tolist())
            if number == 3:
                ops.dropout(minigrad.ones(3))
        return found

    with gpus(1):
        assert run(graph.capture) == run(lambda function: function)
