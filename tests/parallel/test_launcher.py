"""minigrad launch: what ranks are told, restarts, hosts, refusals, signals, and that nothing is left behind."""

import os
import shutil
import signal
import sys

import pytest

from minigrad.cli import main
from minigrad.core.errors import MinigradError
from minigrad.parallel import ShardSampler, mpi
from minigrad.parallel.launch import _blame, fitting
from tests.parallel.launch_runs import HOST, gone_or_killed, launch, launched, pids, script, wait_for

FOREVER, ALIVE = "time.sleep(120)\n", "while True: time.sleep(1)\n"


BODY = """
job = os.environ["MINIGRAD_JOB"]
print(rank, attempt, os.environ["MINIGRAD_TIMEOUT"], job, sys.argv[2:], __name__, sys.path[0] == folder)
print("=" * 20)
print(f"error of {rank}", file=sys.stderr)
log = f"{folder}/launch-logs/{job}/attempt-{attempt}/rank-1.log"
while not os.path.exists(log) or "error of 1" not in open(log).read():  # else rank 1 might be ended before
    time.sleep(0.01)
if attempt == 0:
    sys.exit("in words") if rank else time.sleep(120)
"""


def test_ranks_are_told_who_they_are_and_rank_0_alone_prints(tmp_path):
    code, out, err = launch(tmp_path, "-n", 2, "--timeout", 7, *script(tmp_path, BODY), "-n", "5")
    (logs,) = tmp_path.glob("launch-logs/*")
    said = lambda rank, attempt: f"{rank} {attempt} 7 {logs.name} ['-n', '5'] __main__ True"
    assert code == 0 and out.splitlines() == [said(0, 0), "=" * 20, said(0, 1), "=" * 20]
    first, line, second = err.splitlines()
    assert first == second == "error of 0"
    assert line.startswith(f"launch: attempt 0: rank 1 on {HOST}: exited with code 1 (in words) after ")
    assert line.endswith(f"s; starting again (1 of 3 restarts); logs: {logs}/attempt-0")
    for attempt in (0, 1):
        words = (logs / f"attempt-{attempt}/rank-1.log").read_text().splitlines()
        assert words[0] == said(1, attempt) and "error of 1" in words
    assert not [*logs.rglob("rank-0.log")]


def test_restarts_are_used_up_and_a_second_job_with_the_same_logs_keeps_them(tmp_path):
    for code, restarts in ((3, 1), (5, 0)):
        words = script(tmp_path, f"print('code {code}'); sys.exit({code} * rank)")
        found, _, err = launch(tmp_path, "-n", 2, "--logs", "logs", "--max-restarts", restarts, *words)
        assert found == 1 and f"attempt {restarts}: rank 1 on {HOST}: exited with code {code}" in err
        assert "no restarts are left" in err and err.count("(1 of 1 restarts)") == restarts
    assert (tmp_path / "logs/attempt-0/rank-1.log").read_text() == "code 3\ncode 5\n"
    assert len(pids(tmp_path, 1)) == 2 and not pids(tmp_path, 2)


BLAMES = {  # (exit code and time that each rank noted, who is named, whether it refused)
    "by itself, though later": ([(3, 2), (75, 1)], "rank 0 on a: exited with code 3", False),
    "first of two": ([(3, 2), (4, 1)], "rank 1 on a: exited with code 4", False),
    "refused, the other has not ended": ([(), (2, 2)], "rank 1 on a: exited with code 2", True),
    "all by others": ([(75, 2), (75, 1)], "rank 1 on a: exited with code 75", False),
    "nobody began": ([], "mpiexec exited with code 7", False),
}


@pytest.mark.parametrize("ends, named, refused", BLAMES.values(), ids=BLAMES)
def test_who_failed_is_named(ends, named, refused, tmp_path):
    notes = {rank: {"host": "a", **dict(zip(("code", "at"), end, strict=False))} for rank, end in enumerate(ends)}
    assert _blame(notes, tmp_path, 7) == (named, refused)


@pytest.mark.parametrize("missing", ["mpi4py", "mpiexec"])
def test_without_mpi_it_says_what_to_install(missing, tmp_path, monkeypatch, capsys):
    if missing == "mpi4py":
        monkeypatch.setitem(sys.modules, "mpi4py", None)
        with pytest.raises(MinigradError, match=r"MPI cannot be used .*pip install 'minigrad-engine\[mpi\]'"):
            mpi.MpiTransport()
    else:
        monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
        monkeypatch.setattr(shutil, "which", lambda name: None)
    assert main(["launch", "-n", "2", "minigrad", "train"]) == 2
    assert f"{missing} is not installed; pip install 'minigrad-engine[mpi]'" in capsys.readouterr().err


# ---- how many ranks, and where ---------------------------------------------------------------------------------------


