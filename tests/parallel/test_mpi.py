"""Ranks under mpiexec: the collectives, and that no end of a rank leaves the others waiting."""

import re
import sys
import time

import pytest

from tests.parallel.launch_runs import MPIEXEC, finished, started

pytestmark = pytest.mark.deep

AGAIN = 75  # exit code of a job that failed and may be tried again
LIMIT = 20  # seconds in which a job has to end after a rank failed, of which a start on a busy machine may take half


def run(ranks, *words, **variables):
    """(exit code, what was printed, seconds) of Python on so many ranks."""
    begun = time.monotonic()
    code, out, err = finished(started(MPIEXEC, "-n", ranks, sys.executable, *words, **variables))
    return code, out + err, time.monotonic() - begun


def program(ranks, *words):
    return run(ranks, "-m", "tests.parallel.mpi_programs", *words)


@pytest.mark.parametrize(
    "ranks, words",
    [(2, ["collectives", "32768"]), (5, ["collectives", str(1 << 30)]), (4, ["messages"])],
    ids=["pieces", "collectives", "messages"],
)
def test_they_do_what_threads_do(ranks, words):
    code, said, _ = program(ranks, "init", *words)
    assert (code, said) == (0, "all right\n")


def test_a_rank_may_leave_early_when_nobody_waits_for_it():
    code, said, seconds = program(3, "init", "early")
    assert (code, said) == (0, "all right\n") and seconds > 1.5


HEARD = {  # how the world was made and what rank 1 does: who hears of it, and what
    "init differs": ({0, 1, 2}, "rank 1 does all_gather(float64(1000000,), label=w)"),
    "init stopped": ({0, 2}, "no message from rank 1 came in time"),
    "init leaves": ({0, 2}, "rank 1 has ended"),
    "init aborts": ({0, 1, 2}, "rank 1 has had enough"),
    "init fails": ({0, 2}, "rank 1 ended: ValueError: a mistake of rank 1"),
    "bare fails": ({0, 2}, "rank 1 ended: ValueError: a mistake of rank 1"),
    "with fails": ({0, 2}, "rank 1 ended: ValueError: a mistake of rank 1"),
}


@pytest.mark.parametrize("name", HEARD)
def test_every_rank_hears_how_one_ended_and_the_job_ends(name):
    made, how = name.split()
    ranks, words = HEARD[name]
    code, said, seconds = program(3, made, "ends", how)
    assert code == AGAIN and seconds < LIMIT, (code, seconds, said)
    heard = {int(rank): line for rank, line in re.findall(r"^rank (\d) heard: (.*)", said, re.MULTILINE)}
    assert heard.keys() == ranks and all(words in line for line in heard.values()), said
    if how in ("differs", "stopped"):
        assert all(re.search(r"all_reduce\(float64\(1000,\), sum, .*label=w\)", line) for line in heard.values()), said
    if how == "fails" and made != "bare":  # init has the traceback written
        tracebacks = said.split("Traceback (most recent call last):\n")[1:]
        last = [re.findall(r"^[\w.]*Error: .*", lines, re.MULTILINE) for lines in tracebacks]
        assert all(len(lines) == 1 for lines in last), ("each rank's traceback is in one piece", said)
        assert last.count(["ValueError: a mistake of rank 1"]) == 1, ("its own traceback", said)


def test_a_rank_that_is_killed_ends_the_job():
    code, said, seconds = program(3, "init", "ends", "killed")
    assert code and seconds < LIMIT, (code, seconds, said)


def test_a_rank_that_fails_before_it_begins_is_not_waited_for():
    """MPI begins in C, with all ranks."""
    code = "import os; assert os.environ['PMI_RANK'] != '1'; from minigrad.parallel import world"
    code, said, seconds = run(2, "-c", f"{code}; world.START = 4; world.init()", MINIGRAD_TIMEOUT="4")
    assert code and seconds < LIMIT and "AssertionError" in said


def test_an_mpi_for_one_thread_is_refused():
    code = "import mpi4py; mpi4py.rc.thread_level = 'single'; from minigrad import parallel; parallel.init('mpi')"
    code, said, _ = run(1, "-c", code)
    assert code and "MPI offers thread level 0, wanted 3 (multiple)" in said
