"""Communicator: what it refuses, and how every rank hears that something is wrong between them."""

import threading

import numpy as np
import pytest

from minigrad import Tensor
from minigrad.core.errors import KindError, ShapeError, StateError
from minigrad.core.modes import deterministic
from minigrad.parallel import CommunicationError, DeadlineError, DisagreementError, PeerLost

from .parallel_runs import on_ranks, outcomes

# ---- refusals --------------------------------------------------------------------------------------------------------

F = np.zeros(4, np.float32)
REFUSED = {
    "op": (ShapeError, "op is 'product', wanted one of 'sum', 'mean'", lambda w: w.all_reduce(F, "product")),
    "order": (ShapeError, "order is 'any', wanted one of 'fixed'", lambda w: w.all_reduce(F, order="any")),
    "wire": (ShapeError, "wire is 'int8', wanted one of 'float16'", lambda w: w.reduce_scatter(F[:2], F, wire="int8")),
    "wire of float64": (
        KindError,
        "for elements float64, wanted float32",
        lambda w: w.all_reduce(F.astype("f8"), wire="float16"),
    ),
    "bool": (KindError, "elements bool, which have no sum", lambda w: w.all_reduce(F > 0)),
    "mean of integers": (
        KindError,
        "elements int8, which have no mean",
        lambda w: w.all_reduce(F.astype("i1"), "mean"),
    ),
    "kind": (KindError, "array is a list, wanted an array or a Tensor", lambda w: w.all_reduce([1.0])),
    "gaps": (ShapeError, r"array \(shape \(2,\)\) is read-only or has gaps", lambda w: w.all_reduce(F[::2])),
    "read-only": (ShapeError, "is read-only or has gaps", lambda w: w.broadcast(np.broadcast_to(F[:1], (4,)))),
    "history": (StateError, "made by mul; only leaves", lambda w: w.all_reduce(Tensor(F, requires_grad=True) * 2)),
    "root": (ShapeError, "root is 2, wanted a rank from 0 to 1", lambda w: w.broadcast(F, 2)),
    "root of bytes": (ShapeError, "root is -1, wanted a rank from 0 to 1", lambda w: w.broadcast_bytes(b"", -1)),
    "no rank": (ShapeError, "root is True, wanted a rank", lambda w: w.broadcast(F, True)),
    "parts": (ShapeError, "out 2 elements float32; wanted 2 times", lambda w: w.reduce_scatter(F[:2], F[:3])),
    "types": (ShapeError, "elements float64.* of one type", lambda w: w.all_gather(np.zeros(4), F[:2])),
    "to itself": (ShapeError, "which is this rank itself; wanted another", lambda w: w.send(F, w.rank)),
    "tag": (ShapeError, "tag is 62, wanted an integer from 0 to 61", lambda w: w.recv(F, 1 - w.rank, 62)),
}


@pytest.mark.parametrize("error, message, call", REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_is_refused_before_anything_is_sent(error, message, call):
    def run(world):
        with pytest.raises(error, match=message):
            call(world)
        return world.all_reduce(np.ones(1)).item()

    assert on_ranks(run, 2) == [2.0, 2.0]


# ---- what goes wrong between ranks -----------------------------------------------------------------------------------

DIFFERENT = {
    "shape": lambda w: w.all_reduce(np.zeros(3 + (w.rank == 2)), label="weights"),
    "type": lambda w: w.all_reduce(np.zeros(3, "f4" if w.rank == 2 else "f8"), label="weights"),
    "op": lambda w: w.all_reduce(np.zeros(3), "max" if w.rank == 2 else "sum", label="weights"),
    "layout": lambda w: w.all_reduce(np.zeros((2, 3), order="F" if w.rank == 2 else "C"), label="weights"),
    "call": lambda w: w.broadcast(F, label="weights") if w.rank == 2 else w.all_reduce(F, label="weights"),
    "large": lambda w: w.all_reduce(np.zeros(20_000 + (w.rank == 2)), label="weights"),
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
        assert "rank 2 does" in error or "rank 2" in error and " does " in error, error
        assert error.count("label=weights") >= 2, error


def test_a_message_must_fit():
    def run(world):
        if world.rank == 0:
            return world.send(np.zeros(2, np.float32), 1).wait().size
        world.recv(np.zeros(3, np.float32), 0)

    sent, error = outcomes(run, 2)
    assert sent == 2 and isinstance(error, DisagreementError)
    assert "recv: rank 0 sent float32(2,), but out on rank 1 is float32(3,)" in str(error)


def test_a_rank_that_fails_fails_the_others_with_its_reason():
    heard = []

    def run(world):
        if world.rank == 1:
            raise KeyError("lost it")
        with pytest.raises(CommunicationError) as caught:
            world.all_reduce(np.ones(2))
        heard.append(str(caught.value))

    with pytest.raises(KeyError, match="lost it"):
        on_ranks(run, 3)
    assert len(heard) == 2 and all("rank 1 ended: KeyError: 'lost it'" in text for text in heard)


def test_a_rank_that_stays_away_is_named():
    done = threading.Event()

    def run(world):
        world.barrier()
        world.exchange.seconds = 1.0
        if world.rank == 2:
            assert done.wait(10)
            return None
        try:
            world.all_reduce(np.ones(2), label="weights")
        except CommunicationError as error:
            return error
        finally:
            if world.rank == 0:
                done.set()

    first, second, _ = outcomes(run, 3)
    assert any(isinstance(error, DeadlineError) for error in (first, second))
    for error in (first, second):
        assert "no message from rank 2 came in time" in str(error) and "label=weights" in str(error)


def test_a_rank_that_has_ended_is_not_waited_for():
    run = lambda world: None if world.rank else world.all_reduce(np.ones(2))
    ended, _ = outcomes(run, 2)
    assert isinstance(ended, PeerLost) and "rank 1 has ended, while rank 0 waits" in str(ended)


def test_ranks_agree_on_texts():
    def run(world, different):
        world.agree("load", {"a": 1, "b": 2} if world.rank < 2 else different)

    for different, message in [
        ({"a": 1, "b": 2}, None),
        ({"a": 1, "b": 3}, "load: b is 2 on rank 0 and 3 on rank 2; wanted the same on all"),
        ({"a": 1}, "load: b is 2 on rank 0 and absent on rank 2"),
        ({"a": 1, "b": 2, "c": 3}, "load: c is absent on rank 0 and 3 on rank 2"),
        ({"b": 2, "a": 1}, "load: the order is a, b on rank 0 and b, a on rank 2"),
    ]:
        found = outcomes(run, 3, different)
        assert all(
            error is None if message is None else type(error) is DisagreementError and message in str(error)
            for error in found
        ), found


def test_after_its_end_a_world_is_of_no_use():
    def run(world):
        world.close()
        world.close()
        for call in (lambda: world.all_reduce(np.ones(1)), lambda: world.recv(np.ones(1), 1 - world.rank)):
            with pytest.raises(CommunicationError, match=r"rank \d: its transport is closed"):
                call()

    on_ranks(run, 2)


def test_the_order_is_that_of_the_mode():
    def run(world):
        with deterministic(world.rank == 0):
            world.all_reduce(np.ones(1))

    assert any("fixed" in str(error) and "native" in str(error) for error in outcomes(run, 2))
