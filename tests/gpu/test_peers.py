"""The comparisons with PyTorch that need a GPU, on the stand-in for CuPy and PyTorch's CPU."""

import pytest

from minigrad import data
from tests.device.stand_in_gpus import gpus

from .test_checks import part

pytestmark = pytest.mark.deep
assert part  # a fixture


def test_networks(part, monkeypatch):
    """The engine on the stand-in, eagerly and as a graph, beside PyTorch on the CPU."""
    pytest.importorskip("torch")
    with gpus(1):
        networks, contenders, found = part("networks"), part("contenders", DATA=2), {}

        def on_the_cpu(make):
            def made(*case):
                with monkeypatch.context() as there:
                    there.setattr(contenders, "DEVICE", "cpu")
                    return make(*case)._replace(wait=lambda: None)

            return made

        def broken(*case):
            raise RuntimeError("no such thing here")

        sides = {name: make for name, make in networks.CONTENDERS.items() if name.startswith("minigrad")}
        sides |= {name: on_the_cpu(networks.CONTENDERS[name]) for name in ("torch NCHW", "torch NHWC")}
        values = {"ROUNDS": 1, "SECONDS": 0, "BURST": 1, "INFERENCE": (3,), "PRECISIONS": ("bfloat16",)}
        values |= {"CONTENDERS": sides | {"torch graph NCHW": broken}, "_empty_torch": lambda: None}
        part("networks", BATCHES={"lenet": (2,)}, **values).run(found)
    cases = [("train", 2, "bfloat16"), ("infer", 3, "float32")]
    assert [(row["task"], row["batch"], row["precision"]) for row in found["rows"]] == cases
    for row in found["rows"]:
        assert row["absent"] == {"torch graph NCHW": "RuntimeError: no such thing here"}
        assert all(rate > 0 for rate in row["images_per_second"].values())
        assert {"minigrad / torch", "minigrad, graph / torch"} <= set(row["ratios"])


def test_race(part, monkeypatch, tmp_path):
    """Both sides learn on the CPU what the race asks for, and take the recipe of the other."""
    pytest.importorskip("torch")
    race, found = part("race", DEVICE="cpu", TEST_BATCH=100, available=lambda name: tmp_path), {}
    part("contenders", DEVICE="cpu")
    digits = [images.subset(slice(320)) for images in data.digits(size=28)]
    monkeypatch.setattr(data, "mnist", lambda folder, download: digits)
    sides = {name: race.CONTENDERS[name] for name in ("minigrad", "torch")}
    part("race", TARGETS={320: 0.2, 9999: 0.5}, SEEDS=1, EPOCHS=2, BATCH=32, CONTENDERS=sides).run(found)
    assert not found["failed"] and [row["contender"] for row in found["rows"]] == ["minigrad", "torch"]
    for row in found["rows"]:
        assert row["images"] == 320 and 0 < row["seconds"] <= row["all_seconds"] and row["accuracy"] >= 0.2
