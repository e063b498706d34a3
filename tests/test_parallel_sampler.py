"""ShardSampler: how batches are cut. Loader with one: ranks together get what one gets. Random numbers of shards."""

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, data, nn
from minigrad.core.errors import KindError, ShapeError
from minigrad.device import default_generator, generator
from minigrad.device.random import Generator, drawing_from
from minigrad.nn import functional as F
from minigrad.parallel import Shards, ShardSampler

from .parallel_runs import on_ranks
from .small_training import images, network

ALLOWED = [
    (s, r) for s in range(1, 25) for r in range(1, s + 1) if s % r == 0 and (r == 1 or (s // r) & (s // r - 1) == 0)
]


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ((4, 0, 3), ShapeError, "shards is 4, wanted a multiple of the 3 ranks"),
        ((0,), ShapeError, "shards is 0, wanted a multiple of the 1 ranks"),
        ((6, 0, 2), ShapeError, "6 shards make 3 for each of 2 ranks, wanted a power of two for each"),
        ((4, 2, 2), ShapeError, "rank is 2, wanted one from 0 to 1"),
        ((4, -1, 2), ShapeError, "rank is -1, wanted one from 0 to 1"),
        ((4.0,), KindError, "shards is 4.0, wanted an integer"),
        ((True,), KindError, "shards is True, wanted an integer"),
        ((4, 0, None), KindError, "size is None, wanted an integer"),
    ],
)
def test_what_a_sampler_refuses(arguments, error, message):
    with pytest.raises(error, match=message):
        ShardSampler(*arguments)


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
    x, y = Tensor(np.arange(5.0)), Tensor(np.arange(5))
    parts = ShardSampler(8, 1, 2).cut(x, y)
    assert isinstance(parts, Shards) and parts.total == 5
    assert [None if part is None else [t.tolist() for t in part] for part in parts] == [
        [[2], [2]],
        None,
        [[3], [3]],
        [[4], [4]],
    ]
    with pytest.raises(ShapeError, match=r"the parts of a batch have \[3, 5\] rows, wanted one number"):
        ShardSampler(2).cut(x, y[:3])


# ---- Loader ----------------------------------------------------------------------------------------------------------


def loader(sampler=None, prefetch=0, **options):
    transform = data.Compose([data.PadCrop(1), data.Flip()])
    return data.Loader(
        images(45), 12, shuffle=True, seed=5, transform=transform, prefetch=prefetch, sampler=sampler, **options
    )


def contents(batches):
    """Shards as bytes, so that they can be compared."""
    plain = lambda part: part and tuple(t.numpy().tobytes() for t in part)
    return [[plain(part) for part in batch] for batch in batches]


@pytest.mark.parametrize("prefetch", [0, 2])
def test_ranks_together_get_what_one_rank_gets(prefetch):
    whole = loader(ShardSampler(8), prefetch)
    epochs = [contents(whole) for _ in range(2)]
    assert epochs[0] != epochs[1]
    for size in (2, 4, 8):
        ranks = [loader(ShardSampler(8, rank, size), prefetch) for rank in range(size)]
        for epoch in epochs:
            assert [sum(parts, []) for parts in zip(*map(contents, ranks), strict=True)] == epoch
    totals = [batch.total for batch in loader(ShardSampler(8, 1, 2))]
    assert totals == [12, 12, 12, 9]


def test_the_order_is_that_without_shards_and_one_shard_is_the_batch():
    plain = [[t.numpy() for t in batch] for batch in loader()]
    one = [[t.numpy() for t in batch[0]] for batch in loader(ShardSampler(1))]
    many = list(loader(ShardSampler(4)))
    for (x, y), (x1, y1), shards in zip(plain, one, many, strict=True):
        assert x.tobytes() == x1.tobytes() and y.tobytes() == y1.tobytes()
        assert np.concatenate([labels.numpy() for _, labels in shards]).tobytes() == y.tobytes()
        # Each shard has augmentation of its own.
        assert np.concatenate([part.numpy() for part, _ in shards]).tobytes() != x.tobytes()


