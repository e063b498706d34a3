"""minigrad launch: what ranks are told, restarts, hosts, signals, and that nothing is left behind."""

import os
import signal
import subprocess
import sys

import pytest

from minigrad.parallel import ShardSampler
from minigrad.parallel.launch import _blame, fitting
from tests.launch_runs import gone_or_killed, launch, launched, records, script, started, wait_for

HOST = os.uname().nodename
FOREVER = "time.sleep(120)\n"


def test_ranks_are_told_who_they_are(tmp_path):
    body = "print('rank', rank, sys.argv[2:], __name__, sys.path[0] == folder); print('=' * 20); print('after')"
    words = [*script(tmp_path, body), "-n", "5"]
    code, out, err = launch(tmp_path, "-n", 2, "--timeout", 7, *words)
    assert (code, out, err) == (0, "rank 0 ['-n', '5'] __main__ True\n" + "=" * 20 + "\nafter\n", "")
    (folder,) = tmp_path.glob("launch-logs/*/attempt-0")
    assert (folder / "rank-1.log").read_text().startswith("rank 1 ['-n', '5'] __main__ True\n")
    for rank in (0, 1):
        of = records(tmp_path, 0)[rank]["environment"]
        assert of["MINIGRAD_TIMEOUT"] == "7" and of["MINIGRAD_ATTEMPT"] == "0"
        assert of["MINIGRAD_JOB"] == folder.parts[-2]


def test_only_rank_0_prints_and_the_others_have_logs(tmp_path):
    body = """
print(f"out of {rank}", flush=True)
print(f"error of {rank}", file=sys.stderr, flush=True)
log = f"{folder}/logs/attempt-{attempt}/rank-1.log"
while len(open(log).readlines()) < 2:  # else rank 1 might be stopped before it has said anything
    time.sleep(0.01)
sys.exit(3 if attempt == 0 else 0)
"""
    code, out, err = launch(tmp_path, "-n", 2, "--logs", "logs", *script(tmp_path, body))
    assert code == 0 and out.split() == ["out", "of", "0"] * 2 and err.count("error of 0") == 2
    for attempt in (0, 1):
        log = tmp_path / "logs" / f"attempt-{attempt}" / "rank-1.log"
        assert set(log.read_text().splitlines()) == {"out of 1", "error of 1"}
        assert not (log.parent / "rank-0.log").exists()


def test_a_second_job_with_the_same_logs_keeps_them_and_blames_its_own_ranks(tmp_path):
    for code, said in ((5, "exited with code 5"), (3, "exited with code 3")):
        words = script(tmp_path, f"print('code {code}', flush=True); sys.exit({code} * rank)")
        found, _, err = launch(tmp_path, "-n", 2, "--max-restarts", 0, "--logs", "logs", *words)
        assert found == 1 and f"attempt 0: rank 1 on {HOST}: {said}" in err
    assert (tmp_path / "logs/attempt-0/rank-1.log").read_text() == "code 5\ncode 3\n"


# ---- restarts --------------------------------------------------------------------------------------------------------

