"""Bytes of a GPU: what the tape keeps, against what the memory pool says."""

import gc
import json
import subprocess
import sys

import numpy as np
import pytest

from minigrad import memory_statistics, models, ops
from minigrad.errors import ShapeError
from minigrad.parallel import scaling
from minigrad.parallel.scaling import FABRICS, Layer, Plan, assembled, memory_of
from minigrad.parallel.scaling.measured import OWN, _batch, kept_bytes, network_of
from minigrad.parallel.scaling.memory import CONTEXT, SPARE
from tests.cli_runs import environment

BATCH = 64


@pytest.mark.parametrize("name", OWN)
def test_kept_bytes_are_those_that_the_pool_lends(name):
    """The pool rounds up by at most a quarter, and counts nothing below 16 KiB; images come from elsewhere."""
    shape, *_ = OWN[name]
    model = models.build(name, shape, 10)
    kept = network_of(model, shape, name, 1, 1.0, "").kept
    images, labels = _batch(shape, BATCH)
    gc.collect()
    before = memory_statistics()["used_bytes"]
    loss = ops.cross_entropy(model(images), labels)
    lent = memory_statistics()["used_bytes"] - before
    assert loss.requires_grad  # and so the tape is alive
    predicted = BATCH * kept - images.data.nbytes
    assert 0.97 * predicted <= lent <= 1.25 * predicted


def test_counting_leaves_the_model_as_it_was():
    model = models.build("resnet", (3, 32, 32), 10)
    before = {name: value.data.copy() for name, value in model.state_dict().items()}
    count = kept_bytes(model, *_batch((3, 32, 32), 2))
    assert kept_bytes(model, *_batch((3, 32, 32), 2)) == count and model.training
    assert all(np.array_equal(value.data, before[name]) for name, value in model.state_dict().items())


STEP = """
import json, sys
from minigrad import memory_statistics
from minigrad.parallel.scaling.measured import step_seconds
step_seconds(sys.argv[1], int(sys.argv[2]))
print(json.dumps(memory_statistics()))
"""


@pytest.mark.parametrize("name, batch", [("keras-cnn", 256), ("mnist-net", 128), ("lenet", 512), ("resnet", 16)])
def test_a_whole_step_stays_within_the_prediction(name, batch):
    """What is set aside covers the peak of a training step on the CPU, and not much more than twice over."""
    command = [sys.executable, "-c", STEP, name, str(batch)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=100)
    assert done.returncode == 0, done.stderr
    found = memory_of(scaling.network(name), 1, FABRICS["tcp-25"], Plan(), "adam")
    predicted = found.total(batch) - CONTEXT
    assert 0.45 * predicted <= json.loads(done.stdout)["peak_bytes"] <= predicted


def small():
    return assembled("small", [Layer((600, 400), 5, 100, 40)], 8, 1.0, "stated")


def test_parts_by_hand():
    found = memory_of(small(), 1, FABRICS["tcp-25"], Plan(), "adam")
    assert (found.parameters, found.gradients, found.optimizer) == (4000, 4000, 8000)
    assert found.communication == 0  # alone, nobody is talked to
    assert found.image == SPARE * (100 + 2 * 40)
    assert found.fixed == 16000 + CONTEXT and found.total(10) == found.fixed + 10 * found.image
    assert memory_of(small(), 1, FABRICS["tcp-25"], Plan(), "sgd").optimizer == 4000


def test_sharding_divides_the_state_of_the_optimizer_alone():
    whole, sharded = (memory_of(small(), 3, FABRICS["tcp-25"], Plan(sharded=flag)) for flag in (False, True))
    assert whole.optimizer == 8000 and sharded.optimizer == 334 * 8
    assert whole.parameters == sharded.parameters and whole.gradients == sharded.gradients


def test_sixteen_bits_on_the_wire_want_copies_of_the_largest_bucket():
    plain, narrow = (memory_of(small(), 2, FABRICS["tcp-25"], Plan(wire=wire)) for wire in scaling.WIRES)
    assert narrow.communication - plain.communication == 2 * 2 * 1000
    assert plain.communication == 2 * 4 * (512 * 1024 + 4800 * 1024 + 4096 * 1024)


def test_largest_batch_fits_and_the_next_does_not():
    found = memory_of(scaling.network("resnet-50"), 8, FABRICS["nvlink-8x400"], Plan())
    batch = found.largest_batch(80e9)
    assert batch > 100 and found.total(batch) <= 80e9 < found.total(batch + 1)
    assert found.largest_batch(1e6) == 0


def test_memory_refuses():
    with pytest.raises(ShapeError, match="optimizer is 'lion', want one of adam, sgd"):
        memory_of(small(), 1, FABRICS["tcp-25"], Plan(), "lion")
    with pytest.raises(ShapeError, match="memory_of: gpus is 0"):
        memory_of(small(), 0, FABRICS["tcp-25"], Plan())
