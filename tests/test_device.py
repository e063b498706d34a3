"""Pooled memory: what shelves keep is bounded, and what a repeated step needs is there."""

import numpy as np
import pytest

from minigrad import device
from minigrad.device import memory


@pytest.fixture(autouse=True)
def empty_pool(monkeypatch):
    """Nothing on the shelves, and what this test had in use is forgotten afterwards."""
    device.empty_cache()
    monkeypatch.setattr(memory._Bytes, "most_used", 0)
    yield
    device.empty_cache()


def test_growing_sizes_do_not_pile_up():
    start = device.memory_statistics()["reserved_bytes"]
    for megabytes in range(1, 100):
        array = device.empty((megabytes << 20,), np.uint8)
        largest = array.nbytes
        del array
        kept = device.memory_statistics()["reserved_bytes"] - start
        assert kept <= 2.5 * (largest + start) + memory.SLACK  # 2, and what rounding up to size classes adds


def test_a_repeated_step_takes_no_new_bytes():
    def step(sizes):
        live = [device.empty((size,), np.float32) for size in sizes]
        del live[::2]
        return [device.empty((size // 3,), np.float32) for size in sizes]

    sizes = [1 << k for k in range(14, 23)]
    for _ in range(2):
        step(sizes)
    before = device.memory_statistics()
    for _ in range(5):
        step(sizes)
    after = device.memory_statistics()
    assert after["reserved_bytes"] == before["reserved_bytes"]
    assert after["requests"] - before["requests"] == after["reused"] - before["reused"] == 5 * 2 * len(sizes)


@pytest.mark.parametrize("failures", [1, 2])
def test_shelves_are_emptied_when_the_system_has_no_more(monkeypatch, failures):
    attempts, made = [], memory._Bytes.__new__

    def scarce(*arguments):
        attempts.append(device.memory_statistics()["cached_bytes"])
        if len(attempts) <= failures:
            raise MemoryError
        return made(*arguments)

    array = device.empty((1 << 20,), np.uint8)
    del array
    monkeypatch.setattr(memory._Bytes, "__new__", scarce)
    if failures == 1:
        assert device.empty((1 << 21,), np.uint8).nbytes == 1 << 21
    else:
        with pytest.raises(MemoryError):
            device.empty((1 << 21,), np.uint8)
    assert attempts[0] > 0 == attempts[1] and len(attempts) == 2
