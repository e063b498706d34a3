"""The loader: what it delivers, in which order, across epochs and saves; its background thread: errors, bound, end.

What its arguments refuse is in tests/refusals/training.py.
"""

import gc
import json
import subprocess
import sys
import threading
import time
import traceback

import numpy as np
import pytest

from minigrad.core.tensor import Tensor
from minigrad.data import Compose, Dataset, Flip, Loader, Normalize, PadCrop
from minigrad.data.loader import prefetched
from minigrad_kernels.errors import KindError, ShapeError, StateError
from minigrad_kernels.layout import CHANNELS_LAST, is_dense

PREFETCH = [0, 1, 3]
AUGMENT = Compose([PadCrop(1), Flip(), Normalize([0.5, 0.4], [0.2, 0.3])])
IMAGES = np.random.default_rng(0).integers(0, 256, (23, 2, 4, 5), np.uint8)
NUMBERED = Dataset(IMAGES, np.arange(23), range(23))


def labels_of(batches):
    return [labels.tolist() for _, labels in batches]


def told(batches):
    return [(images.dtype, images.numpy().tobytes(), labels.tolist()) for images, labels in batches]


def prefetch_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("minigrad-prefetch")]


@pytest.fixture(autouse=True)
def no_thread_stays():
    yield
    assert not prefetch_threads()


