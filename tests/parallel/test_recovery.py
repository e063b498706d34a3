"""One hash, whoever shares the work; whatever happens to one of them, the job is back soon and ends with that hash."""

import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from minigrad.cli import main
from minigrad.parallel import run_local
from tests.parallel import recovery_program
from tests.parallel.launch_runs import HOST, LAUNCH, MPIEXEC, finished, started, wait_for

PROGRAM, KINDS = Path(recovery_program.__file__), list(recovery_program.KINDS)
TIMEOUT = 4  # seconds that ranks wait for one another
LATE = 20  # seconds beyond it in which a job must be back


def launched(ranks, logs, *words, cwd=None):
    return started(*LAUNCH, "-n", ranks, "--timeout", TIMEOUT, "--logs", logs, *words, cwd=cwd)


# ---- whoever shares the work -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """{kind: line} of one rank; the hash does not depend on buckets and on how the state is divided."""
    (lines,) = run_local(recovery_program.all_of, 1, tmp_path_factory.mktemp("alone"), KINDS)
    found = dict(zip(KINDS, lines, strict=True))
    assert found["adam"] == found["zero"] and len(set(lines)) == len(KINDS) - 1
    return found


@pytest.mark.parametrize("ranks", [2, pytest.param(8, marks=pytest.mark.deep)])
def test_one_hash_in_threads(ranks, tmp_path, alone):
    assert run_local(recovery_program.all_of, ranks, tmp_path, KINDS) == [[*alone.values()]] * ranks


@pytest.mark.deep
@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_one_hash_by_mpiexec(ranks, tmp_path, alone):
    code, out, err = finished(started(MPIEXEC, "-n", ranks, sys.executable, PROGRAM, tmp_path, ",".join(KINDS)))
    assert (code, out.splitlines()) == (0, [*alone.values()]), err


# ---- whatever happens to one of them ---------------------------------------------------------------------------------


def job(folder, *words, ranks=4, options=()):
    """A launch of the program in a folder."""
    folder.mkdir(exist_ok=True)
    return launched(ranks, folder / "logs", *options, PROGRAM, folder, *words)


def moments(folder):
    """(time, what) of what rank 0 and the fault noted."""
    (times,) = folder.glob("*/times")
    lines = [line.split(" ", 1) for line in times.read_text().splitlines()]
    return [(float(moment), what) for moment, what in lines]


QUICK = "kill:2:10", "halt:1:8"  # and with --deep the others
FAULTS = {  # fault: (what is trained, how it is named)
    "kill:0:7": ("sgd", r"rank 0 on HOST: was killed by signal 9"),
    "kill:2:10": ("zero", r"rank 2 on HOST: was killed by signal 9"),
    "error:1:5": ("clipped", r"rank 1 on HOST: ValueError: a mistake of one rank"),
    "exit:3:8": ("accumulated", r"rank 3 on HOST: exited with code 3"),
    "halt:1:8": ("sgd", r"rank \d on HOST: .*no message from rank 1 came in time"),
    "tear:0:10": ("zero", r"rank 0 on HOST: was killed by signal 9"),
}


@pytest.mark.parametrize("fault", [pytest.param(f, marks=[pytest.mark.deep] * (f not in QUICK)) for f in FAULTS])
def test_a_job_is_back_after(fault, tmp_path, alone):
    kind, named = FAULTS[fault]
    code, out, err = finished(job(tmp_path / "job", kind, fault))
    assert (code, out.strip()) == (0, alone[kind]), err
    (line,) = [line for line in err.splitlines() if line.startswith("launch: ")]
    again = r".* after [\d.]+ s; starting again \(1 of 3 restarts\); logs: .*"
    assert re.fullmatch(f"launch: attempt 0: {named.replace('HOST', HOST)}{again}", line)
    at = next(moment for moment, what in moments(tmp_path / "job") if what == "fault")
    # The other ranks may end the step under way.
    back = next(moment for moment, what in moments(tmp_path / "job") if what != "fault" and moment > at + 0.3)
    assert back - at < LATE + TIMEOUT * fault.startswith("halt")


LEFT = {"kill:3:10": (1, "rank 3"), "leave:2:7": (0, "stopped at 7"), "wait:0:4": (0, "stopped at 4")}


@pytest.mark.deep
@pytest.mark.parametrize("fault", LEFT)
def test_fewer_ranks_go_on_where_a_job_was_left(fault, tmp_path, alone):
    """No restarts were left; one rank was told to leave, which takes all along; or the launcher was told."""
    running = job(tmp_path / "job", "sgd", fault, options=["--max-restarts", 0])
    if fault.startswith("wait"):
        assert wait_for(lambda: [*tmp_path.glob("job/*/times")] and moments(tmp_path / "job")[-1][1] == "fault")
        running.send_signal(signal.SIGTERM)
    code, out, err = finished(running)
    assert code == LEFT[fault][0] and LEFT[fault][1] in out + err, err
    code, out, err = finished(job(tmp_path / "job", ranks=2))
    assert (code, out.splitlines()) == (0, [alone["sgd"]]), err


# ---- the command -----------------------------------------------------------------------------------------------------

TRAIN = "minigrad train --data digits --epochs 2 --limit 500 --no-new-writers --batch-size 64 --shards 8".split()
QUIET = [*TRAIN, "--no-report"]


def weights(folder):
    return json.loads((folder / "result.json").read_text())["weights"]


@pytest.fixture(scope="module")
def by_command(tmp_path_factory):
    """The hash of a process that trains alone by the command."""
    folder = tmp_path_factory.mktemp("train") / "run"
    assert main([*QUIET[1:], "--out", str(folder)]) == 0
    return weights(folder)


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.deep)])
def test_the_command_by_the_launcher_goes_on_where_a_killed_rank_left_it(ranks, tmp_path, by_command):
    """The run is named after the job, so that the second attempt finds it."""
    running = launched(ranks, "logs", *TRAIN, "--zero", "--save-every", 5, cwd=tmp_path)
    assert wait_for(lambda: [*tmp_path.glob("runs/*/history.jsonl")], 60)  # after the first epoch
    os.kill(json.loads((tmp_path / "logs/attempt-0/rank-1.json").read_text())["pid"], signal.SIGKILL)
    code, out, err = finished(running)
    (run,) = tmp_path.glob("runs/*")
    assert code == 0 and err.count("starting again") == 1 and weights(run) == by_command, err
    assert out.count("epoch 2/2") == out.count("report: ") == 1, "rank 0 alone prints"
    page = (run / "report.html").read_text()
    assert by_command in page and f"<dt>ranks</dt><dd>{ranks}</dd>" in page


@pytest.mark.deep
def test_more_ranks_than_cores_with_nothing_compiled(tmp_path, by_command):
    """Each compiles what it needs; that takes some longer than others, and nobody gives up meanwhile."""
    command = [MPIEXEC, "-n", 8, sys.executable, "-m", *QUIET, "--out", tmp_path / "run"]
    code, _, err = finished(started(*command, MINIGRAD_CACHE=str(tmp_path / "cache")), 500)
    assert code == 0 and weights(tmp_path / "run") == by_command, err
