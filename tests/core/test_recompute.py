"""Activations that are computed again: the same bits, less memory, the same state of everything around."""

import gc

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, device, nn, ops, recompute
from minigrad.core.errors import MinigradError
from minigrad.core.tape import write


def without(function, *inputs):
    return function(*inputs)


def network():
    minigrad.manual_seed(3)
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.3), nn.Conv2d(8, 8, 3, padding=1)),
        *(nn.ReLU(), nn.MaxPool2d(2), nn.Dropout2d(0.5), nn.Flatten(), nn.Linear(288, 5)),
    )


def images():
    return Tensor(np.random.default_rng(1).standard_normal((4, 3, 12, 12), dtype=np.float32), requires_grad=True)


WAYS = {  # each written so that the same operations are fused with recompute and without
    "whole": lambda again, model, x: again(model, x),
    "one after the other": lambda again, model, x: again(model[7:], again(model[3:7], again(model[:3], x))),
    "nested": lambda again, model, x: again(
        lambda h: model[9](model[7:9](again(lambda h: again(model[4:7], again(model[2:4], h)), model[:2](h)))), x
    ),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_the_same_bits_and_state(way):
    """Scores, gradients, buffers and random numbers; each hook of a parameter fires once."""
    found = []
    for again in (without, recompute):
        model, x, fired = network(), images(), []
        for parameter in model.parameters():
            parameter.register_hook(lambda g, fired=fired: fired.append(g.shape) and None)
        scores = way(again, model, x)
        (scores * scores).sum().backward()
        seen = [scores, *(parameter.grad for parameter in (*model.parameters(), x)), *model.buffers()]
        found.append(
            [np.array(tensor.detach()).tobytes() for tensor in seen] + [minigrad.default_generator.get_state()]
        )
        assert sorted(fired) == sorted(parameter.shape for parameter in model.parameters())
    assert found[0] == found[1]


def test_parameters_used_outside_too_outputs_in_any_nesting_and_second_derivatives():
    """An input needs no gradient."""
    weight, x = nn.Parameter(np.random.default_rng(0).standard_normal((5, 5))), Tensor(np.ones((2, 5)))
    found = []
    for outer, inner in ((without, without), (recompute, without), (recompute, recompute)):
        part = lambda x: {"a": (inner(ops.tanh, x @ weight), [weight.sin()]), "n": 7, "x": x}  # noqa: B023
        out = outer(part, x)
        h, (rest,) = out["a"]
        (first,) = minigrad.grad((h @ weight * h).sum() + (rest * weight).sum(), weight, create_graph=True)
        found.append((first.tolist(), minigrad.grad((first * first).sum(), weight)[0].tolist()))
        assert out["n"] == 7 and out["x"] is x
    assert found[0] == found[1] == found[2]


def test_it_runs_again_once_in_the_modes_of_before():
    seen = []

    def function(x):
        seen.append((minigrad.is_deterministic(), minigrad.is_grad_enabled()))
        with minigrad.no_grad():
            factor = ops.exp(x)
        return x * factor

    x = images()
    with minigrad.deterministic(False):
        total = recompute(function, x).sum()
    (first,) = minigrad.grad(total, x, retain_graph=True)
    with minigrad.no_grad():
        total.backward()
        assert recompute(network().eval(), x).is_leaf  # nothing is recorded
    assert seen == [(False, True)] * 2 and minigrad.is_deterministic() and first.tolist() == x.grad.tolist()
    np.testing.assert_allclose(x.grad.array, np.exp(x.array), rtol=1e-6)


def test_what_changed_since_is_refused():
    for requires_grad in (True, False):  # where not, no gradient wants the weight itself
        weight, x = nn.Parameter(np.ones((3, 3))), Tensor(np.ones((2, 3)), requires_grad=requires_grad)
        for changed, words in ((weight, "was changed"), (x, "input was changed")):
            out = recompute(lambda x: ops.tanh(x @ weight), x).sum()  # noqa: B023
            write(changed)[...] = 2
            with pytest.raises(MinigradError, match=f"{words} after it was used"):
                out.backward()
    with pytest.raises(TypeError, match="recompute: function is a int"):
        recompute(3)
    functions = iter([ops.sin, ops.exp])
    out = recompute(lambda x: next(functions)(x), images())
    with pytest.raises(RuntimeError, match="recompute: .*<lambda> applied exp in backward, before it was sin"):
        out.sum().backward()


def test_memory_is_that_of_the_largest_part():
    """Sixteen layers that keep one map each, in four parts: four maps between the parts, and the four of one part."""
    x = Tensor(np.random.default_rng(0).standard_normal((64, 4096), dtype=np.float32), requires_grad=True)
    used, most = [], {}

    def part(h):
        for _ in range(4):
            h = ops.sin(h)
            used.append(device.memory_statistics()["used_bytes"])
        return h

    for again in (without, recompute):
        gc.collect()
        used[:], h, x.grad = [], x, None
        before = device.memory_statistics()["used_bytes"]
        for _ in range(4):
            h = again(part, h)
        out = h.sum()
        del h
        out.backward()
        most[again] = (max(used) - before) / x.array.nbytes
    assert most[without] >= 16 and most[recompute] <= 10, most
