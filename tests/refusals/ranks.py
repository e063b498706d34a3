"""What ranks refuse: communicators, DataParallel, divided optimisers, pipelines and the launcher's settings."""

from functools import partial

import numpy as np

import minigrad
from minigrad import Tensor, nn, optim, train
from minigrad.core.errors import MinigradError
from minigrad.parallel import DataParallel, Pipeline, ShardedOptimizer, Shards, SyncBatchNorm, init, run_local
from minigrad.parallel.sampler import ShardSampler
from minigrad.parallel.world import ranks_started

ONES = np.ones(4, np.float32)


def model():
    minigrad.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3))


def on_two(function):
    """A call on two ranks; each calls function(world)."""
    return partial(run_local, lambda world: function(world), 2)


def before_anything_is_sent(function):
    """The same; where it is refused, the ranks can still do something together."""

    def run(world):
        try:
            function(world)
        except MinigradError:
            assert world.all_reduce(np.ones(1)).item() == 2
            raise

    return on_two(run)


def data_parallel(*args, **options):
    return on_two(lambda world: DataParallel(*(args or (model(),)), world, **options))


def trained(loader, shards=2):
    """fit on two ranks with what loader(model) gives."""

    def run(world):
        network = DataParallel(model(), world, shards=shards)
        return train.fit(network, loader(network), optim.SGD(network.parameters(), 0.1), 1)

    return on_two(run)


def pair(count):
    return minigrad.zeros(count, 4), minigrad.zeros(count, dtype="int64")


def normed():
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))


COLLECTIVES = [
    ("all_reduce: op", lambda w: w.all_reduce(ONES.copy(), "product"), ValueError,
     r"all_reduce: op is 'product', wanted one of 'sum', 'mean'"),
    ("all_reduce: list", lambda w: w.all_reduce([1.0]), TypeError, r"array is a list, wanted an array or a Tensor"),
    ("all_reduce: bool", lambda w: w.all_reduce(ONES > 0), TypeError, r"elements bool, which have no sum"),
    ("all_reduce: mean", lambda w: w.all_reduce(np.ones(4, "i1"), "mean"), TypeError, r"int8, which have no mean"),
    ("all_reduce: gaps", lambda w: w.all_reduce(np.ones((4, 4), np.float32)[:, ::2]), ValueError,
     r"all_reduce: array \(shape \(4, 2\)\) is read-only or has gaps"),
    ("all_reduce: history", lambda w: w.all_reduce(Tensor(ONES, requires_grad=True) * 2), RuntimeError,
     r"made by mul; only leaves"),
    ("all_gather: parts", lambda w: w.all_gather(np.ones(9, np.float32), ONES), ValueError,
     r"all_gather: out has 9 elements float32, array 4 elements float32; wanted 2 times as many"),
    ("all_gather: types", lambda w: w.all_gather(np.zeros(8), ONES), ValueError, r"elements float64.* of one type"),
    ("broadcast: root", lambda w: w.broadcast(ONES.copy(), 2), ValueError, r"broadcast: root is 2, wanted a rank from"),
    ("broadcast: True", lambda w: w.broadcast(ONES.copy(), True), ValueError, r"root is True, wanted a rank from 0 to"),
    ("broadcast: read-only", lambda w: w.broadcast(np.broadcast_to(ONES[:1], (4,))), ValueError, r"is read-only or ha"),
    ("broadcast_bytes: root", lambda w: w.broadcast_bytes(b"", -1), ValueError, r"root is -1, wanted a rank from 0"),
    ("agree: other options", lambda w: w.agree("fit", {"epochs": str(w.rank)}), ValueError, r"fit: .*epochs"),
]  # fmt: skip

