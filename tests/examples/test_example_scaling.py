"""The model of data-parallel scaling in examples/scaling.py: what it prints, and times and bytes by hand."""

import re

import pytest

from tests.examples.test_examples import example

scaling = example("scaling")
FABRICS, Fabric, Layer, Plan = scaling.FABRICS, scaling.Fabric, scaling.Layer, scaling.Plan


def network(seconds=1.0):
    """Three layers, the last of which arrives first."""
    layers = [Layer((size,), 1, 40, 100) for size in (100, 200, 300)]
    return scaling.assembled("three", layers, 10, seconds)


def rows(text, name):
    """The cells of the lines that begin with a name."""
    return [re.split(r"\s{2,}", line.strip())[1:] for line in text.splitlines() if line.strip().startswith(name)]


def test_how_many_gpus_how_much_memory_and_which_batch_fits(capsys):
    scaling.main("resnet-50 --gpus 1 8 64 --fabric pcie-1x100 --step-ms 45 --batch 32 --memory-gb 24 --zero".split())
    text = capsys.readouterr().out
    assert text.startswith("PREDICTION: a model, not a measurement") and "45 ms for 32 images" in text
    found = scaling.NETWORKS["resnet-50"]()._replace(batch=32, seconds=0.045)
    fabric, plan = FABRICS["pcie-1x100"], Plan(sharded=True)
    steps = [scaling.predicted(found, gpus, fabric, plan) for gpus in (1, 8, 64)]
    (cells,) = rows(text, fabric.title)
    assert cells == [f"{100 * step.efficiency:.1f} ({1000 * step.exposed:.3g})" for step in steps]
    assert cells[0] == "100.0 (0)" and steps[1].efficiency > steps[2].efficiency > 0.5
    parts, largest = scaling.memory(found, 64, fabric, plan, 24)
    assert rows(text, "largest batch in 24 GB")[0][2] == f"{largest}"
    assert rows(text, "sum")[0][2] == f"{parts['sum'] / 1e6:,.1f}" and 5000 < parts["sum"] / 1e6 < 24000
    assert rows(text, "state of Adam") == [["204.5", "25.6", "3.2"]]  # 8 bytes of each of 25,557,032 parameters / n


def test_networks_have_their_published_size():
    sizes = {"resnet-50": (scaling.resnet_50, 25_557_032, 4.089e9), "vgg-16": (scaling.vgg_16, 138_357_544, 15.470e9)}
    for name, (layers, parameters, macs) in sizes.items():
        found = scaling.NETWORKS[name]()
        assert sum(found.sizes) == parameters and sum(layer.macs for layer in layers()) == pytest.approx(macs, rel=1e-3)
        assert found.ready[-1] == 1 and list(found.ready) == sorted(found.ready)


def test_an_exchange_takes_the_volume_over_the_bandwidth_and_the_latency_of_the_best_protocol():
    """Units: bytes and bytes a second give seconds; latencies are microseconds of NCCL's LL."""
    slow, fast = Fabric("", 8, 1e9, 0.5e9, True), Fabric("", 8, 1e12, 1e12, True)
    assert scaling.all_reduce_seconds(8e9, 8, slow) == pytest.approx(2 * 7 / 8 * 8, rel=1e-3)
    assert scaling.all_reduce_seconds(8e9, 16, slow) == pytest.approx(2 * 15 / 16 * 8 / 0.5, rel=1e-3)
    assert scaling.all_reduce_seconds(1e9, 1, slow) == 0
    for gpus, fabric, microseconds in (
        (8, fast, 8 + min(6.6 + 14 * 0.6, 6.8 + 2 * 7 * 0.6)),  # a ring or a tree
        (1024, fast, 8 + 6.8 + 2 * (7 * 0.6 + 7 * 5.0)),  # a tree of 128 machines has 7 levels
        (8, fast._replace(nvlink=False), 8 + 6.6 + 14 * 1.0),
    ):
        assert scaling.all_reduce_seconds(0, gpus, fabric) == pytest.approx(microseconds * 1e-6)
    fabric = FABRICS["nvlink-8x400"]
    without = fabric._replace(switched=0.0)
    assert scaling.all_reduce_seconds(1e9, 8, fabric) < scaling.all_reduce_seconds(1e9, 8, without)


def test_a_timeline_by_hand():
    """Forward 3 s, backward 5 s in three parts of 2, 2, 1 s; exchanges of 3, 2, 1 s."""
    found = network(seconds=8.0)
    assert found.backward == pytest.approx(5 / 8)
    buckets, exchange = [(0, 1), (1, 2), (2, 3)], lambda elements: elements / 100
    step = scaling.simulated(found, 8.0, buckets, exchange)
    assert step.seconds == pytest.approx(max(max(5 + 3, 7) + 2, 8) + 1)
    assert step.exposed == pytest.approx(3) and step.efficiency == pytest.approx(8 / 11)
    for cuts, overlap in (([(0, 3)], True), (buckets, False)):
        assert scaling.simulated(found, 8.0, cuts, exchange, overlap=overlap).seconds == pytest.approx(8 + 6)
    assert scaling.simulated(found, 8.0, [(0, 3)], exchange, slow=1.5, after=1.0).exposed == pytest.approx(
        4 + 6 + 1 - 4
    )


def test_bytes_by_hand():
    """The largest batch fits and the next does not."""
    fabric, image = FABRICS["tcp-25"], scaling.SPARE * (3 * 40 + 2 * 100)
    parts, _ = scaling.memory(network(), 1, fabric, Plan(), 80)
    total = 9600 + scaling.CONTEXT + 10 * image
    assert list(parts.values()) == [2400, 2400, 4800, 0, scaling.CONTEXT, 10 * image, total]
    sharded, _ = scaling.memory(network(), 7, fabric, Plan(sharded=True), 80)
    assert sharded["state of Adam"] == 8 * 86 and sharded["gradients"] == 2400
    assert sharded["communication buffers"] == 2 * 4 * (512 * 1024 + 4800 * 1024 + 4096 * 1024)
    needs = lambda batch: scaling.memory(network()._replace(batch=batch), 8, fabric, Plan(), 0.6)
    _, batch = needs(1)
    assert batch > 100 and needs(batch)[0]["sum"] <= 6e8 < needs(batch + 1)[0]["sum"]
    assert scaling.memory(network(), 8, fabric, Plan(), 0.001)[1] == 0
