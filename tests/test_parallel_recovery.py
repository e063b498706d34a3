"""Trainings on many processes: whatever happens to one of them, the job is back soon and ends with the same bits."""

import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .cli_runs import environment

PROGRAM = Path(__file__).with_name("recovery_program.py")
TIMEOUT = 4  # seconds that ranks wait for one another
LATE = 20  # seconds beyond it in which a job must be back; the median is reported


def started(*words):
    """A process of Python, with its output to be read."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment()}
    return subprocess.Popen([sys.executable, *map(str, words)], **options)


def finished(process, seconds=120):
    """(exit code, stdout, stderr), once it has ended; it is killed if it does not."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        pytest.fail(f"not done after {seconds} s:\n{out}\n{err}")
    return process.returncode, out, err


def launched(folder, *words, ranks=4, options=()):
    """A job of the program in a folder."""
    folder.mkdir(exist_ok=True)
    how = ["-m", "minigrad", "launch", "-n", ranks, "--timeout", TIMEOUT, "--logs", folder / "logs", *options]
    return started(*how, PROGRAM, folder, *words)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """{kind of optimiser: the line with the hash} of a process that trains alone."""
    lines = {}
    for kind in ("sgd", "adam"):
        code, out, err = finished(started(PROGRAM, tmp_path_factory.mktemp("alone"), "none:-1:-1", kind))
        assert code == 0, err
        (lines[kind],) = out.splitlines()
    return lines


@pytest.fixture(scope="module")
def delays():
    """Seconds from each fault to the first step after it; their median goes into the report."""
    found = {}
    yield found
    if found:
        from .conftest import reports

        named = ", ".join(f"{name} {seconds:.1f}" for name, seconds in found.items())
        reports.append(f"recovery: median {statistics.median(found.values()):.1f} s after a fault ({named})")


def delay(folder):
    """Seconds from the fault to the first step after it."""
    moments = [line.split(" ", 1) for line in (folder / "times").read_text().splitlines()]
    fault = next(float(moment) for moment, what in moments if what == "fault")
    # The other ranks may end the step under way.
    after = [float(moment) for moment, what in moments if what.startswith("step") and float(moment) > fault + 0.3]
    return after[0] - fault


QUICK = "kill -9 of rank 2", "a stopped process"  # and with --deep the others
FAULTS = {  # name: (fault, how long it takes until somebody notices)
    "kill -9 of rank 0": ("kill:0:7", 0),
    "kill -9 of rank 2": ("kill:2:10", 0),
    "an exception": ("error:1:5", 0),
    "an exit": ("exit:3:8", 0),
    "a stopped process": ("halt:1:8", TIMEOUT),
    "a hanging process": ("hang:0:11", TIMEOUT),
    "a torn checkpoint": ("tear:0:10", 0),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.deep] * (name not in QUICK)) for name in FAULTS]
)
def test_a_job_is_back_after(name, tmp_path, unbroken, delays):
    fault, notice = FAULTS[name]
    kind = "adam" if "rank 2" in name or "torn" in name else "sgd"  # with its state divided among the ranks
    code, out, err = finished(launched(tmp_path / "job", fault, kind))
    assert code == 0, out + err
    assert out.splitlines()[-1] == unbroken[kind]
    assert err.count("starting again") == 1 and f"rank {fault.split(':')[1]}" in err, err
    delays[name] = delay(tmp_path / "job")
    assert delays[name] < notice + LATE


@pytest.mark.deep
def test_fewer_ranks_go_on_after_a_failure(tmp_path, unbroken):
    code, _, err = finished(launched(tmp_path / "job", "kill:3:10", options=["--max-restarts", "0"]))
    assert code == 1 and "rank 3" in err
    for ranks in (2, 1):
        code, out, err = finished(launched(tmp_path / "job", ranks=ranks))
        assert (code, out.splitlines()[-1]) == (0, unbroken["sgd"]), err


