"""minigrad train with shards: what one process can show of it; several ranks are in test_recovery.py."""

import json
import re
from pathlib import Path

import pytest

from minigrad.cli import main
from minigrad.optim import Adam
from tests.checkpoint_parts import index_of, tensors_file
from tests.cli_runs import elsewhere, lines_of  # noqa: F401

SMALL = ["train", "--data", "digits", "--epochs", "2", "--no-new-writers", "--batch-size", "64", "--shards", "4"]
SMALL += ["--no-report", "--limit", "200"]


def hash_in(lines):
    (found,) = [line for line in lines if line.startswith("weights hash ")]
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The hash of a run from beginning to end."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert main([*SMALL, "--out", str(folder)]) == 0
    return f"weights hash {json.loads((folder / 'result.json').read_text())['weights']}"


def stopped_after(monkeypatch, capsys, steps, arguments):
    """Train until so many updates are done, then lose the process."""

    class Killed(BaseException):
        pass

    step, done = Adam.step, []

    def counted(self, **numbers):
        if len(done) == steps:
            raise Killed
        done.append(1)
        return step(self, **numbers)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Adam, "step", counted)
        main(arguments)
    capsys.readouterr()


def test_shards_are_named_and_change_the_bits_and_zero_does_not(whole, capsys):
    for options, shards in ((["--shards", "2"], 2), (["--zero"], 4)):
        assert main([*SMALL, *options, "--out", f"of {shards}"]) == 0
        lines = lines_of(capsys)
        assert f"parallel: {shards} shards on 1 ranks (local)" in lines
        assert (hash_in(lines) == whole) == (shards == 4)


@pytest.mark.parametrize("torn", [False, True])
def test_continue_begins_and_goes_on(torn, whole, monkeypatch, capsys):
    """From the checkpoint before, where the newest is torn: at step 4 an epoch ends, so that is of step 4 too."""
    arguments = [*SMALL, "--out", "run", "--continue", "--save-every", "2"]
    stopped_after(monkeypatch, capsys, 5, arguments)
    assert index_of("run/last")["history"]["steps"] == 4
    if torn:
        with open(tensors_file("run/last"), "r+b") as file:
            file.truncate(1000)
    assert main(arguments) == 0
    lines = lines_of(capsys)
    said = (
        r"checkpoint: cannot load run/last/checkpoint-.*.json: weights-.* is damaged: .*; going on from the one before"
    )
    assert bool(re.match(said, lines[0])) == torn
    assert "run: run, from step 4 on" in lines and hash_in(lines) == whole
    assert main(arguments) == 0, "a run that is done is done"
    assert hash_in(lines_of(capsys)) == whole


def test_a_job_that_is_started_again_goes_on(whole, monkeypatch, capsys):
    monkeypatch.setenv("MINIGRAD_JOB", "job-1")
    stopped_after(monkeypatch, capsys, 3, [*SMALL, "--save-every", "1"])
    monkeypatch.setenv("MINIGRAD_ATTEMPT", "1")
    assert main([*SMALL, "--save-every", "1"]) == 0
    lines = lines_of(capsys)
    assert "run: runs/job-1-digits-digits-cnn, from step 3 on" in lines and hash_in(lines) == whole


def test_continue_refuses_other_options(capsys):
    assert main([*SMALL, "--out", "run"]) == 0
    for option, value in (("--lr", "0.5"), ("--shards", "2"), ("--epochs", "3")):
        assert main([*SMALL, "--out", "run", "--continue", option, value]) == 2
        assert f"run holds a run with another {option}; leave that out" in capsys.readouterr().err
    assert main([*SMALL, "--out", "run"]) == 2
    assert "go on with it by --resume run" in capsys.readouterr().err


REFUSED = {
    "want an integer of at least 1": ["--shards", "0"],
    "--sync-batch-norm wants as many ranks as shards": ["--shards", "3", "--sync-batch-norm"],
    "leaves less than 2 images for each of 64 shards": ["--model", "resnet", "--shards", "64"],
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_cannot_be_is_refused_before_any_work(said, capsys, tmp_path):
    assert main([*SMALL, *REFUSED[said], "--out", "run"]) == 2
    assert said in capsys.readouterr().err and not (tmp_path / "run").exists()


def test_the_last_batch_is_left_out_where_a_shard_of_it_would_have_one_image():
    resnet = ["--model", "resnet", "--epochs", "1", "--batch-size", "32", "--limit", "37"]
    assert main([*SMALL, *resnet, "--out", "run"]) == 0
    assert json.loads(Path("run/result.json").read_text())["step"] == 1
