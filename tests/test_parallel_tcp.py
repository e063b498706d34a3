"""The TCP transport: messages in order, both ways at once; and every way in which a rank can go, told to the others."""

import contextlib
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from minigrad.errors import ShapeError
from minigrad.parallel.connection import Connection
from minigrad.parallel.errors import CommunicationError, DeadlineError, PeerLost
from minigrad.parallel.rendezvous import Meeting
from minigrad.parallel.tcp import ABORT, FRAME, HEADER_LIMIT, MESSAGE, SMALL, TcpTransport
from tests.cli_runs import environment
from tests.test_parallel_connection import beside, soon
from tests.test_parallel_rendezvous import LIMIT_OF_TEST, attempt, free_port

NOTHING = np.empty(0, np.uint8)
SIZES = (0, 1, 1000, SMALL, SMALL + 1, 5 << 20)  # bytes of payloads, on both sides of what is copied


@contextlib.contextmanager
def ranks(size):
    transports = [TcpTransport(meeting) for meeting in attempt(range(size), size)]
    try:
        yield transports
    finally:
        ending = [threading.Thread(target=transport.close) for transport in transports]
        for thread in ending:
            thread.start()
        for thread in ending:
            thread.join(LIMIT_OF_TEST)
        assert not any(transport._thread.is_alive() for transport in transports)


def bytes_of(size, seed=0):
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)


@pytest.mark.parametrize("size", SIZES)
def test_header_and_payload_arrive_as_they_were_posted(size):
    payload = bytes_of(size)
    with ranks(2) as (one, other):
        delivery = one.post(1, 7, b"what it is", payload)
        header, got = other.take(0, 7, soon())
        delivery.wait(soon())
        assert header == b"what it is" and got.dtype == np.uint8 and got.tobytes() == payload.tobytes()
        assert got.flags.writeable and got.flags.c_contiguous
        if size >= 64:
            got.view(np.float64 if size % 8 == 0 else np.uint8)
            assert got.ctypes.data % 16 == 0


def test_messages_of_a_channel_keep_their_order_and_channels_do_not_wait_for_one_another():
    sent = [
        (channel, index, bytes_of(SIZES[(index + channel) % 5], index)) for index in range(20) for channel in range(10)
    ]
    with ranks(2) as (one, other):
        for channel, index, payload in sent:
            one.post(1, channel, str(index).encode(), payload)
        for channel in reversed(range(10)):
            for _, index, payload in (entry for entry in sent if entry[0] == channel):
                header, got = other.take(0, channel, soon())
                assert int(header) == index and np.array_equal(got, payload)


def test_every_rank_sends_to_every_other_at_once():
    def exchange(transport):
        peers = [rank for rank in range(transport.size) if rank != transport.rank]
        deliveries = [
            transport.post(peer, 3, b"%d" % transport.rank, np.full(1 << 20, 10 * transport.rank + peer, np.uint8))
            for peer in peers
        ]
        for peer in peers:
            header, got = transport.take(peer, 3, soon())
            assert int(header) == peer and (got == 10 * peer + transport.rank).all()
        for delivery in deliveries:
            delivery.wait(soon())

    with ranks(4) as transports:
        for result in [beside(exchange, transport) for transport in transports]:
            result()


def test_two_ranks_that_post_much_before_they_take_do_not_block():
    payload = bytes_of(32 << 20)
    with ranks(2) as (one, other):
        there, back = one.post(1, 0, b"", payload), other.post(0, 0, b"", payload)
        there.wait(soon())
        back.wait(soon())
        assert np.array_equal(one.take(1, 0, soon())[1], payload)
        assert np.array_equal(other.take(0, 0, soon())[1], payload)


