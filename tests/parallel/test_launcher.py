"""minigrad launch: what ranks are told, restarts, hosts, refusals, signals, and that nothing is left behind."""

import os
import shutil
import signal
import sys

import pytest

from minigrad.cli import main
from minigrad.errors import MinigradError
from minigrad.parallel import ShardSampler, mpi
from minigrad.parallel.launch import _blame, fitting
from tests.parallel.launch_runs import HOST, gone_or_killed, launch, launched, records, script, wait_for

FOREVER = "time.sleep(120)\n"


def test_ranks_are_told_who_they_are_and_rank_0_alone_prints(tmp_path):
    body = """
print("rank", rank, sys.argv[2:], __name__, sys.path[0] == folder)
print("=" * 20)
print(f"error of {rank}", file=sys.stderr)
log = f"{folder}/launch-logs/{os.environ['MINIGRAD_JOB']}/attempt-{attempt}/rank-1.log"
while not os.path.exists(log) or "error of 1" not in open(log).read():  # else rank 1 might be ended before
    time.sleep(0.01)
if attempt == 0:
    sys.exit("in words") if rank else time.sleep(120)
"""
    code, out, err = launch(tmp_path, "-n", 2, "--timeout", 7, *script(tmp_path, body), "-n", "5")
    said = ["rank 0 ['-n', '5'] __main__ True", "=" * 20]
    assert code == 0 and [line for line in out.splitlines() if line] == 2 * said
    first, line, second = err.splitlines()
    assert first == second == "error of 0"
    assert line.startswith(f"launch: attempt 0: rank 1 on {HOST}: exited with code 1 (in words) after ")
    (logs,) = tmp_path.glob("launch-logs/*")
    assert line.endswith(f"s; starting again (1 of 3 restarts); logs: {logs}/attempt-0")
    for folder in (logs / "attempt-0", logs / "attempt-1"):
        words = (folder / "rank-1.log").read_text().splitlines()
        assert words[0] == said[0].replace("rank 0", "rank 1") and "error of 1" in words
        assert not (folder / "rank-0.log").exists()
    notes = [records(tmp_path, attempt)[rank]["environment"] for attempt in (0, 1) for rank in (0, 1)]
    assert [note["MINIGRAD_ATTEMPT"] for note in notes] == ["0", "0", "1", "1"]
    assert {note["MINIGRAD_TIMEOUT"] for note in notes} == {"7"} and len({note["MINIGRAD_JOB"] for note in notes}) == 1


def test_restarts_are_used_up_and_a_second_job_with_the_same_logs_keeps_them(tmp_path):
    for code, restarts in ((3, 1), (5, 0)):
        words = script(tmp_path, f"print('code {code}'); sys.exit({code} * rank)")
        found, _, err = launch(tmp_path, "-n", 2, "--logs", "logs", "--max-restarts", restarts, *words)
        assert found == 1 and f"attempt {restarts}: rank 1 on {HOST}: exited with code {code}" in err
        assert "no restarts are left" in err and err.count("(1 of 1 restarts)") == restarts
    assert (tmp_path / "logs/attempt-0/rank-1.log").read_text() == "code 3\ncode 5\n"
    assert len(records(tmp_path, 1)) == 2 and not records(tmp_path, 2)


HERE = {"pid": 1, "host": "a"}
BLAMES = {  # what ranks noted: (who is named, whether it refused)
    "by itself, though later": ({0: (3, 2), 1: (75, 1)}, ("rank 0 on a: exited with code 3", False)),
    "first of two": ({0: (3, 2), 1: (4, 1)}, ("rank 1 on a: exited with code 4", False)),
    "killed": ({0: None, 1: (-9, 1)}, ("rank 1 on a: was killed by signal 9", False)),
    "refused": ({0: (0, 1), 1: (2, 2)}, ("rank 1 on a: exited with code 2", True)),
    "all by others": ({0: (75, 2), 1: (75, 1)}, ("rank 1 on a: exited with code 75", False)),
    "nobody began": ({}, ("mpiexec exited with code 7", False)),
}


@pytest.mark.parametrize("name", BLAMES)
def test_who_failed_is_named(name, tmp_path):
    ends, blamed = BLAMES[name]
    notes = {rank: HERE | ({"code": end[0], "at": end[1]} if end else {}) for rank, end in ends.items()}
    assert _blame(notes, tmp_path, 7) == blamed


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


@pytest.fixture
def hosts(tmp_path, monkeypatch):
    """Makes mpiexec reach hosts by a program that runs commands here, unless a file says that the host is gone."""
    ssh = tmp_path / "reach"
    ssh.write_text(f"""#!/bin/sh
while [ "$1" = -x ] || [ "$1" = -q ]; do shift; done
host=$1; shift
[ -e "{tmp_path}/gone-$host" ] && exit 255
exec sh -c "$*"
""")
    ssh.chmod(0o755)
    monkeypatch.setenv("HYDRA_LAUNCHER", "ssh")
    monkeypatch.setenv("HYDRA_LAUNCHER_EXEC", str(ssh))
    return tmp_path


@pytest.mark.parametrize("options, ranks", [([], 4), (["--min-ranks", 1], 2)])
def test_a_host_that_is_gone_is_waited_for_or_done_without(hosts, options, ranks):
    body = """
if attempt == 0:
    if rank == 3:
        open(f"{folder}/gone-127.0.0.3", "w").close()
        sys.exit(3)
    time.sleep(120)
"""
    words = ["--hosts", "127.0.0.2:2,127.0.0.3:2", *options, *script(hosts, body)]
    with launched(hosts, *words) as head:
        if not options:
            assert wait_for((hosts / "gone-127.0.0.3").exists)
            wait_for(lambda: False, 2)
            assert not records(hosts, 1)
            (hosts / "gone-127.0.0.3").unlink()
        _, err = head.communicate(timeout=60)
    assert head.returncode == 0, err
    sizes = {note["environment"]["PMI_SIZE"] for note in records(hosts, 1).values()}
    assert len(records(hosts, 0)) == 4 and sizes == {str(ranks)}


