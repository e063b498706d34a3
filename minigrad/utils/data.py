"""Data sets of samples and their loader, as torch.utils.data. Workers are threads.

For images that lie in one array, `minigrad.data.Loader` is faster: it cuts, changes and moves a batch as a whole.

Errors  ValueError for sizes out of range, TypeError for arguments of another kind
"""

import itertools
import math
from collections.abc import Mapping

import numpy as np

from minigrad_kernels.errors import KindError, ShapeError

from ..core.check import flag_of, integer_of, source_of
from ..core.create import tensor
from ..core.tensor import Tensor
from ..data.loader import prefetched
from ..ops.shape import stack

__all__ = [
    "ConcatDataset", "DataLoader", "Dataset", "IterableDataset", "RandomSampler", "SequentialSampler", "Subset",
    "SubsetRandomSampler", "TensorDataset", "WeightedRandomSampler", "default_collate", "random_split",
]  # fmt: skip


class Dataset:
    """Base of data sets: define __len__ and __getitem__(index), which gives a sample."""

    def __add__(self, other):
        return ConcatDataset([self, other])


class IterableDataset(Dataset):
    """Base of data sets that give their samples in an order of their own: define __iter__."""


class TensorDataset(Dataset):
    """Samples (tensors[0][i], tensors[1][i], ...)."""

    def __init__(self, *tensors):
        sizes = {len(one) for one in tensors}
        if len(sizes) != 1:
            raise ShapeError(f"TensorDataset: the tensors have {sorted(sizes)} rows, wanted the same number in each")
        self.tensors = tensors

    def __getitem__(self, index):
        return tuple(one[index] for one in self.tensors)

    def __len__(self):
        return len(self.tensors[0])


class Subset(Dataset):
    """The samples of a data set at these indices."""

    def __init__(self, dataset, indices):
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, index):
        return self.dataset[self.indices[index]]

    def __len__(self):
        return len(self.indices)


class ConcatDataset(Dataset):
    """The samples of several data sets, one after another."""

    def __init__(self, datasets):
        self.datasets = list(datasets)
        self.places = [(dataset, index) for dataset in self.datasets for index in range(len(dataset))]

    def __getitem__(self, index):
        dataset, own = self.places[index]
        return dataset[own]

    def __len__(self):
        return len(self.places)


def random_split(dataset, lengths, generator=None):
    """Subsets of these lengths, of samples drawn without replacement; fractions that add up to 1 are lengths too."""
    if math.isclose(sum(lengths), 1):
        whole = [math.floor(length * len(dataset)) for length in lengths]
        left = len(dataset) - sum(whole)
        lengths = [length + (index < left) for index, length in enumerate(whole)]
    if sum(lengths) != len(dataset):
        raise ShapeError(f"random_split: lengths add up to {sum(lengths)}, wanted the {len(dataset)} of the data set")
    order, ends = source_of("random_split", generator).permutation(len(dataset)).tolist(), itertools.accumulate(lengths)
    return [Subset(dataset, order[end - length : end]) for end, length in zip(ends, lengths, strict=True)]


# ---- the order of samples --------------------------------------------------------------------------------------------


class SequentialSampler:
    """Indices in order."""

    def __init__(self, data_source):
        self.data_source = data_source

    def __iter__(self):
        return iter(range(len(self)))

    def __len__(self):
        return len(self.data_source)


class RandomSampler(SequentialSampler):
    """Indices in random order, in each iteration another; with replacement, num_samples of them drawn evenly."""

    shares = None  # with which each is drawn

    def __init__(self, data_source, replacement=False, num_samples=None, generator=None):
        super().__init__(data_source)
        self.replacement, self.num_samples, self.generator = replacement, num_samples, generator

    def __iter__(self):
        source = source_of(type(self).__name__, self.generator)
        return iter(source.choice(len(self.data_source), len(self), self.replacement, self.shares).tolist())

    def __len__(self):
        return len(self.data_source) if self.num_samples is None else self.num_samples


class SubsetRandomSampler(RandomSampler):
    """These indices, in each iteration in another random order."""

    def __init__(self, indices, generator=None):
        super().__init__(indices, generator=generator)

    def __iter__(self):
        return map(self.data_source.__getitem__, super().__iter__())


