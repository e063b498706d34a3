"""NCCL on the stand-in for CuPy: the bits of the host; calls, streams, graphs; and that no rank waits for ever."""

import os
import re
import threading
import time
import weakref

import numpy as np
import pytest

import minigrad
from minigrad import Tensor, data, deterministic, device, nn, optim
from minigrad.graph import CaptureError, capture
from minigrad.parallel import DataParallel, ShardedOptimizer, nccl_watch
from minigrad.parallel.communicator import Communicator
from minigrad.parallel.errors import CommunicationError, DisagreementError
from minigrad.parallel.local import LocalTransport, run_local
from minigrad.parallel.rank import FAILED
from minigrad.train import fit
from tests.device.stand_in_gpus import gpus
from tests.parallel.collective_table import ROWS, check_row, run_row
from tests.parallel.launch_runs import wait_for
from tests.parallel.parallel_runs import outcomes
from tests.standin import OrderError
from tests.standin.nccl import state


@pytest.fixture
def machine(monkeypatch):
    """Four GPUs; ranks that are threads use NCCL as processes do, and no thread looks on after the test."""
    watches, serve = [], nccl_watch.Watch._serve
    monkeypatch.setattr(nccl_watch.Watch, "_serve", lambda self: (watches.append(self), serve(self)))
    monkeypatch.setattr(LocalTransport, "backend", "nccl")
    with gpus(4) as found:
        yield found
        for watch in watches:
            watch.close()
            watch._thread.join(10)
            assert not watch._thread.is_alive()


@pytest.fixture
def ended(monkeypatch):
    """Set where the process would end; its `codes` are those that it would end with."""
    ended = threading.Event()
    ended.codes = []
    monkeypatch.setattr(os, "_exit", lambda code: (ended.codes.append(code), ended.set()))
    return ended


@pytest.fixture
def native():
    """The sums are NCCL's own."""
    with deterministic(False):
        yield


def own_gpu(world):
    return lambda x: device.move(x, f"cuda:{world.rank}")


def world_of_one(timeout=60.0):
    """A world whose group of GPUs is connected, and the array that it summed."""
    world, x = Communicator(LocalTransport(), timeout=timeout), device.move(np.ones(3, np.float32), "cuda:0")
    return world, deterministic(False)(world.all_reduce)(x)


def names(machine, rank=0):
    """What a rank asked of NCCL."""
    return [call.name for call in state(machine).calls if call.rank == rank]


# ---- results ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 3])
def test_results_are_those_of_the_host(machine, size):
    found = run_local(lambda world: [run_row(world, row, own_gpu(world)) for row in ROWS], size)
    wanted = run_local(lambda world: [run_row(world, row) for row in ROWS], size)
    for row, *got in zip(ROWS, wanted[0], *found, strict=True):
        for one in got[1:]:
            check_row(row, size, one, got[0])
            assert one.tobytes() == got[1].tobytes(), row


# ---- streams and events ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [True, False])
def test_the_current_stream_waits_only_where_wait_is_called(machine, monkeypatch, mode):
    """Two ranks; what reads the sum before wait() is an error that the stand-in finds, and after it is none."""
    import cupy

    monkeypatch.setattr(nccl_watch.Watch, "add", lambda self, work: None)  # nobody else asks the events

    def run(world):
        x = own_gpu(world)(np.ones(10_000, np.float32))
        with device.place_of(x).active(), cupy.cuda.Stream(non_blocking=True) as stream, deterministic(mode):
            stream.wait_event(cupy.cuda.Stream.null.record())
            x *= 2
            work = world.all_reduce(x, asynchronous=True)
            with pytest.raises(OrderError, match="and does not wait for it"):
                x + 1
            waits = machine.synchronisations.copy()  # of all ranks
            assert work.wait() is x and (x + 1).shape == x.shape
            assert machine.synchronisations == waits, "the host does not wait"
            world.barrier()
            return device.host(x)[0]

    assert run_local(run, 2) == [4, 4]


def test_memory_stays_until_its_work_is_done(machine):
    world, x = world_of_one()
    machine.endless.add(world.collectives(x).stream.ptr)
    y = device.move(np.ones(1000), "cuda:0")
    memory = weakref.ref(y.data.mem)
    with deterministic(False):
        work = world.all_reduce(y, asynchronous=True)
    del y
    assert not work.done
    del work
    time.sleep(4 * nccl_watch.POLL)
    assert memory() is not None
    next(iter(world._on_gpus.values()))._watch._works[-1]._after.endless = False
    assert wait_for(lambda: memory() is None)
    world.close()


# ---- what ranks agree on ---------------------------------------------------------------------------------------------


