"""Communicator: what collectives compute, in which order, on which arrays, and how every rank hears what went wrong."""

import contextlib
import threading
import time

import numpy as np
import pytest

from minigrad import Tensor, device
from minigrad.parallel import CommunicationError, DeadlineError, DisagreementError, PeerLost, run_local
from minigrad.parallel.collectives import SMALL
from tests.device.stand_in_gpus import gpus
from tests.parallel.collective_table import ROWS, check_row, run_row
from tests.parallel.parallel_runs import in_pairs, on_ranks

# ---- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 5])
def test_collectives_have_the_values_of_numpy_and_one_set_of_bits(size):
    found = on_ranks(lambda world: [run_row(world, row) for row in ROWS], size)
    for rows in found:
        for row, got, first in zip(ROWS, rows, found[0], strict=True):
            check_row(row, size, got, first)


EDGE = SMALL // 4  # float32 numbers up to which whole arrays are exchanged


def numbers(count, rank):
    """Of many magnitudes, so that every order of a sum has bits of its own."""
    rng = np.random.default_rng([rank, count])
    return (rng.standard_normal(count) * 2.0 ** rng.integers(-6, 6, count)).astype(np.float32)


@pytest.mark.parametrize("size", [3, 5])
def test_sums_are_taken_in_pairs_in_the_order_of_ranks(size):
    counts = (1, EDGE, EDGE + 1, 3 * EDGE + 2)
    wanted = [in_pairs([numbers(count, rank) for rank in range(size)]) for count in counts]
    assert size < 4 or sum(numbers(EDGE, rank) for rank in range(size)).tobytes() != wanted[1].tobytes()
    for found in on_ranks(lambda world: [world.all_reduce(numbers(count, world.rank)) for count in counts], size):
        assert [got.tobytes() for got in found] == [total.tobytes() for total in wanted]


# ---- kinds of arrays -------------------------------------------------------------------------------------------------


def test_tensors_layouts_and_results_that_hold_what_is_given():
    values = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 4, 5, 3)

    def run(world):
        last = Tensor((values + world.rank).transpose(0, 3, 1, 2), requires_grad=True)  # channels last
        strides, version = last.array.strides, last.version[0]
        assert world.all_reduce(last) is last and last.array.strides == strides and last.version[0] > version
        assert np.array_equal(last.detach().numpy(), (2 * values + 1).transpose(0, 3, 1, 2))
        whole = np.zeros(2 * world.size)
        own = Tensor(whole[2 * world.rank :][:2])  # a part of it
        own.array[:], version = world.rank, own.version[0]
        world.all_gather(whole, own)
        assert own.version[0] == version, "it is only read"
        return world.all_reduce(np.array(2.0), "mean").tolist(), whole.tolist()

    assert on_ranks(run, 2) == [(2.0, [0, 0, 1, 1])] * 2


def test_arrays_of_gpus_go_by_way_of_the_host_and_copies_on_the_callers_stream():
    """What the caller's stream wrote is there, and what comes is there for it, though a thread beside copies."""

    def run(world):
        import cupy

        with cupy.cuda.Device(world.rank):
            x = device.move(np.arange(5000.0), f"cuda:{world.rank}")
            stream = cupy.cuda.Stream(non_blocking=True)
            stream.wait_event(cupy.cuda.get_current_stream().record())
            with stream:
                x *= 2
                x = world.all_reduce(x, asynchronous=True).wait()
                x *= 3
                world.broadcast(y := device.move(np.full(3, world.rank), f"cuda:{world.rank}"), 1)
                assert device.device_of(x) == device.device_of(y) == f"cuda:{world.rank}"
                return device.host(x)[7], device.host(y).tolist()

    with gpus(2):
        assert run_local(run, 2) == [(84, [1, 1, 1])] * 2


# ---- beside the caller, and words ------------------------------------------------------------------------------------


def test_works_end_in_order_and_calls_and_the_end_come_after_them():
    begun = threading.Event()

    def run(world):
        if world.rank:
            assert begun.wait(10)
        works = [world.all_reduce(np.full(n, 1.0 + world.rank), asynchronous=True) for n in (3, 5000, 20_000)]
        if not world.rank:
            assert not works[0].done and works[0].ended is None
            begun.set()
        total = world.all_reduce(np.full(2, 1.0))  # in the order of the calls: after the works
        assert all(work.done for work in works)
        assert [work.ended for work in works] == sorted(work.ended for work in works)
        last = world.all_reduce(x := np.full(20_000, 1.0 + world.rank), asynchronous=True)
        world.close()
        assert last.done and set(x.tolist()) == {6.0}
        with pytest.raises(CommunicationError, match=r"rank \d: its transport is closed"):
            world.all_reduce(x)
        return total.tolist(), [set(work.wait().tolist()) for work in works]

    assert on_ranks(run, 3) == [([3.0, 3.0], [{6.0}] * 3)] * 3


# ---- what goes wrong between ranks -----------------------------------------------------------------------------------

DIFFERENT = {
    "shape": lambda w: w.all_reduce(np.zeros(3 + (w.rank == 2)), label="weights"),
    "type": lambda w: w.all_reduce(np.zeros(3, "f4" if w.rank == 2 else "f8"), label="weights"),
    "op": lambda w: w.all_reduce(np.zeros(3), "max" if w.rank == 2 else "sum", label="weights"),
    "layout": lambda w: w.all_reduce(np.zeros((2, 3), order="F" if w.rank == 2 else "C"), label="weights"),
    "call": lambda w: (w.broadcast if w.rank == 2 else w.all_reduce)(np.zeros(3), label="weights"),
}


@pytest.mark.parametrize("call", DIFFERENT.values(), ids=DIFFERENT)
def test_every_rank_hears_that_calls_differ(call):
    def run(world):
        with pytest.raises(CommunicationError) as caught:
            call(world)
        with pytest.raises(CommunicationError):  # and so do all further calls, at once
            world.all_reduce(np.zeros(1))
        return caught.value

    found = on_ranks(run, 3, timeout=10)
    assert any(isinstance(error, DisagreementError) for error in found)
    for error in map(str, found):
        assert "rank 2" in error and " does " in error and error.count("label=weights") >= 2, error


def fail():
    raise KeyError("lost it")


DEEDS = [
    (fail, CommunicationError, "rank 1 ended: KeyError: 'lost it'"),
    (lambda: time.sleep(1), DeadlineError, "no message from rank 1 came in time"),
    (lambda: None, PeerLost, "rank 1 has ended, while rank"),
]


@pytest.mark.parametrize("does, error, said", DEEDS)
def test_what_became_of_a_rank_is_heard_by_the_others(does, error, said):
    heard = []

    def run(world):
        if world.rank == 1:
            return does()
        with pytest.raises(CommunicationError) as caught:
            world.all_reduce(np.ones(2), label="weights")
        heard.append(caught.value)
        world.close()
        with pytest.raises(CommunicationError):  # a world of no use
            world.all_reduce(np.ones(1))

    with pytest.raises(KeyError) if does is fail else contextlib.nullcontext():
        on_ranks(run, 3, timeout=0.3)
    assert len(heard) == 2 and any(isinstance(one, error) for one in heard)
    assert all(said in str(one) and "label=weights" in str(one) for one in heard), heard