class WeightedRandomSampler(RandomSampler):
    """num_samples indices, drawn with probabilities in proportion to the weights."""

    def __init__(self, weights, num_samples, replacement=True, generator=None):
        super().__init__(weights, replacement, num_samples, generator)
        self.shares = np.asarray(weights, np.float64) / np.sum(weights, dtype=np.float64)


# ---- batches ---------------------------------------------------------------------------------------------------------


def default_collate(batch):
    """Samples as a batch: Tensors, arrays and numbers are stacked; tuples, lists and dictionaries entry by entry."""
    first = batch[0]
    if isinstance(first, Tensor):
        return stack(list(batch))
    if isinstance(first, np.ndarray | np.generic):
        return tensor(np.stack(batch))
    if isinstance(first, bool | int | float):
        return tensor(batch)
    if isinstance(first, str | bytes):
        return list(batch)
    if isinstance(first, Mapping):
        return {key: default_collate([sample[key] for sample in batch]) for key in first}
    if isinstance(first, tuple | list):
        columns = [default_collate(list(column)) for column in zip(*batch, strict=True)]
        return type(first)(*columns) if hasattr(first, "_fields") else columns
    raise KindError(f"default_collate: a sample is a {type(first).__name__}; give the loader a collate_fn")


class DataLoader:
    """Batches of the samples of a data set.

    sampler, batch_sampler  give indices, or lists of them, in the place of shuffle, or of batch_size and drop_last
    num_workers             threads that make batches ahead; with 0 they are made when they are asked for
    collate_fn              makes a batch of a list of samples; default default_collate
    generator               of the order; default that of minigrad.manual_seed
    pin_memory, persistent_workers  PyTorch's, without effect
    """

    def __init__(
        self,
        dataset,
        batch_size=1,
        shuffle=False,
        sampler=None,
        batch_sampler=None,
        num_workers=0,
        collate_fn=None,
        pin_memory=False,
        drop_last=False,
        worker_init_fn=None,
        generator=None,
        *,
        prefetch_factor=2,
        persistent_workers=False,
    ):
        if (sampler is not None or batch_sampler is not None) and shuffle:
            raise ShapeError("DataLoader: a sampler gives the order; wanted shuffle=False with it")
        self.dataset, self.batch_sampler, self.collate_fn = dataset, batch_sampler, collate_fn or default_collate
        self.batch_size = None if batch_size is None else integer_of("DataLoader", "batch_size", batch_size, 1)
        self.drop_last = flag_of("DataLoader", "drop_last", drop_last)
        self.num_workers = integer_of("DataLoader", "num_workers", num_workers, 0)
        self.worker_init_fn, self.prefetch_factor = worker_init_fn, prefetch_factor or 2
        made = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        self.sampler = made if sampler is None else sampler

    def __len__(self):
        if self.batch_sampler is not None:
            return len(self.batch_sampler)
        count, size = len(self.sampler), self.batch_size or 1
        return count // size if self.drop_last else -(-count // size)

    def __iter__(self):
        if isinstance(self.dataset, IterableDataset):
            return map(self.collate_fn, self._cut(self.dataset)) if self.batch_size else iter(self.dataset)
        if self.batch_size is None and self.batch_sampler is None:
            return map(self.dataset.__getitem__, self.sampler)
        batches = self._cut(self.sampler) if self.batch_sampler is None else self.batch_sampler
        if not self.num_workers:
            return map(self._batch, batches)
        numbers, begin = itertools.count(), self.worker_init_fn
        number = begin and (lambda: begin(next(numbers)))
        return prefetched(self._batch, batches, self.num_workers * self.prefetch_factor, self.num_workers, number)

    def _cut(self, samples):
        """Lists of batch_size samples."""
        coming = iter(samples)
        while batch := list(itertools.islice(coming, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def _batch(self, indices):
        if type(self.dataset) is TensorDataset and self.collate_fn is default_collate:
            return [one[list(indices)] for one in self.dataset.tensors]  # at once
        return self.collate_fn([self.dataset[index] for index in indices])
