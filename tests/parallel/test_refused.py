"""What ranks refuse: on every rank, with the reason, and all of them can do something together afterwards."""

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, data, nn, ones, optim, tensor, zeros
from minigrad.core.errors import KindError, ShapeError, StateError
from minigrad.parallel import DataParallel, Pipeline, ShardedOptimizer, SyncBatchNorm, init
from minigrad.parallel.errors import CommunicationError, DisagreementError
from minigrad.parallel.sampler import Shards
from minigrad.parallel.transfer import send
from minigrad.parallel.world import ranks_started
from minigrad.train import fit
from tests.parallel.parallel_runs import on_ranks, outcomes
from tests.train.small_training import images, network

ONES = np.ones(4, np.float32)
TORCHRUN = {"RANK": "0", "WORLD_SIZE": "2"}


def model():
    minigrad.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3))


def parallel(world, **options):
    return DataParallel(model(), world, **options)


# ---- DataParallel, fit and optimisers --------------------------------------------------------------------------------


def seeded(world):
    minigrad.manual_seed(world.rank)
    DataParallel(nn.Linear(4, 3), world)


def thawed(world):
    inner = model().requires_grad_(False)
    wrapped = DataParallel(inner, world)
    inner[0].bias.requires_grad_()
    wrapped(Tensor(ONES))


def wrapped_again(world):
    inner = model()
    first = DataParallel(inner, world)
    DataParallel(inner, world)(ones(2, 4)).sum().backward()
    assert inner[2].bias.grad.tolist() == [2.0] * 3
    first(ones(2, 4)).sum().backward()


def normed(world, shards):
    wrapped = DataParallel(SyncBatchNorm.convert(nn.BatchNorm1d(4), world), world, shards=shards)
    next(wrapped.shards((ones(1, 4),)))


def trained(model, batches):
    fit(model, batches, optim.SGD(model.parameters(), 0.1), 1)


NINE = ones(9, 4), ones(9, 3)
PAIR = zeros(4, 4), zeros(4, dtype="int64")


def fitted(world):
    """fit, of which an option differs on rank 1."""
    wrapped = DataParallel(network(), world)
    loader = data.Loader(images(), 8, sampler=wrapped.sampler)
    fit(wrapped, loader, optim.SGD(wrapped.parameters(), lr=0.1 + world.rank), 1)


def sharded(wrapped):
    return ShardedOptimizer(optim.SGD(wrapped.parameters(), lr=0.1), wrapped)


def changed_after_forward(world):
    wrapped = parallel(world)
    optimizer = sharded(wrapped)
    wrapped(ones(2, 4)).sum().backward()
    loss = wrapped.eval()(ones(2, 4)).sum()
    optimizer.step()
    loss.backward()


def piped(world, **options):
    return Pipeline(model(), world, **options)


