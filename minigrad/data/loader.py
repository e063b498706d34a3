"""Batches of a data set, shuffled, augmented and prepared ahead, the same bits on every run."""

import os
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from contextvars import copy_context
from functools import cached_property
from itertools import islice
from typing import NamedTuple

import numpy as np

from minigrad_kernels.errors import KindError, ShapeError, StateError
from minigrad_kernels.layout import CHANNELS_LAST

from .. import device as devices
from ..core.check import integer_of
from ..core.tensor import Tensor
from .dataset import Dataset, random_generator
from .resident import resident
from .transforms import rows_of, transform_of

ORDER, BATCH = 0, 1  # the two kinds of random streams of an epoch
PREFETCH = "minigrad-prefetch"
STANDS = "seed", "epoch", "position"  # position: batches delivered in this epoch


class Shards(NamedTuple):
    """What one of several ranks takes of a batch.

    parts   a tuple for each shard of its own, None for one without images
    total   images in all shards of all ranks
    """

    parts: list
    total: int


class Loader:
    """Iterates over one epoch of a Dataset in batches (images, labels); the next iteration is the next epoch.

    Order and augmentation are functions of seed, epoch and number of the batch alone. `transform` is called
    as transform(images, generator) with a uint8 batch. What it leaves uint8 is scaled to 0..1. `prefetch` batches
    are prepared ahead in a background thread; 0 does without.

    An epoch left early is begun again by the next iteration. load_state_dict() makes the next iteration
    deliver what was left of the epoch when state_dict() was called.

    With a `sampler` (minigrad.parallel.ShardSampler) an item is what this rank takes of a batch: Shards, whose
    parts are a pair (images, labels) for each shard of its own. Augmentation is then a function of the shard too.

    With a `device` other than the CPU the batches are Tensors there. Where the transform consists of PadCrop, Flip and
    Normalize, in this order, and a quarter of the free memory holds the data set, it is copied there once, and batches
    are made there; else each batch is made on the host and sent through pinned memory without waiting for it.

    Shapes  images (N, C, H, W), lying channels last in memory; labels (N,); the last batch may be smaller
    Types   images float32, labels int64
    Errors  KindError for arguments of a wrong type, ShapeError for a batch size below 1
    """

    def __init__(
        self, dataset, batch_size, shuffle=False, seed=0, drop_last=False, transform=None, prefetch=2, device="cpu",
        sampler=None,
    ):  # fmt: skip
        if not isinstance(dataset, Dataset):
            raise KindError(f"Loader: dataset is a {type(dataset).__name__}, wanted a minigrad.data.Dataset")
        self.dataset, self.sampler = dataset, sampler
        self.batch_size = integer_of("Loader", "batch_size", batch_size, 1)
        self.shuffle, self.drop_last = bool(shuffle), bool(drop_last)
        self.seed = integer_of("Loader", "seed", seed, 0)
        self.transform = None if transform is None else transform_of("Loader", "transform", transform)
        self.prefetch = integer_of("Loader", "prefetch", prefetch, 0)
        self.place = devices.place(device, "Loader")
        self._begin(0)

    def __len__(self):
        """Batches in an epoch."""
        full, rest = divmod(len(self.dataset), self.batch_size)
        return full if self.drop_last else full + bool(rest)

    def __iter__(self):
        """The batches as pairs of Tensors."""
        make, ahead = (self._made, self.prefetch) if self._resident is None else (self._resident, 0)
        there = lambda part: part and tuple(Tensor(array).to(self.place.name) for array in part)
        epoch, start, sampler = self.epoch, self._resume_at, self.sampler
        self._resume_at, self.position = 0, start
        with closing(prefetched(self._maker(make, epoch), range(start, len(self)), ahead)) as batches:
            for number, batch in enumerate(batches, start + 1):
                self.position = number
                yield there(batch) if sampler is None else batch._replace(parts=[*map(there, batch.parts)])
        self._begin(epoch + 1)

    def state_dict(self):
        """Where the loader stands, and what the remaining batches depend on, in plain numbers."""
        own = {name: getattr(self, name) for name in (*STANDS, "batch_size", "shuffle", "drop_last")}
        return own | {"images": len(self.dataset), "shards": getattr(self.sampler, "shards", 1)}

    def load_state_dict(self, state):
        """Continue where the loader that gave this state stood.

        load_state_dict(state_dict() | {"epoch": n, "position": 0}) goes to the start of epoch n.

        Errors  StateError if it stands inside an epoch that other images, batch size or order would continue; the
                loader is then as it was
        """
        for name, own in self.state_dict().items():
            if state["position"] and name not in STANDS and state[name] != own:
                raise StateError(f"load_state_dict: {name} was {state[name]}, wanted {own} to go on in the epoch")
        self.seed = state["seed"]
        self._begin(state["epoch"], state["position"])

    def _begin(self, epoch, position=0):
        """Have the next iteration go on there."""
        self.epoch, self.position, self._resume_at = epoch, position, position

    def _maker(self, make, epoch):
        """A function of the number of a batch: make(numbers of its images, generator), or Shards of such."""
        count, sampler = len(self.dataset), self.sampler
        order = random_generator(self.seed, epoch, ORDER).permutation(count) if self.shuffle else np.arange(count)

        def batch(number):
            picked = order[number * self.batch_size : (number + 1) * self.batch_size]
            key = self.seed, epoch, BATCH, number
            if sampler is None:
                return make(picked, random_generator(*key))
            several, parts = sampler.shards > 1, []  # one shard is the whole batch, with the random numbers of one
            for shard, where in zip(sampler.numbers, sampler.slices(len(picked)), strict=True):
                own = random_generator(*key, *[shard] * several)
                parts.append(make(picked[where], own) if len(picked[where]) else None)
            return Shards(parts, len(picked))

        return batch

    def _made(self, picked, generator):
        """(images, labels), made on the host. Runs in the background thread, if there is one."""
        images = self.dataset.images.transpose(CHANNELS_LAST)[picked].transpose(0, 3, 1, 2)
        if self.transform is not None:
            images = self.transform(images, generator)
        rows = rows_of("Loader: transform", images)
        if len(rows) != len(picked):
            raise ShapeError(f"Loader: transform returned {len(rows)} images, wanted {len(picked)}")
        if rows.dtype == np.uint8:
            rows = np.divide(rows, 255, dtype=np.float32)
        return rows.astype(np.float32, copy=False).transpose(0, 3, 1, 2), self.dataset.labels[picked]

    @cached_property
    def _resident(self):
        """What makes batches on the device, where the data set then lies; None where the host makes them."""
        return None if self.place is devices.CPU else resident(self.dataset, self.place, self.transform)