OTHERS = [  # what rank 1 does: what is said of it
    (lambda world, x: world.broadcast(x, label="w"), "broadcast(float64(10,), root=0, label=w)"),
    (lambda world, x: deterministic(False)(world.all_reduce)(x, label="w"), "all_reduce(float64(10,), sum, native"),
    (lambda world, x: world.all_reduce(device.host(x), label="w"), "label=w),"),
]


def test_every_rank_hears_that_calls_differ(machine):
    for call, said in OTHERS:

        def run(world, call=call):
            x = own_gpu(world)(np.ones(10))
            call(world, x) if world.rank == 1 else world.all_reduce(x, label="w")

        for error in outcomes(run, 3):
            assert isinstance(error, CommunicationError) and "rank 1 does " in str(error), error
            assert said in f"{error}," and "label=w) by NCCL" in str(error), error


def test_ranks_that_differ_after_steps_they_know_hear_of_it_later(machine):
    """Each pair of calls was agreed on, but the ranks choose different ones of them."""

    def run(world):
        x = own_gpu(world)(np.ones(8))
        for label in ("a", "a", "b", "b", "a", "a" if world.rank == 0 else "b"):
            world.broadcast(x, label=label)
        world.broadcast(x, label="after")

    with pytest.raises(DisagreementError, match="did other collectives on their GPUs before it"):
        run_local(run, 2)


def test_two_ranks_on_one_gpu_are_refused_where_nccl_does_not_take_them(machine, monkeypatch):
    run = lambda world: world.all_reduce(device.move(np.ones(10), "cuda:2"), label="w")
    message = r"label=w\): the ranks are on GPUs .*0000:02:00.0.*0000:02:00.0.*; wanted one GPU a rank"
    for version, enabled, refused in ((23000, "", True), (23000, "1", False), (22999, "1", True)):
        state(machine).version = version
        monkeypatch.setenv("NCCL_MULTI_RANK_GPU_ENABLE", enabled)
        for found in outcomes(run, 3):
            assert (isinstance(found, RuntimeError) and bool(re.search(message, str(found)))) == refused, found


def test_nccl_that_is_missing_or_fails(machine, monkeypatch, native):
    from minigrad.parallel import nccl

    world, x = world_of_one()
    world.collectives(x).group.destroy()
    with pytest.raises(CommunicationError, match=r"label=\): rank 0: NCCL failed: NCCL_ERROR_INVALID_ARGUMENT"):
        world.all_reduce(x)
    world = Communicator(LocalTransport())
    monkeypatch.setattr(nccl.nccl, "available", False)
    with pytest.raises(RuntimeError, match="not installed; pip install nvidia-nccl-cu13, or say world.backend"):
        world.all_reduce(x)
    by_host = Communicator(LocalTransport(), backend="host")
    assert device.host(by_host.all_reduce(x)).tolist() == [1, 1, 1]


# ---- ends ------------------------------------------------------------------------------------------------------------


def knows(machine, **facts):
    """NCCL of a machine is like this from now on."""
    vars(state(machine)).update(facts)


TOLD = "rank 1 ended: KeyError: a mistake"
SPOILT = [  # timeout, whether a graph is launched, what is done before, seconds at least, what is said
    (0.3, False, lambda world, machine: knows(machine, absent=True), 0.3, "not done after 0.3 s"),
    (0.3, True, lambda world, machine: knows(machine, absent=True), 0.3, "not done after 0.3 s"),
    (60, False, lambda world, machine: knows(machine, absent=True, error=6), 0, "the GPU or NCCL failed: NCCL_ERROR_R"),
    # CuPy's Event.done says of it no more than that its work has not ended.
    (60, False, lambda world, machine: setattr(machine, "failed", 700), 0, "the GPU or NCCL failed: cudaErrorIllegalA"),
    (0.1, False, lambda world, machine: machine.endless.add(0), 0.3, "the GPU did not come to it"),
    (60, False, lambda world, machine: (knows(machine, absent=True), world.transport.abort(TOLD)), 0.2, TOLD),
]


@pytest.mark.parametrize("timeout, graph, spoil, least, why", SPOILT)
def test_what_does_not_end_ends_the_process(
    machine, ended, capsys, native, monkeypatch, timeout, graph, spoil, least, why
):
    monkeypatch.setattr(nccl_watch, "GRACE", 0.2)
    world, x = world_of_one(timeout)
    step, *batch = reducing(world, x) if graph else (lambda: world.all_reduce(x, label="w", asynchronous=True),)
    world.collectives(x)._watch.drain()
    spoil(world, machine)
    before = time.monotonic()
    step(*batch)
    assert ended.wait(20) and least <= time.monotonic() - before < least + 5 and ended.codes == [FAILED]
    said = capsys.readouterr().err.strip()
    begin = "a graph, its last collective here " * graph + "all_reduce(float32(3,), sum, native, label=w): rank 0: "
    assert said.startswith(begin + why)
    assert world.transport.mail.reason == (TOLD if why == TOLD else said), "the others hear of it"


