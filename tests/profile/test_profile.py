"""Profiles: what is recorded, for which layer, how long it took, and what is left behind."""

import gc
import re
import threading
import time
import weakref

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, models, nn, no_grad, optim, parallel
from minigrad.core.errors import ShapeError, StateError
from minigrad.nn import functional as F
from minigrad.profile import Profile, measure_step, record_function
from tests.device.stand_in_gpus import gpus
from tests.profile.profile_parts import batch, check, nobody_looks, rows

FUSED = "conv2d_relu_max_pool2d"
LENET = [(FUSED, "0"), (FUSED, "3"), ("reshape", "6"), ("linear_relu", "7"), ("linear_relu", "9"), ("linear", "11")]
LENET += [("cross_entropy", "")]


@pytest.fixture(scope="module")
def lenet():
    """(model, profile) of a step of LeNet."""
    minigrad.manual_seed(0)
    model = models.build("lenet", (1, 28, 28))
    return model, measure_step(model, F.cross_entropy, batch(), optim.Adam(model.parameters()))


def asked(profile):
    """[(name, layer)] of the operations that the program applied itself."""
    return [(s.name, s.layer) for s in profile.spans if s.kind == "forward" and not s.within("backward")]


# ---- what it says ----------------------------------------------------------------------------------------------------


def test_operations_have_their_fused_names_and_belong_to_their_layers(lenet):
    model, profile = lenet
    assert asked(profile) == LENET
    passed = [(span.name, span.layer) for span in profile.spans if span.kind == "backward"]
    assert passed == [(f"{name}.backward", layer) for name, layer in reversed(LENET)]
    found = rows(profile)
    assert [found[name].calls for name in (FUSED, "linear_relu", "reshape", "Adam.step")] == [2, 2, 2, 1]

    found, parts = rows(profile, "layer"), dict(model.named_modules())
    named = {name: row for name, row in found.items() if not name.startswith("(")}
    assert list(named) == [path or "Sequential" for path in parts] and all(row.calls == 1 for row in named.values())
    for path, module in parts.items():
        assert named[path or "Sequential"].type == type(module).__name__
    assert found["3"].operations == (FUSED,) and found["3"].forward > 0 and found["3"].backward > 0
    assert found.keys() - named.keys() == {"(cross_entropy)", "(walk over the tape)", "(Adam.step)"}

    found = rows(profile, "kernel")
    assert found["softmax.cpu.losses_of_rows"].calls == found["optimizer.cpu.adam_chunks"].calls == 1
    assert sum(row.self for row in found.values()) == pytest.approx(profile.totals()["kernels"])


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
    with Profile(nn.Sequential(model := Residual(), nn.Linear(4 * 64, 10))) as profile:
        model(batch(side=8)[0]).sum().backward()
    again = [("conv2d", "0.again")] * 2
    norm = [("batch_statistics", "0.norm"), ("batch_norm_relu", "0.norm")]
    assert asked(profile) == [("conv2d_relu", "0.conv"), *again, *norm, ("reshape", "0.Flatten"), ("sum", "")]
    found = rows(profile, "layer")
    assert found["0.again"].calls == 2 and found["0.Flatten"].type == "Flatten"


def test_without_a_model_the_first_that_is_called_names_its_parts():
    one, other = nn.Sequential(nn.Linear(2, 2), nn.Tanh()), nn.Linear(2, 2)
    with Profile() as profile:
        for model in (one, other, one):
            model(Tensor([[1.0, 2.0]]))
    found = {name: row.calls for name, row in rows(profile, "layer").items()}
    assert found == {"Sequential": 2, "0": 2, "1": 2, "Linear": 1}


def test_times_are_those_of_the_calls_and_add_up(lenet):
    _, profile = lenet
    total = profile.totals()
    for by in ("op", "layer"):
        found = profile.rows(by)
        assert 0 < sum(row.self for row in found) <= total["wall"] - total["profiling"]
        assert 0 < sum(row.share for row in found) <= 1
        assert all(0 <= row.kernels <= row.self + 1e-9 for row in found)
    assert all(row.self <= row.total + 1e-9 for row in profile.rows("op"))
    assert 0 < total["kernels"] <= total["wall"] and total["device"] == 0

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


