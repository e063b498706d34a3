"""minigrad train with shards: what one process can show of it; several ranks are in test_parallel_recovery."""

import json
import re
from pathlib import Path

import pytest

from minigrad.cli import main

from .checkpoint_parts import index_of, tensors_file
from .cli_runs import elsewhere, lines_of  # noqa: F401

SHARDED = ["train", "--data", "digits", "--epochs", "2", "--no-new-writers", "--batch-size", "64", "--shards", "4"]
SHARDED += ["--no-report"]
SMALL = [*SHARDED, "--limit", "200"]


def hash_in(lines):
    (found,) = [line for line in lines if line.startswith("weights hash ")]
    return found


@pytest.fixture
def whole(capsys):
    """The hash of a run from beginning to end."""
    assert main([*SMALL, "--out", "whole"]) == 0
    return hash_in(lines_of(capsys))


def stopped_after(monkeypatch, steps, arguments):
    """Train until so many updates are done, then lose the process."""
    from minigrad.optim import Adam

    class Killed(BaseException):
        pass

    step, done = Adam.step, []

    def counted(self, **numbers):
        if len(done) == steps:
            raise Killed
        done.append(1)
        return step(self, **numbers)

    with monkeypatch.context() as patch:
        patch.setattr(Adam, "step", counted)
        with pytest.raises(Killed):
            main(arguments)


def test_shards_are_named_and_change_the_bits(whole, capsys):
    assert main([*SMALL, "--shards", "2", "--out", "two"]) == 0
    lines = lines_of(capsys)
    assert "parallel: 2 shards on 1 ranks (local)" in lines and hash_in(lines) != whole
    assert json.loads(Path("two/result.json").read_text())["weights"] == hash_in(lines).split()[-1]


def test_zero_and_sync_batch_norm_change_nothing_on_one_rank(whole, capsys):
    assert main([*SMALL, "--zero", "--out", "zero"]) == 0
    assert hash_in(lines_of(capsys)) == whole


def test_continue_begins_and_goes_on(whole, monkeypatch, capsys):
    arguments = [*SMALL, "--out", "run", "--continue", "--save-every", "2"]
    stopped_after(monkeypatch, 5, arguments)
    assert index_of("run/last")["history"]["steps"] == 4
    capsys.readouterr()
    assert main(arguments) == 0
    lines = lines_of(capsys)
    assert "run: run, from step 4 on" in lines and hash_in(lines) == whole
    assert main(arguments) == 0, "a run that is done is done"
    assert hash_in(lines_of(capsys)) == whole


def test_a_job_that_is_started_again_goes_on(whole, monkeypatch, capsys):
    monkeypatch.setenv("MINIGRAD_JOB", "job-1")
    stopped_after(monkeypatch, 3, [*SMALL, "--save-every", "1"])
    monkeypatch.setenv("MINIGRAD_ATTEMPT", "1")
    capsys.readouterr()
    assert main([*SMALL, "--save-every", "1"]) == 0
    lines = lines_of(capsys)
    assert "run: runs/job-1-digits-digits-cnn, from step 3 on" in lines and hash_in(lines) == whole


def test_a_torn_checkpoint_costs_what_came_after_the_one_before(whole, monkeypatch, capsys):
    arguments = [*SMALL, "--out", "run", "--continue", "--save-every", "2"]
    stopped_after(monkeypatch, 5, arguments)
    with open(tensors_file("run/last"), "r+b") as file:
        file.truncate(1000)
    capsys.readouterr()
    assert main(arguments) == 0
    lines = lines_of(capsys)
    assert re.match(
        r"checkpoint: cannot load run/last/checkpoint-.*.json: weights-.* is damaged: .*; going on from the one before",
        lines[0],
    )
    # At step 4 an epoch ends: the one before is of that step too, with the test still to come.
    assert "run: run, from step 4 on" in lines and hash_in(lines) == whole


def test_continue_refuses_other_options(capsys):
    assert main([*SMALL, "--out", "run"]) == 0
    for option, value in (("--lr", "0.5"), ("--shards", "2"), ("--epochs", "3")):
        assert main([*SMALL, "--out", "run", "--continue", option, value]) == 2
        assert f"run holds a run with another {option}; give its own options" in capsys.readouterr().err
    assert main([*SMALL, "--out", "run"]) == 2
    assert "go on with it by --resume run" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words, said",
    [
        (["--shards", "0"], "want an integer of at least 1"),
        (["--shards", "3", "--sync-batch-norm"], "--sync-batch-norm wants as many ranks as shards"),
        (
            ["--data", "digits", "--model", "resnet", "--shards", "64"],
            "leaves less than 2 images for each of 64 shards",
        ),
        (["--wire", "int8"], "invalid choice"),
    ],
)
def test_what_cannot_be_is_refused_before_any_work(words, said, capsys, tmp_path):
    assert main([*SMALL, *words, "--out", "run"]) == 2
    assert said in capsys.readouterr().err and not (tmp_path / "run").exists()


def test_the_last_batch_is_left_out_where_a_shard_of_it_would_have_one_image(capsys):
    resnet = ["--model", "resnet", "--epochs", "1", "--batch-size", "32", "--shards", "4", "--limit", "37"]
    assert main(["train", "--data", "digits", "--no-new-writers", *resnet, "--no-report", "--out", "run"]) == 0
    assert json.loads(Path("run/result.json").read_text())["step"] == 1
