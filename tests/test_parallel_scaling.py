"""The model of data-parallel scaling: times of exchanges and of steps."""

from dataclasses import replace

import pytest

from minigrad import models
from minigrad.errors import ShapeError
from minigrad.parallel import scaling
from minigrad.parallel.scaling import FABRICS, Fabric, Layer, Plan, all_reduce_seconds, assembled, predicted, simulated
from minigrad.parallel.scaling.stated import STATED, resnet_layers

COUNTS = (1, 2, 8, 16, 32, 64, 256, 1024)
INFINITE = 1e300
IDEAL = Fabric("ideal", 8, INFINITE, INFINITE, "nvlink", post=0.0, launch=0.0)


@pytest.fixture
def free_messages(monkeypatch):
    """Latencies of nothing."""
    from minigrad.parallel.scaling import exchange

    zero = {"ring": (0.0, 0.0, 0.0), "tree": (0.0, 0.0, 0.0)}
    monkeypatch.setattr(exchange, "BASE", zero)
    monkeypatch.setattr(exchange, "STEP", dict.fromkeys(exchange.STEP, zero))


def network(sizes=(100, 200, 300), macs=(1, 1, 1), seconds=1.0):
    """Three layers, the last of which arrives first."""
    layers = [Layer((size,), count) for size, count in zip(sizes, macs, strict=True)]
    return assembled("three", layers, 10, seconds, "stated")


# ---- exchanges -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FABRICS)
def test_more_bytes_take_longer_and_one_gpu_none(name):
    fabric = FABRICS[name]
    for gpus in COUNTS[1:]:
        times = [all_reduce_seconds(nbytes, gpus, fabric) for nbytes in (0, 4, 1e3, 1e5, 1e6, 1e7, 1e9)]
        assert times[0] > 0 and times == sorted(times) and times[-1] > 2 * times[0]
        assert scaling.half_seconds(1e6, gpus, fabric) == all_reduce_seconds(1e6, gpus, fabric) / 2
    assert all_reduce_seconds(1e9, 1, fabric) == 0


@pytest.mark.parametrize("name", FABRICS)
def test_more_bandwidth_takes_less_and_more_latency_more(name):
    fabric = FABRICS[name]
    faster = replace(fabric, inside=2 * fabric.inside, between=2 * fabric.between, switched=2 * fabric.switched)
    slower = replace(fabric, latency=fabric.latency + 1e-3, launch=fabric.launch + 1e-3)
    for gpus in COUNTS[1:]:
        assert all_reduce_seconds(1e8, gpus, faster) < all_reduce_seconds(1e8, gpus, fabric)
        assert all_reduce_seconds(1e3, gpus, slower) > all_reduce_seconds(1e3, gpus, fabric)


def test_large_arrays_take_the_volume_of_a_ring_over_the_bandwidth():
    """Units: bytes and bytes a second give seconds."""
    fabric = Fabric("one switchless machine", 8, 1e9, 1e9, "nvlink")
    assert all_reduce_seconds(8e9, 8, fabric) == pytest.approx(2 * 7 / 8 * 8, rel=1e-3)
    several = replace(fabric, between=0.5e9)
    assert all_reduce_seconds(8e9, 16, several) == pytest.approx(2 * 15 / 16 * 8 / 0.5, rel=1e-3)


def test_small_arrays_take_the_latency_of_the_best_protocol():
    fabric = Fabric("one machine", 8, 1e12, 1e12, "nvlink", launch=0.0)
    ring, tree = 6.6 + 14 * 0.6, 6.8 + 2 * 7 * 0.6  # microseconds of NCCL's LL
    assert all_reduce_seconds(0, 8, fabric) == pytest.approx(min(ring, tree) * 1e-6)
    machines = 6.8 + 2 * (7 * 0.6 + 7 * 5.0)  # a tree of 128 machines has 7 levels
    assert all_reduce_seconds(0, 1024, fabric) == pytest.approx(machines * 1e-6)


def test_the_switch_helps_where_it_is_there():
    with_switch = FABRICS["nvlink-8x400"]
    without = replace(with_switch, switched=0.0)
    assert all_reduce_seconds(1e9, 8, with_switch) < all_reduce_seconds(1e9, 8, without)


def test_exchange_refuses():
    with pytest.raises(ShapeError, match="-1 bytes on 2 GPUs"):
        all_reduce_seconds(-1, 2, IDEAL)
    with pytest.raises(ShapeError, match="on 0 GPUs"):
        all_reduce_seconds(1, 0, IDEAL)


# ---- steps ---------------------------------------------------------------------------------------------


def test_gradients_arrive_from_the_last_layer_to_the_first():
    found = network(macs=(2, 3, 5))
    costs = [2, 6, 10]  # the first layer's input wants no gradient
    assert found.sizes == (300, 200, 100)
    assert found.ready == pytest.approx((10 / 18, 16 / 18, 1))
    assert found.backward == pytest.approx(sum(costs) / (sum(costs) + 10))
    pair = assembled("weight and bias", [Layer((6, 2), 1), Layer((20, 4), 1)], 1, 1.0, "stated")
    assert pair.sizes == (4, 20, 2, 6) and pair.ready == pytest.approx((2 / 3, 2 / 3, 1, 1))


def test_layers_without_multiply_adds_are_done_when_backward_ends():
    found = network(macs=(0, 0, 0))
    assert found.ready == (1, 1, 1) and found.backward == pytest.approx(2 / 3)


