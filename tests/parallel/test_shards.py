"""ShardSampler: how batches are cut. Loader with one: ranks together get what one gets. Random numbers of shards."""

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, data, nn
from minigrad.device import default_generator, generator
from minigrad.device.random import Generator, drawing_from
from minigrad.parallel import Shards, ShardSampler
from tests.parallel_runs import on_ranks
from tests.small_training import images

ALLOWED = [
    (s, r) for s in range(1, 25) for r in range(1, s + 1) if s % r == 0 and (r == 1 or (s // r) & (s // r - 1) == 0)
]


def test_shards_cover_every_batch_once():
    assert (6, 2) not in ALLOWED and {(6, 3), (6, 6), (6, 1), (12, 3), (24, 3)} <= set(ALLOWED)
    for shards, size in ALLOWED:
        samplers = [ShardSampler(shards, rank, size) for rank in range(size)]
        assert [n for sampler in samplers for n in sampler.numbers] == list(range(shards))
        for count in (0, 1, shards - 1, shards, 3 * shards + 1, 100):
            rows = [list(range(count))[where] for sampler in samplers for where in sampler.slices(count)]
            assert [row for part in rows for row in part] == list(range(count)), (shards, size, count)
            assert max(map(len, rows)) - min(map(len, rows)) <= 1


def test_batches_that_every_rank_has_whole():
    parts = ShardSampler(8, 1, 2).cut(Tensor(np.arange(5.0)), Tensor(np.arange(5)))
    assert isinstance(parts, Shards) and parts.total == 5
    assert [part and [t.tolist() for t in part] for part in parts] == [[[2], [2]], None, [[3], [3]], [[4], [4]]]


# ---- Loader ----------------------------------------------------------------------------------------------------------


def loader(sampler=None, prefetch=0, **options):
    options = {"shuffle": True, "seed": 5, "transform": data.PadCrop(1), **options}
    return data.Loader(images(45), 12, prefetch=prefetch, sampler=sampler, **options)


def contents(batches):
    """Shards as bytes, so that they can be compared."""
    plain = lambda part: part and tuple(t.numpy().tobytes() for t in part)
    return [[plain(part) for part in batch] for batch in batches]


@pytest.mark.parametrize("prefetch", [0, 2])
def test_ranks_together_get_what_one_rank_gets_also_resumed_in_an_epoch(prefetch):
    whole = loader(ShardSampler(8), prefetch)
    epochs = [contents(whole) for _ in range(2)]
    assert epochs[0] != epochs[1]
    for size in (2, 4, 8):
        ranks = [loader(ShardSampler(8, rank, size), prefetch) for rank in range(size)]
        for epoch in epochs:
            assert [sum(parts, []) for parts in zip(*map(contents, ranks), strict=True)] == epoch
    sampler = ShardSampler(8, 1, 2)
    first, second = (loader(sampler, prefetch) for _ in range(2))
    batches = iter(first)
    assert [next(batches).total for _ in range(2)] == [12, 12]
    second.load_state_dict(first.state_dict())
    assert [batch.total for batch in second] == [12, 9]
    second.load_state_dict(first.state_dict())
    assert contents(second) == contents(batches)
    assert contents(second) == [shards[4:] for shards in epochs[1]]


def test_the_order_is_that_without_shards_and_each_shard_has_augmentation_of_its_own():
    plain, one, many = list(loader()), list(loader(ShardSampler(1))), list(loader(ShardSampler(4)))
    assert contents([[pair] for pair in plain]) == contents(one)
    for (x, y), shards in zip(plain, many, strict=True):
        assert np.concatenate([labels.numpy() for _, labels in shards]).tobytes() == y.numpy().tobytes()
        assert np.concatenate([part.numpy() for part, _ in shards]).tobytes() != x.numpy().tobytes()
    seen = []
    list(loader(ShardSampler(4), transform=lambda x, g: [seen.append(g.random()), x.copy()][1]))
    assert len(set(seen)) == 16


def test_shards_without_images_are_none():
    few = data.Loader(images(5), 4, sampler=ShardSampler(4, 1, 2), prefetch=0)
    assert [[part and part[1].tolist() for part in batch] for batch in few] == [[[2], [0]], [None, [1]]]


# ---- random numbers --------------------------------------------------------------------------------------------------


def test_shards_draw_numbers_of_their_own():
    source, keys, streams = Generator(7), set(), set()
    for source.step in range(4):
        for shard in range(8):
            own = source.of_shard(shard)
            keys |= {own.next_key() for _ in range(5)}
            streams.add(source.of_shard(shard).numpy.random())
            assert source.of_shard(shard).next_key() == (own.seed, own.step - 4)
    assert len(keys) == 4 * 8 * 5 and len(streams) == 4 * 8
    assert source.of_shard(0).next_key() not in {Generator(7).next_key(), source.next_key()}
    assert Generator(8).of_shard(0).next_key() != Generator(7).of_shard(0).next_key()


def test_draws_of_shards_and_of_ranks_leave_the_generator_outside_alone():
    minigrad.manual_seed(11)
    before = default_generator.get_state()
    with pytest.raises(RuntimeError), drawing_from(generator().of_shard(1)):
        assert minigrad.rand(3).tolist() and generator().seed == default_generator.of_shard(1).seed
        raise RuntimeError
    first, second = on_ranks(lambda world: nn.Linear(5, 3).weight.tolist(), 2)
    assert generator() is default_generator and default_generator.get_state() == before
    assert first == second == nn.Linear(5, 3).weight.tolist()
