"""The comparisons with PyTorch that need a GPU, on the stand-in for CuPy and PyTorch's CPU."""

import numpy as np
import pytest

from tests.device.stand_in_gpus import gpus

from .test_checks import once, part  # noqa: F401

pytestmark = pytest.mark.deep

SMALL = {"float32": 23, "tf32": 9, "float16": 9, "bfloat16": 6}


@pytest.fixture
def without_torch(part, monkeypatch):  # noqa: F811
    """Parts whose peer is NumPy: the stand-in has no cuBLAS that PyTorch could share."""

    def get(name):
        found = part(name)
        monkeypatch.setattr(found, "set_torch", lambda kind: None)
        monkeypatch.setattr(found, "medians", once)
        return found

    return get


def test_products(without_torch, monkeypatch):
    products, found = without_torch("products"), {}
    monkeypatch.setattr(products, "SIZES", (16,))
    monkeypatch.setattr(products, "SHAPES", [])
    monkeypatch.setattr(products, "runs_on", lambda device, rung: rung != "tma")
    monkeypatch.setattr(products, "_cublas", lambda a, b, out: lambda: None)
    products.run(found)
    assert not found["failed"], found["wrong"]
    for kind, digits in SMALL.items():
        rungs = {row["rung"] for row in found["rows"] if row["kind"] == kind}
        assert {"cublas", "default"} < rungs, kind
        assert products.KINDS[kind].digits == digits
    assert {"plain", "tiled", "register", "buffered", "tensor", "async"} <= {row["rung"] for row in found["rows"]}
    one = {"float32": products.KINDS["float32"]._replace(digits=60)}
    monkeypatch.setattr(products, "KINDS", one)
    products.run(found)
    assert found["failed"] and {row["rung"] for row in found["rows"]} == {"cublas"}
    assert found["wrong"][0].startswith("float32 16 16 16 NN default: relative error ")


def beside_the_plain_rung(convolutions):
    """In place of cuDNN: the plain rung in float64."""

    def calls(direction, arrays, stride, padding):
        geometry = ((stride,) * 2, (padding,) * 2, (1, 1), 1)
        result, ours = convolutions._ours(direction, [array.astype(np.float64) for array in arrays], geometry)
        ours["plain"]()
        return {"cudnn NCHW": lambda: None}, result.copy()

    return calls


def test_convolutions(without_torch, monkeypatch):
    """Every rung that fits, in every type."""
    convolutions, found = without_torch("convolutions"), {}
    monkeypatch.setattr(convolutions, "LAYERS", [("small", 1, 8, 4, 8, 3, 1, 1)])
    monkeypatch.setattr(convolutions, "_cudnn", beside_the_plain_rung(convolutions))
    convolutions.run(found)
    assert not found["failed"], found["wrong"]
    for direction in convolutions.RUNGS:
        for kind in SMALL:
            rows = [row for row in found["rows"] if (row["kind"], row["direction"]) == (kind, direction)]
            rungs = {row["rung"] for row in rows if row["layer"] == "small"}
            assert {"default", "cudnn NCHW"} < rungs
            assert kind != "float32" or {"plain", "register", "vector"} <= rungs
    one = {"float32": convolutions.KINDS["float32"]._replace(digits=60)}
    monkeypatch.setattr(convolutions, "KINDS", one)
    monkeypatch.setattr(convolutions, "LAYERS", convolutions.LAYERS[:1])
    convolutions.run(found)
    assert found["failed"] and "float32 small forward plain: off by" in "".join(found["wrong"])


@pytest.mark.deep
def test_networks(part, monkeypatch):  # noqa: F811
    """The engine on the stand-in, eagerly and as a graph, beside PyTorch on the CPU."""
    pytest.importorskip("torch")
    with gpus(1):
        networks, contenders, found = part("networks"), part("contenders"), {}
        for name, value in {
            "ROUNDS": 1,
            "SECONDS": 0,
            "BURST": 1,
            "INFERENCE": (3,),
            "PRECISIONS": ("bfloat16",),
        }.items():
            monkeypatch.setattr(networks, name, value)
        monkeypatch.setattr(networks, "BATCHES", {"lenet": (2,)})
        monkeypatch.setattr(networks, "_empty_torch", lambda: None)
        monkeypatch.setattr(contenders, "DATA", 2)
        peers = {name: make for name, make in networks.CONTENDERS.items() if name.startswith("torch N")}
        waits = lambda: None

        def on_the_cpu(make):
            def made(*case):
                with monkeypatch.context() as there:
                    there.setattr(contenders, "DEVICE", "cpu")
                    return make(*case)._replace(wait=waits)

            return made

        def broken(*case):
            raise RuntimeError("no such thing here")

        ours = {name: make for name, make in networks.CONTENDERS.items() if name.startswith("minigrad")}
        there = {name: on_the_cpu(make) for name, make in peers.items()}
        monkeypatch.setattr(networks, "CONTENDERS", ours | there | {"torch graph NCHW": broken})
        networks.run(found)
    rows = found["rows"]
    cases = [("train", 2, precision) for precision in networks.PRECISIONS] + [("infer", 3, "float32")]
    assert [(row["task"], row["batch"], row["precision"]) for row in rows] == cases
    for row in rows:
        assert row["absent"] == {"torch graph NCHW": "RuntimeError: no such thing here"}
        assert all(rate > 0 for rate in row["images_per_second"].values())
        assert {"minigrad / torch", "minigrad, graph / torch"} <= set(row["ratios"])
        assert set(row["bytes"]) == set(row["images_per_second"])


