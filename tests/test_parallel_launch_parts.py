"""The parts of minigrad launch one by one: commands, hosts, what is refused, who is to blame, how a rank watches."""

import argparse
import os
import subprocess
import sys

import pytest

from minigrad.cli.launching import add_launch
from minigrad.cli.settings import UsageError
from minigrad.errors import ShapeError
from minigrad.parallel.launch import processes
from minigrad.parallel.launch.attempt import Attempt
from minigrad.parallel.launch.command import fitting, mpi_command, parse_hosts, placement, python_arguments
from minigrad.parallel.launch.hosts import Host
from tests.cli_runs import environment
from tests.launch_runs import wait_for

# ---- what to start ---------------------------------------------------------------------------------------------------


def test_commands_of_python(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.py").touch()
    assert python_arguments(["x.py", "-a", "--", "b"]) == ["x.py", "-a", "--", "b"]
    assert python_arguments(["minigrad", "train", "--epochs", "1"]) == ["-m", "minigrad", "train", "--epochs", "1"]
    assert python_arguments([], ["package.module", "-v"]) == ["-m", "package.module", "-v"]


def test_command_of_mpiexec(tmp_path):
    path = tmp_path / "mpiexec"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    assert mpi_command(3, ["x.py", "a"], str(path)) == [
        *(str(path), "-n", "3"),
        *(sys.executable, "-m", "mpi4py", "x.py", "a"),
    ]
    with pytest.raises(ShapeError, match="nowhere/mpiexec is not there"):
        mpi_command(3, ["x.py"], "nowhere/mpiexec")


@pytest.mark.parametrize(
    "text, hosts",
    [
        ("a", [("a", 1)]),
        ("a:2,b:3", [("a", 2), ("b", 3)]),
        ("user@gpu-1.local:8,10.0.0.2", [("user@gpu-1.local", 8), ("10.0.0.2", 1)]),
        ("[fe80::1]:2,[::1]", [("fe80::1", 2), ("::1", 1)]),
    ],
)
def test_hosts(text, hosts):
    assert parse_hosts(text) == hosts


@pytest.mark.parametrize("text", ["", "a,", "a:", "a:0", "a:b", "a:2:3", "::1", "[::1", "a b,,c", "a:2,a:1"])
def test_what_are_no_hosts(text):
    with pytest.raises(ShapeError, match="--hosts"):
        parse_hosts(text)


@pytest.mark.parametrize(
    "ranks, places, least, count",
    [
        (4, 4, 4, 4),
        (4, 9, 4, 4),
        (4, 3, 4, None),
        (4, 3, 1, 2),
        (4, 3, 3, None),
        (6, 5, 1, 3),
        (7, 6, 1, 1),
        (4, 0, 1, None),
    ],
)
def test_how_many_ranks_fit(ranks, places, least, count):
    assert fitting(ranks, places, least) == count


def test_hosts_are_filled_in_order():
    assert placement(5, [2, 4, 1]) == [[0, 1], [2, 3, 4], []]


REFUSED = {
    "no command": (["-n", "2"], "nothing to start"),
    "no script": (["-n", "2", "missing.py"], "missing.py is no file"),
    "no ranks": (["here.py"], "-n is missing"),
    "no room": (["-n", "5", "--hosts", "a:2,b:2", "here.py"], "-n is 5, but --hosts a:2,b:2 have room for 4"),
    "no host": (["-n", "1", "--hosts", ":2", "here.py"], "no host"),
    "too many at least": (["-n", "2", "--min-ranks", "3", "here.py"], "--min-ranks is 3, want 1 to 2"),
    "mpiexec alone": (["-n", "1", "--mpiexec", "x", "here.py"], "--mpiexec is for --mpi"),
    "mpi on hosts": (["-n", "1", "--mpi", "--hosts", "a", "here.py"], "--mpi goes without --hosts"),
}


@pytest.mark.parametrize("words, message", REFUSED.values(), ids=REFUSED)
def test_refused(tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here.py").touch()
    options = parsed(*words)
    with pytest.raises(UsageError, match=message) as caught:
        options.action(options)
    assert "\n" not in str(caught.value)


def parsed(*words):
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_launch(parser)
    return parser.parse_args(words)


def test_options_of_the_command_are_its_own():
    options = parsed("-n", "2", "x.py", "-n", "3", "--mpi", "-m", "a")
    assert options.ranks == 2 and not options.mpi and options.words == ["x.py", "-n", "3", "--mpi", "-m", "a"]
    options = parsed("-n", "2", "--mpi", "-m", "module", "-n", "3")
    assert options.mpi and options.module == ["module", "-n", "3"] and not options.words
    assert parsed("--", "x.py", "-v").words[-2:] == ["x.py", "-v"]


# ---- words -----------------------------------------------------------------------------------------------------------


def test_exit_codes_in_words():
    assert processes.words(3) == "exited with code 3" and processes.words(-9) == "was killed by signal 9"


def test_last_lines(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"\n".join(b"line %d" % n for n in range(10_000)) + b"\nbroken \xff\n")
    assert processes.last_lines(path, 2) == "line 9999\nbroken \ufffd"
    assert processes.last_lines(tmp_path / "none") == ""


@pytest.mark.parametrize(
    "codes, who, how",
    [
        ({0: 75, 1: 3, 2: -9}, "rank 1 on a", "exited with code 3"),
        ({0: 75, 2: 75}, "rank 1 on a", "did not answer the others"),
        ({0: 75, 1: 75, 2: 75}, "rank 0 on a", "exited with code 75, because another failed it"),
        ({2: 75}, "rank 2 on a", "exited with code 75, because another failed it"),
    ],
)
def test_who_is_to_blame(codes, who, how):
    attempt = Attempt(0, 3, dict.fromkeys(range(3), Host(0, "a", 3, None)))
    assert not attempt.over(hopeless=True)
    for rank, code in codes.items():
        attempt.note({"rank": rank, "code": code, "seconds": 1.5, "tail": ""})
    assert attempt.account(mpi=False)[:2] == (who, how)
    assert attempt.over(hopeless=True) == (len(codes) == 3), "the one to blame is waited for"
    assert wait_for(lambda: attempt.over(hopeless=True), 5) and not attempt.well()


# ---- watch -----------------------------------------------------------------------------------------------------------

WATCHES = """
import os, sys, time
from minigrad.parallel.launch.watch import watch
watch()
watch()
assert "MINIGRAD_WATCH" not in os.environ
print("watches", flush=True)
time.sleep(float(sys.argv[1]))
"""


def test_a_rank_ends_when_its_agent_is_gone():
    read, write = os.pipe()
    variables = environment() | {"MINIGRAD_WATCH": str(read)}
    command = [sys.executable, "-c", WATCHES, "60"]
    with subprocess.Popen(command, env=variables, pass_fds=[read], stdout=subprocess.PIPE) as rank:
        assert rank.stdout.readline() == b"watches\n" and rank.poll() is None
        os.close(write)
        assert rank.wait(timeout=20) == 75
    os.close(read)


def test_a_rank_without_an_agent_watches_nothing():
    assert subprocess.run([sys.executable, "-c", WATCHES, "0"], env=environment(), timeout=60).returncode == 0
