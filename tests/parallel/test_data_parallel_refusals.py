"""DataParallel: what several ranks refuse, and that the model is as good as new after mistakes and exceptions.

More refusals stand in tests/refusals/ranks.py.
"""

import contextlib
import copy
import itertools
import pickle
from functools import partial

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, data, device, nn, optim
from minigrad.core.errors import KindError, ShapeError, StateError
from minigrad.parallel import CommunicationError, DataParallel, DisagreementError, SyncBatchNorm
from minigrad.train import fit
from tests.parallel_runs import on_ranks
from tests.small_training import images, network

from .parallel_models import X, branches, grads, plain, refused, rows

# ---- options, and ranks that differ ----------------------------------------------------------------------------------


def seeded(world):
    minigrad.manual_seed(world.rank)
    DataParallel(nn.Linear(4, 3), world)


def half_frozen(world):
    DataParallel(plain().requires_grad_(not world.rank), world)


def thawed(world):
    inner = plain().requires_grad_(False)
    model = DataParallel(inner, world, shards=2)
    inner[0].bias.requires_grad_()
    model(rows(world))


def wrapped_again(world):
    inner = plain()
    model = DataParallel(inner, world)
    DataParallel(inner, world)(rows(world)).sum().backward()
    assert inner[4].bias.grad.tolist() == [2.0] * 3
    model(rows(world))


def mixed(world):
    """Two models whose backward passes come in another order on the second rank."""
    models = [DataParallel(plain(), world) for _ in range(2)]
    losses = [model(rows(world)).sum() for model in models]
    for loss in losses[:: 1 - 2 * world.rank]:
        loss.backward()


def without_statistics(world):
    model = DataParallel(nn.Sequential(nn.Linear(5, 3), SyncBatchNorm(3, world=world)), world)
    next(model.shards((Tensor(X[:1]),)))


def fitted(name):
    """fit, of which an option differs on rank 1."""

    def run(world):
        options = {"lr": 0.1, "epochs": 1, "seed": 0}
        options[name] *= 1 + world.rank
        options[name] += world.rank
        model = DataParallel(network(), world)
        loader = data.Loader(images(), 8, shuffle=True, seed=options["seed"], sampler=model.sampler)
        fit(model, loader, optim.SGD(model.parameters(), lr=options["lr"]), options["epochs"])

    return run


REFUSED = [
    (KindError, "and no DataParallel", lambda w: DataParallel(DataParallel(plain(), w), w)),
    (StateError, r"copy its \.module", lambda w: copy.deepcopy(DataParallel(plain(), w))),
    (StateError, "save its state_dict", lambda w: pickle.dumps(DataParallel(plain(), w))),
    (StateError, "0.bias requires a gradient now and did not", thawed),
    (StateError, "was wrapped again since", wrapped_again),
    (StateError, "a batch of 1 leaves some of 2 shards empty", without_statistics),
    (CommunicationError, "(?=.*model 1).*model 2", mixed),
    (
        DisagreementError,
        r"weight is float32\(3,5\).* and .*\(4,5\)",
        lambda w: DataParallel(nn.Linear(5, 3 + w.rank), w),
    ),
    (DisagreementError, "bias is float32.* and absent", lambda w: DataParallel(nn.Linear(5, 3, bias=not w.rank), w)),
    (DisagreementError, "is float32.* and float64", lambda w: DataParallel(plain().to(f"float{32 * (w.rank + 1)}"), w)),
    (DisagreementError, "requires_grad=True on rank 0 and .*False", half_frozen),
    (DisagreementError, "shards is 2 on rank 0 and 4", lambda w: DataParallel(plain(), w, shards=2 + 2 * w.rank)),
    (DisagreementError, "bucket_bytes is 9 on .* and 10", lambda w: DataParallel(plain(), w, bucket_bytes=9 + w.rank)),
    (DisagreementError, "the state of random numbers", seeded),
    *((DisagreementError, "^fit: ", fitted(name)) for name in ("lr", "epochs", "seed")),
]


@pytest.mark.parametrize("error, message, call", REFUSED)
def test_what_is_refused_on_every_rank(error, message, call):
    refused(error, message, call)


# ---- mistakes of a loop, and exceptions ------------------------------------------------------------------------------


def usable(model):
    """Whether an update gives what it gives in a new model, in a plain loop too where a rank has one shard."""
    found = []
    for make in (model.train, partial(branches, model.world, shards=model.sampler.shards)):
        one = make()  # a new model talks to the other ranks, so it comes second
        one.zero_grad()
        if len(model.sampler) == 1:
            one(rows(model.world), range(4)).backward()
        found.append([grads(one)])
        for (x,) in one.shards((Tensor(X),)):
            one(x, range(4)).backward()
        found[-1].append(grads(one))
    return str(found[0]) == str(found[1])