def test_only_sizes_that_the_sampler_takes_are_chosen():
    for ranks in range(1, 65):
        for places in range(1, 65):
            size = fitting(ranks, places)
            for shards in (ranks, 2 * ranks):
                ShardSampler(shards, 0, size)
            larger = [n for n in range(size + 1, min(places, ranks) + 1) if ranks % n == 0]
            assert not any((ranks // n) & (ranks // n - 1) == 0 for n in larger)
            for least in (1, size, size + 1):
                assert fitting(ranks, places, least) == (size if least <= size else None)


REACH = """#!/bin/sh
while [ "$1" = -x ] || [ "$1" = -q ]; do shift; done
host=$1; shift
[ -e "$GONE-$host" ] && exit 255
exec sh -c "$*"
"""


@pytest.mark.parametrize("options, ranks", [pytest.param([], 4, marks=pytest.mark.deep), (["--min-ranks", 1], 2)])
def test_a_host_that_is_gone_is_waited_for_or_done_without(tmp_path, monkeypatch, options, ranks):
    """mpiexec reaches hosts by a program that runs commands here, unless a file says that the host is gone."""
    (tmp_path / "reach").write_text(REACH)
    (tmp_path / "reach").chmod(0o755)
    variables = {"HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": tmp_path / "reach", "GONE": tmp_path / "gone"}
    for name, value in variables.items():
        monkeypatch.setenv(name, str(value))
    body = f"if attempt == 0:\n    rank == 3 and (note('gone-127.0.0.3'), sys.exit(3))\n    {FOREVER}"
    with launched(tmp_path, "--hosts", "127.0.0.3:2,127.0.0.2:2", *options, *script(tmp_path, body)) as head:
        if not options:
            assert wait_for((tmp_path / "gone-127.0.0.3").exists)
            wait_for(lambda: False, 2)
            assert not pids(tmp_path, 1)
            (tmp_path / "gone-127.0.0.3").unlink()
        _, err = head.communicate(timeout=60)
    assert head.returncode == 0, err
    assert len(pids(tmp_path, 0)) == 4 and len(pids(tmp_path, 1)) == ranks


def test_a_refusal_of_rank_0_is_printed_once_and_not_tried_again(tmp_path):
    words = ["--data", "digits", "--limit", "100", "--shards", "3", "--out", tmp_path / "run"]
    code, _, err = launch(tmp_path, "-n", 2, "minigrad", "train", *words)
    assert code == 2 and "it would refuse again" in err and "starting again" not in err
    assert err.count("shards is 3, wanted a multiple of the 2 ranks") == 1 and not (tmp_path / "run").exists()


# ---- nothing is left behind; signals ---------------------------------------------------------------------------------


def test_the_launcher_is_killed(tmp_path):
    with launched(tmp_path, "-n", 2, *script(tmp_path, FOREVER)) as head:
        assert pids(tmp_path, 0, 2)
        head.kill()
        assert not gone_or_killed(tmp_path)


@pytest.mark.deep
def test_the_parent_of_a_rank_is_killed(tmp_path):
    with launched(tmp_path, "-n", 2, *script(tmp_path, "if attempt == 0: " + FOREVER)) as head:
        os.kill(pids(tmp_path, 0, 2)[0][1], signal.SIGKILL)
        head.communicate(timeout=30)
    assert head.returncode == 0 and len(pids(tmp_path, 1)) == 2


TOLD = {  # what a rank does that is told to leave, the signal: (exit code, what is said)
    ("note(f'left-{rank}'), sys.exit(0)", signal.SIGTERM): (0, "stopped by signal 15\n"),
    ("note(f'left-{rank}'), sys.exit(0)", signal.SIGINT): (130, "stopped by signal 2\n"),
    ("rank or sys.exit(0)", signal.SIGTERM): (143, "stopped by signal 15; not all ranks left in time\n"),
    ("sys.exit(rank)", signal.SIGTERM): (143, "stopped by signal 15; not all ranks left in time\n"),
}


@pytest.mark.parametrize("what, number", TOLD, ids=["leave", "leave by Ctrl-C", "one stays", "one fails"])
def test_a_signal_lets_the_ranks_leave(tmp_path, what, number):
    code, said = TOLD[what, number]
    words = script(tmp_path, ALIVE, f"signal.signal(signal.SIGTERM, lambda *_: ({what}))\n")
    with launched(tmp_path, "-n", 2, "--grace", 2 if code == 143 else 30, *words) as head:
        assert pids(tmp_path, 0, 2)
        head.send_signal(number)
        _, err = head.communicate(timeout=30)
    assert head.returncode == code and err.endswith(f"launch: {said}") and not pids(tmp_path, 1)
    assert len(list(tmp_path.glob("left-?"))) == (2 if "left" in what else 0)


@pytest.mark.deep
def test_a_second_signal_kills(tmp_path):
    words = script(tmp_path, ALIVE, "signal.signal(signal.SIGTERM, lambda *_: note(f'heard-{rank}'))\n")
    with launched(tmp_path, "-n", 2, *words) as head:
        assert pids(tmp_path, 0, 2)
        head.send_signal(signal.SIGTERM)
        assert wait_for(lambda: len(list(tmp_path.glob("heard-?"))) == 2)
        head.send_signal(signal.SIGTERM)  # the same one, as from a program that signals a process and its group
        wait_for(lambda: head.poll() is not None, 1.5)
        assert head.poll() is None
        head.send_signal(signal.SIGTERM)
        head.communicate(timeout=30)
    assert head.returncode == 143
