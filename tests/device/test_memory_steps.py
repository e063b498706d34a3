"""A training step that repeats takes nothing from the system: neither bytes for the pool nor pages."""

import statistics

import numpy as np
import pytest

import minigrad
from minigrad import device, models, nn, optim

resource = pytest.importorskip("resource")  # of Unix

STEPS, PAGE = 20, 4096


def residual():
    """As the larger ones: convolutions, batch norm, a sum around them, a mean over all pixels."""
    layers = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), models.BasicBlock(16, 16, 1)
    return nn.Sequential(
        *layers, models.BasicBlock(16, 32, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)
    )


NETWORKS = {
    "lenet": (models.lenet, (1, 28, 28), lambda parameters: optim.SGD(parameters, 0.01, 0.9)),
    "residual": (residual, (3, 16, 16), optim.Adam),
}


def faults():
    """Pages that the process has touched for the first time, or again after it gave them back."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


@pytest.mark.parametrize("name", NETWORKS)
def test_steps_that_repeat_reuse_all_memory(name):
    make, shape, optimizer_of = NETWORKS[name]
    network, random = make(), np.random.default_rng(0)
    optimizer = optimizer_of(network.parameters())
    images = minigrad.Tensor(random.standard_normal((64, *shape), dtype=np.float32))
    labels = minigrad.Tensor(random.integers(0, 10, 64))

    def step():
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(images), labels).backward()
        optimizer.step()

    for _ in range(5):
        step()
    before, touched = device.memory_statistics(), []
    for _ in range(STEPS):
        start = faults()
        step()
        touched.append(faults() - start)
    after = device.memory_statistics()
    made = after["requests"] - before["requests"]
    assert made == after["reused"] - before["reused"] >= 10 * STEPS  # so the pool is what is measured
    assert after["reserved_bytes"] == before["reserved_bytes"]
    # Without the pool a step would touch all its memory anew. Python's own allocator may now and then take a page.
    assert statistics.median(touched) <= 2 < before["reserved_bytes"] / PAGE / 10
