"""The model of data-parallel scaling in examples/scaling.py: what it prints, and times and bytes by hand."""

import importlib.util
import re
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "scaling.py"
spec = importlib.util.spec_from_file_location("scaling", EXAMPLE)
scaling = importlib.util.module_from_spec(spec)
spec.loader.exec_module(scaling)
FABRICS, Layer, Plan = scaling.FABRICS, scaling.Layer, scaling.Plan


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
    for images, fits in ((largest, True), (largest + 1, False)):
        assert (scaling.memory(found._replace(batch=images), 64, fabric, plan, 24)[0]["sum"] <= 24e9) == fits
    assert sum(scaling.NETWORKS["vgg-16"]().sizes) == 138_357_544


def test_an_exchange_takes_the_volume_over_the_bandwidth_and_the_latency_of_the_best_protocol():
    """Units: bytes and bytes a second give seconds."""
    fabric = scaling.Fabric("one switchless machine", 8, 1e9, 1e9, True)
    assert scaling.all_reduce_seconds(8e9, 8, fabric) == pytest.approx(2 * 7 / 8 * 8, rel=1e-3)
    several = fabric._replace(between=0.5e9)
    assert scaling.all_reduce_seconds(8e9, 16, several) == pytest.approx(2 * 15 / 16 * 8 / 0.5, rel=1e-3)
    assert scaling.all_reduce_seconds(1e9, 1, fabric) == 0
    ring, tree = 8 + 6.6 + 14 * 0.6, 8 + 6.8 + 2 * 7 * 0.6  # microseconds of NCCL's LL
    assert scaling.all_reduce_seconds(0, 8, fabric) == pytest.approx(min(ring, tree) * 1e-6)
    machines = 8 + 6.8 + 2 * (7 * 0.6 + 7 * 5.0)  # a tree of 128 machines has 7 levels
    assert scaling.all_reduce_seconds(0, 1024, fabric) == pytest.approx(machines * 1e-6)


def test_a_timeline_by_hand():
    """Forward 3 s, backward 5 s in three parts of 2, 2, 1 s; exchanges of 3, 2, 1 s."""
    found = network(8.0)
    buckets, exchange = [(0, 1), (1, 2), (2, 3)], lambda elements: elements / 100
    step = scaling.simulated(found, 8.0, buckets, exchange)
    assert step.seconds == pytest.approx(max(max(5 + 3, 7) + 2, 8) + 1)
    assert step.exposed == pytest.approx(3) and step.efficiency == pytest.approx(8 / 11)
    for cuts, overlap in (([(0, 3)], True), (buckets, False)):
        assert scaling.simulated(found, 8.0, cuts, exchange, overlap=overlap).seconds == pytest.approx(8 + 6)
    tired = scaling.simulated(found, 8.0, [(0, 3)], exchange, slow=1.5, after=1.0)
    assert tired.seconds == pytest.approx(12 + 6 + 1) and tired.exposed == pytest.approx(7)


def test_bytes_by_hand():
    parts, _ = scaling.memory(network(), 1, FABRICS["tcp-25"], Plan(), 80)
    image = scaling.SPARE * (3 * 40 + 2 * 100)
    total = 9600 + scaling.CONTEXT + 10 * image
    assert list(parts.values()) == [2400, 2400, 4800, 0, scaling.CONTEXT, 10 * image, total]
    sharded, _ = scaling.memory(network(), 7, FABRICS["tcp-25"], Plan(sharded=True), 80)
    assert sharded["state of Adam"] == 8 * 86 and sharded["gradients"] == 2400
    assert sharded["communication buffers"] == 2 * 4 * (512 * 1024 + 4800 * 1024 + 4096 * 1024)