# ---- what is refused is not tried again ------------------------------------------------------------------------------

TRAIN = ["train", "--data", "digits", "--model", "mlp", "--epochs", "1", "--no-new-writers", "--limit", "100"]


def test_a_program_that_refuses_its_arguments_is_not_started_again(tmp_path):
    code, _, err = launch(tmp_path, "-n", 2, *script(tmp_path, "sys.exit(2)\n"))
    assert code == 2 and "it would refuse again" in err and sys.executable not in err


@pytest.mark.deep
def test_a_refusal_of_rank_0_is_printed_once(tmp_path):
    code, _, err = launch(tmp_path, "-n", 2, "minigrad", *TRAIN, "--shards", "3", "--out", tmp_path / "run")
    assert code == 2 and "it would refuse again" in err and "starting again" not in err
    assert err.count("shards is 3, wanted a multiple of the 2 ranks") == 1 and not (tmp_path / "run").exists()


@pytest.mark.deep
def test_what_only_another_rank_cannot_do_is_said(tmp_path):
    body = """
if rank:
    from minigrad.cli import settings
    def nothing(*arguments, **options):
        raise settings.UsageError("no data on this host")
    settings.Settings.datasets = nothing
from minigrad.cli import main
"""
    words = [*TRAIN, "--out", str(tmp_path / "run")]
    command = script(tmp_path, f"{body}\nsys.exit(main({words!r}))\n")
    code, _, err = launch(tmp_path, "-n", 2, "--timeout", 20, "--max-restarts", 0, *command)
    assert code in (1, 2) and "no data on this host" in err, err


@pytest.mark.deep
def test_a_job_that_is_started_again_leaves_the_run_of_another_alone(tmp_path):
    words = [*TRAIN, "--out", str(tmp_path / "run")]
    assert main(words) == 0
    again = f"if attempt == 0: sys.exit(3)\nfrom minigrad.cli import main\nsys.exit(main({words!r}))"
    code, _, err = launch(tmp_path, "-n", 2, *script(tmp_path, again))
    assert code == 2 and "holds a run already" in err, err


# ---- nothing is left behind; signals ---------------------------------------------------------------------------------


def test_the_launcher_is_killed(tmp_path):
    with launched(tmp_path, "-n", 2, *script(tmp_path, FOREVER)) as head:
        notes = records(tmp_path, 0, 2)
        head.kill()
        assert not gone_or_killed([note[name] for note in notes.values() for name in ("pid", "parent")])


def test_the_parent_of_a_rank_is_killed(tmp_path):
    with launched(tmp_path, "-n", 2, *script(tmp_path, "if attempt == 0: " + FOREVER)) as head:
        notes = records(tmp_path, 0, 2)
        os.kill(notes[0]["parent"], signal.SIGKILL)
        assert not gone_or_killed([note["pid"] for note in notes.values()])
        head.communicate(timeout=30)
    assert head.returncode == 0 and len(records(tmp_path, 1)) == 2


TOLD = {  # what a rank does that is told to leave, the signal: (exit code, what is said)
    ("note(f'left-{rank}', 1), sys.exit(0)", signal.SIGTERM): (0, "stopped by signal 15\n"),
    ("note(f'left-{rank}', 1), sys.exit(0)", signal.SIGINT): (130, "stopped by signal 2\n"),
    ("rank or sys.exit(0)", signal.SIGTERM): (143, "stopped by signal 15; not all ranks left in time\n"),
    ("sys.exit(rank)", signal.SIGTERM): (143, "stopped by signal 15; not all ranks left in time\n"),
}


@pytest.mark.parametrize("what, number", TOLD, ids=["leave", "leave by Ctrl-C", "one stays", "one fails"])
def test_a_signal_lets_the_ranks_leave(tmp_path, what, number):
    code, said = TOLD[what, number]
    before = f"signal.signal(signal.SIGTERM, lambda *_: ({what}))\n"
    words = script(tmp_path, "while True: time.sleep(1)", before)
    with launched(tmp_path, "-n", 2, "--grace", 2 if code == 143 else 30, *words) as head:
        records(tmp_path, 0, 2)
        head.send_signal(number)
        _, err = head.communicate(timeout=30)
    assert head.returncode == code and err.endswith(f"launch: {said}") and not records(tmp_path, 1)
    assert len(list(tmp_path.glob("left-?"))) == (2 if "left" in what else 0)


def test_a_second_signal_kills(tmp_path):
    before = "signal.signal(signal.SIGTERM, lambda *_: note(f'heard-{rank}', 1))\n"
    with launched(tmp_path, "-n", 2, *script(tmp_path, "while True: time.sleep(1)", before)) as head:
        records(tmp_path, 0, 2)
        head.send_signal(signal.SIGTERM)
        assert wait_for(lambda: len(list(tmp_path.glob("heard-?"))) == 2)
        head.send_signal(signal.SIGTERM)  # the same one, as from a program that signals a process and its group
        wait_for(lambda: head.poll() is not None, 1.5)
        assert head.poll() is None
        head.send_signal(signal.SIGTERM)
        head.communicate(timeout=30)
    assert head.returncode == 143
