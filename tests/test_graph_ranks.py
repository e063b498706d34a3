"""Captured training steps of several ranks: gradients travel within the graph, on NCCL's stream, and join again."""

import os
import threading
import time

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, data, device, nn, optim
from minigrad.graph import CaptureError, capture
from minigrad.nn import functional as F
from minigrad.parallel import DataParallel, ShardedOptimizer
from minigrad.parallel.communicator import Communicator
from minigrad.parallel.errors import CommunicationError
from minigrad.parallel.local import LocalTransport, run_local
from minigrad.parallel.rank import FAILED
from minigrad.train import fit

from .nccl_ranks import calls, machine, own_gpu
from .standin.nccl import state

pytestmark = pytest.mark.deep

assert machine  # a fixture


def trained(world, wrap, order):
    """(losses, weights) of a rank after some steps."""
    place = f"cuda:{world.rank}"
    with device.place(place).active():
        model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, 2)).to(place)
        model = DataParallel(model, world, bucket_bytes=64, order=order)
        optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        @wrap
        def step(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        rng, losses = np.random.default_rng(world.rank), []
        for _ in range(5):
            x, y = rng.standard_normal((2, 4)).astype(np.float32), rng.integers(0, 2, 2)
            losses.append(step(Tensor(x).to(place), Tensor(y).to(place)).item())
        return losses, [parameter.detach().numpy().tobytes() for parameter in model.parameters()]


@pytest.mark.parametrize("order", ["fixed", "native"])
def test_ranks_average_their_gradients_within_the_graph(machine, order):
    eager = run_local(trained, 2, lambda function: function, order)
    before = len(machine.launches)
    replayed = run_local(trained, 2, capture, order)
    assert eager == replayed and replayed[0][1] == replayed[1][1] and replayed[0][0] != replayed[1][0]
    assert len(machine.graph_launches) == 6  # each rank's: the captured step and two more
    assert len(machine.launches) - before < before
    wanted = "allReduce" if order == "native" else "allGather"
    assert wanted in machine.graph_launches[0].names


def fitted(world, eager, shards, zero, options):
    """(rows, weights) of a training by fit on a rank."""
    place, rng = f"cuda:{world.rank}", np.random.default_rng(0)
    images = data.Dataset(rng.integers(0, 256, (16, 1, 2, 2), np.uint8), rng.integers(0, 3, 16), tuple("abc"))
    with device.place(place).active():
        minigrad.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(4, 5), nn.ReLU(), nn.Dropout(0.3), nn.Linear(5, 3)).to(place)
        model = DataParallel(model, world, shards=shards, bucket_bytes=64)
        optimizer = optim.Adam(model.parameters(), lr=0.05)
        if zero is not None:
            optimizer = ShardedOptimizer(optimizer, model, zero)
        loader = data.Loader(images, 4, True, device=place, sampler=model.sampler)
        test = data.Loader(images, 8, device=place)
        history = fit(model, loader, optimizer, 2, test=test, eager=eager, **options)
        rows = [{name: value for name, value in row.items() if name != "images_per_second"} for row in history.rows]
        return rows, [parameter.detach().numpy().tobytes() for parameter in model.parameters()]


@pytest.mark.deep
@pytest.mark.parametrize(
    "shards, zero, options",
    [(2, None, {}), (4, None, {"accumulate": 2}), (2, True, {"clip": 0.1}), (2, False, {"precision": "float16"})],
    ids=["a shard each", "two each", "divided state", "divided gradients"],
)
def test_fit_on_ranks_by_graphs_trains_as_without(machine, shards, zero, options):
    eager = run_local(fitted, 2, True, shards, zero, options)
    assert not machine.graph_launches
    replayed = run_local(fitted, 2, False, shards, zero, options)
    assert eager == replayed and replayed[0] == replayed[1]
    assert machine.graph_launches


# ---- what NCCL does not see ------------------------------------------------------------------------------------------


