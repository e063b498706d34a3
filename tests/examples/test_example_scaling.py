"""The model of data-parallel scaling in examples/scaling.py: what it prints, and times and bytes by hand."""

import gc
import importlib.util
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from minigrad import Tensor, memory_statistics, models, nn
from tests.cli.cli_runs import environment

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "scaling.py"
spec = importlib.util.spec_from_file_location("scaling", EXAMPLE)
scaling = importlib.util.module_from_spec(spec)
spec.loader.exec_module(scaling)
FABRICS, Fabric, Layer, Plan = scaling.FABRICS, scaling.Fabric, scaling.Layer, scaling.Plan
COUNTS = (1, 2, 8, 16, 32, 64, 256, 1024)
STATED = ("resnet-50", "vgg-16")


def network(sizes=(100, 200, 300), macs=(1, 1, 1), seconds=1.0):
    """Three layers, the last of which arrives first."""
    layers = [Layer((size,), count, 40, 100) for size, count in zip(sizes, macs, strict=True)]
    return scaling.assembled("three", layers, 10, seconds)


# ---- what it prints --------------------------------------------------------------------------------------------------


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


def test_a_narrow_wire_and_no_overlap(capsys):
    exposed = []
    for words in (["--bfloat16"], [], ["--no-overlap"]):
        scaling.main(["vgg-16", "--gpus", "8", "--fabric", "tcp-25", *words])
        exposed.append(float(re.search(r"\(([\d.e+]+)\)", rows(capsys.readouterr().out, "1 GPU a machine")[0][0])[1]))
    assert exposed == sorted(exposed)


def test_buckets_are_those_of_the_option(capsys):
    for megabytes, count in ((1000, 3), (5, 14)):
        scaling.main(["resnet-50", "--gpus", "1", "--bucket-mb", f"{megabytes}"])
        sizes = re.search(r"MB of buckets: (.*)", capsys.readouterr().out)[1].split(", ")
        assert len(sizes) == count and sum(map(float, sizes)) == pytest.approx(102.2, abs=0.3)


# ---- networks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, layers, parameters, macs",
    [("resnet-50", scaling.resnet_50, 25_557_032, 4.089e9), ("vgg-16", scaling.vgg_16, 138_357_544, 15.470e9)],
)
def test_well_known_networks_have_their_published_size(name, layers, parameters, macs):
    found = scaling.NETWORKS[name]()
    assert sum(found.sizes) == parameters and sum(layer.macs for layer in layers()) == pytest.approx(macs, rel=1e-3)
    assert found.ready[-1] == 1 and list(found.ready) == sorted(found.ready)


@pytest.mark.parametrize("name, shape, batch", [("keras-cnn", (1, 28, 28), 256), ("resnet", (3, 32, 32), 8)])
def test_our_own_networks_keep_what_the_pool_lends(name, shape, batch):
    """The pool rounds up by at most a quarter, and counts nothing below 16 KiB."""
    found, model = scaling.NETWORKS[name](), models.build(name, shape, 10)
    assert sum(found.sizes) == sum(parameter.numel() for parameter in model.parameters())
    images = Tensor(np.zeros((batch, *shape), np.float32))
    gc.collect()
    before = memory_statistics()["used_bytes"]
    loss = nn.functional.cross_entropy(model(images), Tensor(np.zeros(batch, np.int64)))
    lent = memory_statistics()["used_bytes"] - before + images.array.nbytes
    assert loss.requires_grad  # and so the tape is alive
    assert 0.9 * lent <= batch * found.kept <= 1.1 * lent


def test_gradients_arrive_from_the_last_layer_to_the_first():
    found = network(macs=(2, 3, 5))
    costs = [2, 6, 10]  # the first layer's input wants no gradient
    assert found.sizes == (300, 200, 100) and found.ready == pytest.approx((10 / 18, 16 / 18, 1))
    assert found.backward == pytest.approx(sum(costs) / (sum(costs) + 10))
    nothing = network(macs=(0, 0, 0))
    assert nothing.ready == (1, 1, 1) and nothing.backward == pytest.approx(2 / 3)