def test_race(part, monkeypatch, tmp_path):  # noqa: F811
    """Both sides learn on the CPU what the race asks for."""
    pytest.importorskip("torch")
    from minigrad import data

    race, found = part("race"), {}
    digits = [part.subset(slice(320)) for part in data.digits(size=28)]
    contenders = part("contenders")
    for module in (race, contenders):
        monkeypatch.setattr(module, "DEVICE", "cpu")
    monkeypatch.setattr(race, "available", lambda name: tmp_path)
    monkeypatch.setattr(data, "mnist", lambda folder, download: digits)
    for name, value in {
        "TARGETS": {320: 0.2, 9999: 0.5},
        "SEEDS": 1,
        "TEST_BATCH": 100,
    }.items():
        monkeypatch.setattr(race, name, value)
    quick = race.MNIST._replace(epochs=2, batch=32)
    contestants = {
        "minigrad": lambda parts, seed, **more: race.ours(parts, seed, quick, eager=True, **more),
        "torch": lambda parts, seed, **more: race.theirs(parts, seed, quick, whole=False, **more),
    }
    monkeypatch.setattr(race, "CONTENDERS", contestants)
    race.run(found)
    assert not found["failed"] and [row["contender"] for row in found["rows"]] == ["minigrad", "torch"]
    for row in found["rows"]:
        assert row["images"] == 320 and 0 < row["seconds"] <= row["all_seconds"] and row["accuracy"] >= 0.2
    late = [row | {"seconds": None} for row in found["rows"]]
    assert race._arrived(found["rows"] + late) == {("minigrad", 320): True}
    assert race._arrived(late) == {("minigrad", 320): False} and race.reached([(1.0, 0.1), (2.0, 0.6)], 0.5) == 2
    monkeypatch.setattr(race, "available", lambda name: None)
    race.run(found)
    assert found["rows"] == [] and "MINIGRAD_DATA" in found["why"]


def test_cifar(part, monkeypatch, tmp_path):  # noqa: F811
    """Both sides take the recipe on the CPU: momentum, weight decay, flips, bfloat16."""
    pytest.importorskip("torch")
    from minigrad import data

    cifar, race, contenders, found = part("cifar"), part("race"), part("contenders"), {}
    for module in (race, contenders):
        monkeypatch.setattr(module, "DEVICE", "cpu")
    monkeypatch.setattr(race, "TEST_BATCH", 32)
    monkeypatch.setattr(cifar, "available", lambda name: tmp_path)
    digits = [part.subset(slice(96)) for part in data.digits(size=28)]
    monkeypatch.setattr(data, "cifar10", lambda folder, download: digits)
    recipe = cifar.RECIPE._replace(network="lenet", epochs=2, batch=32, rate=0.01)
    monkeypatch.setattr(cifar, "RECIPE", recipe)
    sides = {
        "ours": lambda *a, **o: race.ours(*a, eager=True, **o),
        "theirs": lambda *a, **o: race.theirs(*a, whole=False, **o),
    }
    monkeypatch.setattr(cifar, "CONTENDERS", sides)
    monkeypatch.setattr(cifar, "WORSE", 1)
    cifar.run(found)
    assert not found["failed"] and [len(row["curve"]) for row in found["rows"]] == [2, 2]
    monkeypatch.setattr(cifar, "WORSE", -2)
    cifar.run(found)
    assert found["failed"]


def test_windows_of_the_peer_are_parts_of_the_padded_images(part):  # noqa: F811
    torch = pytest.importorskip("torch")
    race = part("race")
    race.DEVICE = "cpu"
    images = torch.arange(2 * 9 * 9).reshape(2, 1, 9, 9).float() + 1
    padded = torch.nn.functional.pad(images, (2,) * 4)
    cut = race._cut(padded, torch.tensor([1, 0, 1]), 9)
    assert cut.shape == (3, 1, 9, 9)
    for window, index in zip(cut, (1, 0, 1), strict=True):
        wanted = [padded[index, :, i : i + 9, j : j + 9] for i in range(5) for j in range(5)]
        assert any(torch.equal(window, one) for one in wanted)
    turned = race._cut(padded, torch.zeros(60, dtype=torch.int64), 9, flip=True)
    wanted = [padded[0, :, i : i + 9, j : j + 9] for i in range(5) for j in range(5)]
    straight = [any(torch.equal(window, one) for one in wanted) for window in turned]
    assert 0 < sum(straight) < 60
    for window, as_is in zip(turned, straight, strict=True):
        assert as_is or any(torch.equal(window.flip(2), one) for one in wanted)


def test_energy_is_none_where_the_driver_does_not_tell(part, monkeypatch):  # noqa: F811
    energy = part("energy")
    monkeypatch.setattr(energy.ctypes, "CDLL", lambda name: (_ for _ in ()).throw(OSError(name)))
    assert energy.joules() is None
