"""Profiles: what is recorded, for which layer, how long it took, and what is left behind."""

import contextlib
import gc
import re
import threading
import time
import weakref

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, models, nn, no_grad, optim, parallel
from minigrad.core.errors import KindError, ShapeError, StateError
from minigrad.nn import functional as F
from minigrad.profile import Profile, measure_step, record_function
from minigrad_kernels.toolchain.watch import part, watchers, watching
from tests.profile.profile_parts import batch, nobody_looks, rows


@pytest.fixture(scope="module")
def lenet():
    """(model, profile) of a step of LeNet."""
    minigrad.manual_seed(0)
    model = models.build("lenet", (1, 28, 28))
    return model, measure_step(model, F.cross_entropy, batch(), optim.Adam(model.parameters()))


# ---- calls -----------------------------------------------------------------------------------------------------------

LENET = {"conv2d_relu_max_pool2d": 2, "reshape": 1, "linear_relu": 2, "linear": 1, "cross_entropy": 1}


def test_each_operation_is_counted_by_its_fused_name(lenet):
    _, profile = lenet
    forward = [span.name for span in profile.spans if span.kind == "forward" and not span.within("backward")]
    assert {name: forward.count(name) for name in forward} == LENET
    backward = [span.name.removesuffix(".backward") for span in profile.spans if span.kind == "backward"]
    assert {name: backward.count(name) for name in backward} == LENET
    found = rows(profile)
    assert {name: found[name].calls for name in LENET if name != "reshape"} == {
        name: calls for name, calls in LENET.items() if name != "reshape"
    }
    assert found["reshape"].calls == 2  # the gradient of reshape is one
    assert found["Adam.step"].calls == found["walk over the tape"].calls == 1


def test_operations_belong_to_the_layer_that_asked_for_them(lenet):
    _, profile = lenet
    asked = [(s.name, s.layer) for s in profile.spans if s.kind == "forward" and not s.within("backward")]
    assert asked == [
        ("conv2d_relu_max_pool2d", "0"),
        ("conv2d_relu_max_pool2d", "3"),
        ("reshape", "6"),
        ("linear_relu", "7"),
        ("linear_relu", "9"),
        ("linear", "11"),
        ("cross_entropy", ""),
    ]
    passed = [(s.name, s.layer) for s in profile.spans if s.kind == "backward"]
    assert passed == [(f"{name}.backward", layer) for name, layer in reversed(asked)]
    inner = [span for span in profile.spans if span.kind == "forward" and span.within("backward")]
    assert [(span.name, span.layer) for span in inner] == [("reshape", "6")]


def test_layers_are_those_of_the_model(lenet):
    model, profile = lenet
    found, parts = rows(profile, "layer"), dict(model.named_modules())
    named = {name: row for name, row in found.items() if not name.startswith("(")}
    assert set(named) == {path or "Sequential" for path in parts} and all(row.calls == 1 for row in named.values())
    for path, module in parts.items():
        row = named[path or "Sequential"]
        assert row.type == type(module).__name__
        assert row.parameters == sum(p.array.nbytes for p in module._parameters.values())
    assert found["3"].operations == ("conv2d_relu_max_pool2d",) and found["3"].forward > 0 and found["3"].backward > 0
    assert {name for name in found if name.startswith("(")} == {
        "(cross_entropy)", "(walk over the tape)", "(Adam.step)",
    }  # fmt: skip
    assert found["Sequential"].total == pytest.approx(sum(row.self for row in named.values()))


def test_kernels_are_named(lenet):
    _, profile = lenet
    found = rows(profile, "kernel")
    assert found["softmax.cpu.losses_of_rows"].calls == found["optimizer.cpu.adam_chunks"].calls == 1
    assert sum(row.self for row in found.values()) == pytest.approx(profile.totals()["kernels"])
    assert {span.parent.kind for span in profile.spans if span.kind == "kernel"} <= {"forward", "backward", "update"}


class Residual(nn.Module):
    """Functions called by a Module itself, a Module used twice, and one that is made in forward."""

    def __init__(self):
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.again = nn.Conv2d(4, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x):
        x = F.relu(self.conv(x))
        x = F.relu(self.norm(self.again(self.again(x))) + x)
        return nn.Flatten()(x)


