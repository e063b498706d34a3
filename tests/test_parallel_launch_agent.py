"""The agents of minigrad launch and their head: who may join, and what an agent does when the head is silent."""

import contextlib
import json
import socket
import subprocess
import sys
import threading
import time

import pytest

from minigrad.parallel.connection import Connection, listen
from minigrad.parallel.errors import CommunicationError, WrongKey
from minigrad.parallel.launch.agent import Agent
from minigrad.parallel.launch.attempt import Attempt
from minigrad.parallel.launch.command import Job
from minigrad.parallel.launch.head import Head
from minigrad.parallel.launch.messages import receive, send
from tests.cli_runs import environment
from tests.launch_runs import gone_or_killed, records, script, wait_for

KEY = bytes(32)

# ---- who may join ----------------------------------------------------------------------------------------------------


def test_strangers_do_not_disturb(tmp_path, capfd):
    """Silence, noise, a wrong key, and one with the key that is no agent; the job goes on."""
    command = [sys.executable, *script(tmp_path, "while not os.path.exists(folder + '/enough'): time.sleep(0.05)")]
    head = Head(Job(command, 1, [("localhost", 1)], logs=str(tmp_path)))
    port, key, seen = head.listener.getsockname()[1], head.job.key, []

    def disturb():
        place, soon = ("127.0.0.1", port), lambda: time.monotonic() + 10
        with socket.create_connection(place), socket.create_connection(place) as noise:
            noise.sendall(b"GET / HTTP/1.1\r\n\r\n" * 10)
            with pytest.raises(WrongKey):
                Connection.connect(*place, bytes(32), soon())
            for message in (b"[]", b"{", b"{}", b'{"say": "ready", "host": 7}', b'{"say": "ready", "host": 0}'):
                with contextlib.closing(Connection.connect(*place, key, soon())) as stranger:
                    stranger.send(message, soon())
                    with pytest.raises(CommunicationError):
                        stranger.receive(soon())
                    seen.append(message)
        (tmp_path / "enough").touch()

    thread = threading.Thread(target=disturb, daemon=True)
    thread.start()
    assert head.run() == 0 and len(seen) == 5
    thread.join(10)
    assert "attempt 0: 1 rank ended well" in capfd.readouterr().err


def test_a_host_that_takes_no_messages_is_lost():
    head = Head(Job(["true"], 1, [("127.0.0.3", 1)], rsh="true"))
    (host,) = head.hosts
    with socket.create_server(("127.0.0.1", 0)) as server:
        host.arrive(Connection(socket.create_connection(server.getsockname())), 1)
    host.state = "busy"
    head.attempt = Attempt(0, 1, {0: host})
    host.connection.close()  # as after a message that was not taken
    host.say("alive")
    head.pump()
    assert head.attempt.lost is host and host.state == "missing" and host.connection is None
    head.leave()


def test_an_agent_with_another_key_gives_up():
    with listen("127.0.0.1") as listener:
        accepting = threading.Thread(target=_accept, args=(listener,), daemon=True)
        accepting.start()
        agent = Agent(["127.0.0.1"], listener.getsockname()[1], b"another", 0, 0, heartbeat=2, patience=10)
        with pytest.raises(WrongKey):
            agent.run()
        accepting.join(10)


def _accept(listener):
    with contextlib.suppress(CommunicationError):
        Connection.accept(listener, KEY, time.monotonic() + 1)


def test_an_agent_that_finds_nobody_gives_up():
    with listen("127.0.0.1") as listener:
        port = listener.getsockname()[1]
    begin = time.monotonic()
    Agent(["127.0.0.1"], port, KEY, 0, 0, heartbeat=2, patience=60).run()
    assert time.monotonic() - begin < 20


def test_an_agent_is_started_by_launch_alone():
    command = [sys.executable, "-m", "minigrad.parallel.launch.agent"]
    done = subprocess.run(command, env=environment(), stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    assert done.returncode == 2 and b"started by minigrad launch alone" in done.stderr


# ---- an agent and its head -------------------------------------------------------------------------------------------


@contextlib.contextmanager
def agent_of(listener, **options):
    """The process of an agent, and its connection with this process as the head."""
    told = {"addresses": ["127.0.0.1"], "port": listener.getsockname()[1], "key": KEY.hex(), "host": 0, "instance": 5}
    command = [sys.executable, "-m", "minigrad.parallel.launch.agent"]
    with subprocess.Popen(command, env=environment(), stdin=subprocess.PIPE) as agent:
        try:
            agent.stdin.write(json.dumps(told | options).encode() + b"\n")
            agent.stdin.close()
            yield agent, Connection.accept(listener, KEY, time.monotonic() + 30)
        finally:
            agent.kill()


def start(connection, folder, words):
    """Tell an agent to start one rank."""
    send(
        connection,
        "start",
        attempt=0,
        ranks=[0],
        size=1,
        command=[sys.executable, *words],
        folder=str(folder),
        logs=str(folder),
        mpi=False,
        address="127.0.0.1",
        port=1,
        environment={"MINIGRAD_ATTEMPT": "0"},
    )


def test_a_silent_head_is_left_and_found_again(tmp_path):
    with listen("127.0.0.1") as listener, agent_of(listener, heartbeat=2, patience=20) as (agent, connection):
        ready = receive(connection, 10)
        assert (ready["say"], ready["host"], ready["instance"]) == ("ready", 0, 5)
        start(connection, tmp_path, script(tmp_path, "time.sleep(120)"))
        assert wait_for(lambda: records(tmp_path, 0))
        pid = records(tmp_path, 0)[0]["pid"]
        begin = time.monotonic()
        assert not gone_or_killed([pid], 10) and time.monotonic() - begin > 0.5
        connection.close()
        again = Connection.accept(listener, KEY, time.monotonic() + 10)
        assert receive(again, 10)["say"] == "ready"
        send(again, "leave")
        assert agent.wait(timeout=20) == 0
        again.close()


def test_an_agent_says_how_ranks_end(tmp_path):
    with listen("127.0.0.1") as listener, agent_of(listener, heartbeat=5, patience=5) as (agent, connection):
        port = receive(connection, 10)["port"]
        start(connection, tmp_path, script(tmp_path, "sys.exit(7)"))
        while (message := receive(connection, 20))["say"] == "alive":
            send(connection, "alive")
        assert [message[name] for name in ("say", "attempt", "rank", "code")] == ["ended", 0, 0, 7]
        send(connection, "kill")
        while (message := receive(connection, 20))["say"] == "alive":
            pass
        assert message["say"] == "ready" and min(port, message["port"]) >= 1024
        connection.close()
    assert agent.returncode is not None
