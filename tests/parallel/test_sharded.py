"""ShardedOptimizer: the bits of the optimiser alone, of which each rank keeps the state of its part."""

from functools import partial

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, nn, optim
from minigrad.nn import functional as F
from minigrad.optim import lr_scheduler
from minigrad.parallel import DataParallel, ShardedOptimizer
from tests.parallel.parallel_runs import Wide, bits, on_ranks

X = np.random.default_rng(1).standard_normal((8, 2, 5, 5)).astype(np.float32)
Y = np.arange(8) % 3


def network():
    minigrad.manual_seed(4)
    layers = nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3).requires_grad_(False), nn.Tanh(), nn.Flatten(), nn.Linear(27, 7)
    return nn.Sequential(*layers, Wide(7, 3, dtype="float64"))


OPTIMIZERS = {
    "stateless": optim.SGD,
    "adam": partial(optim.Adam, amsgrad=True),
    "adagrad": partial(optim.Adagrad, lr_decay=0.1, initial_accumulator_value=0.5),
}


def built(world, kind, divided=True):
    """(model, optimizer of two groups with other options)."""
    model = DataParallel(network(), world, shards=4, bucket_bytes=200)
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [{"params": trained[3:]}, {"params": trained[:3], "lr": 0.02, "weight_decay": 0.1}]
    optimizer = OPTIMIZERS[kind](groups, lr=0.05)
    return model, ShardedOptimizer(optimizer, model) if divided else optimizer


def update(model, optimizer):
    optimizer.zero_grad()
    for x, y in model.shards((Tensor(X), Tensor(Y))):
        F.cross_entropy(model(x), y).backward()
    optimizer.step()


# ---- the bits of the optimiser alone ---------------------------------------------------------------------------------


def in_many_ways(model, optimizer):
    """By a schedule, momentum alone, on parameters that were given other arrays, from an older state."""
    schedule = lr_scheduler.OneCycleLR(optimizer, 0.1, 9)
    for _ in range(3):
        update(model, optimizer)
        schedule.step()
    update(model, optimizer)
    for forgotten in (False, True):  # gradients of zero, and none
        optimizer.zero_grad(set_to_none=forgotten)
        optimizer.step()
    for p in model.parameters():
        p.data = p.array * 0.5
    update(model, optimizer)
    for state in (optimizer.state_dict()["state"], {}):
        update(model, optimizer)  # to be forgotten
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
        update(model, optimizer)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_the_bits_are_those_of_the_optimiser_alone_that_has_stepped_before(kind):
    def run(world, divided):
        model, optimizer = built(world, kind, False)
        update(model, optimizer)
        optimizer = ShardedOptimizer(optimizer, model) if divided else optimizer
        in_many_ways(model, optimizer)
        return bits(model, optimizer), optimizer.state_dict()["param_groups"], optimizer.name

    (wanted,) = on_ranks(run, 1, False)
    for size in (1, 2, 4):
        assert on_ranks(run, size, True) == [wanted] * size, size


# ---- state -----------------------------------------------------------------------------------------------------------


def test_each_rank_keeps_its_part_of_the_state():
    def run(world, divided):
        model, optimizer = built(world, "adam", divided)
        update(model, optimizer)
        arrays = [v for entries in optimizer.state.values() for v in entries.values() if isinstance(v, np.ndarray)]
        return sum(array.nbytes for array in arrays)

    everything = 3 * sum(p.array.nbytes for p in network().parameters() if p.requires_grad)
    assert on_ranks(run, 1, False) == [everything]
    parts = on_ranks(run, 4, True)
    assert sum(parts) == everything
    assert max(parts) == 3 * 4 * 27 * 7, "the largest parameter is one rank's only one"
