"""Batches of a data set, shuffled, augmented and prepared ahead, the same bits on every run."""

from contextlib import closing

import numpy as np

from minigrad_kernels.errors import KindError, ShapeError, StateError
from minigrad_kernels.layout import CHANNELS_LAST

from .. import device as devices
from .dataset import Dataset
from .prefetch import prefetched
from .resident import Resident, plan_of
from .seeds import checked_integer, random_generator
from .shards import Shards
from .transforms import rows_of

__all__ = ["Loader"]

ORDER, BATCH = 0, 1  # the two kinds of random streams of an epoch


class Loader:
    """Iterates over one epoch of a Dataset in batches (images, labels); the next iteration is the next epoch.

    Order and augmentation are functions of seed, epoch and number of the batch alone. `transform` is called
    as transform(images, generator) with a uint8 batch that is only lent: it returns a new batch and keeps no
    view. What it leaves uint8 is scaled to 0..1. `prefetch` batches are prepared ahead in a background
    thread; 0 does without.

    An epoch left early is begun again by the next iteration. load_state_dict() makes the next iteration
    deliver what was left of the epoch when state_dict() was called.

    With a `sampler` (minigrad.parallel.ShardSampler) an item is what this rank takes of a batch: Shards, a list with a
    pair (images, labels) for each shard of its own. Augmentation is then a function of the shard too.

    With a `device` other than the CPU the batches are Tensors there. Where the transform consists of PadCrop, Flip and
    Normalize, in this order, and a quarter of the free memory holds the data set, it is copied there once, and batches
    are made there; else each batch is made on the host and sent through pinned memory without waiting for it.

    Shapes  images (N, C, H, W), lying channels last in memory; labels (N,); the last batch may be smaller
    Types   images float32, labels int64
    Errors  KindError for arguments of a wrong type, ShapeError for a batch that exceeds the dataset or is
            below 1
    """

    def __init__(
        self,
        dataset,
        batch_size,
        shuffle=False,
        seed=0,
        drop_last=False,
        transform=None,
        prefetch=2,
        device="cpu",
        sampler=None,
    ):
        if not isinstance(dataset, Dataset):
            raise KindError(f"Loader: dataset is of type {type(dataset).__name__}, want a minigrad.data.Dataset")
        if not len(dataset):
            raise ShapeError("Loader: dataset has no images")
        batch_size = checked_integer("Loader", "batch_size", batch_size, 1)
        if batch_size > len(dataset):
            raise ShapeError(f"Loader: batch_size is {batch_size}, but the dataset has {len(dataset)} images")
        if transform is not None and not callable(transform):
            raise KindError(f"Loader: transform is {transform!r}, want a function of (images, generator) or None")
        self.dataset = dataset
        self.batch_size = batch_size
        self.shuffle = bool(shuffle)
        self.seed = checked_integer("Loader", "seed", seed, 0)
        self.drop_last = bool(drop_last)
        self.transform = transform
        self.prefetch = checked_integer("Loader", "prefetch", prefetch, 0)
        self.place = devices.place(device, "Loader")
        self.sampler = sampler
        self._resident = None  # made by the first iteration
        self.epoch = 0
        self.position = 0  # batches delivered in this epoch
        self._resume_at = 0
        self._running = None  # what marks the iteration that counts

    def __repr__(self):
        batches = f"{len(self)} batches of {self.batch_size}, the last of an epoch may be smaller"
        return f"Loader({self.dataset!r}, {batches})"

    def __len__(self):
        """Batches in an epoch."""
        full, rest = divmod(len(self.dataset), self.batch_size)
        return full if self.drop_last else full + bool(rest)

    def __iter__(self):
        """The batches as pairs of Tensors."""
        from minigrad.core.tensor import Tensor  # the engine is not needed to load arrays

        there = self._on_device()
        upload = (lambda array: array) if there else self.place.upload

        def pair(part):
            return part and tuple(Tensor(upload(array)) for array in part)

        with closing(self._delivered(self._prepared_there, 0) if there else self.arrays()) as batches:
            for batch in batches:
                shards = isinstance(batch, Shards)
                yield Shards([pair(part) for part in batch], batch.total) if shards else pair(batch)

    def arrays(self):
        """The batches as pairs of NumPy arrays. Of several iterations at a time, the latest counts."""
        return self._delivered(self._prepared, self.prefetch)

    def counted(self):
        """The batches of the epoch as pairs (what makes the next one on the device, the range of its images' numbers).

        For whoever repeats the work on a batch without the host: Resident.following(number of images) gives the batches
        in turn. None where batches are made on the host, or for shards.
        """
        if self.place.captures is None or self.sampler is not None or not self._on_device():
            return None
        return self._delivered(self._counted, 0)

    def _counted(self, epoch, start):
        order, resident = self._order(epoch)[start * self.batch_size :], self._resident
        sizes = [min(self.batch_size, len(order) - first) for first in range(0, len(order), self.batch_size)]
        keys = [(epoch, BATCH, batch) for batch in range(start, len(self))]
        generators = (random_generator("Loader", self.seed, *key) for key in keys)
        drawn = [resident.plan.draw(size, source) for size, source in zip(sizes, generators, strict=False)]
        resident.begin(order, map(np.concatenate, zip(*drawn, strict=True)))
        yield from ((resident, range(size)) for size, _ in zip(sizes, keys, strict=False))

    def _on_device(self):
        """Whether batches are made on the device, where the data set then lies."""
        if self.place is devices.CPU:
            return False
        if self._resident is None:
            plan = plan_of(self.transform, self.dataset.images.shape[1])
            fits = plan is not None and Resident.fits(self.dataset, self.place)
            self._resident = Resident(self.dataset, self.place, plan) if fits else False
        return self._resident is not False

    def _delivered(self, prepared, prefetch):
        """What prepared(epoch, first batch) gives of the epoch that is on, while the place in it is kept."""
        epoch, start = self.epoch, self._resume_at
        self._resume_at, self.position = 0, start
        self._running = running = object()
        batches = prepared(epoch, start)
        if prefetch:
            batches = prefetched(batches, prefetch)
        with closing(batches):
            for batch in batches:
                if self._running is running:
                    self.position += 1
                yield batch
        if self._running is running:
            self._begin(epoch + 1)

    def set_epoch(self, epoch):
        """Go to the start of that epoch; the current one is left as it is, so a loaded position holds."""
        epoch = checked_integer("set_epoch", "epoch", epoch, 0)
        if epoch != self.epoch:
            self._begin(epoch)

    def state_dict(self):
        """Where the loader stands, and what the remaining batches depend on, in plain numbers."""
        return {"seed": self.seed, "epoch": self.epoch, "position": self.position} | self._geometry()

    def load_state_dict(self, state):
        """Continue where the loader that gave this state stood.

        Errors  ShapeError if the state is malformed; StateError if it stands inside an epoch that other
                images, batch
        size or order would continue. Either leaves the loader as it was.
        """
        if not isinstance(state, dict) or state.keys() != self.state_dict().keys():
            wanted = ", ".join(self.state_dict())
            raise ShapeError(f"load_state_dict: state is {state!r}, want a dict of {wanted}")
        seed, epoch, position = (
            checked_integer("load_state_dict", name, state[name], 0) for name in ("seed", "epoch", "position")
        )
        if position:
            for name, value in self._geometry().items():
                if state[name] != value:
                    raise StateError(
                        f"load_state_dict: {name} was {state[name]}, this loader has {value}: "
                        f"the epoch cannot go on after batch {position}"
                    )
        if position > len(self):
            raise ShapeError(f"load_state_dict: position is {position}, an epoch has {len(self)} batches")
        self.seed = seed
        self._begin(epoch)
        self.position = self._resume_at = position

    def _geometry(self):
        return {
            "images": len(self.dataset),
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "drop_last": self.drop_last,
            "shards": 1 if self.sampler is None else self.sampler.shards,
        }

    def _begin(self, epoch):
        self.epoch, self.position, self._resume_at, self._running = epoch, 0, 0, None

    def _order(self, epoch):
        """The numbers of the images in the order of an epoch."""
        if self.shuffle:
            return random_generator("Loader", self.seed, epoch, ORDER).permutation(len(self.dataset))
        return np.arange(len(self.dataset))

    def _parts(self, order, epoch, start, part_of):
        """The batches from number start on, or this rank's Shards of them, by part_of(indices, key of the part)."""
        for batch in range(start, len(self)):
            picked = order[batch * self.batch_size : (batch + 1) * self.batch_size]
            key = epoch, BATCH, batch
            if self.sampler is None:
                yield part_of(picked, key)
                continue
            count = len(picked)
            parts = zip(self.sampler.numbers, self.sampler.slices(count), strict=True)
            # One shard is the whole batch, with the random numbers of one.
            keys = [((*key, number) if self.sampler.shards > 1 else key, where) for number, where in parts]
            yield Shards([part_of(picked[w], k) if w.start < w.stop else None for k, w in keys], count)

    def _prepared_there(self, epoch, start):
        """The batches from number start on, made on the device."""
        order = self.place.upload(self._order(epoch))
        made = lambda picked, key: self._resident.batch(picked, random_generator("Loader", self.seed, *key))
        return self._parts(order, epoch, start, made)

    def _prepared(self, epoch, start):
        """The arrays of the batches from number start on. Runs in the background thread, if there is one."""
        rows = self.dataset.images.transpose(CHANNELS_LAST)
        lent = np.empty((self.batch_size, *rows.shape[1:]), np.uint8)

        def made(picked, key):
            # mode="clip" (the indices are in range) lets NumPy write to `out` without a buffer between.
            images = np.take(rows, picked, axis=0, out=lent[: len(picked)], mode="clip").transpose(0, 3, 1, 2)
            try:
                images = self._transformed(images, key)
            except Exception as error:
                error.add_note(f"Loader: in batch {key[2]} of epoch {epoch}")
                raise
            return images, self.dataset.labels[picked]

        return self._parts(self._order(epoch), epoch, start, made)

    def _transformed(self, images, key):
        count = len(images)
        if self.transform is not None:
            images = self.transform(images, random_generator("Loader", self.seed, *key))
        rows = rows_of("Loader: transform", images)
        if len(rows) != count:
            raise ShapeError(f"Loader: transform returned {len(rows)} images, want {count}")
        if rows.dtype == np.uint8:
            rows = np.divide(rows, 255, dtype=np.float32)
        return rows.astype(np.float32, copy=False).transpose(0, 3, 1, 2)
