"""Pooled memory: what shelves keep is bounded, and what a repeated step needs is there. Copies in another order."""

import math

import numpy as np
import pytest

from minigrad import device
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


def test_a_large_array_takes_back_what_dead_ones_held_before_it_is_refused(monkeypatch):
    """free: what the host says it has left, which shelves and dead cycles add to."""
    asked, size = [], memory.LARGE + 1

    def free_bytes():
        asked.append(device.memory_statistics()["cached_bytes"])
        return 5 << 26 if asked[-1] else 1 << 30  # the shelf of this size has 64 bytes more than the first

    array = device.empty((1 << 20,), np.uint8)
    del array
    monkeypatch.setattr(memory, "free_bytes", free_bytes)
    assert device.empty((1 << 21,), np.uint8).size and not asked  # nobody asks for little
    made = device.empty((size,), np.uint8)
    assert len(asked) == 2 and asked[0] > 0 == asked[1]
    del made
    device.empty_cache()


@pytest.mark.parametrize(
    "files, free",
    [
        ({"meminfo": "MemAvailable: 100 kB\nSwapFree: 20 kB\n"}, 120 << 10),
        (
            {"meminfo": "MemAvailable: 100 kB\nSwapFree: 20 kB\n", "memory.max": "2000", "memory.current": "1500"},
            2000 - 1500 + 70,
        ),
        (
            {"meminfo": "MemAvailable: 100 kB\nSwapFree: 20 kB\n", "memory.max": "max", "memory.current": "1500"},
            120 << 10,
        ),
    ],
)
def test_what_the_host_can_give_is_the_least_of_its_limits(monkeypatch, tmp_path, files, free):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "memory.stat").write_text("anon 5\ninactive_file 30\nactive_file 40\n")
    monkeypatch.setattr(memory, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "GROUP", tmp_path)
    assert memory.free_bytes() == free


def test_without_linux_the_host_can_give_what_it_has(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "MEMINFO", tmp_path / "nothing")
    assert memory.free_bytes() >= 1 << 28


@pytest.mark.parametrize(
    "shape, threads, by_kernel",
    [
        ((2, 16, 25, 10), 1, False),  # too few elements
        ((64, 16, 6, 6), 1, True),
        ((64, 16, 6, 6), 2, True),
        ((64, 15, 6, 6), 1, False),  # too narrow for tiles
        ((64, 15, 6, 6), 2, False),
        ((64, 15, 6, 6), 3, True),
        ((512, 17, 3, 5), 2, False),
        ((40000, 1, 1, 1), 3, False),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_copies_from_channels_last_and_back(shape, threads, by_kernel, dtype, monkeypatch):
    """By the kernel that turns tiles, or by NumPy: the same elements."""
    kernel, called = arrays.transpose, []
    monkeypatch.setattr(arrays, "threads", lambda: threads)
    monkeypatch.setattr(arrays, "transpose", lambda x, out: (called.append(1), kernel(x, out)))
    n, c, h, w = shape
    last = np.arange(math.prod(shape), dtype=dtype).reshape(n, h, w, c).transpose(0, 3, 1, 2)
    first = device.copy(last)
    assert first.flags.c_contiguous and not np.shares_memory(first, last)
    back = device.copy(first, (0, 2, 3, 1))
    assert back.transpose(0, 2, 3, 1).flags.c_contiguous and len(called) == 2 * by_kernel
    for copy in (first, back):
        assert copy.dtype == dtype
        np.testing.assert_array_equal(copy, last)