def twice_in_a_shard(model):
    for (x,) in model.shards((Tensor(X),)):
        model(x, [0]).backward()
        model(x, [0]).backward()


def twice_by_one_loss(model):
    loss = model(rows(model.world), [0])
    loss.backward(retain_graph=True)
    loss.backward()


def with_a_graph(model):
    out = model(rows(model.world), [0])
    (out * out).backward(create_graph=True)


def outside_of_the_loop(model):
    model.eval()(Tensor(X), [0]).backward()  # the forward pass alone is right


def nested(model):
    for _ in model.shards((Tensor(X),)):
        list(model.shards((Tensor(X),)))


def of_another_cut(model):
    next(model.shards(branches(model.world, shards=8).sampler.cut(Tensor(X))))


MISTAKES = [
    (2, StateError, "averaged already; put all passes of a shard but the last one under model", twice_in_a_shard),
    (2, StateError, "averaged already", twice_by_one_loss),
    (2, StateError, "use minigrad.grad on the module inside", with_a_graph),
    (2, StateError, "loops over shards do not nest", nested),
    (2, ShapeError, "the batch has 4 shards, wanted this rank's 1", of_another_cut),
    (2, ShapeError, r"\[2, 4\] rows, wanted one number", lambda model: next(model.shards((Tensor(X), Tensor(X[:2]))))),
    (2, KindError, "batch is a Tensor, wanted Shards or a tuple", lambda model: next(model.shards(Tensor(X)))),
    (4, StateError, r"of 4 shards; loop over them: for images", lambda model: model(Tensor(X), [0])),
    (4, StateError, r"backward outside of a loop over model.shards\(batch\)", outside_of_the_loop),
]


@pytest.mark.parametrize("shards, error, message, act", MISTAKES)
def test_after_a_mistake_the_model_is_as_good_as_new(shards, error, message, act):
    def run(world):
        model = branches(world, shards=shards)
        with pytest.raises(error, match=message):
            act(model)
        model.zero_grad()
        return usable(model)

    assert on_ranks(run, 2) == [True] * 2


def left(model, moment):
    """An update that ends at a moment of its first shard; in a plain loop, where the rank has no other."""

    def interrupt(*at):
        if moment in at:
            raise InterruptedError

    # The last gradient fails, with buckets under way.
    fail = model.module.branches[0].weight.register_hook(lambda g: interrupt("backward", "plain"))
    try:
        for (x,) in [(rows(model.world),)] if moment == "plain" else model.shards((Tensor(X),)):
            loss = model(x, range(4))
            interrupt("forward")
            loss.backward()
            interrupt("after")
            break
    finally:
        fail.remove()


MOMENTS = [*itertools.product([2, 4], ["forward", "backward", "after", "break"]), (2, "plain")]


@pytest.mark.parametrize("shards, moment", MOMENTS)
def test_after_an_exception_the_model_is_as_good_as_new(shards, moment):
    def run(world):
        model, before = branches(world, shards=shards), device.generator().step
        with contextlib.nullcontext() if moment == "break" else pytest.raises(InterruptedError):
            left(model, moment)
        return device.generator().step == before + (moment == "plain") and usable(model)

    assert on_ranks(run, 2) == [True] * 2


@pytest.mark.parametrize("ranks", [1, 2])
def test_an_exception_in_the_loop_leaves_buffers_as_they_were(ranks):
    def run(world):
        model = DataParallel(nn.BatchNorm1d(5), world, shards=4)
        with pytest.raises(KeyError):
            for number, (x,) in enumerate(model.shards((Tensor(np.tile(X, (2, 1))),))):
                model(x)
                if number == 1:
                    raise KeyError
        return model.module.running_mean.tolist()

    assert on_ranks(run, ranks) == [[0.0] * 5] * ranks


def test_what_fails_beside_backward_ends_it_with_the_bucket_named():
    def run(world):
        model = branches(world)
        if world.rank == 1:
            raise KeyError("gone")
        with pytest.raises(CommunicationError, match=r"label=bucket 0 of 8.*rank 1 ended: KeyError"):
            model(rows(world), range(4)).backward()

    with pytest.raises(KeyError):
        on_ranks(run, 2)


def half_a_call(world):
    if world.rank == 0:
        take, world.transport.take = world.transport.take, lambda *arguments: 1 / 0
        with pytest.raises(ZeroDivisionError):
            world.all_reduce(np.ones(3))
        world.transport.take = take
    else:
        world.all_reduce(np.ones(3))  # what rank 0 had sent may be here before it failed
    world.all_reduce(np.ones(3))  # which would take the messages of the call before


def test_half_a_call_ends_communication():
    refused(CommunicationError, "rank 0: ZeroDivisionError", half_a_call)