def test_a_timeline_by_hand():
    """Forward 3 s, backward 5 s in three parts of 1, 2, 2 s; exchanges of 3, 2, 1 s."""
    found = network(macs=(1, 1, 1), seconds=8.0)
    assert found.backward == pytest.approx(5 / 8)
    buckets, exchange = [(0, 1), (1, 2), (2, 3)], lambda elements: elements / 100
    step = simulated(found, 8.0, buckets, exchange)
    assert step.seconds == pytest.approx(max(max(max(5, 0) + 3, 7) + 2, 8) + 1)
    assert step.exposed == pytest.approx(3) and step.efficiency == pytest.approx(8 / 11)
    one = simulated(found, 8.0, [(0, 3)], exchange)
    assert one.seconds == pytest.approx(8 + 6)
    late = simulated(found, 8.0, buckets, exchange, overlap=False)
    assert late.seconds == pytest.approx(8 + 6)
    tired = simulated(found, 8.0, [(0, 3)], exchange, slow=1.5, after=1.0)
    assert tired.seconds == pytest.approx(12 + 6 + 1) and tired.exposed == pytest.approx(7)


@pytest.mark.parametrize("name", STATED)
@pytest.mark.parametrize("fabric", FABRICS)
def test_limits_and_order_of_efficiencies(name, fabric):
    found, fabric = scaling.network(name), FABRICS[fabric]
    assert predicted(found, 1, fabric, Plan()) == scaling.Step(found.seconds, 0, 1)
    steps = [predicted(found, gpus, fabric, Plan()) for gpus in COUNTS]
    assert all(0 < step.efficiency <= 1 and step.exposed >= 0 for step in steps)
    for gpus in (8, 256):
        overlapped, late = (predicted(found, gpus, fabric, Plan(overlap=flag)) for flag in (True, False))
        assert overlapped.seconds < late.seconds
        half = predicted(found, gpus, fabric, Plan(wire="bfloat16"))
        assert half.seconds <= overlapped.seconds
        longer = predicted(found, gpus, fabric, Plan(), 10 * found.seconds)
        assert longer.efficiency >= overlapped.efficiency - 1e-12
        best = scaling.best_bucket(found, gpus, fabric, Plan())
        assert predicted(found, gpus, fabric, Plan(bucket=best)).seconds <= overlapped.seconds * (1 + 1e-3)


def test_infinite_bandwidth_without_latency_leaves_jitter_alone(free_messages):
    found = scaling.network("resnet-50")
    for gpus in COUNTS[1:]:
        step = predicted(found, gpus, IDEAL, Plan(jitter=0.02))
        assert step.exposed == pytest.approx(0, abs=1e-12)
        assert step.efficiency == pytest.approx(1 / scaling.slowest(gpus, 0.02))
        assert predicted(found, gpus, IDEAL, Plan(jitter=0)).efficiency == pytest.approx(1)


def test_the_slowest_of_many():
    assert scaling.slowest(1, 0.1) == 1
    times = [scaling.slowest(gpus, 0.1) for gpus in COUNTS]
    assert times == sorted(times) and times[-1] == pytest.approx(1 + 0.1 * 3.7233, rel=1e-4)


def test_sharded_state_exposes_the_gathering_of_parameters():
    found, fabric = scaling.network("vgg-16"), FABRICS["nvlink-1x400"]
    whole, sharded = (predicted(found, 32, fabric, Plan(sharded=flag)) for flag in (False, True))
    gathered = scaling.half_seconds(4 * found.parameters, 32, fabric)
    assert sharded.exposed > gathered and sharded.exposed > whole.exposed


def test_step_refuses():
    found = network()
    with pytest.raises(ShapeError, match="predicted: gpus is 0"):
        predicted(found, 0, IDEAL, Plan())
    for seconds in (0, -1, float("inf"), float("nan")):
        with pytest.raises(ShapeError, match="a step takes"):
            predicted(found, 2, IDEAL, Plan(), seconds)
    with pytest.raises(ShapeError, match="wire is 'int8', want one of float32, bfloat16"):
        Plan(wire="int8")
    with pytest.raises(ShapeError, match="jitter is -1"):
        Plan(jitter=-1)
    with pytest.raises(ShapeError, match="fabric is 'string', want one of nvlink-8x400"):
        scaling.fabric("string")
    with pytest.raises(ShapeError, match="network is 'alexnet', want one of keras-cnn"):
        scaling.network("alexnet")
    with pytest.raises(ShapeError, match="empty has no parameters"):
        assembled("empty", [Layer()], 1, 1.0, "stated")


# ---- networks ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, parameters, macs",
    [("resnet-18", 11_689_512, 1.814e9), ("resnet-50", 25_557_032, 4.089e9), ("vgg-16", 138_357_544, 15.470e9)],
)
def test_stated_networks_have_their_published_size(name, parameters, macs):
    layers, batch, milliseconds = STATED[name]
    found = scaling.network(name)
    assert found.parameters == parameters
    assert sum(layer.macs for layer in layers()) == pytest.approx(macs, rel=1e-3)
    assert (found.batch, found.seconds) == (batch, milliseconds / 1000)
    assert found.ready[-1] == 1 and list(found.ready) == sorted(found.ready)


def test_layers_of_a_stated_network_are_those_of_our_own():
    """ResNet-18 for small images, once by formulas and once by running it."""
    formulas = assembled("formulas", resnet_layers((2, 2, 2, 2), False, 32, 10), 128, 0.02, "stated")
    ran = scaling.network("resnet")
    assert sorted(formulas.sizes) == sorted(ran.sizes) and formulas.parameters == 11_173_962
    registered = [parameter.numel() for parameter in models.build("resnet", (3, 32, 32), 10).parameters()]
    assert list(ran.sizes) == registered[::-1]
    assert ran.ready[0] == ran.ready[1] < 0.01 and ran.ready[-1] == 1  # the scores are cheap and come first
    assert ran.backward == pytest.approx(formulas.backward)
    assert ran.kept == pytest.approx(formulas.kept, rel=1e-4)
    assert ran.moving == formulas.moving
