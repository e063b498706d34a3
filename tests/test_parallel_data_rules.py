"""DataParallel: when buckets leave, and parameters that are not used, frozen, shared or of other types."""

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, nn, optim
from minigrad.parallel import DataParallel, ShardedOptimizer

from .parallel_models import Branches, X, branches, grads, rows
from .parallel_runs import on_ranks


def watched(world, events):
    """Take down which buckets are sent."""
    send = world.all_reduce

    def all_reduce(array, *arguments, **options):
        events.append(options.get("label"))
        return send(array, *arguments, **options)

    world.all_reduce = all_reduce


# ---- when buckets leave ----------------------------------------------------------------------------------------------


def test_the_first_bucket_leaves_while_backward_goes_on():
    def run(world, shards):
        events = []
        watched(world, events)
        minigrad.manual_seed(0)
        model = nn.Sequential(nn.Linear(5, 6, bias=False), nn.Tanh(), nn.Linear(6, 3, bias=False))
        model = DataParallel(model, world, shards=shards, bucket_bytes=80)

        def watch(layer, inputs, out):
            out.register_hook(lambda g: events.append("gradient of the first layer's output"))

        model.module[0].register_forward_hook(watch)
        for (x,) in model.shards((Tensor(X),)):
            model(x).sum().backward()
            events.append("backward ends")
        return events

    first, last = (f"bucket {number} of 2, model 1" for number in range(2))
    end = [first, "gradient of the first layer's output", last, "backward ends"]
    assert on_ranks(run, 2, 2) == [end] * 2
    before = ["gradient of the first layer's output", "backward ends"]  # only the last shard of a rank sends
    assert on_ranks(run, 2, 4) == [before + end] * 2


def test_buckets_leave_in_one_order_whatever_the_order_of_gradients():
    def run(world):
        events, came = [], []
        watched(world, events)
        model = branches(world)
        for number, layer in enumerate(model.module.branches):
            layer.weight.register_post_accumulate_grad_hook(lambda p, number=number: came.append(number))
        order = [[0, 1, 2, 3], [3, 1, 0, 2], [2, 3, 1, 0]][world.rank]
        model(Tensor(X), order).backward()
        return came, events, grads(model)

    found = on_ranks(run, 3)
    assert len({tuple(came) for came, _, _ in found}) == 3
    assert [events for _, events, _ in found] == [[f"bucket {b} of 8, model 1" for b in range(8)]] * 3
    alone = Branches()
    alone(Tensor(X), [0]).backward()
    for _, _, got in found:
        for i, g in enumerate(got):
            wanted = grads(alone)[i % 2]
            np.testing.assert_allclose(g, wanted, rtol=1e-6)


def test_the_timeline_says_when_buckets_left_and_arrived():
    def run(world):
        model = branches(world)
        for _ in range(2):
            model(Tensor(X), range(4)).backward()
        return model.timeline

    for entries in on_ranks(run, 2):
        assert [(e["bucket"], e["bytes"]) for e in entries] == [(b, (8, 40)[b % 2]) for b in range(8)]
        assert all(0 <= e["ready"] < e["done"] < 20 for e in entries)
        assert [e["ready"] for e in entries] == sorted(e["ready"] for e in entries)


# ---- which parameters ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shards", [2, 4])
@pytest.mark.parametrize("find", [False, True])
def test_parameters_that_are_not_used(find, shards):
    """Branch 0 on all, 1 on rank 0, 2 on rank 1, 3 on none."""

    def run(world):
        model = branches(world, shards=shards, find_unused_parameters=find)
        for _ in range(2):
            for (x,) in model.shards((Tensor(X),)):
                model(x, [0, 1 + world.rank]).backward()
        return grads(model)

    for found in on_ranks(run, 2):
        weights = found[::2]
        halves = [X[:2].sum(0), X[2:].sum(0)]
        for weight, wanted in zip(weights, [sum(halves), *halves], strict=False):
            np.testing.assert_allclose(weight, np.stack([wanted / shards] * 2), rtol=1e-5, atol=1e-6)
        assert found[6:] == [None, None] if find else not np.any(weights[3])


@pytest.mark.parametrize("find", [False, True])
def test_an_optimiser_in_shares_leaves_alone_what_has_no_gradient(find):
    def run(world, whole):
        model = branches(world, find_unused_parameters=find)
        optimizer = optim.SGD(model.parameters(), lr=0.1, weight_decay=0.5)
        if whole is not None:
            optimizer = ShardedOptimizer(optimizer, model, whole)
        optimizer.step()  # no gradients yet
        start = [p.detach().numpy().copy() for p in model.parameters()]
        model(rows(world), [0, 1]).backward()
        optimizer.step()
        optimizer.zero_grad()
        optimizer.step()
        return [(before == p.detach().numpy()).all() for before, p in zip(start, model.parameters(), strict=True)], [
            p.detach().numpy().tobytes() for p in model.parameters()
        ]

    wanted = on_ranks(run, 2, None)
    assert wanted[0][0] == [False] * 4 + [find] * 4
    assert on_ranks(run, 2, False) == wanted and on_ranks(run, 2, True) == wanted


class Odd(nn.Module):
    """A frozen layer, one that is used twice, and one of another type."""

    def __init__(self):
        super().__init__()
        self.frozen, self.first = nn.Linear(5, 5).requires_grad_(False), nn.Linear(5, 5)
        self.second = nn.Linear(5, 5)
        self.second.weight = self.first.weight
        self.wide = nn.Linear(5, 2).to("float64")

    def forward(self, x):
        return self.wide(self.second(self.first(self.frozen(x)).tanh()).tanh().to("float64")).sum()


def test_frozen_and_shared_parameters_and_other_types():
    def build():
        minigrad.manual_seed(2)
        return Odd()

    alone = build()
    for part in (X[:2], X[2:]):
        (alone(Tensor(part)) * 0.5).backward()

    def run(world, bucket_bytes):
        model = DataParallel(build(), world, bucket_bytes=bucket_bytes)
        model(rows(world)).backward()
        assert model.module.first.weight.grad is model.module.second.weight.grad
        kinds = {(array := bucket.array).dtype.name: array.size for bucket in model.reducer.buckets}
        assert kinds.keys() == {"float32", "float64"}
        return grads(model)

    wanted = [None if g is None else g.tobytes() for g in grads(alone)]
    assert wanted.count(None) == 2 and len(wanted) == 7
    for bucket_bytes in (None, 50):
        for found in on_ranks(run, 2, bucket_bytes):
            assert [None if g is None else g.tobytes() for g in found] == wanted
