"""Ranks under mpiexec: the collectives, and that no end of a rank leaves the others waiting.

python -m tests.parallel.test_mpi PROGRAM [WORD] is what each rank does: one of the functions below.
"""

import os
import re
import signal
import sys
import time

import numpy as np
import pytest

from minigrad import Tensor, parallel
from minigrad.parallel.rank import FAILED
from tests.parallel.collective_table import ROWS, check_row, run_row
from tests.parallel.launch_runs import MPIEXEC, finished, started
from tests.parallel.parallel_runs import on_ranks
from tests.parallel.test_pipeline import piped

# ---- what ranks do ---------------------------------------------------------------------------------------------------


def collectives(world):
    """Every row of the table: equal to what threads give, on every rank. Then rank 1 ends long before the others."""
    wanted = parallel.run_local(lambda local: [run_row(local, row) for row in ROWS], world.size)[world.rank]
    for row, right in zip(ROWS, wanted, strict=True):
        found = run_row(world, row)
        check_row(row, world.size, found, right)
        assert len(set(world.all_gather_object(found.tobytes()))) == 1, (row, "differs between ranks")
    if world.rank != 1:
        time.sleep(1.5)


def messages(world):
    """Tensors by tags, sizes and order; a pipeline; a message nobody takes."""
    up, down = (world.rank + 1) % world.size, (world.rank - 1) % world.size
    for size in (0, 1, 5_000, 300_000):
        for number in range(3):
            parallel.send(Tensor(np.full(size, 1.0 + number + world.rank)), up, 1, world)  # nobody waits for it
        parallel.send(Tensor(np.full(size, -1.0)), up, 0, world)
        world.barrier()  # and what is under way holds up no collective
        received = [parallel.recv(down, tag, world).numpy() for tag in (0, 1, 1, 1)]
        for found, value in zip(received, (-1, 1 + down, 2 + down, 3 + down), strict=True):
            assert found.shape == (size,) and (found == value).all()
    assert piped(world, "1f1b", 8) == parallel.run_local(piped, world.size, "1f1b", 8)[world.rank]
    if world.rank == 0:
        parallel.send(Tensor(np.ones(3_000_000)), 1, 2, world)
    world.barrier()


def fail(world):
    raise ValueError("a mistake of rank 1")


ENDS = {  # what rank 1 does where the others add
    "differs": lambda world: world.all_gather(np.ones(3_000_000), np.ones(1_000_000), label="w"),
    "stopped": lambda world: os.kill(os.getpid(), signal.SIGSTOP),
    "fails": fail,
    "leaves": lambda world: sys.exit(3),
}


def ends(world, how):
    """Each rank that hears how it ended prints it, and lets the error end the process."""
    world.barrier()
    try:
        if world.rank == 1:
            ENDS[how](world)
        while True:
            world.all_reduce(np.ones(1000), label="w")
    except parallel.CommunicationError as error:
        sys.stdout.write(f"rank {world.rank} heard: {error}\n")  # in one piece
        sys.stdout.flush()
        raise


# ---- tests -----------------------------------------------------------------------------------------------------------

PROGRAM = "-m", "tests.parallel.test_mpi"
LIMIT = 20  # seconds in which a job has to end after a rank failed, of which a start on a busy machine may take half


def run(ranks, *words, **variables):
    """(exit code, what was printed, seconds) of Python on so many ranks."""
    begun = time.monotonic()
    code, out, err = finished(started(MPIEXEC, "-n", ranks, sys.executable, *words, **variables))
    return code, out + err, time.monotonic() - begun


@pytest.mark.deep
@pytest.mark.parametrize("ranks, what", [(5, "collectives"), (4, "messages")])
def test_they_do_what_threads_do(ranks, what):
    code, said, _ = run(ranks, *PROGRAM, what)
    assert (code, said) == (0, "all right\n")


HEARD = {  # what rank 1 does: who hears of it, and what
    "differs": ({0, 1, 2}, "rank 1 does all_gather(float64(1000000,), label=w)"),
    "stopped": ({0, 2}, "no message from rank 1 came in time"),
    "leaves": ({0, 2}, "rank 1 has ended"),
    "fails": ({0, 2}, "rank 1 ended: ValueError: a mistake of rank 1"),
}


@pytest.mark.deep
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
        assert said.count("\nValueError: a mistake of rank 1\n") == 1, ("its own traceback", said)


@pytest.mark.deep
def test_a_rank_that_fails_before_it_begins_is_not_waited_for_and_an_mpi_for_one_thread_is_refused():
    """MPI begins in C, with all ranks."""
    code = "import mpi4py; mpi4py.rc.thread_level = 'single'; from minigrad import parallel; parallel.init()"
    code, said, _ = run(2, "-c", code)
    assert code and "MPI offers thread level 0, wanted 3 (multiple)" in said
    code = "import os; assert os.environ['PMI_RANK'] != '1'; from minigrad.parallel import world"
    code, said, seconds = run(2, "-c", f"{code}; world.START = 4; world.init()", MINIGRAD_TIMEOUT="4")
    assert code and seconds < LIMIT and "AssertionError" in said


def test_messages_and_pipelines_of_threads():
    on_ranks(messages, 4)


def main(program, *words):
    world = parallel.init(timeout=2.0 if "stopped" in words else 20.0)
    assert world.transport.name == "MPI"
    globals()[program](world, *words)
    if world.rank == 0:
        print("all right")


if __name__ == "__main__":
    main(*sys.argv[1:])
