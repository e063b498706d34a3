"""NCCL's collectives on the stand-in for CuPy: the bits of the host; calls, streams and their order as they must be."""

import time
import weakref

import numpy as np
import pytest

from minigrad import Tensor, device, nn, optim
from minigrad.device import random
from minigrad.nn import functional as F
from minigrad.parallel import DataParallel, nccl_watch
from minigrad.parallel.communicator import Communicator
from minigrad.parallel.local import LocalTransport, run_local

from .collective_table import ROWS, check_row, run_row
from .nccl_ranks import calls, machine, own_gpu
from .standin import OrderError
from .standin.nccl import state

assert machine  # a fixture


# ---- results ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_results_are_those_of_the_host(machine, size):
    rows = [row for row in ROWS if size < 4 or row.size < 10_000]
    found = run_local(lambda world: [run_row(world, row, own_gpu(world)) for row in rows], size)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalTransport, "backend", "host")
        wanted = run_local(lambda world: [run_row(world, row) for row in rows], size)
    for i, row in enumerate(rows):
        for rank in range(size):
            check_row(row, rank, size, found[rank][i], wanted[rank][i])
        assert not row.alike or len({found[rank][i].tobytes() for rank in range(size)}) == 1, row


def test_nothing_goes_by_way_of_the_host(machine):
    def run(world):
        x = own_gpu(world)(np.ones(10_000, np.float32))
        machine.copied.clear()
        for order in ("fixed", "native"):
            world.all_reduce(x, order=order)
        world.all_reduce(x, wire="bfloat16")
        return device.host(x)[0]

    assert run_local(run, 2) == [8, 8]
    assert machine.copied["to device"] == 0 and machine.copied["to host"] == 2 * 40_000
    assert not machine.library


def test_tensors_and_layouts(machine):
    def run(world):
        x = own_gpu(world)(np.arange(24.0).reshape(2, 3, 4).transpose(2, 0, 1))
        tensor = Tensor(x, requires_grad=True)
        assert world.all_reduce(tensor) is tensor
        return device.host(tensor.array)

    for found in run_local(run, 2):
        assert (found == 2 * np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1)).all()


def test_arrays_of_the_cpu_go_by_the_host(machine):
    assert [x[0] for x in run_local(lambda world: world.all_reduce(np.ones(3)), 2)] == [2, 2]
    assert not state(machine).calls


def test_in_place(machine):
    """The part of a whole array that is a rank's own."""

    def run(world):
        to, n, rank = own_gpu(world), world.size, world.rank
        whole = to(np.zeros(4 * n, np.float32))
        part = whole[4 * rank :][:4]
        with device.place_of(whole).active():
            part += rank
        world.all_gather(whole, part)
        gathered = device.host(whole)
        for order in ("native", "fixed"):
            world.reduce_scatter(part, whole, order=order)
        summed = device.host(part)
        return gathered, summed

    (gathered, first), (_, second) = run_local(run, 2)
    assert gathered.tolist() == [0] * 4 + [1] * 4
    # The sums of the second part are 1 + 1, then 1 + 2, as only rank 1 has the first of them.
    assert first.tolist() == [0] * 4 and second.tolist() == [3] * 4
    assert {call.name for call in calls(machine)} >= {"allGather", "reduceScatter", "send", "recv"}
    gather = next(call for call in calls(machine, 1) if call.name == "allGather")
    assert gather.sent == gather.received + 16


def test_data_parallel(machine, monkeypatch):
    """Gradients in several buckets, sent while backward goes on: the weights of an exchange by way of the host."""

    def train(world):
        random.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).to(f"cuda:{world.rank}")
        model = DataParallel(model, world, bucket_bytes=64)
        optimizer = optim.SGD(model.parameters(), lr=0.1)
        rng = np.random.default_rng(world.rank)
        for _ in range(2):
            x, y = rng.random((4, 6), np.float32), rng.integers(0, 3, 4)
            optimizer.zero_grad()
            F.cross_entropy(model(Tensor(x).to(f"cuda:{world.rank}")), Tensor(y).to(f"cuda:{world.rank}")).backward()
            optimizer.step()
        return b"".join(device.host(p.array).tobytes() for p in model.parameters())

    by_nccl = run_local(train, 2)
    assert len([call for call in calls(machine) if call.name == "allGather"]) >= 4
    monkeypatch.setattr(LocalTransport, "backend", "host")
    by_host = run_local(train, 2)
    assert by_nccl[0] == by_nccl[1] == by_host[0] == by_host[1]


# ---- what is asked of NCCL -------------------------------------------------------------------------------------------