# ---- exchanges -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FABRICS)
def test_more_bytes_take_longer_and_one_gpu_none(name):
    fabric = FABRICS[name]
    faster = fabric._replace(inside=2 * fabric.inside, between=2 * fabric.between, switched=2 * fabric.switched)
    slower = fabric._replace(latency=fabric.latency + 1e-3)
    for gpus in COUNTS[1:]:
        times = [scaling.all_reduce_seconds(nbytes, gpus, fabric) for nbytes in (0, 4, 1e3, 1e5, 1e6, 1e7, 1e9)]
        assert times[0] > 0 and times == sorted(times) and times[-1] > 2 * times[0]
        assert scaling.all_reduce_seconds(1e9, gpus, faster) < times[-1]
        assert (scaling.all_reduce_seconds(0, gpus, slower) > times[0]) == (gpus > fabric.gpus)
    assert scaling.all_reduce_seconds(1e9, 1, fabric) == 0


def test_large_arrays_take_the_volume_of_a_ring_over_the_bandwidth():
    """Units: bytes and bytes a second give seconds."""
    fabric = Fabric("one switchless machine", 8, 1e9, 1e9, True)
    assert scaling.all_reduce_seconds(8e9, 8, fabric) == pytest.approx(2 * 7 / 8 * 8, rel=1e-3)
    several = fabric._replace(between=0.5e9)
    assert scaling.all_reduce_seconds(8e9, 16, several) == pytest.approx(2 * 15 / 16 * 8 / 0.5, rel=1e-3)


def test_small_arrays_take_the_latency_of_the_best_protocol():
    fabric = Fabric("one machine", 8, 1e12, 1e12, True)
    ring, tree = 8 + 6.6 + 14 * 0.6, 8 + 6.8 + 2 * 7 * 0.6  # microseconds of NCCL's LL
    assert scaling.all_reduce_seconds(0, 8, fabric) == pytest.approx(min(ring, tree) * 1e-6)
    machines = 8 + 6.8 + 2 * (7 * 0.6 + 7 * 5.0)  # a tree of 128 machines has 7 levels
    assert scaling.all_reduce_seconds(0, 1024, fabric) == pytest.approx(machines * 1e-6)
    pcie = fabric._replace(nvlink=False)  # without LL128
    assert scaling.all_reduce_seconds(0, 8, pcie) == pytest.approx((8 + 6.6 + 14 * 1.0) * 1e-6)


def test_the_switch_helps_where_it_is_there():
    fabric = FABRICS["nvlink-8x400"]
    without = fabric._replace(switched=0.0)
    assert scaling.all_reduce_seconds(1e9, 8, fabric) < scaling.all_reduce_seconds(1e9, 8, without)


# ---- steps -----------------------------------------------------------------------------------------------------------


def test_a_timeline_by_hand():
    """Forward 3 s, backward 5 s in three parts of 2, 2, 1 s; exchanges of 3, 2, 1 s."""
    found = network(macs=(1, 1, 1), seconds=8.0)
    assert found.backward == pytest.approx(5 / 8)
    buckets, exchange = [(0, 1), (1, 2), (2, 3)], lambda elements: elements / 100
    step = scaling.simulated(found, 8.0, buckets, exchange)
    assert step.seconds == pytest.approx(max(max(5 + 3, 7) + 2, 8) + 1)
    assert step.exposed == pytest.approx(3) and step.efficiency == pytest.approx(8 / 11)
    for cuts, overlap in (([(0, 3)], True), (buckets, False)):
        assert scaling.simulated(found, 8.0, cuts, exchange, overlap=overlap).seconds == pytest.approx(8 + 6)
    tired = scaling.simulated(found, 8.0, [(0, 3)], exchange, slow=1.5, after=1.0)
    assert tired.seconds == pytest.approx(12 + 6 + 1) and tired.exposed == pytest.approx(7)