OTHERS = [
    ("run_local: size", partial(run_local, print, 0), ValueError, r"run_local: size is 0, wanted a number of ranks of"),
    ("run_local: text", partial(run_local, print, "2"), ValueError, r"run_local: size is '2', wanted a number of rank"),
    ("DataParallel: module", data_parallel(3), TypeError, r"DataParallel: module is a int, wanted a Module and no Dat"),
    ("DataParallel: world", partial(DataParallel, model(), 2), TypeError, r"DataParallel: world is 2, wanted a Commun"),
    ("DataParallel: shards", data_parallel(shards=3), ValueError, r"shards is 3, wanted a multiple of the 2 ranks"),
    ("DataParallel: shards 6", data_parallel(shards=6), ValueError, r"6 shards make 3 for each of 2 ranks, wanted a p"),
    ("DataParallel: shards text", data_parallel(shards="2"), TypeError, r"shards is '2', wanted an integer"),
    ("DataParallel: bucket", data_parallel(bucket_bytes=1.5), TypeError, r"DataParallel: bucket_bytes is 1.5, wanted"),
    ("DataParallel: bucket 0", data_parallel(bucket_bytes=0), ValueError, r"DataParallel: bucket_bytes is 0, wanted a"),
    ("DataParallel: other models", on_two(lambda w: DataParallel(nn.Linear(4, 3 + w.rank), w)), ValueError, r"rank"),
    ("DataParallel: to", on_two(lambda w: DataParallel(model(), w).to("cpu")), RuntimeError, r"move the module before"),
    ("DataParallel: whole batches", trained(lambda network: [pair(4)]), ValueError, r"make it with sampler=model.samp"),
    ("DataParallel: shards of another", trained(lambda network: [Shards([pair(1)] * 3, 6)]), ValueError,
     r"shards: the batch has 3 shards, wanted this rank's 1"),
    ("DataParallel: empty", trained(lambda network: []), ValueError, r"fit: loader has no images in epoch 1"),
    ("fit: shards alone", partial(train.fit, model(), [Shards([pair(2)], 2)], optim.SGD(model().parameters(), 0.1), 1),
     ValueError, r"fit: loader has a sampler, which wants a DataParallel model; make it without"),
    ("ShardedOptimizer: kinds", partial(ShardedOptimizer, 3, model()), TypeError, r"ShardedOptimizer: got .*wanted an"),
    ("SyncBatchNorm: module", partial(SyncBatchNorm.convert, 3), TypeError, r"SyncBatchNorm.convert: module is a int"),
    ("SyncBatchNorm: shards", on_two(lambda w: DataParallel(SyncBatchNorm.convert(normed(), w), w, shards=4)),
     RuntimeError, r"SyncBatchNorm wants all .* runs 2 one after another; use as many ranks as shards"),
    ("Pipeline: model", on_two(lambda w: Pipeline(nn.Linear(2, 2), w)), TypeError, r"Pipeline: model is a Linear, wan"),
    ("Pipeline: stages", on_two(lambda w: Pipeline(model()[:1], w)), ValueError, r"Pipeline: stages is 2, wanted at"),
    ("ShardSampler: three", partial(ShardSampler, 6, 0, 2), ValueError, r"6 shards make 3 for each of 2 ranks, wanted"),
    ("init: backend", partial(init, "smoke"), ValueError, r"init: backend is 'smoke', wanted 'local', 'mpi'"),
    ("init: timeout", partial(init, None, -1), ValueError, r"init: the timeout \(MINIGRAD_TIMEOUT\) is -1, wanted sec"),
]  # fmt: skip

VARIABLES = [
    ({"RANK": "0", "WORLD_SIZE": "2"}, r"init: WORLD_SIZE is 2, but ranks are started by mpiexec, srun or `minigrad"),
    ({"PMI_RANK": "0", "PMI_SIZE": "two"}, r"init: PMI_SIZE is 'two', wanted a number of at least 1"),
    (
        {"SLURM_STEP_ID": "x", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2"},
        r"init: SLURM_STEP_ID is 'x', wanted a number",
    ),
]


def rows():
    for name, function, error, pattern in COLLECTIVES:
        yield f"Communicator: {name}", before_anything_is_sent(function), error, pattern
    yield from OTHERS
    for i, (variables, pattern) in enumerate(VARIABLES):
        yield f"init: variables {i}", partial(ranks_started, variables), ValueError, pattern


REFUSALS = list(rows())
