"""Captured training steps of several ranks: gradients travel within the graph, on NCCL's stream, and join again."""

import time

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, data, deterministic, device, nn, optim
from minigrad.graph import CaptureError, capture
from minigrad.parallel import DataParallel, ShardedOptimizer
from minigrad.parallel.errors import CommunicationError
from minigrad.parallel.local import LocalTransport, run_local
from minigrad.parallel.rank import FAILED
from minigrad.train import fit
from tests.parallel.launch_runs import wait_for
from tests.parallel.nccl_ranks import calls, ended, machine, names, own_gpu, world_of_one
from tests.standin.nccl import state

pytestmark = pytest.mark.deep

assert machine and ended  # fixtures


def fitted(world, eager, mode, shards, zero, options):
    """(rows, weights) of a training on a rank; gradients travel in several buckets while backward goes on."""
    place, rng = f"cuda:{world.rank}", np.random.default_rng(0)
    images = data.Dataset(rng.integers(0, 256, (16, 1, 2, 2), np.uint8), rng.integers(0, 3, 16), tuple("abc"))
    with device.place(place).active(), deterministic(mode):
        minigrad.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(4, 5), nn.ReLU(), nn.Dropout(0.3), nn.Linear(5, 3)).to(place)
        model = DataParallel(model, world, shards=shards, bucket_bytes=64)
        optimizer = optim.Adam(model.parameters(), lr=0.05)
        if zero:
            optimizer = ShardedOptimizer(optimizer, model)
        loader = data.Loader(images, 4, True, device=place, sampler=model.sampler)
        test = data.Loader(images, 8, device=place)
        history = fit(model, loader, optimizer, 2, test=test, eager=eager, **options)
        rows = [{name: value for name, value in row.items() if name != "images_per_second"} for row in history.rows]
        return rows, [parameter.detach().numpy().tobytes() for parameter in model.parameters()]


FITS = {  # deterministic, shards, whether the optimiser is divided, options of fit
    "a shard each": (True, 2, False, {}),
    "NCCL's sums": (False, 2, False, {}),
    "two each": (True, 4, False, {"accumulate": 2}),
    "divided state": (True, 2, True, {"clip": 0.1, "precision": "float16"}),
}


@pytest.mark.parametrize("name", FITS)
def test_ranks_train_by_graphs_as_without_and_as_by_way_of_the_host(machine, monkeypatch, name):
    mode, *_, options = case = FITS[name]
    eager = run_local(fitted, 2, True, *case)
    before, wanted = len(machine.launches), "allGather" if mode else "allReduce"
    assert not machine.graph_launches
    assert names(machine).count(wanted) > 8 // options.get("accumulate", 1), "several buckets an update"
    replayed = run_local(fitted, 2, False, *case)
    assert eager == replayed and replayed[0] == replayed[1]
    assert any(wanted in launch.names for launch in machine.graph_launches)
    assert len(machine.launches) - before < before, "fewer kernels are launched one by one"
    if not options:
        monkeypatch.setattr(LocalTransport, "backend", "host")
        assert run_local(fitted, 2, True, *case) == eager


# ---- what NCCL does not see ------------------------------------------------------------------------------------------


def reducing(world, x, times=4):
    """(a captured sum over ranks, its batch), called so often; it is in a cycle of references, as the replay of fit."""

    @capture(device=f"cuda:{world.rank}")
    def step(batch):
        with deterministic(False):
            return world.all_reduce(x, label="w") * 0

    step.itself, batch = step, Tensor(own_gpu(world)(np.ones(2)))
    for _ in range(times):
        step(batch)
    return step, batch


def test_ranks_agree_where_one_replays_and_another_does_not(machine):
    """The last batch of rank 0 has another shape, so it runs eagerly; after it the ranks compare all that they did."""

    def run(world):
        x, y = (own_gpu(world)(np.ones(4, np.float32)) for _ in "xy")
        step, batch = reducing(world, x)
        step(batch[:1] if world.rank == 0 else batch)
        world.broadcast(y, label="after")
        return device.host(x).tolist()

    assert run_local(run, 2) == [[32] * 4] * 2


def test_collectives_of_a_graph_stand_in_one_order_with_others(machine):
    """A graph waits for what NCCL's stream was told before, and that stream for the graph, whoever launches it."""
    import cupy

    world, x = world_of_one()
    beside, other = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    step, batch = reducing(world, x, 3)
    cupy.cuda.Device(0).synchronize()
    world.collectives(x)._watch.add = lambda work: None  # nobody else asks the events
    summed = deterministic(False)(world.all_reduce)
    summed(x, label="w", asynchronous=True)  # and nobody waits for it
    with beside:
        step(batch)
    with other:
        summed(x, label="w", asynchronous=True)
        summed(x, label="w").get()
    del world.collectives(x)._watch.add
    world.close()


def test_what_goes_by_way_of_the_host_is_not_captured(machine):
    def run(world):
        seen = []
        step = capture(lambda batch: (seen.append(world.all_reduce(np.ones(3))), batch * 1)[1])
        batch = Tensor(own_gpu(world)(np.ones(2)))
        for _ in range(2):
            step(batch)
        with pytest.raises(CaptureError, match="all_reduce goes by way of the host"):
            step(batch)
        return len(seen)

    assert run_local(run, 2) == [2, 2]


def test_a_group_ends_though_graphs_captured_it(machine):
    """NCCL waits for all of them, so they are reset; their functions would begin anew."""
    before = time.monotonic()
    steps = run_local(lambda world: reducing(world, own_gpu(world)(np.ones(4, np.float32))), 2)
    assert time.monotonic() - before < 5 and [names(machine, rank)[-1] for rank in (0, 1)] == ["destroy"] * 2
    step, batch = steps[1]
    with pytest.raises(CommunicationError, match="the group of GPUs has ended"):
        step(batch)


def test_a_group_that_does_not_end_is_left_in_time(machine):
    """As where somebody else captured a collective."""
    import cupy

    world, x = world_of_one(timeout=0.3)
    with cupy.cuda.Stream(non_blocking=True) as stream, deterministic(False):
        stream.begin_capture()
        world.all_reduce(x)
        graph = stream.end_capture()
    before = time.monotonic()
    world.close()
    assert time.monotonic() - before < 5 and "destroy" not in names(machine)
    del graph
    assert wait_for(lambda: names(machine)[-1] == "destroy")


def test_a_replay_that_is_late_ends_the_process(machine, ended, capsys):
    world, x = world_of_one(timeout=0.5)
    step, batch = reducing(world, x)
    world.collectives(x)._watch.drain()
    state(machine).absent = True
    step(batch)
    assert ended.wait(20) and ended.codes == [FAILED]
    assert "a graph, its last collective here all_reduce(float32(3,)" in (said := capsys.readouterr().err)
    assert said.endswith("label=w): rank 0: not done after 0.5 s\n") and calls(machine)[-1].name == "abort"