def prefetched(make, keys, ahead, threads=1, begin=None):
    """Yield make(key) for each key in order, computed by threads, `ahead` of them before they are asked for.

    begin   called in each thread before its first
    Errors  RuntimeError in a process that was forked meanwhile, which has no such threads

    An exception is raised in the consumer, after the items before it, with its own traceback. The threads end with
    the last item, or when this generator is closed: by its end, by an exception, or because the consumer drops it.
    """
    if not ahead:
        yield from map(make, keys)
        return
    keys, pool, process = iter(keys), ThreadPoolExecutor(threads, PREFETCH, begin), os.getpid()
    # Settings such as numpy.errstate hold in the threads too.
    submitted = lambda count: [pool.submit(copy_context().run, make, key) for key in islice(keys, count)]
    waiting = deque(submitted(ahead))
    try:
        while waiting:
            item = waiting.popleft().result()
            waiting.extend(submitted(1))
            yield item
            if os.getpid() != process:
                lost = "Loader: the prefetch thread is gone (a forked process has none)"
                raise StateError(f"{lost}; use prefetch=0, or iterate anew in the child")
    finally:
        # The collector may run this in one of these threads, which cannot wait for itself.
        own = threading.current_thread().name.startswith(PREFETCH)
        if os.getpid() == process:
            pool.shutdown(wait=not own, cancel_futures=True)
