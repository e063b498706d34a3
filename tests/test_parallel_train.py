"""fit and evaluate on ranks: what one rank computes, on each of them."""

import numpy as np
import pytest

import minigrad
from minigrad import data, nn, optim
from minigrad.core.errors import OutOfMemory, ShapeError, StateError
from minigrad.nn import functional as F
from minigrad.parallel import DataParallel, ShardedOptimizer, Shards
from minigrad.train import Callback, evaluate, fit

from .parallel_runs import bits, on_ranks, outcomes
from .small_training import images, network

FIGURES = ("epoch", "step", "lr", "loss", "accuracy", "test_loss", "test_accuracy")


class Stop(Callback):
    """Stops after so many steps; for `by`, on that rank alone."""

    def __init__(self, steps, own=True):
        self.steps, self.own = steps, own

    def stop(self, history):
        return self.own and history.steps >= self.steps


def loader(model, count=44, batch_size=12):
    return data.Loader(images(count), batch_size, True, transform=data.PadCrop(1), prefetch=0, sampler=model.sampler)


def trained(world, shards=4, epochs=2, zero=None, **options):
    """(figures of all rows, bits) on one rank."""
    model = DataParallel(network(1, dropout=0.2), world, shards=shards)
    optimizer = optim.Adam(model.parameters(), lr=0.01)
    if zero is not None:
        optimizer = ShardedOptimizer(optimizer, model, zero)
    test = data.Loader(images(21, 1), 4, prefetch=0)
    history = fit(model, loader(model), optimizer, epochs, test=test, **options)
    return [[row.get(name) for name in FIGURES] for row in history], bits(model, optimizer)


@pytest.mark.parametrize("options", [{}, {"accumulate": 3}, {"clip": 0.1}], ids=["plain", "accumulate", "clip"])
def test_all_ranks_have_the_history_and_the_bits_of_one(options):
    run = lambda world, zero: trained(world, zero=zero, **options)
    (wanted,) = on_ranks(run, 1, None)
    rows, _ = wanted
    assert len(rows) == 2 and rows[1][1] == (4 if "accumulate" in options else 8) and rows[1][3] < rows[0][3]
    for size, zero in ((2, None), (4, None), (4, True), *([] if "clip" in options else [(2, False)])):
        assert on_ranks(run, size, zero) == [wanted] * size, (size, zero)


