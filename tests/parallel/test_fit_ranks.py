"""fit and evaluate on ranks: what one rank computes, on each of them. test_recovery.py compares whole trainings."""

import numpy as np
import pytest

from minigrad import data, optim
from minigrad.core.errors import OutOfMemory, StateError
from minigrad.nn import functional as F
from minigrad.parallel import DataParallel, Shards
from minigrad.train import Callback, evaluate, fit
from tests.parallel_runs import bits, on_ranks
from tests.small_training import images, network

FIGURES = ("epoch", "step", "lr", "loss", "accuracy", "test_loss", "test_accuracy")


def loader(sampler, count=44, batch_size=12):
    return data.Loader(images(count), batch_size, True, transform=data.PadCrop(1), prefetch=0, sampler=sampler)


def trained(world, **options):
    """The figures of all rows on one rank."""
    model = DataParallel(network(1, dropout=0.2), world, shards=4)
    optimizer = optim.Adam(model.parameters(), lr=0.01)
    test = data.Loader(images(21, 1), 4, prefetch=0)
    history = fit(model, loader(model.sampler), optimizer, 2, test=test, **options)
    return [[row.get(name) for name in FIGURES] for row in history]


def test_accumulation_gives_the_update_of_the_one_large_batch():
    """Each of the small batches is cut into shards, and each shard's loss counts by its images."""

    def run(world, batch_size, accumulate):
        model = DataParallel(network().to("float64"), world, shards=2)
        batches = data.Loader(images(20), batch_size, prefetch=0, sampler=model.sampler)
        wide = [Shards([(x.to("float64"), y) for x, y in batch], batch.total) for batch in batches]
        fit(model, wide, optim.SGD(model.parameters(), lr=0.1), 1, accumulate=accumulate)
        return np.concatenate([p.detach().numpy().reshape(-1) for p in model.parameters()])

    large, _ = on_ranks(run, 2, 20, 1)
    for small in on_ranks(run, 2, 7, 3):
        np.testing.assert_allclose(small, large, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("count", [3, 8])
def test_evaluation_is_shared_and_gives_the_numbers_of_one(count):
    """Of fewer batches than ranks, and of rounds with and without a rest."""

    def run(world):
        model, seen = DataParallel(network(1), world, shards=4), []
        model.module.register_forward_hook(lambda layer, inputs, out: seen.append(out.shape[0]))
        return evaluate(model, data.Loader(images(4 * count - 1, 1), 4, prefetch=0)), len(seen), model.training

    alone = evaluate(network(1), data.Loader(images(4 * count - 1, 1), 4))
    for size in (1, 2, 4):
        found = on_ranks(run, size)
        assert [numbers for numbers, _, _ in found] == [alone] * size and all(training for *_, training in found)
        assert [n for _, n, _ in found] == [len(range(rank, count, size)) for rank in range(size)]


class Stop(Callback):
    """Stops when it is asked for the nth time; on one rank alone."""

    def __init__(self, times, own):
        self.left, self.own = times, own

    def stop(self, history):
        self.left -= 1
        return self.own and self.left == 0


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("times, rows", [(3, 0), (5, 0), (9, 1)], ids=["a step", "an evaluation", "a later step"])
def test_all_stop_where_one_wants_to(rank, times, rows):
    """An epoch has 4 steps; after them a rank is asked in each round of the evaluation, of which there are 3."""
    run = lambda world: trained(world, callbacks=[Stop(times, world.rank == rank)])
    first, second = on_ranks(run, 2)
    assert first == second and len(first) == rows


def nowhere(scores, labels, rank):
    raise OutOfMemory("none left")


def poisoned(scores, labels, rank):
    return F.cross_entropy(scores, labels) * (float("nan") if rank == 1 else 1.0)


@pytest.mark.parametrize(
    "loss, error, message",
    [
        (poisoned, StateError, "fit: the loss is nan at step 1; lower the learning rate or clip the gradient"),
        (nowhere, OutOfMemory, "fit: none left; a batch had 12 images, try 6"),
    ],
)
def test_what_one_rank_meets_is_the_same_error_everywhere(loss, error, message):
    def run(world):
        model = DataParallel(network(), world, shards=4)
        before, optimizer = bits(model), optim.SGD(model.parameters(), lr=0.1)
        with pytest.raises(error, match=message):
            fit(model, loader(model.sampler), optimizer, 1, loss=lambda *pair: loss(*pair, world.rank))
        assert bits(model) == before and all(p.grad is None for p in model.parameters())

    on_ranks(run, 2)