def reducing(world, x):
    """A captured sum over ranks, in a cycle of references as the replay of fit is."""
    step = capture(lambda batch: world.all_reduce(x, order="native", label="w") * 0, device=f"cuda:{world.rank}")
    step.itself = step
    return step


def test_ranks_agree_where_one_replays_and_another_does_not(machine):
    """The last batch of rank 0 has another shape, so it runs eagerly; after it the ranks compare all that they did."""

    def run(world):
        x, y = (own_gpu(world)(np.ones(4, np.float32)) for _ in "xy")
        step = reducing(world, x)
        for size in (2, 2, 2, 2, 1 if world.rank == 0 else 2):
            step(Tensor(own_gpu(world)(np.ones(size))))
        world.broadcast(y, label="after")
        return device.host(x).tolist()

    assert run_local(run, 2) == [[32] * 4] * 2


def test_collectives_of_a_graph_stand_in_one_order_with_others(machine):
    """A graph waits for what NCCL's stream was told before, and that stream for the graph, whoever launches it."""
    import cupy

    world, x = Communicator(LocalTransport()), device.move(np.ones(3, np.float32), "cuda:0")
    step, batch = reducing(world, x), Tensor(device.move(np.ones(2), "cuda:0"))
    beside, other = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    for _ in range(3):
        step(batch)
    cupy.cuda.Device(0).synchronize()
    world.collectives(x)._watch.add = lambda work: None  # nobody else asks the events
    world.all_reduce(x, order="native", label="w", asynchronous=True)  # and nobody waits for it
    with beside:
        step(batch)
    with other:
        world.all_reduce(x, order="native", label="w", asynchronous=True)
        world.all_reduce(x, order="native", label="w").get()
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

    def run(world):
        step, batch = reducing(world, own_gpu(world)(np.ones(4, np.float32))), Tensor(own_gpu(world)(np.ones(2)))
        for _ in range(4):
            step(batch)
        return step, batch

    before = time.monotonic()
    steps = run_local(run, 2)
    assert time.monotonic() - before < 5 and [calls(machine, rank)[-1].name for rank in (0, 1)] == ["destroy"] * 2
    with pytest.raises(CommunicationError, match="the group of GPUs has ended"):
        steps[1][0](steps[1][1])


def test_a_group_that_does_not_end_is_left_in_time(machine):
    """As where somebody else captured a collective."""
    import cupy

    world, x = Communicator(LocalTransport(), timeout=0.3), device.move(np.ones(3, np.float32), "cuda:0")
    world.all_reduce(x, order="native")
    with cupy.cuda.Stream(non_blocking=True) as stream:
        stream.begin_capture()
        world.all_reduce(x, order="native")
        graph = stream.end_capture()
    before = time.monotonic()
    world.close()
    assert time.monotonic() - before < 5 and "destroy" not in [call.name for call in calls(machine)]
    del graph
    while [call.name for call in calls(machine)][-1] != "destroy" and time.monotonic() < before + 9:
        time.sleep(0.01)
    assert [call.name for call in calls(machine)][-1] == "destroy"


def test_a_replay_that_is_late_ends_the_process(machine, monkeypatch, capsys):
    codes, ended = [], threading.Event()
    monkeypatch.setattr(os, "_exit", lambda code: (codes.append(code), ended.set()))
    world, x = Communicator(LocalTransport(), timeout=0.5), device.move(np.ones(3, np.float32), "cuda:0")
    step, batch = reducing(world, x), Tensor(device.move(np.ones(2), "cuda:0"))
    for _ in range(4):
        step(batch)
    world.collectives(x)._watch.drain()
    state(machine).absent = True
    step(batch)
    assert ended.wait(20) and codes == [FAILED]
    assert "a graph, its last collective here all_reduce(float32(3,)" in (said := capsys.readouterr().err)
    assert said.endswith("label=w): rank 0: not done after 0.5 s\n") and calls(machine)[-1].name == "abort"