def test_layers_of_a_network_with_branches():
    model = Residual()
    with Profile(nn.Sequential(model, nn.Linear(4 * 64, 10))) as profile:
        model(batch(side=8)[0]).sum().backward()
    asked = [(s.name, s.layer) for s in profile.spans if s.kind == "forward" and not s.within("backward")]
    assert asked == [
        ("conv2d_relu", "0.conv"),
        ("conv2d", "0.again"),
        ("conv2d", "0.again"),
        ("batch_statistics", "0.norm"),
        ("batch_norm_relu", "0.norm"),
        ("reshape", "0.Flatten"),
        ("sum", ""),
    ]
    assert {span.layer for span in profile.spans if span.name == "conv2d.backward"} == {"0.again"}
    found = rows(profile, "layer")
    assert found["0.again"].calls == 2 and found["0.Flatten"].type == "Flatten"
    assert found["0"].total == pytest.approx(sum(row.self for name, row in found.items() if name.startswith("0")))


def test_what_is_looked_at_before_it_is_extended_runs_in_parts():
    conv, relu, out = nn.Conv2d(1, 2, 3), nn.ReLU(), []

    class Looking(nn.Module):
        def forward(self, x):
            out.append(conv(x))
            after = relu(out[0])
            assert out[0].array.shape == (4, 2, 6, 6)
            return after

    with Profile() as profile, no_grad():
        Looking()(batch(side=8)[0])
    first, second = [span for span in profile.spans if span.kind == "forward"]
    assert (first.name, first.layer, second.name) == ("conv2d", "Looking.Conv2d", "relu")


def test_without_a_model_each_that_is_called_from_outside_names_its_parts():
    one, other = (nn.Sequential(nn.Linear(2, 2), nn.Tanh()) for _ in range(2))
    with Profile() as profile:
        for model in (one, other, one):
            model(Tensor([[1.0, 2.0]]))
    found = rows(profile, "layer")
    assert {name: row.calls for name, row in found.items()} == {
        "Sequential": 2, "0": 2, "1": 2, "Sequential (2)": 1, "Sequential.0": 1, "Sequential.1": 1,
    }  # fmt: skip


def test_gradients_of_gradients_are_recorded():
    x = Tensor([2.0], requires_grad=True)
    with Profile() as profile:
        (slope,) = minigrad.grad((x**3).sum(), x, create_graph=True)
        (curvature,) = minigrad.grad(slope.sum(), x)
    assert curvature.item() == pytest.approx(12)
    found = rows(profile)
    assert found["walk over the tape"].calls == 2 and found["pow.backward"].calls >= 1


# ---- time ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["op", "layer"])
def test_own_times_add_up_to_less_than_the_whole(lenet, by):
    _, profile = lenet
    found = profile.rows(by)
    total = profile.totals()
    assert 0 < sum(row.self for row in found) <= total["wall"] - total["profiling"]
    assert 0 < sum(row.share for row in found) <= 1
    assert all(0 <= row.self <= row.total + 1e-9 and row.kernels <= row.self + 1e-9 for row in found)
    assert 0 < total["kernels"] <= total["host"] <= total["wall"] and total["device"] == total["overlap"] == 0


def test_time_is_that_of_the_call():
    @minigrad.primitive
    def slow(x):
        time.sleep(0.02)
        return x

    slow.grads(x=lambda g: (time.sleep(0.03), g * 2)[1])
    x = Tensor([1.0], requires_grad=True)
    with Profile() as profile:
        slow(x).sum().backward()
    found = rows(profile)
    assert 0.02 <= found["slow"].self == found["slow"].total
    assert 0.03 <= found["slow.backward"].self < found["slow.backward"].total  # less the product
    assert found["walk over the tape"].total >= found["slow.backward"].total + found["sum.backward"].total


def test_tables(lenet):
    _, profile = lenet
    lines = profile.table("op").splitlines()
    assert lines[0].split() == "op calls total, ms self, ms share kernels, ms bytes memory".split()
    assert len(lines) == 2 + len(profile.rows("op")) and len({len(line) for line in lines[:3]}) <= 3
    times = [row.self for row in profile.rows("op")]
    assert times == sorted(times, reverse=True)
    assert [row.name for row in profile.rows("op", "name")] == sorted(row.name for row in profile.rows("op"))
    assert [row.name for row in profile.rows("layer", "order")][:3] == ["Sequential", "0", "1"]
    assert profile.rows("op", "memory")[0].name == "conv2d_relu_max_pool2d"
    assert re.search("^0 +Conv2d +conv2d_relu_max_pool2d +1 ", text := profile.table("layer"), re.MULTILINE)
    assert "device" not in text


