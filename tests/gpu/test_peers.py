"""The comparisons with PyTorch that need a GPU, on the stand-in for CuPy and PyTorch's CPU."""

import pytest

from minigrad import data

pytestmark = pytest.mark.deep


def test_networks(part, ran, monkeypatch):
    """The engine on the stand-in, eagerly and as a graph, beside PyTorch on the CPU."""
    pytest.importorskip("torch")
    part("timing", FIRST=1)
    networks = part("networks", DATA=2)

    def on_the_cpu(make):
        def made(*case):
            with monkeypatch.context() as there:
                there.setattr(networks, "DEVICE", "cpu")
                return make(*case)

        return made

    def broken(*case):
        raise RuntimeError("no such thing here")

    sides = {name: make for name, make in networks.CONTENDERS.items() if name.startswith("minigrad")}
    sides |= {name: on_the_cpu(networks.CONTENDERS[name]) for name in ("torch NCHW", "torch NHWC")}
    values = {"ROUNDS": 1, "SECONDS": 0, "NETWORKS": ("lenet",), "SIZES": (2,), "INFERENCE": (3,)}
    values |= {"PRECISIONS": ("bfloat16",), "CONTENDERS": sides | {"torch graph NCHW": broken}}
    found = ran("networks", **values)
    cases = [("train", 2, "bfloat16"), ("infer", 3, "float32")]
    assert [(row["task"], row["batch"], row["precision"]) for row in found["rows"]] == cases
    for row in found["rows"]:
        assert row["absent"] == {"torch graph NCHW": "RuntimeError: no such thing here"}
        assert all(rate > 0 for rate in row["images_per_second"].values())
        assert {"minigrad / torch", "minigrad, graph / torch"} <= set(row["ratios"])


def test_race(part, ran, monkeypatch, tmp_path):
    """Both sides learn on the CPU what the race asks for, and take the recipe of the other."""
    pytest.importorskip("torch")
    race = part("race", DEVICE="cpu", available=lambda name: tmp_path)
    digits = [images.subset(slice(320)) for images in data.digits(size=28)]
    monkeypatch.setattr(data, "mnist", lambda folder, download: digits)
    sides = {name: race.CONTENDERS[name] for name in ("minigrad", "torch")}
    found = ran("race", TARGETS={320: 0.2, 9999: 0.5}, SEEDS=1, EPOCHS=2, BATCH=32, CONTENDERS=sides)
    assert not found["failed"] and [row["contender"] for row in found["rows"]] == ["minigrad", "torch"]
    for row in found["rows"]:
        assert row["images"] == 320 and 0 < row["seconds"] <= row["all_seconds"] and row["accuracy"] >= 0.2
