"""Rendezvous: all ranks meet, or all get an error that says which of them is why."""

import json
import re
import subprocess
import sys
import threading
import time

import pytest

from minigrad.errors import ShapeError
from minigrad.parallel.connection import Connection, listen
from minigrad.parallel.errors import CommunicationError, DeadlineError, DisagreementError, PeerLost, WrongKey
from minigrad.parallel.rendezvous import Meeting, meet
from tests.cli_runs import environment
from tests.test_parallel_connection import soon

KEY = b"the key of this job"
LIMIT_OF_TEST = 30.0  # seconds


def free_port():
    with listen() as listener:
        return listener.getsockname()[1]


def attempt(ranks, size, seconds=10.0, port=None, address="127.0.0.1", **changes):
    """What each of the ranks gets, a Meeting or an error; changes: arguments of the i-th, as _i={...}."""
    outcome, port = [None] * len(ranks), port or free_port()

    def run(index, rank):
        arguments = {"rank": rank, "size": size, "address": address, "port": port, "key": KEY, "note": b"version 1"}
        seconds_of_it = changes.get(f"_{index}", {}).get("seconds", seconds)
        arguments |= {"deadline": soon(seconds_of_it)} | changes.get(f"_{index}", {})
        arguments.pop("seconds", None)
        try:
            outcome[index] = meet(**arguments)
        except Exception as error:
            outcome[index] = error

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_OF_TEST)
        assert not thread.is_alive(), "a rank hangs"
    return outcome


def all_fail(outcome, error, text):
    for got in outcome:
        assert isinstance(got, error), got
        assert re.search(text, str(got)), got


def check_met(meetings):
    """Every pair is connected, each end with the right rank."""
    for meeting in meetings:
        assert isinstance(meeting, Meeting), meeting
        assert sorted(meeting.connections) == [rank for rank in range(meeting.size) if rank != meeting.rank]
        for peer, connection in meeting.connections.items():
            connection.send(f"{meeting.rank} to {peer}".encode(), soon())
    for meeting in meetings:
        for peer, connection in meeting.connections.items():
            assert connection.receive(soon()) == f"{peer} to {meeting.rank}".encode()
        meeting.close()


@pytest.mark.parametrize("size", (1, 2, 3, 8))
def test_every_rank_meets_every_other(size):
    check_met(attempt(range(size), size))


def test_over_ipv6():
    try:
        listen("::1").close()
    except CommunicationError as error:
        pytest.skip(f"this machine has no IPv6: {error}")
    meetings = attempt(range(3), 3, address="::1")
    assert {connection.address for meeting in meetings for connection in meeting.connections.values()} == {"::1"}
    check_met(meetings)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere 127.0.0.1 is the only address of the own host")
def test_a_rank_beside_rank_0_is_looked_for_where_rank_0_was_found():
    """Rank 1 reached rank 0 through 127.0.0.1, which says nothing to a rank that is elsewhere."""
    meetings = attempt(range(3), 3, _2={"address": "127.0.0.2"})
    assert meetings[2].connections[1].address == "127.0.0.2"
    check_met(meetings)


def test_rank_0_may_come_last():
    port, late = free_port(), []
    timer = threading.Timer(0.5, lambda: late.extend(attempt([0], 3, port=port)))
    timer.start()
    early = attempt([1, 2], 3, port=port)
    timer.join(LIMIT_OF_TEST)
    check_met([*late, *early])


def test_a_rank_outside_the_size_is_refused():
    for rank, size in ((-1, 2), (2, 2), (0, 0)):
        with pytest.raises(ShapeError, match=f"rank is {rank}"):
            meet(rank, size, "127.0.0.1", free_port(), KEY, soon())


def test_missing_ranks_are_named_on_every_rank_that_came():
    begin = time.monotonic()
    outcome = attempt([0, 2], 5, seconds=1)
    all_fail(outcome, DeadlineError, r"rendezvous: ranks 1, 3, 4 of 5 did not come within 1 s")
    assert time.monotonic() - begin < 5


def test_a_missing_rank_0_is_named():
    outcome = attempt([1, 2], 3, seconds=0.5)
    all_fail(outcome, DeadlineError, r"rendezvous: rank 0 did not come within 0.5 s: .*refused")


def test_the_shortest_patience_counts():
    begin = time.monotonic()
    outcome = attempt([0, 1], 3, seconds=20, _1={"seconds": 0.7})
    all_fail(outcome, DeadlineError, "rank 2 of 3 did not come")
    assert time.monotonic() - begin < 5


def test_a_rank_that_came_twice():
    outcome = attempt([0, 1, 1], 3)
    all_fail(outcome, DisagreementError, "rank 1 came twice: one from 127.0.0.1, while one came from 127.0.0.1 already")


def test_a_second_rank_0_finds_the_port_taken():
    outcome = attempt([0, 0], 2, seconds=0.5)
    assert sorted(type(error) for error in outcome if "another process listens there" in str(error)) == [
        CommunicationError
    ]
    assert [str(error) for error in outcome if "rank 1 of 2 did not come" in str(error)]


