"""Pooled memory: what shelves keep is bounded, and what a repeated step needs is there. Copies in another order."""

import statistics

import numpy as np
import pytest

import minigrad
from minigrad import device, models, nn, optim
from minigrad.device import arrays, memory


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
        largest = device.empty((megabytes << 20,), np.uint8).nbytes
        kept = device.memory_statistics()["reserved_bytes"] - start
        assert kept <= 2.5 * (largest + start) + memory.SLACK  # 2, and what rounding up to size classes adds


def test_steps_that_repeat_take_nothing_from_the_system():
    """Neither bytes for the pool nor pages."""
    resource = pytest.importorskip("resource")  # of Unix
    network, random, steps = models.lenet(), np.random.default_rng(0), 8
    optimizer = optim.Adam(network.parameters())
    images = minigrad.Tensor(random.standard_normal((64, 1, 28, 28), dtype=np.float32))
    labels, touched = minigrad.Tensor(random.integers(0, 10, 64)), []
    for count in range(5 + steps):
        if count == 5:
            before = device.memory_statistics()
        start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(images), labels).backward()
        optimizer.step()
        touched.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - start)
    after = device.memory_statistics()
    assert after == before
    # Without the pool a step would touch all its memory anew. Python's own allocator may now and then take a page.
    assert statistics.median(touched[5:]) <= 2 < before["reserved_bytes"] / 4096 / 10


def test_views_keep_memory_alive():
    x = minigrad.full((100, 100), 7.0)
    view, capsule = memoryview(x.array[50:]), np.from_dlpack(x.array[::2])
    address = x.array.ctypes.data
    del x
    others = [minigrad.full((100, 100), 1.0) for _ in range(4)]
    assert all(other.array.ctypes.data != address for other in others)
    assert view[0, 0] == 7 and capsule[0, 0] == 7
    del view, capsule, others
    assert device.memory_statistics()["cached_bytes"] > 0
    minigrad.empty_cache()
    assert device.memory_statistics()["cached_bytes"] == 0


def test_shelves_are_emptied_when_the_system_has_no_more(monkeypatch):
    """The first request for 2 MB is refused, then the first and the second one for 4 MB."""
    attempts, made, refused = [], memory._Bytes.__new__, iter((True, False, True, True))

    def scarce(*arguments):
        attempts.append(device.memory_statistics()["cached_bytes"])
        if next(refused):
            raise MemoryError
        return made(*arguments)

    device.empty((1 << 20,), np.uint8)
    monkeypatch.setattr(memory._Bytes, "__new__", scarce)
    assert device.empty((1 << 21,), np.uint8).nbytes == 1 << 21
    with pytest.raises(MemoryError):
        device.empty((1 << 22,), np.uint8)
    assert attempts[0] > 0 == attempts[1] and len(attempts) == 4


def test_what_the_host_can_give(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "MEMINFO", tmp_path / "meminfo")
    assert memory.free_bytes() >= 1 << 28  # without Linux: nobody knows
    (tmp_path / "meminfo").write_text("MemAvailable: 100 kB\nSwapFree: 20 kB\n")
    assert memory.free_bytes() == 120 << 10


def test_copies_from_channels_last_and_back(monkeypatch):
    """By the kernel that turns tiles, for many threads or wide tiles, or by NumPy: the same elements."""
    kernel, called = arrays.transpose, []
    monkeypatch.setattr(arrays, "transpose", lambda x, out: (called.append(1), kernel(x, out)))
    for (n, c, h, w), threads, by_kernel in (((64, 16, 6, 6), 1, True), ((64, 15, 6, 6), 2, False)):
        monkeypatch.setattr(arrays, "threads", lambda threads=threads: threads)
        last = np.arange(n * c * h * w, dtype=np.float32).reshape(n, h, w, c).transpose(0, 3, 1, 2)
        called.clear()
        first = device.copy(last)
        back = device.copy(first, (0, 2, 3, 1))
        assert first.flags.c_contiguous and not np.shares_memory(first, last)
        assert back.transpose(0, 2, 3, 1).flags.c_contiguous and len(called) == 2 * by_kernel
        for copy in (first, back):
            np.testing.assert_array_equal(copy, last, strict=True)
