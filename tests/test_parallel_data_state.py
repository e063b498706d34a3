"""DataParallel: parameters and buffers of all ranks, and options that cannot be or differ."""

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, nn
from minigrad.core.errors import KindError, ShapeError, StateError
from minigrad.parallel import DataParallel, DisagreementError

from .parallel_models import normalised, plain
from .parallel_runs import bits, on_ranks, outcomes
from .small_training import images

# ---- parameters and buffers ------------------------------------------------------------------------------------------


def test_all_start_from_rank_0():
    def run(world):
        minigrad.manual_seed(world.rank)
        model = normalised()
        model[1].running_mean.data[:] = world.rank
        before = bits(model)
        wrapped = DataParallel(model, world)
        assert list(wrapped.state_dict()) == list(before) == list(model.state_dict())
        return before, bits(wrapped)

    (mine, first), (other, second) = on_ranks(run, 2)
    assert mine == first == second != other


def test_buffers_are_those_of_shard_0():
    x = images(8).images.astype(np.float32) / 255

    def run(world, shards):
        minigrad.manual_seed(0)
        model = DataParallel(nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(36, 1)), world, shards=shards)
        for _ in range(3):
            for (part,) in model.shards((Tensor(x),)):
                model(part).sum().backward()
        return bits(model.module[0])

    alone = nn.BatchNorm2d(1)
    for _ in range(3):
        alone(Tensor(x[:2]))
    wanted = {name: value for name, value in bits(alone).items() if name not in ("weight", "bias")}
    for size in (1, 2, 4):
        for found in on_ranks(run, size, 4):
            assert wanted.items() <= found.items()
    assert np.frombuffer(wanted["num_batches_tracked"], np.int64).tolist() == [3]


def test_a_state_comes_back_into_the_model():
    def run(world):
        model = DataParallel(plain(), world)
        state = {name: tensor.numpy() + 1 for name, tensor in model.state_dict().items()}
        model.load_state_dict(state)
        return np.array_equal(model.module[0].weight.detach().numpy(), state["0.weight"])

    assert on_ranks(run, 2) == [True, True]


DIFFERENT = {
    "shape": (lambda w: DataParallel(nn.Linear(5, 3 + w.rank), w), r"weight is float32\(3,5\).* rank 0 and .*\(4,5\)"),
    "name": (lambda w: DataParallel(nn.Linear(5, 3, bias=not w.rank), w), "bias is float32.* and absent on rank 1"),
    "type": (lambda w: DataParallel(plain(("float32", "float64")[w.rank]), w), "0.weight is float32.* and float64"),
    "frozen": (
        lambda w: DataParallel(plain().requires_grad_(not w.rank), w),
        "requires_grad=True on rank 0 and .*False",
    ),
    "shards": (lambda w: DataParallel(plain(), w, shards=2 + 2 * w.rank), "shards is 2 on rank 0 and 4 on rank 1"),
    "wire": (lambda w: DataParallel(plain(), w, wire=(None, "float16")[w.rank]), "wire is None on rank 0 and float16"),
    "buckets": (lambda w: DataParallel(plain(), w, bucket_bytes=9 + w.rank), "bucket_bytes is 9 on rank 0 and 10"),
}


@pytest.mark.parametrize("call, message", DIFFERENT.values(), ids=DIFFERENT)
def test_every_rank_hears_how_models_differ(call, message):
    for error in outcomes(call, 2):
        with pytest.raises(DisagreementError, match="DataParallel: .*" + message):
            raise error


REFUSED = {
    "no module": (KindError, "module is a function, wanted a Module", lambda w: DataParallel(plain, w)),
    "twice": (KindError, "and no DataParallel", lambda w: DataParallel(DataParallel(plain(), w), w)),
    "world": (KindError, "world is 2, wanted a Communicator", lambda w: DataParallel(plain(), 2)),
    "shards": (
        ShapeError,
        "shards is 3, wanted a multiple of the 2 ranks",
        lambda w: DataParallel(plain(), w, shards=3),
    ),
    "none": (ShapeError, "shards is 0, wanted a multiple", lambda w: DataParallel(plain(), w, shards=0)),
    "wire": (ShapeError, "wire is 'int8', wanted one of 'float16'", lambda w: DataParallel(plain(), w, wire="int8")),
    "order": (ShapeError, "order is 'any', wanted one of 'fixed'", lambda w: DataParallel(plain(), w, order="any")),
    "wide": (
        KindError,
        "0.weight has elements float64, not",
        lambda w: DataParallel(plain("float64"), w, wire="float16"),
    ),
    "bytes": (KindError, "bucket_bytes is 1.5, wanted", lambda w: DataParallel(plain(), w, bucket_bytes=1.5)),
    "no bytes": (
        ShapeError,
        "bucket_bytes is 0, wanted at least 1",
        lambda w: DataParallel(plain(), w, bucket_bytes=0),
    ),
    "to": (StateError, "move the module before it is wrapped", lambda w: DataParallel(plain(), w).to("float64")),
}


@pytest.mark.parametrize("error, message, call", REFUSED.values(), ids=REFUSED)
def test_what_is_refused(error, message, call):
    for found in outcomes(call, 2):
        with pytest.raises(error, match=message):
            raise found
