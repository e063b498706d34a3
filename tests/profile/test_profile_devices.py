"""Profiles of work on a GPU, for which a stand-in for CuPy is there, and in the interpreter."""

import pytest

import minigrad
from minigrad import nn, optim
from minigrad.nn import functional as F
from minigrad.profile import Profile, measure_step
from tests.device.stand_in_gpus import gpus
from tests.profile.profile_parts import batch, check, rows


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
    busy = sum(row.device for row in found.values())
    assert busy == pytest.approx(total["device"], rel=1e-6) and 0 < busy <= total["wall"]
    assert 0 < total["overlap"] <= min(total["host"], total["device"]) and total["kernels"] <= total["host"]
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
    assert total["device"] == 0 < total["kernels"] <= total["host"]
    assert any(name.startswith("matmul_") for name in rows(profile, "kernel"))
    assert [*profile.memory[-1][1].values()] == [60, 60, 0, 0, 0]
