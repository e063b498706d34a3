"""Authenticated connections: messages both ways, and whoever does not belong stays out, soon and with a clear word."""

import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest

from minigrad.errors import KindError, ShapeError
from minigrad.parallel.connection import LENGTH, LIMIT, MAGIC, NONCE, PROOF, REFUSAL, Connection, listen
from minigrad.parallel.errors import CommunicationError, DeadlineError, PeerLost, WrongKey
from tests.cli_runs import environment

KEY = b"the key of this job"
LIMIT_OF_TEST = 20.0  # seconds


def soon(seconds=10.0):
    return time.monotonic() + seconds


def beside(function, *arguments):
    """Begin a call in a thread; the function returned here gives its result or raises its error."""
    outcome = []

    def run():
        try:
            outcome.append((function(*arguments), None))
        except Exception as error:
            outcome.append((None, error))

    thread = threading.Thread(target=run)
    thread.start()

    def result():
        thread.join(LIMIT_OF_TEST)
        assert outcome, "the call did not end"
        value, error = outcome[0]
        if error is not None:
            raise error
        return value

    return result


@contextmanager
def listening(host=""):
    with listen(host) as listener:
        yield listener, listener.getsockname()[1]


@contextmanager
def connected(host="localhost", bound=""):
    with listening(bound) as (listener, port):
        accepted = beside(Connection.accept, listener, KEY, soon())
        one = Connection.connect(host, port, KEY, soon())
        other = accepted()
    try:
        yield one, other
    finally:
        one.close()
        other.close()


def accepted_beside(listener, seconds, key=KEY):
    return beside(Connection.accept, listener, key, soon(seconds))