@pytest.mark.parametrize("prefetch", PREFETCH)
def test_batches_in_order(prefetch):
    for batch_size in (1, 5, 23, 30):
        for drop_last in (False, True):
            loader = Loader(NUMBERED, batch_size, drop_last=drop_last, prefetch=prefetch)
            batches = list(loader)
            assert len(batches) == len(loader) == (23 // batch_size if drop_last else -(-23 // batch_size))
            assert sum(labels_of(batches), []) == list(range(23 // batch_size * batch_size if drop_last else 23))
            for images, labels in batches:  # only now, so that none was written over by a later one
                assert type(images) is Tensor and images.dtype == np.float32 and labels.dtype == np.int64
                assert is_dense(images.array, CHANNELS_LAST) and images.shape == (len(labels), 2, 4, 5)
                np.testing.assert_array_equal(images.array, IMAGES[labels.array] / np.float32(255))


def test_order_and_draws_are_a_function_of_seed_and_epoch():
    order = lambda loader: sum(labels_of(loader), [])
    loader = Loader(NUMBERED, 5, shuffle=True, seed=7)
    epochs = [order(loader) for _ in range(4)]
    assert all(sorted(epoch) == list(range(23)) for epoch in epochs) and len(set(map(tuple, epochs))) == 4
    assert order(Loader(NUMBERED, 5, shuffle=True, seed=8)) != epochs[0]
    assert order(Loader(NUMBERED, 6, shuffle=True, seed=7, transform=AUGMENT)) == epochs[0]
    # Saves outlive versions: a NumPy that shuffles differently must be noticed.
    loader = Loader(NUMBERED.subset(slice(8)), 8, shuffle=True, seed=0, prefetch=0)
    assert [order(loader) for _ in range(2)] == [[4, 1, 3, 6, 0, 5, 2, 7], [4, 0, 7, 3, 5, 2, 1, 6]]
    same = Dataset(np.repeat(np.random.default_rng(0).integers(0, 256, (1, 1, 8, 8), np.uint8), 40, 0), [0] * 40, "a")
    loader = Loader(same, 20, transform=PadCrop(4))
    assert len({x.numpy().tobytes() for _ in range(2) for x, _ in loader}) == 4, "other draws for each batch"


def test_what_transforms_return_becomes_float32_channels_last_or_is_refused():
    for transform in (lambda x, g: x.astype(np.float64) / 3, lambda x, g: np.ascontiguousarray(x, np.float32)):
        images = next(iter(Loader(NUMBERED, 5, transform=transform)))[0].array
        np.testing.assert_array_equal(images, transform(IMAGES[:5], None).astype(np.float32))
        assert images.dtype == np.float32 and is_dense(images, CHANNELS_LAST)
    for error, transform in ((ShapeError, lambda x, g: x[1:]), (KindError, lambda *_: None)):
        with pytest.raises(error, match="^Loader: transform"):
            next(iter(Loader(NUMBERED, 5, transform=transform)))


# ---- saves -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", PREFETCH)
def test_resume_delivers_the_remaining_batches(prefetch):
    """To the bits of a loader without prefetch, and those of one that was not interrupted."""
    options = {"shuffle": True, "transform": AUGMENT}
    whole = Loader(NUMBERED, 5, seed=2, prefetch=0, **options)
    epochs = [told(whole) for _ in range(3)]
    for stop in range(6):
        loader, resumed = (Loader(NUMBERED, 5, seed=seed, prefetch=prefetch, **options) for seed in (2, 99))
        assert told(loader) == epochs[0]
        iterator = iter(loader)
        assert told([next(iterator) for _ in range(stop)]) == epochs[1][:stop]
        state = json.loads(json.dumps(loader.state_dict()))
        iterator.close()
        assert (state["seed"], state["epoch"], state["position"]) == (2, 1, stop)
        resumed.load_state_dict(state)
        assert resumed.state_dict() == state
        assert told(resumed) == epochs[1][stop:] and told(resumed) == epochs[2]
    resumed.load_state_dict(resumed.state_dict() | {"epoch": 2, "position": 0})
    assert told(resumed) == epochs[2]


def test_an_epoch_left_early_is_begun_again_and_a_look_leaves_the_iteration_its_place():
    loader = Loader(NUMBERED, 5)
    batches = iter(loader)
    first, second = list(range(5)), list(range(5, 10))
    assert labels_of([next(batches), next(iter(loader)), next(batches)]) == [first, first, second]
    assert (loader.epoch, loader.position) == (0, 2)
    assert len(list(batches)) == 3 and (loader.epoch, loader.position) == (1, 0)


def test_a_state_within_an_epoch_of_other_batches_is_refused():
    loader = Loader(NUMBERED, 5, seed=4)
    before = loader.state_dict()
    for other in ({"batch_size": 4}, {"images": 22}, {"shuffle": True}, {"shards": 2}):
        with pytest.raises(StateError, match=r"^load_state_dict: .* to go on in the epoch"):
            loader.load_state_dict(before | {"position": 2, "seed": 3} | other)
        assert loader.state_dict() == before
    loader.load_state_dict(before | {"epoch": 3, "batch_size": 7})  # between epochs
    assert (loader.seed, loader.epoch) == (4, 3)


# ---- the background thread -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", PREFETCH)
def test_an_exception_comes_after_the_batches_before_it(prefetch):
    """And settings of the context reach the thread: that division by zero is an error."""

    def dividing(images, generator):
        return images / np.float32(not np.array_equal(images[0], IMAGES[10]))

    loader = Loader(NUMBERED, 5, transform=dividing, prefetch=prefetch)
    with np.errstate(all="raise"), pytest.raises(FloatingPointError) as caught:
        list(loader)
    assert loader.position == 2 and "in dividing" in "".join(traceback.format_exception(caught.value))


def test_the_thread_keeps_within_its_bound_and_ends_when_the_consumer_stops():
    made, end = [], time.monotonic() + 10
    iterator = prefetched(made.append, range(100), 2)
    next(iterator)
    while len(made) < 3 and time.monotonic() < end:  # one delivered, two ahead
        time.sleep(0.001)
    time.sleep(0.05)
    assert made == [0, 1, 2] and len(prefetch_threads()) == 1
    iterator.close()
    assert not prefetch_threads() and len(made) == 3
    cycle = [iter(Loader(NUMBERED, 1))]
    cycle.append(cycle)
    next(cycle[0])
    del cycle
    gc.collect()
    assert not prefetch_threads()


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
