"""Shards: how batches are cut; Loader, random numbers, fit and evaluate with shards give ranks together what one gets.

test_recovery.py compares trainings by several processes.
"""

from functools import partial

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, data, optim
from minigrad.core.errors import OutOfMemory, StateError
from minigrad.device import default_generator
from minigrad.device.random import Generator
from minigrad.nn import functional as F
from minigrad.parallel import DataParallel, ShardedOptimizer, Shards, ShardSampler
from minigrad.train import Callback, evaluate, fit
from tests.parallel.parallel_runs import bits, on_ranks
from tests.train.small_training import images, network


def test_shards_cover_every_batch_once():
    for shards, size in ((1, 1), (6, 1), (6, 3), (6, 6), (8, 2), (12, 3), (24, 3)):
        samplers = [ShardSampler(shards, rank, size) for rank in range(size)]
        assert [n for sampler in samplers for n in sampler.numbers] == list(range(shards))
        for count in (0, 1, shards - 1, shards, 3 * shards + 1, 100):
            rows = [list(range(count))[where] for sampler in samplers for where in sampler.slices(count)]
            assert [row for part in rows for row in part] == list(range(count)), (shards, size, count)
            assert max(map(len, rows)) - min(map(len, rows)) <= 1
    parts = ShardSampler(8, 1, 2).cut(Tensor(np.arange(5.0)), Tensor(np.arange(5)))
    assert isinstance(parts, Shards) and parts.total == 5
    assert [part and [t.tolist() for t in part] for part in parts.parts] == [[[2], [2]], None, [[3], [3]], [[4], [4]]]


# ---- Loader ----------------------------------------------------------------------------------------------------------


def loader(sampler=None, prefetch=0, **options):
    options = {"shuffle": True, "seed": 5, "transform": data.PadCrop(1), **options}
    return data.Loader(images(45), 12, prefetch=prefetch, sampler=sampler, **options)


def contents(batches):
    """Shards as bytes, so that they can be compared."""
    plain = lambda part: part and tuple(t.numpy().tobytes() for t in part)
    return [[plain(part) for part in batch.parts] for batch in batches]


def test_ranks_together_get_what_one_rank_gets_also_resumed_in_an_epoch():
    whole = loader(ShardSampler(8), prefetch=2)
    epochs = [contents(whole) for _ in range(2)]
    assert epochs[0] != epochs[1]
    for size in (2, 8):
        ranks = [loader(ShardSampler(8, rank, size)) for rank in range(size)]
        for epoch in epochs:
            assert [sum(parts, []) for parts in zip(*map(contents, ranks), strict=True)] == epoch
    first, second = (loader(ShardSampler(8, 1, 2), prefetch) for prefetch in (0, 2))
    batches = iter(first)
    assert [next(batches).total for _ in range(2)] == [12, 12]
    second.load_state_dict(first.state_dict())
    assert contents(second) == contents(batches)
    assert contents(second) == [shards[4:] for shards in epochs[1]]


def test_the_order_is_that_without_shards_and_each_shard_has_augmentation_of_its_own():
    plain, one, many = list(loader()), list(loader(ShardSampler(1))), list(loader(ShardSampler(4)))
    assert contents([Shards([pair], 0) for pair in plain]) == contents(one)
    for (x, y), shards in zip(plain, many, strict=True):
        assert np.concatenate([labels.numpy() for _, labels in shards.parts]).tobytes() == y.numpy().tobytes()
        assert np.concatenate([part.numpy() for part, _ in shards.parts]).tobytes() != x.numpy().tobytes()


# ---- random numbers --------------------------------------------------------------------------------------------------


def test_shards_draw_numbers_of_their_own():
    source, keys, streams = Generator(7), set(), set()
    for source.step in range(4):
        for shard in range(8):
            own = source.of_shard(shard)
            keys |= {own.next_key() for _ in range(5)}
            streams.add(source.of_shard(shard).numpy.random())
    assert len(keys) == 4 * 8 * 5 and len(streams) == 4 * 8
    assert source.of_shard(0).next_key() not in {Generator(7).next_key(), source.next_key()}
    assert Generator(8).of_shard(0).next_key() != Generator(7).of_shard(0).next_key()
    before = default_generator.get_state()
    first, second = on_ranks(lambda world: minigrad.rand(5).tolist(), 2)  # and leave what is outside alone
    assert default_generator.get_state() == before and first == second == minigrad.rand(5).tolist()