@pytest.mark.parametrize("size", (0, 1, 8, 1000, 1 << 20, LIMIT))
def test_messages_arrive_whole_in_both_directions(size):
    message = bytes(range(256)) * (size // 256) + bytes(size % 256)
    with connected() as (one, other):
        for sender, receiver in ((one, other), (other, one)):
            received = beside(receiver.receive, soon())
            sender.send(message, soon())
            sender.send(b"next", soon())
            assert received() == message
            assert receiver.receive(soon()) == b"next"


def test_each_side_knows_the_address_of_the_other():
    with connected("127.0.0.1") as (one, other):
        assert one.address == other.address == one.local_address == other.local_address == "127.0.0.1"
        assert one.fileno() == one.socket.fileno() >= 0


def test_small_messages_go_at_once_and_dead_hosts_are_noticed():
    with connected() as (one, other):
        for connection in (one, other):
            assert connection.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert connection.socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


def test_ipv6():
    try:
        listener = listen("::1")
    except CommunicationError as error:
        pytest.skip(f"this machine has no IPv6: {error}")
    with listener:
        accepted = accepted_beside(listener, 10)
        one = Connection.connect("::1", listener.getsockname()[1], KEY, soon())
        other = accepted()
    one.send(b"six", soon())
    assert (other.receive(soon()), one.address, other.address) == (b"six", "::1", "::1")
    one.close()
    other.close()


def test_a_receive_goes_on_after_its_deadline():
    with connected() as (one, other):
        one.socket.sendall(LENGTH.pack(6) + b"abc")
        with pytest.raises(DeadlineError, match="nothing came in time"):
            other.receive(soon(0.05))
        one.socket.sendall(b"def")
        assert other.receive(soon()) == b"abcdef"


def test_a_send_that_nobody_takes_ends_at_its_deadline():
    with connected() as (one, _), pytest.raises(DeadlineError, match="not taken in time"):
        for _ in range(100):
            one.send(bytes(LIMIT), soon(0.2))


def test_poll_tells_of_messages_and_of_the_end():
    with connected() as (one, other):
        begin = time.monotonic()
        assert not other.poll(0.1) and time.monotonic() - begin < 5
        one.send(b"x", soon())
        assert other.poll(5) and other.receive(soon()) == b"x"
        one.close()
        assert other.poll(5)
        with pytest.raises(PeerLost, match="closed by the other side"):
            other.receive(soon())


def test_operations_on_a_closed_connection_say_so():
    with connected() as (one, _):
        one.close()
        for operation in (lambda: one.send(b"x", soon()), lambda: one.receive(soon())):
            with pytest.raises(PeerLost, match="closed on this side"):
                operation()
        with pytest.raises(CommunicationError, match="closed on this side"):
            one.poll(0)


def test_too_large_a_message_is_refused_by_both_sides():
    with connected() as (one, other):
        with pytest.raises(ShapeError, match="want at most"):
            one.send(bytes(LIMIT + 1), soon())
        one.socket.sendall(LENGTH.pack(1 << 62))
        with pytest.raises(CommunicationError, match=f"announced {1 << 62} bytes"):
            other.receive(soon())


def test_a_wrong_key_ends_one_side_at_once_and_leaves_the_other_waiting():
    with listening() as (listener, port):
        accepted = accepted_beside(listener, 1.0)
        begin = time.monotonic()
        with pytest.raises(WrongKey, match=f":{port}"):
            Connection.connect("127.0.0.1", port, b"another key", soon())
        assert time.monotonic() - begin < 1
        with pytest.raises(DeadlineError, match="turned away: 1 with another key"):
            accepted()


@pytest.mark.parametrize("key", ("text", b"", None))
def test_a_key_is_bytes(key):
    with listening() as (listener, port), pytest.raises(KindError, match="key"):
        Connection.accept(listener, key, soon())
    with pytest.raises(KindError, match="key"):
        Connection.connect("127.0.0.1", port, key, soon())


def test_connect_waits_for_a_listener_that_comes_late():
    with listening() as (_, port):
        pass
    connecting = beside(Connection.connect, "127.0.0.1", port, KEY, soon())
    time.sleep(0.3)
    with listen("", port) as listener:
        other = Connection.accept(listener, KEY, soon())
    connecting().close()
    other.close()


class ChancePort(socket.socket):
    """The first is given, by chance, the very port that it looks for; so it meets itself."""

    chances = 1

    def connect(self, address):
        if ChancePort.chances:
            ChancePort.chances -= 1
            self.bind(address)
        super().connect(address)


def test_one_who_meets_itself_goes_on_looking(monkeypatch):
    with listening("127.0.0.1") as (_, port):
        pass
    monkeypatch.setattr(socket, "socket", ChancePort)
    connecting = beside(Connection.connect, "127.0.0.1", port, KEY, soon())
    time.sleep(0.2)
    with listen("127.0.0.1", port) as listener:
        other = Connection.accept(listener, KEY, soon())
    connecting().close()
    other.close()
    assert not ChancePort.chances


@pytest.mark.parametrize(
    ("host", "reason"), (("127.0.0.1", "refused"), ("nowhere.invalid", "not known|resolution|No a"))
)
def test_connect_names_place_and_reason(host, reason):
    with listening() as (_, port):
        pass
    with pytest.raises(DeadlineError, match=f"{host}:{port} did not answer in time: .*({reason})"):
        Connection.connect(host, port, KEY, soon(0.3))


def test_a_port_that_is_taken():
    with listening() as (_, port), pytest.raises(CommunicationError, match=f"port {port}: another process"):
        listen("", port)


def stranger(port):
    return socket.create_connection(("127.0.0.1", port), timeout=LIMIT_OF_TEST)


@pytest.mark.parametrize(
    ("sent", "reason"),
    (
        (b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", "1 of another protocol"),
        (b"minigrad link 9\n" + bytes(NONCE), "1 of another protocol"),
        (b"\xff" * 1000, "1 of another protocol"),
        (b"short", "1 gone before it proved itself"),
        (MAGIC + bytes(NONCE) + bytes(PROOF), "1 with another key"),
    ),
    ids=("http", "version", "garbage", "short", "guess"),
)
def test_strangers_are_turned_away_and_counted(sent, reason):
    with listening() as (listener, port):
        accepted = accepted_beside(listener, 1.0)
        with stranger(port) as raw:
            raw.sendall(sent)
            if sent == b"short":
                raw.shutdown(socket.SHUT_WR)
            elif not sent.startswith(MAGIC):
                assert raw.recv(1000) == REFUSAL
        with pytest.raises(DeadlineError, match=reason):
            accepted()


def test_a_silent_stranger_holds_nobody_up_for_long():
    with listening() as (listener, port), stranger(port):
        begin = time.monotonic()
        accepted = accepted_beside(listener, 15)
        one = Connection.connect("127.0.0.1", port, KEY, soon(15))
        other = accepted()
        assert time.monotonic() - begin < 5
        one.close()
        other.close()


def test_a_flood_of_strangers_does_not_outlast_the_deadline():
    over = threading.Event()

    def flood(port):
        while not over.is_set():
            with stranger(port) as raw:
                raw.sendall(bytes(100))

    with listening() as (listener, port):
        flooding = beside(flood, port)
        try:
            with pytest.raises(DeadlineError, match="of another protocol|gone"):
                accepted_beside(listener, 0.5)()
        finally:
            over.set()
            flooding()


def test_a_proof_cannot_be_reflected():
    with listening() as (listener, port):
        accepted = accepted_beside(listener, 1.0)
        with stranger(port) as raw:
            raw.sendall(MAGIC + bytes(NONCE))
            answer = raw.recv(len(MAGIC) + NONCE + PROOF, socket.MSG_WAITALL)
            raw.sendall(answer[-PROOF:])
            assert raw.recv(1000) == b""
        with pytest.raises(DeadlineError, match="with another key"):
            accepted()


def test_one_who_connects_is_not_fooled_by_an_echo():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def echo():
            raw, _ = server.accept()
            with raw:
                said = raw.recv(len(MAGIC) + NONCE, socket.MSG_WAITALL)
                raw.sendall(said + bytes(PROOF))
                return raw.recv(1000)

        echoed = beside(echo)
        with pytest.raises(WrongKey):
            Connection.connect("127.0.0.1", server.getsockname()[1], KEY, soon())
        assert echoed() == bytes(PROOF)  # it got no proof that it could use elsewhere


def test_something_else_that_listens_is_named():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def banner():
            raw, _ = server.accept()
            with raw:
                raw.sendall(b"SSH-2.0-OpenSSH_9.2p1 Debian\r\n")
                raw.recv(1000)

        served = beside(banner)
        with pytest.raises(CommunicationError, match="speaks another protocol, b'SSH-2.0-OpenSSH"):
            Connection.connect("127.0.0.1", server.getsockname()[1], KEY, soon())
        served()


def test_no_more_than_a_proof_is_read_of_a_stranger(monkeypatch):
    read = []
    recv = Connection._read
    monkeypatch.setattr(
        Connection, "_read", lambda self, count, deadline: read.append(count) or recv(self, count, deadline)
    )
    with listening() as (listener, port), stranger(port) as raw:
        raw.sendall(MAGIC + bytes(1 << 16))
        with pytest.raises(DeadlineError, match="another key"):
            Connection.accept(listener, KEY, soon(0.3))
    assert sum(read) <= 100


def test_between_processes():
    script = (
        "import sys, time\n"
        "from minigrad.parallel.connection import Connection\n"
        "connection = Connection.connect('127.0.0.1', int(sys.argv[1]), b'k', time.monotonic() + 20)\n"
        "connection.send(connection.receive(time.monotonic() + 20)[::-1], time.monotonic() + 20)\n"
    )
    with listening() as (listener, port):
        child = subprocess.Popen([sys.executable, "-c", script, str(port)], env=environment())
        try:
            connection = Connection.accept(listener, b"k", soon(60))
            connection.send(b"abc", soon())
            assert connection.receive(soon()) == b"cba"
            with pytest.raises(PeerLost):
                connection.receive(soon())
            connection.close()
            assert child.wait(LIMIT_OF_TEST) == 0
        finally:
            child.kill()
            child.wait(LIMIT_OF_TEST)