def test_a_call_that_does_not_come_back_ends_the_process(machine, ended, monkeypatch, capsys):
    """As the first ones, in which NCCL connects the ranks."""
    from minigrad.parallel import nccl

    connect = nccl.NcclCollectives.connect
    monkeypatch.setattr(nccl.NcclCollectives, "connect", lambda self, *words: (ended.wait(20), connect(self, *words)))
    world = Communicator(LocalTransport(), timeout=0.3)
    world.all_reduce(device.move(np.ones(3), "cuda:0"), label="first")
    assert ended.codes == [FAILED]
    assert capsys.readouterr().err.endswith("label=first): rank 0: not done after 0.3 s\n")


def test_an_abort_ends_what_waits_on_the_gpu_and_is_the_only_end(machine, monkeypatch, native):
    """Two calls that end one group at once would free it twice, which the stand-in refuses."""
    from minigrad.parallel import nccl

    monkeypatch.setattr(nccl, "GRACE", 0.2)
    world, x = world_of_one()
    world.collectives(x).group.graphs.add(graph := threading.Event())  # as one that captured a call
    state(machine).absent = True
    assert not world.all_reduce(x, asynchronous=True).done
    with pytest.raises(KeyError), world:
        raise KeyError("a mistake")
    assert "abort" not in names(machine)
    del graph
    wait_for(lambda: names(machine)[-1] == "abort")
    assert names(machine)[-1] == "abort" and "destroy" not in names(machine)
    with pytest.raises(CommunicationError, match="the group of GPUs has ended"):
        world.all_reduce(x)


# ---- captured training steps: gradients travel within the graph, on NCCL's stream, and join again --------------------


def fitted(world, eager, mode, zero, options):
    """(losses, weights) of a training on a rank; gradients travel in several buckets while backward goes on."""
    place, rng = f"cuda:{world.rank}", np.random.default_rng(0)
    images = data.Dataset(rng.integers(0, 256, (16, 1, 2, 2), np.uint8), rng.integers(0, 3, 16), tuple("abc"))
    with device.place(place).active(), deterministic(mode):
        minigrad.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(4, 5), nn.ReLU(), nn.Dropout(0.3), nn.Linear(5, 3)).to(place)
        model = DataParallel(model, world, bucket_bytes=64)
        optimizer = optim.Adam(model.parameters(), lr=0.05)
        optimizer = ShardedOptimizer(optimizer, model) if zero else optimizer
        loader = data.Loader(images, 4, True, device=place, sampler=model.sampler)
        history = fit(model, loader, optimizer, 2, eager=eager, **options)
        return history["loss"], [parameter.detach().numpy().tobytes() for parameter in model.parameters()]


@pytest.mark.deep
@pytest.mark.parametrize("case", [(False, False, {}), (True, True, {"clip": 0.1, "precision": "float16"})])
def test_ranks_train_by_graphs_as_without_and_as_by_way_of_the_host(machine, monkeypatch, case):
    eager, wanted = run_local(fitted, 2, True, *case), "allGather" if case[0] else "allReduce"
    before = len(machine.launches)
    assert not machine.graph_launches and names(machine).count(wanted) > 8, "several buckets an update"
    replayed = run_local(fitted, 2, False, *case)
    assert eager == replayed and replayed[0] == replayed[1]
    assert any(wanted in launch.names for launch in machine.graph_launches)
    assert len(machine.launches) - before < before, "fewer kernels are launched one by one"
    if not case[0]:
        monkeypatch.setattr(LocalTransport, "backend", "host")
        assert run_local(fitted, 2, True, *case) == eager


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
    step, batch = reducing(world, x, times=3)
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
        step = capture(lambda batch: (world.all_reduce(np.ones(3)), batch * 1)[1])
        batch = own_gpu(world)(np.ones(2))
        with pytest.raises(CaptureError, match="all_reduce goes by way of the host"):
            for _ in range(3):
                step(Tensor(batch))

    run_local(run, 2)


def test_a_group_ends_though_graphs_captured_it(machine):
    """NCCL waits for all of them, so they are reset; their functions would begin anew."""
    before = time.monotonic()
    steps = run_local(lambda world: reducing(world, own_gpu(world)(np.ones(4, np.float32))), 2)
    assert time.monotonic() - before < 5 and [names(machine, rank)[-1] for rank in (0, 1)] == ["destroy"] * 2
    step, batch = steps[1]
    with pytest.raises(CommunicationError, match="the group of GPUs has ended"):
        step(batch)