def test_regions_have_the_names_that_the_user_gives():
    with record_function("outside"), Profile() as profile, record_function("all"):
        for number in range(2):
            with record_function(f"step {number}"):
                Tensor([1.0]) + 1
    spans = [(span.name, span.kind, span.parent and span.parent.name) for span in profile.spans]
    inner = [("step 0", "region", "all"), ("add", "forward", "step 0")]
    assert spans == [("all", "region", None), *inner, ("step 1", "region", "all"), ("add", "forward", "step 1")]


def test_the_timeline_has_nothing_inside_something_else(lenet):
    _, profile = lenet
    spans = profile.timeline()
    assert [lane for lane, *_ in spans] == ["forward"] * 7 + ["backward"] * 7 + ["update"]
    for lane in ("forward", "backward", "update"):
        ends = [time for one, _, begin, end in spans if one == lane for time in (begin, end)]
        assert ends == sorted(ends)
    begin = next(begin for lane, _, begin, _ in spans if lane == "backward")
    assert profile.timeline(begin) == [span for span in spans if span[0] != "forward"]
    assert profile.timeline(0, begin) == [span for span in spans if span[0] == "forward"]


# ---- what is left behind ---------------------------------------------------------------------------------------------


def test_only_a_profile_under_way_costs_anything():
    assert nobody_looks()
    with Profile():
        assert not nobody_looks()
        with Profile():
            assert not nobody_looks()
        assert not nobody_looks()
    assert nobody_looks()


def test_watchers_are_told_of_what_is_no_op():
    @contextlib.contextmanager
    def watcher(kind, subject):
        told.append(kind)
        yield
        told.append(f"end of {kind}")

    def step():
        model(minigrad.ones(1, 3)).sum().backward()
        optimizer.step()

    told, model = [], nn.Sequential(nn.Linear(3, 2))
    optimizer = optim.SGD(model.parameters(), lr=0.5)
    step()
    assert not told
    with watching(watcher), part("region", "a step"):
        step()
    assert watchers() == () and "kernel" in told and told[0] == "region" and told[-1] == "end of region"
    parts = [kind for kind in told[1:-1] if "kernel" not in kind]
    modules, backward = ["module"] * 2 + ["end of module"] * 2, ["backward", "end of backward"] * 2  # linear, sum
    assert parts == [*modules, "pass", *backward, "end of pass", "update", "end of update"]


@pytest.mark.parametrize("where", ["forward", "backward", "hook", "between"])
def test_an_exception_ends_the_profile_and_goes_on(where):
    @minigrad.primitive
    def wrong(x):
        if where == "forward":
            raise ZeroDivisionError
        return x * 1

    def rule(g):
        if where == "backward":
            raise ZeroDivisionError
        return g * 1

    def hook(g):
        if where == "hook":
            raise ZeroDivisionError

    wrong.grads(x=rule)
    x = Tensor([1.0], requires_grad=True)
    profile = Profile()
    with pytest.raises(ZeroDivisionError), profile:
        x.register_hook(hook)
        model = nn.Sequential(nn.Identity())
        model.register_forward_hook(lambda module, arguments, out: wrong(out))
        model(x).sum().backward()
        raise ZeroDivisionError
    assert nobody_looks()
    assert rows(profile)["wrong"].calls == 1 and all(span.end >= span.begin > 0 for span in profile.spans)
    with Profile() as after:
        x + 1
    assert [span.name for span in after.spans] == ["add"]


def test_profiles_may_be_nested():
    x = Tensor([1.0], requires_grad=True)
    with Profile() as outer:
        x + 1
        with Profile(memory=False) as inner:
            (x * 2).backward()
        x - 1
    assert [s.name for s in inner.spans if s.kind == "forward" and s.parent is None] == ["mul"]
    assert [s.name for s in outer.spans if s.kind == "forward" and s.parent is None] == ["add", "mul", "sub"]
    assert inner.memory == [] and inner.peak() == ({}, 0.0) and outer.memory
    assert rows(outer)["mul.backward"].calls == rows(inner)["mul.backward"].calls == 1


