"""The background thread of the loader: its errors, its bound, its end."""

import gc
import subprocess
import sys
import threading
import time
import traceback
import weakref

import numpy as np
import pytest

from minigrad.data import Loader
from minigrad.data.loader import prefetched
from tests.data.data_batches import PREFETCH, arrays, numbered


def prefetch_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("minigrad-prefetch")]


@pytest.fixture(autouse=True)
def no_thread_stays():
    assert not prefetch_threads()
    yield
    assert not prefetch_threads()


@pytest.mark.parametrize("prefetch", PREFETCH)
def test_an_exception_comes_after_the_batches_before_it(prefetch):
    """And settings of the context reach the thread: that division by zero is an error."""

    def dividing(images, generator):
        return images / np.float32(images[0, 0, 0, 0] != 10)

    loader, delivered = Loader(numbered(), 5, transform=dividing, prefetch=prefetch), []
    with np.errstate(all="raise"), pytest.raises(FloatingPointError) as caught:
        for _, labels in arrays(loader):
            delivered.append(labels[0])
    assert delivered == [0, 5] and loader.position == 2
    text = "".join(traceback.format_exception(caught.value))
    assert "in dividing" in text and "in batch 2 of epoch 0" in text


def test_the_thread_ends_when_the_consumer_stops_or_loader_and_iterator_are_dropped():
    loader = Loader(numbered(), 1)
    for _ in loader:
        assert len(prefetch_threads()) == 1
        break
    assert not prefetch_threads()
    iterator = iter(loader)
    next(iterator)
    gone, cycle = weakref.ref(loader), [iterator]
    cycle.append(cycle)
    del loader, iterator, cycle
    gc.collect()
    assert not prefetch_threads() and gone() is None


def test_the_thread_keeps_within_its_bound():
    made = []

    def items():
        for item in range(100):
            made.append(item)
            yield item

    iterator, end = prefetched(items(), 2), time.monotonic() + 10
    assert next(iterator) == 0
    while len(made) < 3 and time.monotonic() < end:  # one delivered, two ahead
        time.sleep(0.001)
    time.sleep(0.05)
    assert len(made) == 3
    iterator.close()
    assert not prefetch_threads() and len(made) == 3


def test_ctrl_c_while_waiting_and_an_iterator_kept_to_the_end_of_the_process():
    """An interrupt reaches a consumer that waits for a slow batch, and the thread ends; nothing hangs."""
    script = """
import signal, threading
import numpy as np
from minigrad.data import Dataset, Loader
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
release, data = threading.Event(), Dataset(np.zeros((9, 1, 2, 2), np.uint8), np.zeros(9, int), "a")
waiting = iter(Loader(data, 1, transform=lambda images, generator: release.wait(60) and images))
threading.Timer(0.3, lambda: (signal.raise_signal(signal.SIGINT), release.set())).start()
try:
    next(waiting)
except KeyboardInterrupt:
    print([t.name for t in threading.enumerate() if t.name.startswith("minigrad-prefetch")])
kept = iter(Loader(data, 1))
next(kept)
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, timeout=50)
    assert (done.stdout.strip(), done.returncode, done.stderr) == ("[]", 0, "")
