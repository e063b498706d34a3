"""minigrad launch on several hosts: hosts that do not come, that are lost, and two whose link is cut."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.launch_runs import gone_or_killed, launch, launched, records, script, started, wait_for
from tests.namespaces import two_hosts  # noqa: F401

FOREVER = "time.sleep(120)\n"
QUICK = ["--heartbeat", 2, "--timeout", 20]
MEET = """
import socket
where = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    with socket.create_server(("", where[1])) as listener:
        listener.settimeout(30)
        for _ in range(int(os.environ["WORLD_SIZE"]) - 1):
            listener.accept()[0].close()
else:
    deadline = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(where, 30).close()
            break
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
"""


@pytest.fixture
def rsh(tmp_path):
    """A remote shell to this host, which is down while there is a file `down-HOST`."""
    path = tmp_path / "rsh"
    path.write_text(f'#!/bin/sh\ntest -e "{tmp_path}/down-$1" && exit 255\nshift\nexec "$@"\n')
    path.chmod(0o755)
    return str(path)


def test_ranks_are_spread_over_hosts(tmp_path, rsh, monkeypatch):
    monkeypatch.setenv("NCCL_TEST", "passed on")
    body = "print('rank', rank)" + MEET
    hosts = ["--hosts", "127.0.0.2:2,127.0.0.3:2", "--rsh", rsh]
    code, out, err = launch(tmp_path, "-n", 3, *hosts, *QUICK, *script(tmp_path, body))
    assert (code, out) == (0, "rank 0\n"), err
    notes = records(tmp_path, 0)
    assert [notes[rank]["environment"]["LOCAL_RANK"] for rank in range(3)] == ["0", "1", "0"]
    assert [notes[rank]["environment"]["LOCAL_WORLD_SIZE"] for rank in range(3)] == ["2", "2", "1"]
    assert notes[0]["parent"] == notes[1]["parent"] != notes[2]["parent"]
    assert notes[2]["environment"]["NCCL_TEST"] == "passed on"


def test_ranks_are_as_many_as_hosts_have_room_for(tmp_path, rsh):
    code, _, err = launch(tmp_path, "--hosts", "127.0.0.2:2,localhost", "--rsh", rsh, *script(tmp_path, MEET))
    assert code == 0 and len(records(tmp_path, 0)) == 3, err


def test_a_host_that_cannot_be_reached_is_named(tmp_path, rsh):
    (tmp_path / "down-127.0.0.3").touch()
    hosts = ["--hosts", "127.0.0.2,127.0.0.3", "--rsh", rsh]
    code, _, err = launch(tmp_path, "-n", 2, *hosts, "--timeout", 3, *script(tmp_path, ""))
    assert code == 1 and "gave up after 3 s: no answer from host 127.0.0.3 (its agent ended with code 255)" in err
    assert not records(tmp_path, 0)


def test_a_host_that_never_answers_is_named(tmp_path):
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\nexec sleep 120\n")
    silent.chmod(0o755)
    begin = time.monotonic()
    arguments = ["--hosts", "localhost,127.0.0.3", "--rsh", silent, "--timeout", 2, *script(tmp_path, "")]
    code, _, err = launch(tmp_path, "-n", 2, *arguments)
    assert code == 1 and "no answer from host 127.0.0.3\n" in err and time.monotonic() - begin < 20


def test_fewer_ranks_when_a_host_is_lost(tmp_path, rsh):
    """Of 4 ranks 3 have room, but 2 is the largest number that divides 4."""
    words = ["-n", 4, "--min-ranks", 1, "--hosts", "127.0.0.2:3,127.0.0.3:1", "--rsh", rsh, *QUICK]
    with launched(tmp_path, *words, *script(tmp_path, "if attempt == 0: " + FOREVER)) as head:
        notes = started(tmp_path, 0, 4)
        (tmp_path / "down-127.0.0.3").touch()
        os.kill(notes[3]["parent"], signal.SIGKILL)
        _, err = head.communicate(timeout=40)
    assert head.returncode == 0 and "host 127.0.0.3 was lost" in err
    after = records(tmp_path, 1)
    assert sorted(after) == [0, 1] and {note["environment"]["WORLD_SIZE"] for note in after.values()} == {"2"}


def test_a_spare_host_steps_in(tmp_path, rsh):
    words = ["-n", 2, "--hosts", "127.0.0.2,127.0.0.3,127.0.0.4", "--rsh", rsh, *QUICK]
    with launched(tmp_path, *words, *script(tmp_path, "if attempt == 0: " + FOREVER)) as head:
        notes = started(tmp_path, 0, 2)
        (tmp_path / "down-127.0.0.2").touch()
        os.kill(notes[0]["parent"], signal.SIGKILL)
        _, err = head.communicate(timeout=40)
    assert head.returncode == 0 and "host 127.0.0.2 was lost" in err
    after = records(tmp_path, 1)
    assert sorted(after) == [0, 1] and after[0]["parent"] == notes[1]["parent"] != after[1]["parent"]


def test_a_host_that_comes_back_is_waited_for(tmp_path, rsh):
    words = ["-n", 2, "--hosts", "127.0.0.2,127.0.0.3", "--rsh", rsh, *QUICK]
    with launched(tmp_path, *words, *script(tmp_path, "if attempt == 0: " + FOREVER)) as head:
        notes = started(tmp_path, 0, 2)
        down = tmp_path / "down-127.0.0.3"
        down.touch()
        os.kill(notes[1]["parent"], signal.SIGKILL)
        assert not gone_or_killed([note["pid"] for note in notes.values()])
        down.unlink()
        _, err = head.communicate(timeout=40)
    assert head.returncode == 0 and "starting again when there is room (1 of 3 restarts)" in err
    assert sorted(records(tmp_path, 1)) == [0, 1]


# ---- two hosts in network namespaces ---------------------------------------------------------------------------------


def arguments(hosts, *more):
    return ["--hosts", ",".join(f"{address}:2" for address in hosts.addresses), "--rsh", hosts.rsh, *QUICK, *more]


def test_ranks_of_two_networks_meet(tmp_path, two_hosts):  # noqa: F811
    code, out, err = launch(tmp_path, *arguments(two_hosts), *script(tmp_path, "print(rank)" + MEET))
    assert (code, out) == (0, "0\n"), err
    notes = records(tmp_path, 0)
    assert {note["environment"]["MASTER_ADDR"] for note in notes.values()} == {two_hosts.addresses[0]}
    assert not gone_or_killed([pid for name in two_hosts.names for pid in two_hosts.processes(name)])


def test_rank_0_on_this_host_is_reached_from_others(tmp_path, two_hosts):  # noqa: F811
    hosts = ["--hosts", f"localhost,{two_hosts.addresses[1]}", "--rsh", two_hosts.rsh, *QUICK]
    code, _, err = launch(tmp_path, *hosts, *script(tmp_path, MEET))
    assert code == 0, err
    assert records(tmp_path, 0)[1]["environment"]["MASTER_ADDR"] == two_hosts.bridge


def test_the_link_is_cut_and_fewer_ranks_go_on(tmp_path, two_hosts):  # noqa: F811
    words = [*arguments(two_hosts, "--min-ranks", 2), *script(tmp_path, "if attempt == 0: " + FOREVER)]
    with launched(tmp_path, *words) as head:
        notes = started(tmp_path, 0, 4)
        two_hosts.cut(1)
        _, err = head.communicate(timeout=40)
        assert not gone_or_killed([notes[rank]["pid"] for rank in (2, 3)])
        two_hosts.mend(1)  # the agent there finds no head any more, and goes
    assert head.returncode == 0 and f"host {two_hosts.addresses[1]} was lost" in err
    assert sorted(records(tmp_path, 1)) == [0, 1]


def test_the_link_is_cut_and_comes_back(tmp_path, two_hosts):  # noqa: F811
    words = [*arguments(two_hosts), *script(tmp_path, "if attempt == 0: " + FOREVER)]
    with launched(tmp_path, *words) as head:
        notes = started(tmp_path, 0, 4)
        two_hosts.cut(1)
        assert not gone_or_killed([note["pid"] for note in notes.values()], 15)
        assert not records(tmp_path, 1)
        two_hosts.mend(1)
        head.communicate(timeout=40)
    assert head.returncode == 0
    after = records(tmp_path, 1)
    assert sorted(after) == [0, 1, 2, 3]
    assert after[2]["parent"] == notes[2]["parent"], "the agent came back by itself"


def test_the_link_stays_cut(tmp_path, two_hosts):  # noqa: F811
    words = ["--hosts", ",".join(two_hosts.addresses), "--rsh", two_hosts.rsh, "--heartbeat", 2, "--timeout", 6]
    with launched(tmp_path, *words, *script(tmp_path, FOREVER)) as head:
        notes = started(tmp_path, 0, 2)
        two_hosts.cut(1)
        _, err = head.communicate(timeout=40)
        assert head.returncode == 1 and f"no answer from host {two_hosts.addresses[1]}" in err
        assert not gone_or_killed([notes[1]["pid"], notes[1]["parent"]], 15), "its agent gives up too"


def test_the_head_of_two_hosts_is_killed(tmp_path, two_hosts):  # noqa: F811
    with launched(tmp_path, *arguments(two_hosts), *script(tmp_path, FOREVER)) as head:
        started(tmp_path, 0, 4)
        head.kill()
        assert wait_for(lambda: not any(map(two_hosts.processes, two_hosts.names)), 10)


def test_namespaces_are_removed(two_hosts):  # noqa: F811
    names, folder = two_hosts.names, Path("/run/netns")
    assert all((folder / name).exists() for name in names)
    two_hosts.remove()
    assert not any((folder / name).exists() for name in names)