@pytest.mark.parametrize("name", STATED)
@pytest.mark.parametrize("fabric", FABRICS)
def test_limits_and_order_of_efficiencies(name, fabric):
    found, fabric = scaling.NETWORKS[name](), FABRICS[fabric]
    assert scaling.predicted(found, 1, fabric, Plan()) == scaling.Step(found.seconds, 0, 1)
    steps = [scaling.predicted(found, gpus, fabric, Plan()) for gpus in COUNTS]
    assert all(0 < step.efficiency <= 1 and step.exposed >= 0 for step in steps)
    for gpus in (8, 256):
        overlapped, late = (scaling.predicted(found, gpus, fabric, Plan(overlap=flag)) for flag in (True, False))
        assert overlapped.seconds < late.seconds
        assert scaling.predicted(found, gpus, fabric, Plan(wire=2)).seconds <= overlapped.seconds
        longer = scaling.predicted(found._replace(seconds=10 * found.seconds), gpus, fabric, Plan())
        assert longer.efficiency >= overlapped.efficiency - 1e-12
        steady = scaling.predicted(found, gpus, fabric, Plan(jitter=0.0))
        slowest = 1 + 0.01 * math.sqrt(2 * math.log(gpus))
        assert found.seconds <= steady.seconds < overlapped.seconds <= slowest * steady.seconds


def test_sharded_state_exposes_the_gathering_of_parameters():
    found, fabric = scaling.NETWORKS["vgg-16"](), FABRICS["nvlink-1x400"]
    whole, sharded = (scaling.predicted(found, 32, fabric, Plan(sharded=flag)) for flag in (False, True))
    gathered = scaling.all_reduce_seconds(4 * sum(found.sizes), 32, fabric) / 2
    assert sharded.exposed > gathered and sharded.exposed > whole.exposed


# ---- memory ----------------------------------------------------------------------------------------------------------


def test_bytes_by_hand():
    fabric, found = FABRICS["tcp-25"], network()
    parts, _ = scaling.memory(found, 1, fabric, Plan(), 80)
    image = scaling.SPARE * (3 * 40 + 2 * 100)
    assert list(parts.values()) == [
        2400,
        2400,
        4800,
        0,
        scaling.CONTEXT,
        10 * image,
        9600 + scaling.CONTEXT + 10 * image,
    ]
    sharded, _ = scaling.memory(found, 7, fabric, Plan(sharded=True), 80)
    assert sharded["state of Adam"] == 8 * 86 and sharded["gradients"] == 2400
    assert sharded["communication buffers"] == 2 * 4 * (512 * 1024 + 4800 * 1024 + 4096 * 1024)


STEP = """
import numpy as np
from minigrad import Tensor, memory_statistics, models, nn, optim
model = models.build("keras-cnn", (1, 28, 28), 10)
optimizer = optim.Adam(model.parameters())
images, labels = Tensor(np.zeros((256, 1, 28, 28), np.float32)), Tensor(np.zeros(256, np.int64))
for _ in range(3):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()
print(memory_statistics()["peak_bytes"])
"""


def test_a_whole_step_stays_within_the_prediction():
    """What is set aside covers the peak of a training step on the CPU, and not much more than twice over."""
    done = subprocess.run([sys.executable, "-c", STEP], capture_output=True, text=True, env=environment(), timeout=100)
    assert done.returncode == 0, done.stderr
    found = scaling.NETWORKS["keras-cnn"]()._replace(batch=256)
    predicted = scaling.memory(found, 1, FABRICS["tcp-25"], Plan(), 80)[0]["sum"] - scaling.CONTEXT
    assert 0.45 * predicted <= int(done.stdout) <= predicted


def test_the_largest_batch_fits_and_the_next_does_not():
    found, fabric = scaling.NETWORKS["resnet-50"](), FABRICS["nvlink-8x400"]
    _, batch = scaling.memory(found, 8, fabric, Plan(), 80)
    fits, more = (
        scaling.memory(found._replace(batch=batch + more), 8, fabric, Plan(), 80)[0]["sum"] for more in (0, 1)
    )
    assert batch > 100 and fits <= 80e9 < more
    assert scaling.memory(found, 8, fabric, Plan(), 0.001)[1] == 0