def test_tables_regions_the_timeline_and_the_trace(lenet, tmp_path):
    _, profile = lenet
    lines = profile.table("op").splitlines()
    assert lines[0].split() == "op calls total, ms self, ms share kernels, ms bytes memory".split()
    times = [row.self for row in profile.rows("op")]
    assert len(lines) == 2 + len(times) and times == sorted(times, reverse=True)
    assert re.search("^0 +Conv2d +conv2d_relu_max_pool2d +1 ", profile.table("layer"), re.MULTILINE)

    spans = profile.timeline()  # in which nothing lies inside something else
    assert [lane for lane, *_ in spans] == ["forward"] * 7 + ["backward"] * 7 + ["update"]
    ends = [time for _, _, *both in spans for time in both]
    assert ends == sorted(ends)
    begin = next(begin for lane, _, begin, _ in spans if lane == "backward")
    assert profile.timeline(begin) == [span for span in spans if span[0] != "forward"]

    profile.trace(tmp_path / "trace.json")
    events = check(tmp_path / "trace.json")
    calls = [event for event in events if event["ph"] == "X"]
    kinds = {"forward", "backward", "module", "pass", "update", "kernel", "region"}
    assert len(calls) == len(profile.spans) and {event["cat"] for event in calls} == kinds
    fused = next(event for event in calls if event["name"] == FUSED)
    assert fused["args"]["layer"] == "0" and fused["args"]["bytes"] > 0
    assert next(event for event in calls if event["name"] == "3")["args"]["type"] == "Conv2d"
    memory = [event["args"] for event in events if event["ph"] == "C"]
    assert memory == [sample for _, sample in profile.memory]

    with record_function("outside"), Profile() as profile, record_function("all"):
        for number in range(2):
            with record_function(f"step {number}"):
                Tensor([1.0]) + 1
    spans = [(span.name, span.kind, span.parent and span.parent.name) for span in profile.spans]
    inner = [("step 0", "region", "all"), ("add", "forward", "step 0")]
    assert spans == [("all", "region", None), *inner, ("step 1", "region", "all"), ("add", "forward", "step 1")]


