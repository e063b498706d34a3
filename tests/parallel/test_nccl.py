"""NCCL's collectives on the stand-in for CuPy: the bits of the host; calls, streams and their order as they must be."""

import time
import weakref

import numpy as np
import pytest

from minigrad import Tensor, deterministic, device
from minigrad.parallel import nccl_watch
from minigrad.parallel.local import run_local
from tests.collective_table import ROWS, check_row, run_row
from tests.parallel.launch_runs import wait_for
from tests.parallel.nccl_ranks import calls, machine, own_gpu, world_of_one
from tests.standin import OrderError
from tests.standin.nccl import state

assert machine  # a fixture


# ---- results ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 3])
def test_results_are_those_of_the_host(machine, size):
    found = run_local(lambda world: [run_row(world, row, own_gpu(world)) for row in ROWS], size)
    wanted = run_local(lambda world: [run_row(world, row) for row in ROWS], size)
    for row, *got in zip(ROWS, wanted[0], *found, strict=True):
        for one in got[1:]:
            check_row(row, size, one, got[0])
            assert one.tobytes() == got[1].tobytes(), row


def test_nothing_goes_by_way_of_the_host(machine):
    """Of arrays on GPUs, in any layout; those of the CPU go by the host."""

    def run(world):
        x = own_gpu(world)(np.ones((100, 50, 2), np.float32).transpose(2, 0, 1))
        tensor = Tensor(x, requires_grad=True)
        machine.copied.clear()
        for mode in (True, False):
            with deterministic(mode):
                assert world.all_reduce(tensor) is tensor
        return device.host(tensor.array)

    for found in run_local(run, 2):
        assert found.shape == (2, 100, 50) and (found == 4).all()
    assert machine.copied["to device"] == 0 and machine.copied["to host"] == 2 * 40_000
    assert not machine.library
    before = len(state(machine).calls)
    assert [x[0] for x in run_local(lambda world: world.all_reduce(np.ones(3)), 2)] == [2, 2]
    assert len(state(machine).calls) == before


# ---- what is asked of NCCL -------------------------------------------------------------------------------------------


def test_calls_and_what_they_name(machine):
    """An array may be gathered from a rank's own part of the whole."""

    def run(world):
        x, whole = (own_gpu(world)(np.full(n, world.rank, np.float32)) for n in (3000, 6000))
        with deterministic(False), device.place_of(x).active():
            world.all_reduce(x, "mean")
            world.all_reduce(x[:10].astype(np.float16), "max")
            world.broadcast(x, 1)
            world.all_gather(whole, whole[3000 * world.rank :][:3000])
        stream = world.collectives(x).nccl.stream
        assert stream.is_non_blocking and stream.priority < 0
        return x.data.ptr, stream.ptr, device.host(whole)[::3000].tolist()

    _, (pointer, stream, gathered) = run_local(run, 2)
    *found, end = calls(machine, 1)
    assert [call.name for call in found] == [
        "allReduce",
        "allReduce",
        "broadcast",
        "allGather",
    ] and end.name == "destroy"
    assert {call.stream for call in found} == {stream} and machine.streams[stream] == 1
    mean, largest, broadcast, gather = found
    assert (mean.sent, mean.received, mean.count, mean.type, mean.op) == (pointer, pointer, 3000, 7, 4)
    assert (largest.count, largest.type, largest.op) == (10, 6, 2)
    assert (broadcast.received, broadcast.count, broadcast.type, broadcast.peer) == (pointer, 12_000, 1, 1)
    assert (gather.sent, gather.count, gather.type) == (gather.received + 12_000, 12_000, 1) and gathered == [0, 1]


def test_sums_in_order_send_each_rank_its_part_alone(machine):
    """Of 10,000 elements on 3 ranks parts of 3,334 go to the others, and then all parts are gathered."""
    run_local(lambda world: world.all_reduce(own_gpu(world)(np.ones(10_000, np.float32))), 3)
    for rank in range(3):
        *exchanged, gather, end = calls(machine, rank)
        sizes = {0: 3334, 1: 3334, 2: 3332}
        sent = {call.peer: call.count for call in exchanged if call.name == "send"}
        received = {call.peer: call.count for call in exchanged if call.name == "recv"}
        assert sent == {peer: 4 * sizes[peer] for peer in sizes if peer != rank}
        assert received == {peer: 4 * sizes[rank] for peer in sizes if peer != rank}
        assert (gather.name, gather.count, end.name) == ("allGather", 4 * 3334, "destroy")
        assert all(call.grouped for call in exchanged) and not gather.grouped
    state(machine).calls.clear()
    run_local(lambda world: world.all_reduce(own_gpu(world)(np.ones(100, np.float32))), 4)
    assert [call.name for call in calls(machine)] == ["allGather", "destroy"], "small ones need one call"


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


def test_the_stream_of_communication_waits_for_the_caller(machine, monkeypatch):
    monkeypatch.setattr(nccl_watch.Watch, "add", lambda self, work: None)
    world, x = world_of_one()
    monkeypatch.setattr(type(world.collectives(x).nccl), "wait_for", lambda self, event: None)
    x += 1
    with pytest.raises(OrderError, match="allReduce on stream .* that add on stream 0"), deterministic(False):
        world.all_reduce(x)


def test_memory_stays_until_its_work_is_done(machine):
    world, x = world_of_one()
    machine.endless.add(world.collectives(x).nccl.stream.ptr)
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
