"""Training that repeats: nothing grows, and nothing waits for the cyclic collector. The long one is a command."""

import gc

import pytest

from tests.device.stand_in_gpus import gpus
from tests.reliability.soak import Training, counted, grown, soak

pytestmark = pytest.mark.deep


def test_steps_on_the_cpu(tmp_path):
    gc.collect()
    before = counted()  # modules of tests keep Tensors, and nodes, for as long as the process lives
    first, last = soak(Training(tmp_path), 30)
    assert not grown(first, last)
    assert first["nodes"] <= before["nodes"] and last["tensors"] < before["tensors"] + 50


def test_steps_and_graphs_on_a_gpu(tmp_path):
    with gpus(1, execute=False) as machine:  # kernels are noted, not run
        first, last = soak(Training(tmp_path, machine), 20)
        assert machine.devices[0].used and first["streams"]
    assert not grown(first, last)
