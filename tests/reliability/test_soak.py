"""Training that repeats: nothing grows, and nothing waits for the cyclic collector. The long one is a command."""

import gc

import pytest

from tests.device.stand_in_gpus import gpus
from tests.reliability.soaking import BATCHES, JSON, OF_STAND_INS, OnCpu, OnGpu, counted, grown, soak

pytestmark = pytest.mark.deep


def kept_by_others():
    """What there is before a training: modules of tests keep Tensors, and nodes, for as long as the process lives."""
    gc.collect()
    return counted()


@pytest.mark.deep
def test_300_steps_on_the_cpu(tmp_path):
    before, rounds = kept_by_others(), 300 // BATCHES // 10 * 10
    found, cycles = soak(OnCpu(tmp_path), rounds)
    assert not grown(found)
    assert found[0]["nodes"] <= before["nodes"] and found[-1]["tensors"] < before["tensors"] + 50
    assert cycles <= JSON * rounds / 10


@pytest.mark.deep
def test_steps_and_graphs_on_a_gpu():
    with gpus(1, execute=False) as machine:  # kernels are noted, not run
        found, _ = soak(OnGpu(machine), 20, machine)
        assert machine.devices[0].used and found[0]["streams"]
    assert not grown(found).keys() - OF_STAND_INS


def test_what_stays_would_be_seen(tmp_path):
    before, training, kept = kept_by_others(), OnCpu(tmp_path), []
    steps = training.round

    def round():
        steps()
        kept.append((open(tmp_path / str(len(kept)), "wb"), *[p.detach() for p in training.model.parameters()]))

    training.round = round
    found, _ = soak(training, 10)
    for file, *_ in kept:
        file.close()
    assert grown(found).keys() >= {"files", "tensors"} and counted()["nodes"] <= before["nodes"]
