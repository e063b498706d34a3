"""Ranks under mpiexec: the collectives, and that no end of a rank leaves the others waiting."""

import re
import sys
import time

import pytest

from minigrad.parallel.rank import FAILED
from tests.parallel.launch_runs import MPIEXEC, finished, started

pytestmark = pytest.mark.deep

PROGRAM = "-m", "tests.parallel.mpi_programs"
LIMIT = 20  # seconds in which a job has to end after a rank failed, of which a start on a busy machine may take half


def run(ranks, *words, **variables):
    """(exit code, what was printed, seconds) of Python on so many ranks."""
    begun = time.monotonic()
    code, out, err = finished(started(MPIEXEC, "-n", ranks, sys.executable, *words, **variables))
    return code, out + err, time.monotonic() - begun


@pytest.mark.parametrize("ranks, what", [(2, "collectives"), (5, "collectives"), (4, "messages")])
def test_they_do_what_threads_do(ranks, what):
    code, said, _ = run(ranks, *PROGRAM, what)
    assert (code, said) == (0, "all right\n")


HEARD = {  # what rank 1 does: who hears of it, and what
    "differs": ({0, 1, 2}, "rank 1 does all_gather(float64(1000000,), label=w)"),
    "stopped": ({0, 2}, "no message from rank 1 came in time"),
    "leaves": ({0, 2}, "rank 1 has ended"),
    "aborts": ({0, 1, 2}, "rank 1 has had enough"),
    "fails": ({0, 2}, "rank 1 ended: ValueError: a mistake of rank 1"),
}


@pytest.mark.parametrize("how", HEARD)
def test_every_rank_hears_how_one_ended_and_the_job_ends(how):
    ranks, words = HEARD[how]
    code, said, seconds = run(3, *PROGRAM, "ends", how)
    assert code == FAILED and seconds < LIMIT, (code, seconds, said)
    heard = {int(rank): line for rank, line in re.findall(r"^rank (\d) heard: (.*)", said, re.MULTILINE)}
    assert heard.keys() == ranks and all(words in line for line in heard.values()), said
    if how in ("differs", "stopped"):
        assert all(re.search(r"all_reduce\(float64\(1000,\), sum, .*label=w\)", line) for line in heard.values()), said
    if how == "fails":
        tracebacks = said.split("Traceback (most recent call last):\n")[1:]
        last = [re.findall(r"^[\w.]*Error: .*", lines, re.MULTILINE) for lines in tracebacks]
        assert all(len(lines) == 1 for lines in last), ("each rank's traceback is in one piece", said)
        assert last.count(["ValueError: a mistake of rank 1"]) == 1, ("its own traceback", said)


def test_a_rank_that_fails_before_it_begins_is_not_waited_for():
    """MPI begins in C, with all ranks."""
    code = "import os; assert os.environ['PMI_RANK'] != '1'; from minigrad.parallel import world"
    code, said, seconds = run(2, "-c", f"{code}; world.START = 4; world.init()", MINIGRAD_TIMEOUT="4")
    assert code and seconds < LIMIT and "AssertionError" in said


def test_an_mpi_for_one_thread_is_refused():
    code = "import mpi4py; mpi4py.rc.thread_level = 'single'; from minigrad import parallel; parallel.init('mpi')"
    code, said, _ = run(1, "-c", code)
    assert code and "MPI offers thread level 0, wanted 3 (multiple)" in said