def test_several_threads_post_and_take_at_once():
    def talk(transport, peer, channel):
        for index in range(50):
            transport.post(peer, channel, b"%d" % index, np.full(100 + 3000 * channel, index, np.uint8)).wait(soon())
            header, got = transport.take(peer, channel, soon())
            assert int(header) == index and len(got) == 100 + 3000 * channel and (got == index).all()

    with ranks(2) as (one, other):
        talks = [beside(talk, *pair, channel) for pair in ((one, 1), (other, 0)) for channel in (0, 1, 30)]
        for result in talks:
            result()


def test_a_small_payload_may_change_after_post_and_a_large_one_after_its_delivery():
    with ranks(2) as (one, other):
        for size in (1000, 5 << 20):
            payload = np.ones(size, np.uint8)
            one.post(1, 0, b"", payload).wait(soon())
            payload[:] = 2
            assert (other.take(0, 0, soon())[1] == 1).all()


def test_a_rank_may_send_to_itself_and_be_alone():
    with ranks(1) as (alone,):
        payload = np.ones(3, np.uint8)
        alone.post(0, 1, b"me", payload).wait(soon())
        payload[:] = 2
        header, got = alone.take(0, 1, soon())
        assert header == b"me" and got.tolist() == [1, 1, 1]
        with pytest.raises(DeadlineError, match="of rank 0"):
            alone.take(0, 1, soon(0.05))


def test_elements_of_any_type_and_shape_are_sent_as_their_bytes():
    payload = np.arange(12, dtype=np.float32).reshape(3, 4)
    with ranks(2) as (one, other):
        one.post(1, 0, b"", payload)
        assert other.take(0, 0, soon())[1].view(np.float32).tolist() == list(range(12))


def test_what_a_message_may_be():
    with ranks(2) as (one, _):
        for channel, header in ((-1, b""), (1 << 15, b""), (0, bytes(HEADER_LIMIT + 1))):
            with pytest.raises(ShapeError, match="post: header has"):
                one.post(1, channel, header, NOTHING)


def test_a_take_ends_at_its_deadline_and_names_the_rank():
    with ranks(3) as transports:
        begin = time.monotonic()
        with pytest.raises(DeadlineError, match="rank 1: no message came in time, of rank 2"):
            transports[1].take(2, 0, soon(0.2))
        assert 0.2 <= time.monotonic() - begin < 5
        transports[2].post(1, 0, b"late", NOTHING)
        assert transports[1].take(2, 0, soon())[0] == b"late"


def test_an_idle_transport_sleeps():
    with ranks(3):
        time.sleep(0.3)  # until the threads have started
        begin = time.process_time()
        time.sleep(1.0)
        assert time.process_time() - begin < 0.05


def lose(transport):
    """Break the connections of a rank as the end of its process does."""
    for link in transport._links.values():
        link.socket.shutdown(socket.SHUT_RDWR)


def test_a_rank_that_dies_fails_those_who_wait_for_it_and_no_others():
    with ranks(3) as transports:
        transports[1].post(0, 5, b"last words", NOTHING)
        waiting = beside(transports[0].take, 1, 0, soon(30))
        time.sleep(0.1)
        begin = time.monotonic()
        lose(transports[1])
        with pytest.raises(PeerLost, match="rank 1 is gone: .* without a goodbye, while rank 0 still needs it"):
            waiting()
        assert time.monotonic() - begin < 2
        with pytest.raises(PeerLost, match="rank 1"):
            transports[2].take(1, 0, soon(30))
        with pytest.raises(PeerLost, match="rank 1"):
            transports[2].post(1, 0, b"", NOTHING)
        assert transports[0].take(1, 5, soon())[0] == b"last words"
        transports[2].post(0, 0, b"alive", NOTHING)
        assert transports[0].take(2, 0, soon())[0] == b"alive"


def test_a_delivery_to_a_rank_that_dies_fails():
    with ranks(2) as (one, other):
        other._read = lambda link: time.sleep(0.05)  # its thread takes nothing
        other.post(0, 0, b"", NOTHING)
        delivery = one.post(1, 0, b"", np.zeros(64 << 20, np.uint8))
        with pytest.raises(DeadlineError, match="what was sent was not taken in time, of rank 1"):
            delivery.wait(soon(0.3))
        del other._read
        lose(other)
        with pytest.raises(PeerLost, match="rank 1"):
            delivery.wait(soon())