def test_each_shard_has_augmentation_of_its_own():
    def drawn(sampler):
        seen = []
        batches = data.Loader(
            images(24), 8, transform=lambda x, g: [seen.append(g.random()), x.copy()][1], prefetch=0, sampler=sampler
        )
        list(batches)
        return seen

    whole = drawn(ShardSampler(4))
    assert len(set(whole)) == 12
    assert drawn(ShardSampler(4, 1, 2)) == [whole[4 * batch + shard] for batch in range(3) for shard in (2, 3)]


def test_shards_without_images_are_none():
    few = data.Loader(images(5), 4, sampler=ShardSampler(4, 1, 2), prefetch=0)
    assert [[part and part[1].tolist() for part in batch] for batch in few] == [[[2], [0]], [None, [1]]]


@pytest.mark.parametrize("prefetch", [0, 2])
def test_resuming_inside_an_epoch(prefetch):
    sampler = ShardSampler(4, 1, 2)
    first = loader(sampler, prefetch)
    batches = iter(first)
    next(batches), next(batches)
    state = first.state_dict()
    rest = contents(batches) + contents(first)
    second = loader(sampler, prefetch)
    second.load_state_dict(state)
    assert contents(second) + contents(second) == rest


def test_batches_made_on_a_device_are_those_of_the_cpu():
    sampler = ShardSampler(4, 1, 2)
    there = loader(sampler, device="interpreter")
    batch = next(iter(there))
    assert isinstance(batch, Shards) and batch.total == 12 and batch[0][0].device == "interpreter"
    here = next(iter(loader(sampler)))
    for (x, y), (x0, y0) in zip(batch, here, strict=True):
        np.testing.assert_allclose(x.numpy(), x0.numpy(), rtol=3e-7)  # there x / 255 is a product
        assert np.array_equal(np.rint(255 * x.numpy()), np.rint(255 * x0.numpy())) and y.tolist() == y0.tolist()


# ---- random numbers --------------------------------------------------------------------------------------------------


def test_shards_draw_numbers_of_their_own():
    source = Generator(7)
    keys, streams = set(), set()
    for step in range(4):
        source.step = step
        for shard in range(8):
            own = source.of_shard(shard)
            keys |= {own.next_key() for _ in range(5)}
            streams.add(source.of_shard(shard).numpy.random())
            assert source.of_shard(shard).next_key() == (own.seed, own.step - 4)
    assert len(keys) == 4 * 8 * 5 and len(streams) == 4 * 8
    assert source.of_shard(0).next_key() not in {Generator(7).next_key(), source.next_key()}
    assert Generator(8).of_shard(0).next_key() != Generator(7).of_shard(0).next_key()


def test_draws_of_a_shard_leave_the_generator_outside_alone():
    minigrad.manual_seed(3)
    before = default_generator.get_state()
    with drawing_from(generator().of_shard(1)):
        first = F.dropout(Tensor(np.ones(50)), 0.5).numpy(), minigrad.rand(3).numpy()
        with pytest.raises(RuntimeError), drawing_from(generator().of_shard(0)):
            raise RuntimeError
        assert generator().seed == default_generator.of_shard(1).seed
    assert generator() is default_generator and default_generator.get_state() == before
    with drawing_from(generator().of_shard(1)):
        again = F.dropout(Tensor(np.ones(50)), 0.5).numpy(), minigrad.rand(3).numpy()
    assert [a.tobytes() for a in first] == [a.tobytes() for a in again]


def test_ranks_build_equal_models_and_leave_the_caller_alone():
    minigrad.manual_seed(11)
    before = default_generator.get_state()
    build = lambda world: [p.detach().numpy().tobytes() for p in nn.Linear(5, 3).parameters()]
    first, second = on_ranks(build, 2)
    assert first == second == build(None)
    default_generator.set_state(before)
    on_ranks(lambda world: network(world.rank) and minigrad.rand(2), 2)
    assert default_generator.get_state() == before