# ---- fit and evaluate ------------------------------------------------------------------------------------------------

FIGURES = ("epoch", "step", "lr", "loss", "accuracy", "test_loss", "test_accuracy")
KINDS = {  # (optimiser, bytes of a bucket, whether its state is divided, options of fit)
    "sgd": (partial(optim.SGD, lr=0.05, momentum=0.9), 500, False, {}),
    "adam": (optim.Adam, None, False, {}),
    "zero": (optim.Adam, 500, True, {}),
    "clipped": (optim.Adam, 1000, True, {"clip": 0.1}),
    "accumulated": (optim.Adam, None, True, {"accumulate": 2}),
}


def trained(world, kind="adam", **options):
    """(the figures of all rows, weights and state of the optimiser) on one rank."""
    make, bucket_bytes, divided, more = KINDS[kind]
    model = DataParallel(network(1, dropout=0.2), world, shards=8, bucket_bytes=bucket_bytes)
    optimizer = make(model.parameters())
    optimizer = ShardedOptimizer(optimizer, model) if divided else optimizer
    test = data.Loader(images(21, 1), 4, prefetch=0)
    history = fit(model, loader(model.sampler), optimizer, 2, test=test, **options, **more)
    return [[row.get(name) for name in FIGURES] for row in history], bits(model, optimizer)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_bits_whoever_shares_the_training(kind):
    """Whatever the buckets, and however the state is divided."""
    (alone,) = on_ranks(trained, 1, "adam" if kind == "zero" else kind)
    for size in (2, 8):
        assert on_ranks(trained, size, kind) == [alone] * size


@pytest.mark.parametrize("count", [3, 8])
def test_evaluation_is_shared_and_gives_the_numbers_of_one(count):
    """Of fewer batches than ranks, and of rounds with and without a rest."""

    def run(world):
        model, seen = DataParallel(network(1), world, shards=4), []
        model.module.register_forward_hook(lambda layer, inputs, out: seen.append(out.shape[0]))
        return evaluate(model, data.Loader(images(4 * count - 1, 1), 4, prefetch=0)), len(seen), model.training

    alone = evaluate(network(1), data.Loader(images(4 * count - 1, 1), 4))
    assert on_ranks(run, 4) == [(alone, len(range(rank, count, 4)), True) for rank in range(4)]


@pytest.mark.parametrize("times, rows", [(3, 0), (5, 1), (9, 1)], ids=["a step", "an epoch", "a later step"])
def test_all_stop_where_one_wants_to(times, rows):
    """An epoch has 4 steps, and a rank is asked after each of them and after the epoch."""

    def run(world):
        keeper, asked = Callback(), iter(range(1, 99))
        keeper.stop = lambda history: next(asked) == times and world.rank == 1
        return trained(world, callbacks=[keeper])

    first, second = on_ranks(run, 2)
    assert first == second and len(first[0]) == rows


def nowhere(scores, labels, rank):
    raise OutOfMemory("none left")


def poisoned(scores, labels, rank):
    return F.cross_entropy(scores, labels) * (float("nan") if rank == 1 else 1.0)


MET = [
    (poisoned, StateError, "fit: the loss is nan at step 1; lower the learning rate or clip the gradient"),
    (nowhere, OutOfMemory, "fit: none left; a batch had 12 images, try 6"),
]


@pytest.mark.parametrize("loss, error, message", MET)
def test_what_one_rank_meets_is_the_same_error_everywhere(loss, error, message):
    def run(world):
        model = DataParallel(network(), world, shards=4)
        before, optimizer = bits(model), optim.SGD(model.parameters(), lr=0.1)
        with pytest.raises(error, match=message):
            fit(model, loader(model.sampler), optimizer, 1, loss=lambda *pair: loss(*pair, world.rank))
        assert bits(model) == before and all(p.grad is None for p in model.parameters())

    on_ranks(run, 2)