def test_a_goodbye_is_told_from_a_crash():
    with ranks(2) as (one, other):
        one.post(1, 0, b"before", bytes_of(5 << 20))
        waiting = beside(other.take, 0, 1, soon(30))
        one.close()
        one.close()
        with pytest.raises(PeerLost, match="rank 0 has ended, while rank 1 still needs it"):
            waiting()
        assert other.take(0, 0, soon())[0] == b"before"
        for operation in (lambda: one.take(1, 0, soon()), lambda: one.post(1, 0, b"", NOTHING)):
            with pytest.raises(CommunicationError, match="rank 0: its transport is closed"):
                operation()


def test_closing_brings_large_payloads_to_their_end():
    payload = bytes_of(32 << 20)
    with ranks(2) as (one, other):
        one.post(1, 0, b"", payload)
        one.close()
        assert np.array_equal(other.take(0, 0, soon())[1], payload)


def test_an_abort_reaches_all_who_wait_or_will():
    reason = "rank 1 ended: ValueError: boom"
    with ranks(3) as transports:
        waiting = [beside(transports[0].take, 2, 0, soon(30)), beside(transports[1].take, 2, 0, soon(30))]
        begin = time.monotonic()
        transports[1].abort(reason)
        for result in [*waiting, lambda: transports[2].take(0, 0, soon(30))]:
            with pytest.raises(CommunicationError, match=f"^{re.escape(reason)}$"):
                result()
        with pytest.raises(CommunicationError, match="boom"):
            transports[2].post(0, 0, b"", NOTHING)
        transports[2].abort("rank 2 ended: because of the other")  # the first reason stays
        with pytest.raises(CommunicationError, match="boom"):
            transports[2].take(0, 0, soon(30))
        assert time.monotonic() - begin < 3


def test_an_abort_overtakes_what_has_not_left_yet():
    with ranks(2) as (one, other):
        for _ in range(5):
            one.post(1, 0, b"", np.zeros(16 << 20, np.uint8))
        one.abort("no more")
        taken = 0
        with pytest.raises(CommunicationError, match="no more"):
            while True:
                other.take(0, 0, soon(10))
                taken += 1
        assert taken < 5


def test_a_peer_that_answers_nothing_holds_up_the_end_for_seconds_only():
    with attempt_of_two() as (one, silent):
        one.post(1, 0, b"", np.zeros(64 << 20, np.uint8))
        begin = time.monotonic()
        one.close()
        assert time.monotonic() - begin < 5 and not one._thread.is_alive()
        assert silent.poll(1)


@contextlib.contextmanager
def attempt_of_two():
    """A transport of rank 0, and the bare connection of rank 1."""
    zero, one = attempt(range(2), 2)
    transport = TcpTransport(zero)
    try:
        yield transport, one.connections[0]
    finally:
        one.close()
        transport.close()


@pytest.mark.parametrize(
    "frame",
    (
        (MESSAGE, 0, HEADER_LIMIT + 1, 0),
        (MESSAGE, 0, 1, 1 << 60),
        (9, 0, 0, 0),
        (0xFF, 0xFFFF, 0xFFFFFFFF, (1 << 64) - 1),
    ),
)
def test_absurd_frames_end_the_connection(frame):
    with attempt_of_two() as (transport, raw):
        raw.socket.setblocking(True)
        raw.socket.sendall(FRAME.pack(*frame))
        with pytest.raises(PeerLost, match=f"rank 1 is lost: it announced {frame[2]} and {frame[3]} bytes"):
            transport.take(1, 0, soon())
        assert raw.poll(5) and raw.socket.recv(1) == b""