def test_accumulation_gives_the_update_of_the_one_large_batch():
    """Each of the small batches is cut into shards, and each shard's loss counts by its images."""

    def run(world, batch_size, accumulate):
        model = DataParallel(network().to("float64"), world, shards=2)
        batches = data.Loader(images(20), batch_size, prefetch=0, sampler=model.sampler)
        wide = [Shards([(x.to("float64"), y) for x, y in batch], batch.total) for batch in batches]
        fit(model, wide, optim.SGD(model.parameters(), lr=0.1), 1, accumulate=accumulate)
        return [p.detach().numpy() for p in model.parameters()]

    large = on_ranks(run, 2, 20, 1)[0]
    for small in on_ranks(run, 2, 7, 3):
        for a, b in zip(small, large, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("size, shards", [(1, 1), (2, 2)])
def test_one_shard_a_rank(size, shards):
    """A world of one with one shard trains as a network does without DataParallel."""
    rows = [found[0] for found in on_ranks(trained, size, shards)]
    assert rows == rows[:1] * size
    if size == 1:
        minigrad.manual_seed(0)
        model = network(1, dropout=0.2)
        plain = data.Loader(images(44), 12, True, transform=data.PadCrop(1), prefetch=0)
        history = fit(model, plain, optim.Adam(model.parameters(), lr=0.01), 2, test=data.Loader(images(21, 1), 4))
        assert [[row[name] for name in FIGURES] for row in history] == rows[0]


@pytest.mark.parametrize("count", [3, 4, 7, 8])
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


def test_all_stop_where_one_wants_to():
    def run(world, rank):
        history = minigrad.train.History()
        trained(world, epochs=5, history=history, callbacks=[Stop(6, world.rank == rank)])
        return history.steps, len(history)

    for rank in (0, 1):
        assert on_ranks(run, 2, rank) == [(6, 1)] * 2


def test_all_stop_within_an_evaluation():
    class StopLater(Callback):
        def __init__(self, world):
            self.world, self.asked = world, 0

        def stop(self, history):
            self.asked += 1
            return self.world.rank == 1 and self.asked == 5  # after 4 steps, in the first round

    def run(world):
        rows, _ = trained(world, callbacks=[StopLater(world)])
        return rows

    assert on_ranks(run, 2) == [[], []]


def test_a_loss_that_is_not_finite_is_the_same_error_everywhere():
    def run(world):
        model = DataParallel(network(), world, shards=4)
        before = bits(model)

        def loss(scores, labels):
            poisoned = world.rank == 1 and len(labels) and step["now"] == 1
            step["now"] += world.rank == 1
            return F.cross_entropy(scores, labels) * (float("nan") if poisoned else 1.0)

        step = {"now": 0}
        try:
            fit(model, loader(model), optim.SGD(model.parameters(), lr=0.1), 1, loss=loss)
        except StateError as error:
            assert all(p.grad is None for p in model.parameters())
            return str(error), bits(model) == before

    message = "fit: the loss is nan at step 1; lower the learning rate or clip the gradient (epoch 1)"
    assert on_ranks(run, 2) == [(message, True)] * 2


def test_no_memory_says_how_large_the_batch_was():
    def run(world):
        model = DataParallel(network(), world, shards=4)

        def loss(scores, labels):
            raise OutOfMemory("none left")

        fit(model, loader(model), optim.SGD(model.parameters(), lr=0.1), 1, loss=loss)

    for error in outcomes(run, 2):
        with pytest.raises(OutOfMemory, match="fit: none left; a batch had 12 images, try 6"):
            raise error


def test_what_fit_refuses():
    def clipped(world):
        trained(world, zero=False, clip=1.0)

    def whole(world):
        model = DataParallel(network(), world)
        fit(model, data.Loader(images(), 12), optim.SGD(model.parameters(), lr=0.1), 1)

    for run, error, message in (
        (
            clipped,
            StateError,
            "fit: clip wants all gradients on every rank; give ShardedOptimizer whole_gradients=True",
        ),
        (
            whole,
            ShapeError,
            "fit: loader gives whole batches to a DataParallel model; make it with sampler=model.sampler",
        ),
    ):
        for found in outcomes(run, 2):
            with pytest.raises(error, match=message):
                raise found


def test_dropout_goes_on_where_a_run_was_left():
    """The generator of a rank counts updates, so its state resumes masks on any number of ranks."""

    def run(world, epochs, state):
        generator = minigrad.device.generator()
        model = DataParallel(network(1, dropout=0.5), world, shards=4)
        if state is not None:
            generator.set_state(state)
        fit(model, loader(model), optim.SGD(model.parameters(), lr=0.0), epochs)
        return generator.get_state()

    (whole,) = on_ranks(run, 1, 2, None)
    half = on_ranks(run, 2, 1, None)
    assert half[0] == half[1] and half[0]["step"] == 4
    assert on_ranks(run, 4, 1, half[0]) == [whole] * 4


def test_synchronised_statistics_want_a_rank_for_each_shard():
    from minigrad.parallel import SyncBatchNorm

    def run(world, shards):
        model = SyncBatchNorm.convert(nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(36, 3)), world)
        model = DataParallel(model, world, shards=shards)
        fit(model, loader(model), optim.SGD(model.parameters(), lr=0.1), 1)
        return bits(model)

    first, second = on_ranks(run, 2, 2)
    assert first == second
    for error in outcomes(run, 2, 4):
        with pytest.raises(StateError, match="runs 2 one after another; use as many ranks as shards"):
            raise error