# ---- what is left behind ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_an_exception_ends_the_profile_and_goes_on(where):
    @minigrad.primitive
    def wrong(x):
        return x / 1 if where == "backward" else 1 // 0

    wrong.grads(x=lambda g: 1 // 0)
    with pytest.raises(ZeroDivisionError), Profile() as profile:
        wrong(Tensor([1.0], requires_grad=True)).sum().backward()
    assert nobody_looks()
    assert rows(profile)["wrong"].calls == 1 and all(span.end >= span.begin > 0 for span in profile.spans)


def test_profiles_may_be_nested():
    x = Tensor([1.0], requires_grad=True)
    with Profile() as outer:
        x + 1
        with Profile() as inner:
            (x * 2).backward()
        x - 1
        assert not nobody_looks()
    assert nobody_looks()
    names = [[s.name for s in one.spans if s.kind == "forward" and s.parent is None] for one in (inner, outer)]
    assert names == [["mul"], ["add", "mul", "sub"]]
    assert rows(outer)["mul.backward"].calls == rows(inner)["mul.backward"].calls == 1


def test_a_thread_sees_its_own_profiles_alone():
    found, begun = {}, threading.Barrier(2)

    def work(name):
        x = Tensor(np.ones(3, np.float32), requires_grad=True)
        with Profile() as found[name]:
            begun.wait()
            for _ in range(50):
                (x.exp() if name == "exp" else x.sin()).sum().backward()
            begun.wait()

    threads = [threading.Thread(target=work, args=(name,)) for name in ("exp", "sin")]
    with Profile() as here:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        parallel.run_local(lambda world: (Tensor([1.0, 2.0], requires_grad=True) * 3).sum().backward(), 2)
    assert nobody_looks() and not here.spans
    for name, other in (("exp", "sin"), ("sin", "exp")):
        table = rows(found[name])
        assert table[name].calls == table[f"{name}.backward"].calls == 50 and other not in table


def test_measured_steps_train_as_others_do():
    def trained(measured):
        minigrad.manual_seed(3)
        model, (x, y) = models.build("keras-cnn", (1, 28, 28)), batch()
        optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        if measured:
            with no_grad():
                profile = measure_step(model.eval(), F.cross_entropy, (x, y), optimizer, 2)
            assert [s.name for s in profile.spans if s.kind == "region"] == ["forward", "backward", "update"] * 2
        for _ in range(0 if measured else 3):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        return [p.detach().numpy().tobytes() for p in model.parameters()]

    assert trained(True) == trained(False)


def test_nothing_is_kept_alive():
    with Profile() as profile:
        model = nn.Sequential(nn.Identity())
        parameter = Tensor(np.ones(5, np.float32), requires_grad=True)
        out = model((parameter * 3).exp())
        alive = [weakref.ref(one) for one in (model, parameter, parameter.array, out.array)]
        out.sum().backward()
        del out
        assert alive[-1]() is None
    del model, parameter
    gc.collect()
    assert all(reference() is None for reference in alive) and profile.spans


def test_mistakes_are_refused():
    profile = Profile()
    with pytest.raises(StateError, match="has not ended yet; ask after the with block"):
        profile.table()
    with profile, pytest.raises(StateError, match="make a new one for each with block"), profile:
        raise AssertionError
    assert nobody_looks()
    with pytest.raises(ShapeError, match="table: by is 'ops', wanted 'op' or 'layer' or 'kernel'"):
        profile.table("ops")


# ---- on other devices ------------------------------------------------------------------------------------------------


def test_on_a_gpu_marks_in_the_stream_tell_when_it_did_what(tmp_path):
    with gpus(1) as machine:
        model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 10)).to("cuda")
        data = [one.to("cuda") for one in batch(side=8)]
        profile = measure_step(model, F.cross_entropy, data, optim.Adam(model.parameters()))
        assert machine.synchronisations  # at the begin and the end
    calls = [span for span in profile.spans if span.kind in ("forward", "backward", "update")]
    assert all(span.lane == "cuda:0" and span.device[1] >= span.device[0] for span in calls)
    found, total = rows(profile), profile.totals()
    assert all(row.device > 0 for name, row in found.items() if name != "walk over the tape")
    assert (
        sum(row.device for row in found.values()) == pytest.approx(total["device"]) and total["device"] < total["wall"]
    )
    assert "device, ms" in profile.table("op") and "device, ms" in profile.table("layer")
    assert {lane for lane, *_ in profile.timeline()} == {"forward", "backward", "update", "cuda:0"}
    profile.trace(tmp_path / "trace.json")
    named = [event for event in check(tmp_path / "trace.json") if event["name"] == "thread_name"]
    assert {event["args"]["name"]: event["tid"] for event in named} == {"host": 0, "cuda:0": 1}
    assert {sample["parameters"] for _, sample in profile.memory} == {sum(p.array.nbytes for p in model.parameters())}
    assert profile.memory[-1][1]["activations"] == 0 < max(s["activations"] for _, s in profile.memory)
    assert any(name.startswith("conv2d_") for name in rows(profile, "kernel"))  # launches


def test_moves_and_exceptions_on_a_gpu():
    with gpus(2) as machine:
        with Profile() as profile:
            minigrad.ones(8).to("cuda:1")  # work of the GPU
            x = minigrad.ones(8) + 1
        found = [(span.name, span.lane) for span in profile.spans if span.kind == "forward"]
        assert found == [("move", "cuda:1"), ("add", None)]
        x = x.to("cuda")
        with pytest.raises(ZeroDivisionError), Profile() as profile:
            x + 1
            before = len(machine.synchronisations)
            raise ZeroDivisionError
        assert len(machine.synchronisations) == before
        assert [span.device for span in profile.spans if span.kind == "forward"] == [None]


def test_the_interpreter_is_part_of_the_host():
    with Profile() as profile:
        model = nn.Linear(4, 3).to("interpreter")
        model(minigrad.ones(2, 4, device="interpreter")).sum().backward()
    total = profile.totals()
    assert total["device"] == 0 < total["kernels"] <= total["wall"]
    assert any(name.startswith("matmul_") for name in rows(profile, "kernel"))
    assert [*profile.memory[-1][1].values()] == [60, 60, 0, 0, 0]