@pytest.mark.deep
def test_a_preempted_job_leaves_at_one_step_and_goes_on(tmp_path, unbroken):
    job = launched(tmp_path / "job", "hang:9:1")
    limit = time.monotonic() + 60
    while not (tmp_path / "job/times").exists() and time.monotonic() < limit:
        time.sleep(0.05)
    job.send_signal(signal.SIGTERM)
    code, out, err = finished(job)
    assert code == 0 and out.startswith("stopped at "), out + err
    code, out, err = finished(launched(tmp_path / "job", ranks=2))
    assert (code, out.splitlines()[-1]) == (0, unbroken["sgd"]), err


@pytest.mark.deep
def test_one_rank_that_is_told_to_leave_takes_all_along(tmp_path, unbroken):
    code, out, err = finished(launched(tmp_path / "job", "preempt:2:7"))
    assert (code, out) == (0, "stopped at 7\n"), err
    code, out, err = finished(launched(tmp_path / "job"))
    assert (code, out.splitlines()[-1]) == (0, unbroken["sgd"]), err


# ---- the command -----------------------------------------------------------------------------------------------------

TRAIN = ["train", "--data", "digits", "--epochs", "2", "--no-new-writers", "--batch-size", "64", "--shards", "8"]
QUIET = [*TRAIN, "--no-report"]


def hash_in(out):
    (line,) = [line for line in out.splitlines() if line.startswith("weights hash ")]
    return line


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What a process says that trains alone by the command."""
    code, out, err = finished(started("-m", "minigrad", *QUIET, "--out", tmp_path_factory.mktemp("train") / "run"))
    assert code == 0, err
    return hash_in(out)


@pytest.mark.deep
def test_the_command_on_four_ranks_by_the_launcher(tmp_path, alone):
    words = ["-m", "minigrad", "launch", "-n", 4, "--logs", tmp_path / "logs", "minigrad"]
    code, out, err = finished(started(*words, *TRAIN, "--zero", "--out", tmp_path / "run"))
    assert code == 0 and hash_in(out) == alone, err
    assert out.count("epoch 2/2") == 1, "rank 0 alone prints"
    page = (tmp_path / "run/report.html").read_text()
    assert out.count("report: ") == 1 and hash_in(out).split()[-1] in page and "<dt>ranks</dt><dd>4</dd>" in page


def test_the_command_on_four_ranks_by_mpiexec(tmp_path, alone):
    mpiexec = Path(sys.executable).with_name("mpiexec")
    command = [mpiexec, "-n", "4", sys.executable, "-m", "minigrad", *QUIET, "--out", tmp_path / "run"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and hash_in(done.stdout) == alone, done.stderr


def test_the_command_goes_on_where_a_killed_rank_left_it(tmp_path, alone):
    words = ["launch", "-n", 2, "--timeout", TIMEOUT, "--logs", tmp_path / "logs", "minigrad"]
    job = started("-m", "minigrad", *words, *QUIET, "--save-every", 5, "--out", tmp_path / "run")
    log = tmp_path / "logs/attempt-0/rank-1.log"
    limit = time.monotonic() + 60
    while time.monotonic() < limit and not (tmp_path / "run/history.jsonl").exists():  # after the first epoch
        time.sleep(0.02)
    victims = subprocess.run(["pgrep", "-f", f"minigrad {' '.join(map(str, QUIET))}"], capture_output=True, text=True)
    ranks = [int(pid) for pid in victims.stdout.split() if int(pid) != job.pid and _is_rank(pid)]
    os.kill(ranks[-1], signal.SIGKILL)
    code, out, err = finished(job)
    assert code == 0 and hash_in(out) == alone, err + (log.read_text() if log.exists() else "")
    assert "starting again" in err


def _is_rank(pid):
    try:
        return b"PMI_RANK=" in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


@pytest.mark.deep
def test_more_ranks_than_cores_with_nothing_compiled(tmp_path, alone):
    """Each compiles what it needs; that takes some longer than others, and nobody gives up meanwhile."""
    words = ["-m", "minigrad", "launch", "-n", 8, "--max-restarts", 0, "--logs", tmp_path / "logs"]
    command = [sys.executable, *map(str, [*words, "minigrad", *QUIET, "--epochs", 1, "--out", tmp_path / "run"])]
    env = environment() | {"MINIGRAD_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0 and "weights hash" in done.stdout, done.stderr