def test_calls_and_what_they_name(machine):
    def run(world):
        x = own_gpu(world)(np.ones(3000, np.float32))
        world.all_reduce(x, "mean", order="native")
        with device.place_of(x).active():
            half, part = x[:10].astype(np.float16), x[:1500].copy()
        world.all_reduce(half, "max", order="native")
        world.reduce_scatter(part, x, order="native")
        world.broadcast(x, 1)
        world.all_gather(own_gpu(world)(np.ones(6000, np.float32)), x)
        return x.data.ptr

    pointer, _ = run_local(run, 2)
    found = calls(machine)
    assert [call.name for call in found] == [
        "allReduce",
        "allReduce",
        "reduceScatter",
        "broadcast",
        "allGather",
        "destroy",
    ]
    (stream,) = {call.stream for call in found[:-1]}
    assert stream != 0 and machine.streams[stream] == 0
    mean, largest, scatter, broadcast, gather, _ = found
    assert (mean.sent, mean.received, mean.count, mean.type, mean.op) == (pointer, pointer, 3000, 7, 4)
    assert (largest.count, largest.type, largest.op) == (10, 6, 2)
    assert (scatter.sent, scatter.count, scatter.type, scatter.op) == (pointer, 1500, 7, 0)
    assert (broadcast.received, broadcast.count, broadcast.type, broadcast.peer) == (pointer, 12_000, 1, 1)
    assert (gather.sent, gather.count, gather.type) == (pointer, 12_000, 1)


@pytest.mark.parametrize("wire, itemsize", [(None, 4), ("float16", 2), ("bfloat16", 2)])
def test_sums_in_order_send_each_rank_its_part_alone(machine, wire, itemsize):
    """Of 10,000 elements on 3 ranks parts of 3,334 go to the others, and then all parts are gathered."""
    run_local(lambda world: world.all_reduce(own_gpu(world)(np.ones(10_000, np.float32)), wire=wire), 3)
    for rank in range(3):
        *exchanged, gather, end = calls(machine, rank)
        sizes = {0: 3334, 1: 3334, 2: 3332}
        sent = {call.peer: call.count for call in exchanged if call.name == "send"}
        received = {call.peer: call.count for call in exchanged if call.name == "recv"}
        assert sent == {peer: itemsize * sizes[peer] for peer in sizes if peer != rank}
        assert received == {peer: itemsize * sizes[rank] for peer in sizes if peer != rank}
        assert (gather.name, gather.count, end.name) == ("allGather", itemsize * 3334, "destroy")
        assert all(call.grouped for call in exchanged) and not gather.grouped


def test_small_sums_in_order_need_one_call(machine):
    run_local(lambda world: world.all_reduce(own_gpu(world)(np.ones(100, np.float32))), 4)
    assert [call.name for call in calls(machine)] == ["allGather", "destroy"]


def test_the_stream(machine):
    world = Communicator(LocalTransport())
    x = device.move(np.ones(3), "cuda:0")
    world.all_reduce(x, order="native")
    stream = world.collectives(x).nccl.stream
    assert stream.is_non_blocking and stream.priority < 0 and calls(machine)[0].stream == stream.ptr
    world.close()


# ---- streams and events ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["native", "fixed"])
def test_the_current_stream_waits_only_where_wait_is_called(machine, monkeypatch, order):
    """Two ranks; what reads the sum before wait() is an error that the stand-in finds, and after it is none."""
    monkeypatch.setattr(nccl_watch.Watch, "add", lambda self, work: None)  # nobody else asks the events

    def run(world):
        x = own_gpu(world)(np.ones(10_000, np.float32))
        with device.place_of(x).active():
            x *= 2
            work = world.all_reduce(x, order=order, asynchronous=True)
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
    world, x = Communicator(LocalTransport()), device.move(np.ones(3), "cuda:0")
    world.all_reduce(x, order="native")
    monkeypatch.setattr(type(world.collectives(x).nccl), "wait_for", lambda self, event: None)
    x += 1
    with pytest.raises(OrderError, match="allReduce on stream .* that add on stream 0"):
        world.all_reduce(x, order="native")


def test_any_stream_of_the_caller(machine):
    import cupy

    world, x = Communicator(LocalTransport()), device.move(np.ones(3), "cuda:0")
    stream = cupy.cuda.Stream(non_blocking=True)
    stream.wait_event(cupy.cuda.get_current_stream().record())
    with stream:
        x += 1
        world.all_reduce(x, order="native")
        x += 1
        assert device.host(x).tolist() == [3, 3, 3]
    world.close()


def test_memory_stays_until_its_work_is_done(machine):
    world, x = Communicator(LocalTransport()), device.move(np.ones(3), "cuda:0")
    world.all_reduce(x, order="native")
    machine.endless.add(world.collectives(x).nccl.stream.ptr)
    y = device.move(np.ones(1000), "cuda:0")
    memory = weakref.ref(y.data.mem)
    work = world.all_reduce(y, order="native", asynchronous=True)
    del y
    assert not work.done
    del work
    time.sleep(4 * nccl_watch.POLL)
    assert memory() is not None
    next(iter(world._on_gpus.values()))._watch._works[-1]._after.endless = False
    limit = time.monotonic() + 10
    while memory() is not None and time.monotonic() < limit:
        time.sleep(0.01)
    assert memory() is None
    world.close()
