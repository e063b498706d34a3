"""minigrad launch: what ranks are told, restarts, refusals, signals, and that nothing is left behind."""

import shutil
import signal
import sys

import pytest

from minigrad.cli import main
from minigrad.core.errors import MinigradError
from minigrad.parallel import mpi
from tests.parallel.launch_runs import HOST, gone_or_killed, launch, launched, pids, script

ALIVE = "while True: time.sleep(1)\n"


BODY = """
job = os.environ["MINIGRAD_JOB"]
print(rank, attempt, os.environ["MINIGRAD_TIMEOUT"], job, sys.argv[2:], __name__, sys.path[0] == folder)
print(f"error of {rank}", file=sys.stderr)
note(f"said.{attempt}.{rank}.{job}")
while not os.path.exists(f"{folder}/said.{attempt}.{1 - rank}.{job}"):  # else one might be ended before
    time.sleep(0.01)
if attempt == 0:
    sys.exit("in words") if rank else time.sleep(120)
"""


def test_ranks_are_told_who_they_are_and_restarts_are_used_up(tmp_path):
    """Rank 0 alone prints."""
    words = "-n", 2, "--timeout", 7, "--logs", "logs", "--hosts", "localhost:2"
    code, out, err = launch(tmp_path, *words, *script(tmp_path, BODY))
    (logs,) = (tmp_path / "logs").iterdir()
    told = [f"{{}} {attempt} 7 {logs.name} [] __main__ True" for attempt in (0, 1)]
    assert code == 0 and [line for line in out.splitlines() if "__main__" in line] == [one.format(0) for one in told]
    failed = f"launch: attempt 0: rank 1 on {HOST}: exited with code 1 (in words); "
    again = f"{failed}starting again (1 of 3 restarts); logs: {logs}/attempt-0"
    assert err.splitlines() == ["error of 0", again, "error of 0"]
    for attempt, line in enumerate(told):
        found = (logs / f"attempt-{attempt}/rank-1.log").read_text().splitlines()
        assert line.format(1) in found and found.count("error of 1") == 1
    code, _, err = launch(tmp_path, *words, "--max-restarts", 0, *script(tmp_path, BODY), "-n", "5")
    assert code == 1 and f"{failed}no restarts are left; logs: " in err and not pids(tmp_path, 2)


@pytest.mark.parametrize("missing", ["mpi4py", "mpiexec"])
def test_without_mpi_it_says_what_to_install(missing, tmp_path, monkeypatch, capsys):
    if missing == "mpi4py":
        monkeypatch.setitem(sys.modules, "mpi4py", None)
        with pytest.raises(MinigradError, match=r'MPI cannot be used .*pip install -e "\.\[mpi\]"'):
            mpi.MpiTransport()
    else:
        monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
        monkeypatch.setattr(shutil, "which", lambda name: None)
    assert main(["launch", "-n", "2", "minigrad", "train"]) == 2
    assert f'{missing} is not installed; pip install -e ".[mpi]"' in capsys.readouterr().err


def test_a_refusal_of_rank_0_is_printed_once_and_not_tried_again(tmp_path):
    words = ["--data", "digits", "--limit", "100", "--shards", "3", "--out", tmp_path / "run"]
    code, _, err = launch(tmp_path, "-n", 2, "minigrad", "train", *words)
    assert code == 2 and "it would refuse again" in err and "starting again" not in err
    assert err.count("shards is 3, wanted a multiple of the 2 ranks") == 1 and not (tmp_path / "run").exists()


# ---- nothing is left behind; signals ---------------------------------------------------------------------------------


def test_the_launcher_is_killed(tmp_path):
    with launched(tmp_path, "-n", 2, *script(tmp_path, ALIVE)) as head:
        assert pids(tmp_path, 0, 2)
        head.kill()
        assert not gone_or_killed(tmp_path)


TOLD = {  # what a rank does that is told to leave, the signal: (exit code, what is said)
    ("note(f'left-{rank}'), sys.exit(0)", signal.SIGTERM): (0, "stopped by signal 15\n"),
    ("note(f'left-{rank}'), sys.exit(0)", signal.SIGINT): (130, "stopped by signal 2\n"),
    ("rank or sys.exit(0)", signal.SIGTERM): (143, "stopped by signal 15; not all ranks left in time\n"),
}


@pytest.mark.parametrize("what, number", TOLD, ids=["leave", "leave by Ctrl-C", "one stays"])
def test_a_signal_lets_the_ranks_leave(tmp_path, what, number):
    code, said = TOLD[what, number]
    words = script(tmp_path, ALIVE, f"signal.signal(signal.SIGTERM, lambda *_: ({what}))\n")
    with launched(tmp_path, "-n", 2, "--grace", 1 if code == 143 else 30, *words) as head:
        assert pids(tmp_path, 0, 2)
        head.send_signal(number)
        _, err = head.communicate(timeout=30)
    assert head.returncode == code and err.endswith(f"launch: {said}") and not pids(tmp_path, 1)
    assert len(list(tmp_path.glob("left-?"))) == (2 if "left" in what else 0)
