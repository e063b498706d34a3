"""minigrad launch on one host: what ranks are told, restarts, signals, and that nothing is left behind."""

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.launch_runs import alive, gone_or_killed, launch, launched, records, script, started, wait_for

FOREVER = "time.sleep(120)\n"


def test_ranks_are_told_who_they_are(tmp_path):
    code, out, err = launch(tmp_path, "-n", 2, "--timeout", 7, *script(tmp_path, "print('rank', rank)"))
    assert (code, out) == (0, "rank 0\n") and "attempt 0: 2 ranks ended well" in err
    notes = records(tmp_path, 0)
    variables = [notes[rank]["environment"] for rank in (0, 1)]
    for rank, of in enumerate(variables):
        assert [of[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")] == [
            str(rank),
            "2",
            str(rank),
            "2",
        ]
        assert of["MASTER_ADDR"] == "127.0.0.1" and 1024 <= int(of["MASTER_PORT"]) <= 65535
        assert of["MINIGRAD_TIMEOUT"] == "7" and of["MINIGRAD_ATTEMPT"] == "0"
        assert int(of["MINIGRAD_THREADS"]) == max(1, len(os.sched_getaffinity(0)) // 2)
        assert "NUMBA_NUM_THREADS" not in of or "NUMBA_NUM_THREADS" in os.environ
        assert notes[rank]["session"] == notes[rank]["pid"]
    for name in ("MASTER_PORT", "MINIGRAD_JOB", "MINIGRAD_KEY"):
        assert variables[0][name] == variables[1][name]
    assert len(bytes.fromhex(variables[0]["MINIGRAD_KEY"])) == 32
    assert not any(variables[0]["MINIGRAD_KEY"] in word for word in notes[0]["agent"])


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
    assert code == 0 and out == "out of 0\n" * 2 and err.count("error of 0") == 2
    for attempt in (0, 1):
        log = tmp_path / "logs" / f"attempt-{attempt}" / "rank-1.log"
        assert set(log.read_text().splitlines()) == {"out of 1", "error of 1"}
        assert not (log.parent / "rank-0.log").exists()


def test_logs_of_a_job_have_a_folder_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setenv("MINIGRAD_THREADS", "3")  # what the user set stays
    assert launch(tmp_path, "-n", 2, *script(tmp_path, "print('here')"))[0] == 0
    (log,) = tmp_path.glob("launch-logs/*/attempt-0/rank-1.log")
    variables = records(tmp_path, 0)[1]["environment"]
    assert log.parts[-3] == variables["MINIGRAD_JOB"] and variables["MINIGRAD_THREADS"] == "3"
    assert log.read_text() == "here\n"


# ---- restarts --------------------------------------------------------------------------------------------------------


def test_a_rank_that_fails_is_shown_and_all_start_again(tmp_path):
    body = """
if attempt == 0 and rank == 1:
    print(*(f"line {n}" for n in range(50)), sep="\\n")
    sys.exit(3)
if attempt == 0:
    time.sleep(120)
"""
    code, _, err = launch(tmp_path, "-n", 2, *script(tmp_path, body))
    host = os.uname().nodename
    assert code == 0
    assert f"attempt 0: rank 1 on {host} exited with code 3 after " in err
    assert "s; starting again with 2 ranks (1 of 3 restarts)" in err and "attempt 1: 2 ranks ended well" in err
    assert [line for line in err.splitlines() if line.startswith("line")] == [f"line {n}" for n in range(30, 50)]
    before, after = (records(tmp_path, attempt)[0]["environment"] for attempt in (0, 1))
    assert before["MINIGRAD_JOB"] == after["MINIGRAD_JOB"] and before["MINIGRAD_KEY"] == after["MINIGRAD_KEY"]


def test_restarts_are_used_up(tmp_path):
    code, _, err = launch(tmp_path, "-n", 2, "--max-restarts", 1, *script(tmp_path, "sys.exit(rank)"))
    assert code == 1 and "(1 of 1 restarts)" in err and "no restarts are left" in err
    assert len(records(tmp_path, 1)) == 2 and not records(tmp_path, 2)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_is_killed(tmp_path, rank):
    with launched(tmp_path, "-n", 2, *script(tmp_path, "if attempt == 0: " + FOREVER)) as head:
        notes = started(tmp_path, 0, 2)
        os.kill(notes[rank]["pid"], signal.SIGKILL)
        _, err = head.communicate(timeout=30)
    assert head.returncode == 0 and f"rank {rank} on {os.uname().nodename} was killed by signal 9" in err


def test_the_rank_that_failed_the_others_is_named(tmp_path):
    body = "time.sleep(0.3 * rank); sys.exit(0 if attempt else 3 if rank == 1 else 75)"
    code, _, err = launch(tmp_path, "-n", 2, *script(tmp_path, body))
    assert code == 0 and "rank 1 on" in err and "exited with code 3" in err and "code 75" not in err


def test_a_rank_that_is_stopped_is_named_and_killed(tmp_path):
    body = """
if attempt == 0 and rank == 1:
    os.kill(os.getpid(), signal.SIGSTOP)
sys.exit(0 if attempt else 75)
"""
    code, _, err = launch(tmp_path, "-n", 3, *script(tmp_path, body))
    assert code == 0 and f"rank 1 on {os.uname().nodename} did not answer the others" in err


def test_all_were_failed_by_another(tmp_path):
    code, _, err = launch(tmp_path, "-n", 2, *script(tmp_path, "sys.exit(0 if attempt else 75)"))
    assert code == 0 and "exited with code 75, because another failed it" in err


def test_a_command_that_cannot_be_started(tmp_path):
    words = script(tmp_path, "os.rename(folder + '/logs', folder + '/old'); open(folder + '/logs', 'w'); sys.exit(1)")
    code, _, err = launch(tmp_path, "-n", 2, "--max-restarts", 1, "--logs", "logs", *words)
    assert code == 1 and "exited with code 1" in err and "could not be started" in err


# ---- nothing is left behind ------------------------------------------------------------------------------------------


CHILD = "import subprocess\nrecord['child'] = subprocess.Popen(['sleep', '120']).pid\n"


def test_the_agent_is_killed(tmp_path):
    with launched(tmp_path, "-n", 2, *script(tmp_path, "if attempt == 0: " + FOREVER, CHILD)) as head:
        notes = started(tmp_path, 0, 2)
        os.kill(notes[0]["parent"], signal.SIGKILL)
        assert not gone_or_killed([note[name] for note in notes.values() for name in ("pid", "child")])
        _, err = head.communicate(timeout=30)
    assert head.returncode == 0 and f"host {os.uname().nodename} was lost" in err
    assert records(tmp_path, 1)[0]["parent"] != notes[0]["parent"]


def test_the_agent_is_stopped(tmp_path):
    words = ["-n", 2, "--heartbeat", 2, *script(tmp_path, "if attempt == 0: " + FOREVER)]
    with launched(tmp_path, *words) as head:
        notes = started(tmp_path, 0, 2)
        os.kill(notes[0]["parent"], signal.SIGSTOP)
        assert not gone_or_killed([note["pid"] for note in notes.values()], 10)
        head.communicate(timeout=30)
    assert head.returncode == 0 and len(records(tmp_path, 1)) == 2


def test_the_head_is_killed(tmp_path):
    with launched(tmp_path, "-n", 2, *script(tmp_path, FOREVER, CHILD)) as head:
        notes = started(tmp_path, 0, 2)
        head.kill()
        assert not gone_or_killed([note[name] for note in notes.values() for name in ("pid", "child", "parent")])


def test_what_a_rank_started_ends_with_it(tmp_path):
    with launched(tmp_path, "-n", 2, *script(tmp_path, "if rank == 0: " + FOREVER, CHILD)) as head:
        notes = started(tmp_path, 0, 2)
        assert not gone_or_killed([notes[1]["child"]]) and alive(notes[0]["child"])
        head.send_signal(signal.SIGTERM)
        head.communicate(timeout=30)
    assert not gone_or_killed([notes[0]["child"]])


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
    assert head.returncode == code and "not all ranks left well" in err


def test_a_second_signal_kills(tmp_path):
    before = "signal.signal(signal.SIGTERM, lambda *_: note(f'heard-{rank}', 1))\n"
    with launched(tmp_path, "-n", 2, *script(tmp_path, "while True: time.sleep(1)", before)) as head:
        started(tmp_path, 0, 2)
        head.send_signal(signal.SIGTERM)
        assert wait_for(lambda: len(list(tmp_path.glob("heard-?"))) == 2)
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


# ---- mpiexec ---------------------------------------------------------------------------------------------------------

MPI_SCRIPT = """
import os, signal, sys, time
from mpi4py import MPI
rank, attempt = MPI.COMM_WORLD.rank, int(os.environ["MINIGRAD_ATTEMPT"])
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
assert len(os.environ["MINIGRAD_KEY"]) == 64 and os.environ["MINIGRAD_JOB"] and "MINIGRAD_WATCH" not in os.environ
if attempt == 0 and rank == 1:
    raise ValueError("in one rank")
MPI.COMM_WORLD.Barrier()
if rank == 0:
    open("ready", "w").close()
    print("size", MPI.COMM_WORLD.size)
if "wait" in sys.argv:
    time.sleep(120)
"""


def test_mpiexec_is_started_again(tmp_path):
    pytest.importorskip("mpi4py", reason="needs the extra mpi")
    (tmp_path / "script.py").write_text(MPI_SCRIPT)
    code, out, err = launch(tmp_path, "-n", 2, "--mpi", "script.py")
    assert code == 0 and "size 2" in out and "ValueError: in one rank" in err
    assert "attempt 0: mpiexec exited with code" in err and "starting again with mpiexec" in err
    assert not (tmp_path / "launch-logs").exists()


def test_mpiexec_hears_of_a_signal(tmp_path):
    pytest.importorskip("mpi4py", reason="needs the extra mpi")
    (tmp_path / "script.py").write_text(MPI_SCRIPT)
    mpiexec = Path(sys.executable).parent / "mpiexec"
    with launched(tmp_path, "-n", 2, "--mpi", "--mpiexec", mpiexec, "script.py", "wait") as head:
        assert wait_for((tmp_path / "ready").exists)
        head.send_signal(signal.SIGTERM)
        head.communicate(timeout=30)
    assert head.returncode == 0