def test_who_was_there_and_died_may_come_again():
    port, met = free_port(), []
    threads = [threading.Thread(target=lambda rank=rank: met.extend(attempt([rank], 3, port=port))) for rank in (0, 2)]
    threads[0].start()
    first = Connection.connect("127.0.0.1", port, KEY, soon())
    said = {"rank": 1, "size": 3, "note": "version 1", "host": "127.0.0.1", "port": 1, "patience": 10.0}
    first.send(json.dumps(said).encode(), soon())
    first.close()
    threads[1].start()
    time.sleep(0.3)  # now three came, but one is dead
    met += attempt([1], 3, port=port)
    for thread in threads:
        thread.join(LIMIT_OF_TEST)
    assert len(met) == 3
    check_met(met)


def test_another_size():
    outcome = attempt(range(3), 3, _2={"size": 4})
    all_fail(outcome, DisagreementError, "rank 2, from 127.0.0.1, counts 4 ranks, rank 0 counts 3")


def test_another_note():
    outcome = attempt(range(3), 3, _1={"note": b"version 2"})
    all_fail(outcome, DisagreementError, "rank 1, from 127.0.0.1, says 'version 2', rank 0 says 'version 1'")


def test_who_comes_a_little_late_hears_of_the_disagreement_too():
    port, late = free_port(), []
    timer = threading.Timer(0.5, lambda: late.extend(attempt([2], 3, port=port)))
    timer.start()
    early = attempt([0, 1], 3, port=port, _1={"note": b"version 2"})
    timer.join(LIMIT_OF_TEST)
    all_fail([*early, *late], DisagreementError, "rank 1, from .* says 'version 2'")


def test_a_wrong_key():
    outcome = attempt(range(3), 3, seconds=1, _1={"key": b"of another job"})
    assert isinstance(outcome[1], WrongKey)
    all_fail([outcome[0], outcome[2]], DeadlineError, "rank 1 of 3 did not come .*turned away: 1 with another key")


def test_garbage_from_one_who_knows_the_key_harms_nobody():
    port, hosted = free_port(), []
    host = threading.Thread(target=lambda: hosted.extend(attempt([0], 2, port=port)))
    host.start()
    guests = [Connection.connect("127.0.0.1", port, KEY, soon())]  # and this one goes without a word
    guests[0].close()
    for message in (b"\x00garbage", b"[1, 2]", b'{"rank": 1}', b'{"rank": "one", "size": 2}'):
        guest = Connection.connect("127.0.0.1", port, KEY, soon())
        guest.send(message, soon())
        guests.append(guest)
    others = attempt([1], 2, port=port)
    host.join(LIMIT_OF_TEST)
    for guest in guests:
        guest.close()
    check_met([*hosted, *others])


def test_a_rank_that_cannot_be_reached_fails_all(monkeypatch):
    """Rank 1 tells an address at which nobody listens."""
    connect = Connection.connect.__func__

    def unreachable(cls, host, port, key, deadline):
        of_rank_1 = threading.current_thread().name == "rank 2" and port != meeting_port
        return connect(cls, host, dead if of_rank_1 else port, key, deadline)

    meeting_port, dead = free_port(), free_port()
    monkeypatch.setattr(Connection, "connect", classmethod(unreachable))
    outcome = [None] * 3

    def run(rank):
        try:
            outcome[rank] = meet(rank, 3, "127.0.0.1", meeting_port, KEY, soon(1))
        except CommunicationError as error:
            outcome[rank] = error

    threads = [threading.Thread(target=run, args=(rank,), name=f"rank {rank}") for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_OF_TEST)
    all_fail(outcome[:2], DeadlineError, "rank 2 of 3 did not come within .* to rank 1")
    all_fail(outcome[2:], DeadlineError, "did not come within .* to rank 1|rank 2 cannot reach rank 1")


def test_rank_0_dies_while_the_others_wait():
    with listen() as listener:
        waiting = threading.Thread(target=lambda: outcome.extend(attempt([1], 3, port=listener.getsockname()[1])))
        outcome = []
        waiting.start()
        host = Connection.accept(listener, KEY, soon())
        assert json.loads(host.receive(soon()))["rank"] == 1
        host.close()
        waiting.join(LIMIT_OF_TEST)
    all_fail(outcome, PeerLost, "rendezvous: rank 0 was lost")


SCRIPT = """
import sys, time
from minigrad.parallel.rendezvous import meet
rank, size, port = map(int, sys.argv[1:])
meeting = meet(rank, size, "localhost", port, b"k", time.monotonic() + 60, b"note")
for peer, connection in meeting.connections.items():
    connection.send(b"from %d" % rank, time.monotonic() + 10)
print(*sorted(c.receive(time.monotonic() + 10).decode() for c in meeting.connections.values()), sep=", ")
"""


def test_between_processes():
    port = free_port()
    children = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(rank), "3", str(port)],
            env=environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(3)
    ]
    try:
        said = [child.communicate(timeout=60)[0].strip() for child in children]
    finally:
        for child in children:
            child.kill()
            child.wait(LIMIT_OF_TEST)
    assert said == ["from 1, from 2", "from 0, from 2", "from 0, from 1"]