def test_a_network_that_waits_while_another_profile_begins():
    class Two(nn.Module):
        def forward(self, x):
            x = conv(x)
            with Profile():
                return F.relu(x)

    conv, (x, _) = nn.Conv2d(1, 2, 3), batch(side=8)
    with Profile() as outer:
        out = Two()(x)
    names = "_".join(span.name for span in outer.spans if span.kind == "forward")
    assert names == "conv2d_relu" and out.tolist() == F.relu(conv(x)).tolist()


def test_a_thread_sees_its_own_profiles_alone():
    found, begun = {}, threading.Barrier(2)

    def work(name):
        x = Tensor(np.ones(3, np.float32), requires_grad=True)
        with Profile() as found[name]:
            begun.wait()
            for _ in range(50):
                (x.exp() if name == "one" else x.sin()).sum().backward()
            begun.wait()

    threads = [threading.Thread(target=work, args=(name,)) for name in ("one", "two")]
    with Profile() as here:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert nobody_looks() and not here.spans
    for name, op, other in (("one", "exp", "sin"), ("two", "sin", "exp")):
        table = rows(found[name])
        assert table[op].calls == table[f"{op}.backward"].calls == 50 and other not in table


def test_ranks_that_are_threads_do_not_write_into_the_profile_of_their_parent():
    def main(world):
        return (Tensor([1.0, 2.0], requires_grad=True) * 3).sum().backward()

    with Profile() as profile:
        parallel.run_local(main, 2)
    assert profile.spans == []


def trained(profiled):
    """The weights after two steps."""
    minigrad.manual_seed(3)
    model = models.build("keras-cnn", (1, 28, 28))
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x, y = batch()

    def steps():
        for _ in range(2):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()

    if profiled:
        with Profile(model):
            steps()
    else:
        steps()
    return [p.detach().numpy().tobytes() for p in model.parameters()]


def test_results_have_the_same_bits():
    assert trained(True) == trained(False)


def test_nothing_is_kept_alive():
    arrays = []

    class Watched(nn.Module):
        def forward(self, x):
            out = (x * 3).exp()
            arrays.append(weakref.ref(out.array))
            return out.sum()

    with Profile() as profile:
        model = Watched()
        parameter = Tensor(np.ones(5, np.float32), requires_grad=True)
        model(parameter).backward()
        assert arrays[0]() is None
    arrays += [weakref.ref(model), weakref.ref(parameter), weakref.ref(parameter.array)]
    del model, parameter
    gc.collect()
    assert all(reference() is None for reference in arrays) and profile.spans


def test_mistakes_are_refused():
    profile = Profile()
    with pytest.raises(StateError, match="has not ended yet; ask after the with block"):
        profile.table()
    with profile:
        with pytest.raises(StateError, match="has not ended yet"):
            profile.totals()
        with pytest.raises(StateError, match="make a new one for each with block"), profile:
            raise AssertionError
    assert nobody_looks()
    with pytest.raises(ShapeError, match="table: by is 'ops', want one of op, layer, kernel"):
        profile.table("ops")
    with pytest.raises(ShapeError, match="table: sort is 'size', want one of time, "):
        profile.rows("op", "size")
    with pytest.raises(KindError, match="Profile: model is a list, wanted a Module or None"):
        Profile([])
    with pytest.raises(KindError, match="record_function: name is 3, wanted a string"), record_function(3):
        raise AssertionError


# ---- a step ----------------------------------------------------------------------------------------------------------


def test_measuring_a_step_leaves_everything_as_it_was():
    minigrad.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(3 * 36, 10))
    model[1].eval()
    optimizer, (x, y) = optim.Adam(model.parameters()), batch(side=8)
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
    before = [t.detach().numpy().tobytes() for t in (*model.parameters(), *model.buffers())]
    state, random = optimizer.state_dict(), minigrad.default_generator.get_state()
    with no_grad():
        profile = measure_step(model, F.cross_entropy, (x, y), optimizer)
    assert [t.detach().numpy().tobytes() for t in (*model.parameters(), *model.buffers())] == before
    np.testing.assert_equal(optimizer.state_dict(), state)
    np.testing.assert_equal(minigrad.default_generator.get_state(), random)
    assert [module.training for module in model.modules()] == [True, True, False, True, True, True]
    assert all(parameter.grad is None for parameter in model.parameters())
    assert [s.name for s in profile.spans if s.kind == "region"] == ["forward", "backward", "update"]
    assert rows(profile)["Adam.step"].calls == 1
