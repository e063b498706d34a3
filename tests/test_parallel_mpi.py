"""Ranks under mpiexec: the collectives, and that no end of a rank leaves the others waiting."""

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .cli_runs import environment

pytestmark = pytest.mark.deep

ROOT = Path(__file__).resolve().parents[1]
MPIEXEC = Path(sys.executable).with_name("mpiexec")
AGAIN = 75  # exit code of a job that failed and may be tried again
LIMIT = 20  # seconds in which a job has to end after a rank failed, of which a start on a busy machine may take half


def run(ranks, *words, timeout=120):
    """(exit code, what was printed, seconds) of a program of mpi_programs on so many ranks."""
    command = [MPIEXEC, "-n", str(ranks), sys.executable, "-m", "tests.mpi_programs", *words]
    begun = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=timeout)
    return done.returncode, done.stdout + done.stderr, time.monotonic() - begun


@pytest.mark.deep
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_collectives(ranks):
    code, said, _ = run(ranks, "collectives")
    assert code == 0 and said == "all right\n", said


@pytest.mark.parametrize("program, ranks", [("pieces", 2), ("messages", 4), ("unreceived", 2)])
def test_messages(program, ranks):
    code, said, _ = run(ranks, program)
    assert code == 0 and said == "all right\n", said


def fails(program, *words, ranks=3):
    """What each rank said: {rank: line} of those that heard how it ended; the job ended soon, and not well."""
    code, said, seconds = run(ranks, program, *words)
    assert code == AGAIN and seconds < LIMIT, (code, seconds, said)
    lines = [line for line in said.splitlines() if " after " in line and line.startswith("rank ")]
    return {int(line.split()[1]): line for line in lines}, said


CALLS = {  # what rank 1 does instead, as it is named in errors
    "type": "all_reduce(float32(1000,), sum, native, wire=None, label=w)",
    "size": "all_reduce(float64(999,), sum, native, wire=None, label=w)",
    "order": "all_reduce(float64(1000,), sum, fixed, wire=None, label=w)",
    "call": "broadcast(float64(1000,), root=0, label=b)",
    "large": "all_gather(float64(1000000,), label=b)",
}


@pytest.mark.parametrize("difference", CALLS)
def test_every_rank_hears_that_calls_differ(difference):
    heard, said = fails("disagree", difference)
    assert heard.keys() == {0, 1, 2}, said
    for line in heard.values():
        assert "rank 1 does " + CALLS[difference] in line or ", rank 1 does " + CALLS[difference] in line, line
        assert "all_reduce(float64(1000,), sum, native, wire=None, label=w)" in line, line


def test_a_rank_that_stays_away_is_named_after_the_deadline():
    heard, said = fails("absent")
    assert {0, 2} <= heard.keys() and "no message from rank 1 came in time" in heard[0] and "label=w" in heard[2], said


def test_a_rank_that_is_stopped_is_ended():
    heard, said = fails("stopped")
    assert heard.keys() == {0, 2} and "no message from rank 1 came in time" in heard[0], said


def test_a_rank_that_is_killed_ends_the_job():
    code, said, seconds = run(3, "killed")
    assert code not in (0, None) and seconds < LIMIT, (code, seconds, said)


@pytest.mark.parametrize("program", ["exception", "with_block"])
def test_an_exception_of_one_rank_reaches_all(program):
    heard, said = fails(program)
    assert said.count("CommunicationError: ") >= 2 and "rank 1 ended: ValueError: a mistake of rank 1" in said
    tracebacks = said.split("Traceback (most recent call last):\n")[1:]
    ends = [[line for line in lines.splitlines() if re.match(r"[\w.]*Error: ", line)] for lines in tracebacks]
    assert all(len(lines) == 1 for lines in ends), ("each rank's traceback is in one piece", said)
    assert ends.count(["ValueError: a mistake of rank 1"]) == 1, ("its own traceback", said)


def test_a_rank_that_leaves_is_not_waited_for():
    heard, said = fails("leaves")
    assert heard.keys() == {0, 2} and "rank 1 has ended" in heard[0] and "rank 1 has ended" in heard[2], said


def test_the_world_of_init_ends_with_the_process():
    code, said, _ = run(3, "by_init", "well")
    assert (code, said) == (0, "all right\n")
    heard, said = fails("by_init", "exception")
    assert heard.keys() == {0, 2} and "rank 1 ended: ValueError: a mistake of rank 1" in heard[0], said
    heard, said = fails("by_init", "exit")
    assert heard.keys() == {0, 2} and "rank 1 has ended" in heard[2], said


def test_a_rank_may_leave_early_when_nobody_waits_for_it():
    code, said, seconds = run(3, "leaves_early")
    assert (code, said) == (0, "all right\n") and seconds > 1.5


def test_an_abort_reaches_all():
    heard, said = fails("aborts")
    assert heard.keys() == {0, 1, 2} and all("rank 1 has had enough" in line for line in heard.values()), said


def test_an_mpi_for_one_thread_is_refused():
    code, said, _ = run(1, "threads")
    assert code == 0 and said.startswith("MPI offers thread level 0, wanted 3 (multiple)")


def test_without_mpi4py_the_error_says_what_to_install():
    code = "import sys; sys.modules['mpi4py'] = None\nfrom minigrad.parallel import mpi\nmpi.MpiTransport()"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment(), capture_output=True, text=True)
    assert done.returncode == 1 and "StateError: MPI cannot be used" in done.stderr
    assert "pip install 'minigrad-engine[mpi]'" in done.stderr


def test_the_module_alone_imports_no_mpi():
    code = "import sys, minigrad.parallel.mpi; assert not {'mpi4py', 'cupy'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment(), check=True)


def test_a_rank_that_fails_before_it_begins_is_not_waited_for():
    """MPI begins in C, with all ranks."""
    code = "import os; assert os.environ['PMI_RANK'] != '1'; from minigrad.parallel import world"
    code += "; world.START = 4; world.init()"
    begun = time.monotonic()
    done = subprocess.run(
        [MPIEXEC, "-n", "2", sys.executable, "-c", code], cwd=ROOT, env=environment() | {"MINIGRAD_TIMEOUT": "4"},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode and time.monotonic() - begun < LIMIT and "AssertionError" in done.stderr
