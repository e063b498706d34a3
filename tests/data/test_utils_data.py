"""minigrad.utils.data: samples become batches in the order asked for, also by threads."""

from collections import namedtuple

import numpy as np
import pytest

import minigrad
from minigrad.utils import data

Pair = namedtuple("Pair", "x y")


class Squares(data.Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, i):
        return {"x": minigrad.tensor([i, i * i]), "pair": Pair(np.float32(i), str(i)), "list": [i, True]}


class Stream(data.IterableDataset):
    def __iter__(self):
        yield from (minigrad.tensor(i) for i in range(5))


def test_batches_in_order_whoever_makes_them():
    names = []
    for workers in (0, 3):
        loader = data.DataLoader(Squares(), 4, num_workers=workers, worker_init_fn=names.append)
        batches = list(loader)
        assert len(loader) == 3 and [len(batch["list"][0]) for batch in batches] == [4, 4, 2]
        first = batches[0]
        assert first["x"].tolist() == [[0, 0], [1, 1], [2, 4], [3, 9]] and first["pair"].y == ["0", "1", "2", "3"]
        assert first["pair"].x.dtype == np.float32 and first["list"][1].dtype == bool
    assert names and set(names) <= {0, 1, 2}
    assert [batch.tolist() for batch in data.DataLoader(Stream(), 2, drop_last=True)] == [[0, 1], [2, 3]]
    assert [sample["list"][0] for sample in data.DataLoader(Squares(), None)] == list(range(10))


def test_orders_are_drawn():
    minigrad.manual_seed(0)
    pairs = data.TensorDataset(minigrad.arange(10), minigrad.arange(10) * 2)
    seen = [x.tolist() for x, y in data.DataLoader(pairs, 10, shuffle=True) if (y == 2 * x).all()]
    assert sorted(seen[0]) == list(range(10)) != seen[0]
    again = [[x.tolist() for x, _ in data.DataLoader(pairs, 5, True, generator=source())] for source in [generator] * 2]
    assert again[0] == again[1] and again[0] != again[0][::-1]
    weighted = data.DataLoader(pairs, 4, sampler=data.WeightedRandomSampler([0] * 9 + [1], 8))
    assert [x.tolist() for x, _ in weighted] == [[9] * 4] * 2
    some = data.DataLoader(pairs, batch_sampler=[[1, 2], [3]])
    assert [x.tolist() for x, _ in some] == [[1, 2], [3]] and len(some) == 2
    assert sorted(x.item() for x, _ in data.DataLoader(pairs, sampler=data.SubsetRandomSampler([4, 6]))) == [4, 6]
    assert len(list(data.RandomSampler(pairs, replacement=True, num_samples=25))) == 25


def generator():
    return minigrad.Generator().manual_seed(3)


def test_parts_of_data_sets():
    whole = data.TensorDataset(minigrad.arange(10))
    first, second, third = data.random_split(whole, [0.5, 0.25, 0.25], generator())
    assert [len(first), len(second), len(third)] == [6, 2, 2]
    joined = first + second + third
    assert sorted(sample.item() for (sample,) in (joined[i] for i in range(10))) == list(range(10))
    assert joined[-1][0] == third[1][0]
    for wrong in (lambda: joined[10], lambda: data.random_split(whole, [3, 3]), lambda: data.DataLoader(whole, 0)):
        with pytest.raises((ValueError, IndexError)):
            wrong()
    with pytest.raises(ValueError, match="TensorDataset: the tensors have"):
        data.TensorDataset(minigrad.zeros(2), minigrad.zeros(3))