FAILURES = {  # what rank 1 does: what is said of it
    "os.kill(os.getpid(), signal.SIGKILL)": "was killed by signal 9",
    "os._exit(4)": "exited with code 4",
    "sys.exit(3)": "exited with code 3",
    "sys.exit('in words')": "exited with code 1 (in words)",
    "raise ValueError('a mistake')": "ValueError: a mistake",
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_rank_that_fails_is_named_in_one_line_and_all_start_again(tmp_path, failure):
    body = f"if attempt == 0 and rank == 1:\n    {failure}\nif attempt == 0:\n    {FOREVER}"
    code, out, err = launch(tmp_path, "-n", 2, *script(tmp_path, body))
    assert code == 0 and "BAD TERMINATION" not in out + err
    (line,) = [line for line in err.splitlines() if line.startswith("launch: ")]
    assert f"attempt 0: rank 1 on {HOST}: {FAILURES[failure]} after " in line
    assert "s; starting again (1 of 3 restarts); logs: " in line
    before, after = (records(tmp_path, attempt)[0]["environment"] for attempt in (0, 1))
    assert before["MINIGRAD_JOB"] == after["MINIGRAD_JOB"] and after["MINIGRAD_ATTEMPT"] == "1"


def test_restarts_are_used_up(tmp_path):
    code, _, err = launch(tmp_path, "-n", 2, "--max-restarts", 1, *script(tmp_path, "sys.exit(3 * rank)"))
    assert code == 1 and "(1 of 1 restarts)" in err and "no restarts are left" in err
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


def test_a_rank_that_is_stopped_is_missed_and_killed(tmp_path):
    body = """
from minigrad import parallel
world = parallel.init()
world.barrier()
world.transport.young = False  # as after two steps
if attempt == 0 and rank == 1:
    os.kill(os.getpid(), signal.SIGSTOP)
world.barrier()
"""
    code, _, err = launch(tmp_path, "-n", 2, "--timeout", 2, *script(tmp_path, body))
    assert code == 0 and f"rank 0 on {HOST}: DeadlineError: barrier(): " in err
    assert "no message from rank 1 came in time" in err and "starting again" in err


def test_without_mpi_it_says_what_to_install(tmp_path):
    code = "import sys; sys.modules['mpi4py'] = None; from minigrad.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "launch", "-n", "2", "minigrad", "train"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "mpi4py is not installed; pip install 'minigrad-engine[mpi]'" in done.stderr


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
            wait_for(lambda: False, 3)
            assert not records(hosts, 1)
            (hosts / "gone-127.0.0.3").unlink()
        _, err = head.communicate(timeout=60)
    assert head.returncode == 0, err
    sizes = {note["environment"]["PMI_SIZE"] for note in records(hosts, 1).values()}
    assert len(records(hosts, 0)) == 4 and sizes == {str(ranks)}


# ---- nothing is left behind ------------------------------------------------------------------------------------------


def test_the_launcher_is_killed(tmp_path):
    with launched(tmp_path, "-n", 2, *script(tmp_path, FOREVER)) as head:
        notes = started(tmp_path, 0, 2)
        head.kill()
        assert not gone_or_killed([note[name] for note in notes.values() for name in ("pid", "parent")], 10)


def test_the_parent_of_a_rank_is_killed(tmp_path):
    with launched(tmp_path, "-n", 2, *script(tmp_path, "if attempt == 0: " + FOREVER)) as head:
        notes = started(tmp_path, 0, 2)
        os.kill(notes[0]["parent"], signal.SIGKILL)
        assert not gone_or_killed([note["pid"] for note in notes.values()], 10)
        head.communicate(timeout=30)
    assert head.returncode == 0 and len(records(tmp_path, 1)) == 2


# ---- signals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number, code", [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_lets_the_ranks_leave(tmp_path, number, code):
    before = "signal.signal(signal.SIGTERM, lambda *_: (note(f'left-{rank}', 1), sys.exit(0)))\n"
    with launched(tmp_path, "-n", 2, *script(tmp_path, FOREVER, before)) as head:
        started(tmp_path, 0, 2)
        head.send_signal(number)
        head.communicate(timeout=30)
    assert head.returncode == code
    assert {path.name for path in tmp_path.glob("left-*")} == {"left-0", "left-1"} and not records(tmp_path, 1)


@pytest.mark.parametrize("number, code", [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_rank_that_does_not_leave_is_killed(tmp_path, number, code):
    before = "signal.signal(signal.SIGTERM, signal.SIG_IGN if rank else lambda *_: sys.exit(0))\n"
    with launched(tmp_path, "-n", 2, "--grace", 0.5, *script(tmp_path, FOREVER, before)) as head:
        started(tmp_path, 0, 2)
        head.send_signal(number)
        _, err = head.communicate(timeout=30)
    assert head.returncode == code and "not all ranks left in time" in err


def test_a_second_signal_kills(tmp_path):
    before = "signal.signal(signal.SIGTERM, lambda *_: note(f'heard-{rank}', 1))\n"
    with launched(tmp_path, "-n", 2, *script(tmp_path, "while True: time.sleep(1)", before)) as head:
        started(tmp_path, 0, 2)
        head.send_signal(signal.SIGTERM)
        assert wait_for(lambda: len(list(tmp_path.glob("heard-?"))) == 2)
        head.send_signal(signal.SIGTERM)  # the same one, as from a program that signals a process and its group
        wait_for(lambda: head.poll() is not None, 1.5)
        assert head.poll() is None
        head.send_signal(signal.SIGTERM)
        head.communicate(timeout=30)
    assert head.returncode == 143


def test_a_failure_after_a_signal_is_no_reason_to_start_again(tmp_path):
    before = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(rank))\n"
    with launched(tmp_path, "-n", 2, *script(tmp_path, FOREVER, before)) as head:
        started(tmp_path, 0, 2)
        head.send_signal(signal.SIGTERM)
        head.communicate(timeout=30)
    assert head.returncode == 143 and not records(tmp_path, 1)
