"""minigrad train with shards: one hash, whoever shares the work and whatever happens to one of the ranks."""

import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from minigrad.cli import main
from minigrad.optim import Adam
from tests.cli.cli_runs import elsewhere, lines_of  # noqa: F401
from tests.parallel.launch_runs import LAUNCH, MPIEXEC, finished, started, wait_for
from tests.train.checkpoint_parts import file_of, state_of

QUIET = "train --data digits --epochs 2 --limit 500 --batch-size 64 --shards 8 --no-report".split()


def weights(folder="run"):
    """The hash that a run ended with."""
    return json.loads((Path(folder) / "result.json").read_text())["weights"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """That of one process from beginning to end."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert main([*QUIET, "--out", str(folder)]) == 0
    return weights(folder)


# ---- one process -----------------------------------------------------------------------------------------------------


def stopped_after(monkeypatch, steps, arguments):
    """Train until so many updates are done, then lose the process."""
    step, left = Adam.step, [None] * steps
    with monkeypatch.context() as patch, pytest.raises(IndexError):
        patch.setattr(Adam, "step", lambda self, **numbers: (left.pop(), step(self, **numbers)))
        main(arguments)


@pytest.mark.parametrize("option, shards", [(["--shards", "2"], 2), (["--zero"], 8)])
def test_shards_are_named_and_change_the_bits_and_zero_does_not(option, shards, whole, capsys):
    assert main([*QUIET, *option, "--out", "run"]) == 0
    assert f"parallel: {shards} shards on 1 ranks (local)" in lines_of(capsys)
    assert (weights() == whole) == (shards == 8)


@pytest.mark.parametrize("torn", [False, True])
def test_continue_begins_and_goes_on(torn, whole, monkeypatch, capsys):
    """From the checkpoint before, where the newest is torn: at step 8 an epoch ends, so that is of step 8 too."""
    arguments = [*QUIET, "--out", "run", "--continue", "--save-every", "4"]
    stopped_after(monkeypatch, 9, arguments)
    capsys.readouterr()
    assert state_of("run/last")["history"]["steps"] == 8
    if torn:
        with open(file_of("run/last"), "r+b") as file:
            file.truncate(1000)
    assert main(arguments) == 0
    lines = lines_of(capsys)
    said = r"checkpoint: cannot load run/last/checkpoint-.*: .*; going on from the one before"
    assert bool(re.match(said, lines[0])) == torn
    assert "run: run, from step 8 on" in lines and weights() == whole
    assert main(arguments) == 0, "a run that is done is done"
    assert f"weights hash {whole}" in lines_of(capsys)


def test_shards_that_batch_norm_cannot_have_are_refused_before_any_work(capsys, tmp_path):
    assert main([*QUIET, "--model", "resnet", "--shards", "64", "--out", "run"]) == 2
    said = capsys.readouterr().err
    assert "leaves less than 2 images to each of 64 shards" in said and not (tmp_path / "run").exists()


# ---- several ranks ---------------------------------------------------------------------------------------------------

KINDS = ["--zero", "--clip", "0.1"], ["--optimizer", "sgd", "--accumulate", "2", "--model", "mlp"]


@pytest.mark.deep
@pytest.mark.parametrize("options", KINDS)
def test_eight_ranks_end_with_the_hash_of_one(options):
    assert main([*QUIET, *options, "--out", "one"]) == 0
    words = [sys.executable, "-m", "minigrad", *QUIET, *options, "--out", "run"]
    code, _, err = finished(started(MPIEXEC, "-n", 8, *words))
    assert code == 0 and weights() == weights("one"), err


ZERO = [*QUIET, "--zero", "--save-every", "5"]


def signalled(number, *options):
    """(run, exit code, output, errors) of a launch whose rank 1 gets a signal after the first epoch.

    The run is named after the job, so that another attempt finds it.
    """
    running = started(*LAUNCH, "-n", 2, "--timeout", 15, "--logs", "logs", *options, "minigrad", *ZERO)
    assert wait_for(lambda: [*Path("runs").glob("*/history.jsonl")], 60)
    (noted,) = Path("logs").glob("*/attempt-0/rank-1.json")
    os.kill(json.loads(noted.read_text())["pid"], number)
    (run,) = Path("runs").glob("*")
    return run, *finished(running)


BACK = [
    (signal.SIGKILL, "rank 1 on .*: was killed by signal 9; starting again"),
    pytest.param(signal.SIGSTOP, "rank 1 (came|did not take a message) in time", marks=pytest.mark.deep),
]


@pytest.mark.parametrize("number, named", BACK)
def test_a_launch_goes_on_where_a_rank_left_it(number, named, whole):
    run, code, out, err = signalled(number)
    assert code == 0 and err.count("starting again") == 1 and re.search(named, err) and weights(run) == whole, err
    assert out.count("epoch 2/2") == 1, "rank 0 alone prints"


@pytest.mark.deep
@pytest.mark.parametrize("number, code", [(signal.SIGKILL, 1), (signal.SIGTERM, 0)])
def test_one_process_goes_on_where_a_job_was_left(number, code, whole):
    """No restarts were left; or one rank was told to leave, which takes all along."""
    run, found, _, err = signalled(number, "--max-restarts", 0)
    assert found == code and not (run / "result.json").exists(), err
    assert main([*ZERO, "--out", str(run), "--continue"]) == 0 and weights(run) == whole