REFUSED = [
    # collectives
    (ShapeError, "op is 'product', wanted one of 'sum', 'mean'", lambda w: w.all_reduce(ONES.copy(), "product")),
    (KindError, "array is a list, wanted an array or a Tensor", lambda w: w.all_reduce([1.0])),
    (KindError, "elements bool, which have no sum", lambda w: w.all_reduce(ONES > 0)),
    (ShapeError, r"\(shape \(4, 2\)\) is read-only or has gaps", lambda w: w.all_reduce(np.ones((4, 4))[:, ::2])),
    (StateError, "made by mul; only leaves", lambda w: w.all_reduce(Tensor(ONES, requires_grad=True) * 2)),
    (ShapeError, "elements float64.* of one type", lambda w: w.all_gather(np.zeros(8), ONES)),
    (ShapeError, "root is 2, wanted a rank from 0 to 1", lambda w: w.broadcast(ONES.copy(), 2)),
    # what is differentiated
    (ShapeError, "tag is 31, wanted one from 0 to 30", lambda w: send(ones(3), 1 - w.rank, tag=31)),
    (ShapeError, "this rank itself", lambda w: send(ones(3), w.rank)),
    # worlds
    (ShapeError, r"the timeout \(MINIGRAD_TIMEOUT\) is -1, wanted sec", lambda w: init(-1)),
    (ShapeError, "ranks are started by mpiexec, srun or `minig", lambda w: ranks_started(TORCHRUN)),
    # shards
    (ShapeError, "6 shards make 3 for each of 2 ranks, wanted a power", lambda w: parallel(w, shards=6)),
    # DataParallel
    (KindError, "and no DataParallel", lambda w: DataParallel(parallel(w), w)),
    (StateError, "move the module before", lambda w: parallel(w).to("cpu")),
    (StateError, "0.bias requires a gradient now and did not", thawed),
    (StateError, "averaged already", wrapped_again),
    (ShapeError, "has 2 shards, wanted this rank's 1", lambda w: next(parallel(w).shards(Shards([PAIR] * 2, 4)))),
    (
        DisagreementError,
        "it: nothing on rank 0, but b is 2 on rank 1",
        lambda w: w.agree("it", {"b": 2} if w.rank else {}),
    ),
    (DisagreementError, r"float32\(3,4\).* but .*\(4,4\)", lambda w: DataParallel(nn.Linear(4, 3 + w.rank), w)),
    (DisagreementError, "shards is 2 on rank 0, but shards is 4", lambda w: parallel(w, shards=2 + 2 * w.rank)),
    (DisagreementError, "the state of random numbers", seeded),
    # fit, and divided optimisers
    (DisagreementError, "^fit: ", fitted),
    (ShapeError, "make it with sampler=model.samp", lambda w: trained(parallel(w), [PAIR])),
    (ShapeError, "fit: .* wants a DataParallel model; make", lambda w: trained(model(), [Shards([PAIR], 4)])),
    (KindError, "ShardedOptimizer: got .*wanted an", lambda w: ShardedOptimizer(3, parallel(w))),
    (StateError, "add the group before", lambda w: sharded(parallel(w)).add_param_group({"params": []})),
    (StateError, "changed", changed_after_forward),
    # SyncBatchNorm
    (StateError, "wants as many ranks as shards; this rank has 2 shards", lambda w: normed(w, 4)),
    (StateError, "a batch of 1 leaves some of 2 shards empty", lambda w: normed(w, 2)),
    # Pipeline
    (KindError, "Pipeline: model is a Linear, wan", lambda w: Pipeline(nn.Linear(2, 2), w)),
    (ShapeError, "stages is 2, wanted at most one for each of the 1 layers", lambda w: Pipeline(model()[:1], w)),
    (ShapeError, "balance is 0, wanted at least 1", lambda w: piped(w, balance=[0, 3])),
    (StateError, "stages 0 and 1 share a Tensor", lambda w: Pipeline(nn.Sequential(*[nn.Linear(2, 2)] * 2), w)),
    (DisagreementError, "microbatches is 1 on rank 0, but", lambda w: piped(w, microbatches=w.rank + 1)),
    (ShapeError, "missing 0.weight.* none", lambda w: piped(w).load_state_dict({})),
    (ShapeError, "unexpected other", lambda w: piped(w).load_state_dict({**model().state_dict(), "other": tensor(1)})),
    (ShapeError, "has 9 rows, wanted a multiple of the 4", lambda w: piped(w, microbatches=4).train_step(*NINE)),
]


@pytest.mark.parametrize("error, message, call", REFUSED)
def test_refused_on_every_rank_which_go_on_together(error, message, call):
    def run(world):
        with pytest.raises(error, match=message):
            call(world)
        return world.all_reduce(np.ones(1)).item()

    assert on_ranks(run, 2) == [2, 2]


# ---- what ends communication -----------------------------------------------------------------------------------------


def mixed(world):
    """Two models whose backward passes come in another order on the second rank."""
    losses = [wrapped(ones(2, 4)).sum() for wrapped in [parallel(world) for _ in range(2)]]
    for loss in losses[:: 1 - 2 * world.rank]:
        loss.backward()


def with_a_loss_that_fails(world):
    pipe = Pipeline(model(), world, 4)
    with pytest.raises((ShapeError, CommunicationError)):
        pipe.train_step(ones(8, 4), zeros(8, dtype="int64"), lambda scores, labels: scores)
    pipe.train_step(ones(8, 4), zeros(8, dtype="int64"))  # which would take messages of the step before


ENDED = [
    (CommunicationError, "(?=.*model 1).*model 2", mixed),
    (CommunicationError, r"loss gave shape \(2, 3\), wanted a scalar", with_a_loss_that_fails),
    (DisagreementError, "rank 1", lambda w: SyncBatchNorm(2 + w.rank)(ones(4, 2 + w.rank))),
]


@pytest.mark.parametrize("error, message, call", ENDED)
def test_what_ends_communication_says_why_on_every_rank(error, message, call):
    for found in outcomes(call, 2):
        with pytest.raises(error, match=message):
            raise found


def test_a_first_stage_without_inputs_is_told_so():
    with pytest.raises(KindError, match="inputs is .*NoneType"):
        on_ranks(lambda world: Pipeline(model(), world).train_step(None, ones(2, 3)), 2)
