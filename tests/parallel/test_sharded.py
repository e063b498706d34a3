"""ShardedOptimizer: the bits of the optimiser alone, of which each rank keeps the state of its part."""

from functools import partial

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, nn, optim
from minigrad.core.errors import KindError, ShapeError, StateError
from minigrad.nn import functional as F
from minigrad.optim import lr_scheduler
from minigrad.parallel import DataParallel, ShardedOptimizer
from tests.parallel_runs import bits, on_ranks

from .parallel_models import branches, refused, rows

X = np.random.default_rng(1).standard_normal((8, 2, 5, 5)).astype(np.float32)
Y = np.arange(8) % 3


class Wide(nn.Linear):
    """In another type than the layers before, which are float32."""

    def forward(self, input):
        return super().forward(input.to("float64"))


def network():
    minigrad.manual_seed(4)
    layers = nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3).requires_grad_(False), nn.Tanh(), nn.Flatten(), nn.Linear(27, 7)
    return nn.Sequential(*layers, Wide(7, 3, dtype="float64"))


OPTIMIZERS = {
    "sgd": partial(optim.SGD, momentum=0.9, nesterov=True),
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


def backward(model, optimizer):
    optimizer.zero_grad()
    for x, y in model.shards((Tensor(X), Tensor(Y))):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
    return loss.item()


def update(model, optimizer):
    backward(model, optimizer)
    optimizer.step()


# ---- the bits of the optimiser alone ---------------------------------------------------------------------------------


def in_many_ways(model, optimizer):
    """By a schedule, a closure, momentum alone, on parameters that were given other arrays, from an older state."""
    schedule = lr_scheduler.OneCycleLR(optimizer, 0.1, 9)
    for _ in range(3):
        update(model, optimizer)
        schedule.step()
    with minigrad.no_grad():
        optimizer.step(partial(backward, model, optimizer))
    optimizer.zero_grad(set_to_none=False)
    optimizer.step()
    for p in model.parameters():
        p.data = p.array * 0.5
    update(model, optimizer)
    for state in (optimizer.state_dict()["state"], {}):
        update(model, optimizer)  # to be forgotten
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
        update(model, optimizer)


def clipped(model, optimizer):
    backward(model, optimizer)
    assert optim.clip_grad_norm_(model.parameters(), 0.01).item() > 0.01
    optimizer.step()


def back_to_the_best(model, optimizer):
    schedule = lr_scheduler.RestoreBest(optimizer, model=model)
    for metric in (3.0, 2.0, 5.0, 1.0, 4.0):
        update(model, optimizer)
        schedule.step(metric)
    assert [group["lr"] for group in optimizer.param_groups] == [0.0125, 0.005]


TRAININGS = [
    *((kind, in_many_ways, (1, 2, 4)) for kind in OPTIMIZERS),
    ("sgd", clipped, [4]),
    ("adam", back_to_the_best, [2]),
]


@pytest.mark.parametrize("kind, training, sizes", TRAININGS)
def test_the_bits_are_those_of_the_optimiser_alone_that_has_stepped_before(kind, training, sizes):
    def run(world, divided):
        model, optimizer = built(world, kind, False)
        update(model, optimizer)
        optimizer = ShardedOptimizer(optimizer, model) if divided else optimizer
        training(model, optimizer)
        return bits(model, optimizer), optimizer.state_dict()["param_groups"], optimizer.name

    (wanted,) = on_ranks(run, 1, False)
    for size in sizes:
        assert on_ranks(run, size, True) == [wanted] * size, size


def test_what_has_no_gradient_is_left_alone():
    def run(world, divided):
        model = branches(world)
        optimizer = optim.SGD(model.parameters(), lr=0.1, weight_decay=0.5)
        optimizer = ShardedOptimizer(optimizer, model) if divided else optimizer
        optimizer.step()  # no gradients yet
        found = [bits(model)]
        for forget in (optimizer.zero_grad, model.zero_grad):
            model(rows(world), [0, 1]).backward()
            optimizer.step()
            found.append(bits(model))
            forget()
            optimizer.step()
            assert bits(model) == found[-1]
        return found

    wanted = on_ranks(run, 2, False)
    assert wanted[0][0] != wanted[0][1] != wanted[0][2] and on_ranks(run, 2, True) == wanted


# ---- state -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, 4])
def test_each_rank_keeps_its_part_of_the_state(size):
    def run(world, divided):
        model, optimizer = built(world, "adam", divided)
        update(model, optimizer)
        arrays = [v for entries in optimizer.state.values() for v in entries.values() if isinstance(v, np.ndarray)]
        return sum(array.nbytes for array in arrays)

    everything = 3 * sum(p.array.nbytes for p in network().parameters() if p.requires_grad)
    assert on_ranks(run, 1, False) == [everything]
    parts = on_ranks(run, size, True)
    assert sum(parts) == everything
    assert max(parts) <= everything / size + 3 * 8 * size * 2  # buckets of both types are filled up to equal parts


def test_a_state_that_does_not_fit_is_refused_and_changes_nothing():
    def run(world):
        model, optimizer = built(world, "sgd")
        update(model, optimizer)
        before, state = bits(model, optimizer), optimizer.state_dict()
        state["state"][0]["momentum_buffer"] = np.zeros(3)
        with pytest.raises(ShapeError, match=r"SGD\.load_state_dict: .*momentum_buffer"):
            optimizer.load_state_dict(state)
        return bits(model, optimizer) == before

    assert on_ranks(run, 2) == [True, True]


# ---- what is refused -------------------------------------------------------------------------------------------------


def sharded(model):
    return ShardedOptimizer(optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1), model)


def changed_after_forward(model):
    optimizer, x = sharded(model), Tensor(X)
    model(x).sum().backward()
    loss = model.eval()(x).sum()
    optimizer.step()
    loss.backward()


REFUSED = [
    (KindError, "got SGD and Sequential, wanted an Opt", lambda m: ShardedOptimizer(sharded(m).optimizer, m.module)),
    (StateError, "add the group before", lambda m: sharded(m).add_param_group({"params": []})),
    (KindError, "closure is 3, wanted a function", lambda m: sharded(m).step(3)),
    (StateError, "changed", changed_after_forward),
]


@pytest.mark.parametrize("error, message, call", REFUSED)
def test_what_is_refused(error, message, call):
    refused(error, message, lambda world: call(DataParallel(network(), world)))