def test_of_two_aborts_the_first_counts():
    with attempt_of_two() as (transport, raw):
        for reason in (b"first", b"later"):
            raw.socket.sendall(FRAME.pack(ABORT, 0, len(reason), 0) + reason)
        raw.socket.shutdown(socket.SHUT_WR)
        assert raw.poll(5)  # rank 0 has read to the end
        with pytest.raises(CommunicationError, match="^first$"):
            transport.take(1, 0, soon())


def test_a_failure_of_the_thread_is_the_error_of_all_takes(monkeypatch):
    with ranks(3) as transports:
        monkeypatch.setattr(transports[0], "_understand", lambda *message: 1 / 0)
        waiting = beside(transports[0].take, 2, 0, soon(30))
        transports[1].post(0, 0, b"", NOTHING)
        with pytest.raises(CommunicationError, match="rank 0: its communication failed: ZeroDivisionError"):
            waiting()
        with pytest.raises(PeerLost, match="rank 0"):
            transports[1].take(0, 0, soon())


def test_the_connections_may_come_from_anywhere():
    """Two transports over one connection that was made by hand."""
    from minigrad.parallel.connection import listen

    with listen() as listener:
        accepted = beside(Connection.accept, listener, b"k", soon())
        mine = Connection.connect("127.0.0.1", listener.getsockname()[1], b"k", soon())
        theirs = accepted()
    one, other = TcpTransport(Meeting(0, 2, {1: theirs})), TcpTransport(Meeting(1, 2, {0: mine}))
    one.post(1, 0, b"hello", NOTHING)
    assert other.take(0, 0, soon())[0] == b"hello"
    other.close()
    one.close()


SCRIPT = """
import sys, time
import numpy as np
from minigrad.parallel.rendezvous import meet
from minigrad.parallel.tcp import TcpTransport
what, rank, size, port = sys.argv[1], *map(int, sys.argv[2:])
transport = TcpTransport(meet(rank, size, "localhost", port, b"k", time.monotonic() + 60))
peers = [peer for peer in range(size) if peer != rank]
payload = np.full(8 << 20, rank, np.uint8)
sent = [transport.post(peer, 0, b"all", payload) for peer in peers]
total = sum(int(transport.take(peer, 0, time.monotonic() + 30)[1][-1]) for peer in peers)
for delivery in sent:
    delivery.wait(time.monotonic() + 30)
print("total", total, flush=True)
if rank == 1:  # it ends only when all have come so far
    for peer in peers:
        transport.take(peer, 2, time.monotonic() + 30)
    print("ready", flush=True)
else:
    transport.post(1, 2, b"ready", payload[:0])
try:
    if what == "orderly":
        transport.close()
    elif rank == 1 and what == "abort":
        transport.abort("rank 1 ended: ValueError: boom")
    elif rank == 1 and what == "kill":
        time.sleep(60)
    else:
        transport.take(1, 1, time.monotonic() + 30)
except Exception as error:
    print(type(error).__name__, error, flush=True)
"""


def processes(what, size=3):
    port = free_port()
    return [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, what, str(rank), str(size), str(port)],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(size)
    ]


@pytest.mark.parametrize(
    ("what", "last"),
    (
        ("orderly", ["total 3", "total 2", "total 1"]),
        ("abort", ["CommunicationError rank 1 ended: ValueError: boom", "total 2"]),
        ("kill", ["PeerLost rank 1 is", ""]),
    ),
)
def test_between_processes(what, last):
    children = processes(what)
    try:
        if what == "kill":
            assert [children[1].stdout.readline() for _ in range(2)] == ["total 2\n", "ready\n"]
            children[1].send_signal(signal.SIGKILL)
        said = [child.communicate(timeout=60)[0] for child in children]
    finally:
        for child in children:
            child.kill()
            child.wait(LIMIT_OF_TEST)
    last = last if len(last) == 3 else [*last, last[0]]
    for output, wanted in zip(said, last, strict=True):
        assert wanted in output and "Traceback" not in output, output
    assert [child.returncode for child in children] == [0, -signal.SIGKILL if what == "kill" else 0, 0]
